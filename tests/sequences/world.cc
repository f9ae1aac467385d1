// SPDX-License-Identifier: Apache-2.0
#include "tests/sequences/world.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace gpuloom::sequences {
namespace {

// Asks until the answer is not NOT_READY.
template <typename Ask>
void AskUntilDone(const char* function, Ask ask) {
  for (;;) {
    const CUresult result = ask();
    if (result != CUDA_ERROR_NOT_READY) return Judge(function, result);
    std::this_thread::yield();
  }
}

}  // namespace

const char* NameOf(Place place) {
  static const char* const kNames[] = {"device",     "pooled", "managed", "pinned",
                                       "registered", "mapped", "variable"};
  return kNames[static_cast<int>(place)];
}

World::World(Shared* shared, int index) : shared_(shared), index_(index), journal_(index) {}

void World::Begin(uint64_t seed) {
  random_ = Random(seed);
  journal_.Begin("begin");
  auto legacy = std::make_shared<StreamObject>();
  legacy->legacy = true;
  legacy->handle = random_.Chance(50) ? nullptr : reinterpret_cast<CUstream>(uintptr_t{1});
  streams.push_back(legacy);
  auto own = std::make_shared<StreamObject>();
  own->per_thread = true;
  own->handle = reinterpret_cast<CUstream>(uintptr_t{2});  // CU_STREAM_PER_THREAD
  streams.push_back(own);
}

// ---- order

void World::Join(const StreamRef& stream, Uses* uses) {
  for (const Use& use : *uses) {
    if (use.event != nullptr) {
      if (random_.Chance(80)) {
        DO(cuStreamWaitEvent, stream->handle, use.event->handle, 0);
      } else {
        DO(cuEventSynchronize, use.event->handle);
      }
      continue;
    }
    if (use.stream == stream) continue;
    const bool barrier = (stream->legacy && use.stream->blocking && use.stream->green == nullptr) ||
                         (use.stream->legacy && stream->blocking && stream->green == nullptr);
    if (barrier && random_.Chance(70)) continue;
    switch (random_.Below(10)) {
      case 0:
        DO(cuStreamSynchronize, use.stream->handle);
        break;
      case 1:
        AskUntilDone("cuStreamQuery", [&] { return Cu().cuStreamQuery(use.stream->handle); });
        break;
      case 2:
      case 3:
        if (!events.empty()) {  // one that was used before
          const EventRef event = random_.Of(events);
          Record(event, use.stream);
          DO(cuStreamWaitEvent, stream->handle, event->handle, 0);
          break;
        }
        [[fallthrough]];
      default: {
        const EventRef event = MakeEvent(CU_EVENT_DISABLE_TIMING);
        Record(event, use.stream);
        DO(cuStreamWaitEvent, stream->handle, event->handle, 0);
      }  // the event goes while it may be pending
    }
  }
  uses->clear();
  uses->push_back({stream, nullptr});
}

void World::AddUse(const StreamRef& stream, Uses* uses) {
  for (const Use& use : *uses) {
    if (use.stream == stream) return;
  }
  uses->push_back({stream, nullptr});
}

void World::Finish(Uses* uses) {
  for (const Use& use : *uses) {
    if (use.event != nullptr) {
      if (random_.Chance(70)) {
        DO(cuEventSynchronize, use.event->handle);
      } else {
        AskUntilDone("cuEventQuery", [&] { return Cu().cuEventQuery(use.event->handle); });
      }
      continue;
    }
    switch (random_.Below(8)) {
      case 0:
        AskUntilDone("cuStreamQuery", [&] { return Cu().cuStreamQuery(use.stream->handle); });
        break;
      case 1: {
        const EventRef event =
            MakeEvent(random_.Chance(50) ? CU_EVENT_BLOCKING_SYNC : CU_EVENT_DEFAULT);
        Record(event, use.stream);
        DO(cuEventSynchronize, event->handle);
        break;
      }
      case 2:
        if (use.stream->green == nullptr) {
          SynchronizeContext();
          break;
        }
        [[fallthrough]];
      default:
        DO(cuStreamSynchronize, use.stream->handle);
    }
  }
  uses->clear();
}

void World::ForEachUses(const std::function<void(Uses*)>& visit) {
  for (const BufferRef& buffer : buffers) visit(&buffer->uses);
  for (const ArrayRef& array : arrays) visit(&array->uses);
  for (const ModuleRef& module : modules) {
    if (module->shared) continue;
    visit(&module->uses);
    visit(&module->table->uses);
    if (module->board != nullptr) visit(&module->board->uses);
  }
}

void World::Detach(const StreamRef& stream) {
  EventRef event;
  ForEachUses([&](Uses* uses) {
    for (Use& use : *uses) {
      if (use.stream != stream) continue;
      if (event == nullptr) {
        event = MakeEvent(random_.Chance(50) ? CU_EVENT_DISABLE_TIMING : CU_EVENT_DEFAULT);
        Record(event, stream);
      }
      use = {nullptr, event};
    }
  });
}

EventRef World::MakeEvent(unsigned flags) {
  auto event = std::make_shared<EventObject>();
  event->number = NextNumber();
  event->flags = flags;
  DO(cuEventCreate, &event->handle, flags);
  return event;
}

void World::Record(const EventRef& event, const StreamRef& stream) {
  DO(cuEventRecord, event->handle, stream->handle);
  event->recorded = true;
}

void World::SynchronizeContext() {
  // It would break another thread's capture.
  std::unique_lock<std::shared_mutex> lock(shared_->captures);
  DO(cuCtxSynchronize);
}

StreamRef World::AnyStream() {
  // The default streams less often than all others together.
  if (streams.size() > 2 && random_.Chance(75)) {
    return streams[2 + random_.Below(static_cast<uint32_t>(streams.size() - 2))];
  }
  return random_.Of(streams);
}

StreamRef World::AnyOwnStream() {
  std::vector<StreamRef> own;
  for (const StreamRef& stream : streams) {
    if (!stream->legacy && !stream->per_thread) own.push_back(stream);
  }
  return own.empty() ? nullptr : random_.Of(own);
}

// ---- memory

BufferRef World::AnyBuffer(const std::function<bool(const Buffer&)>& wanted) {
  std::vector<BufferRef> found;
  for (const BufferRef& buffer : buffers) {
    if (wanted(*buffer)) found.push_back(buffer);
  }
  return found.empty() ? nullptr : random_.Of(found);
}

void World::AnyPart(const Buffer& buffer, uint32_t most, uint32_t* first, uint32_t* count) {
  *count = random_.Between(1, std::min(buffer.size(), most));
  *first = random_.Below(buffer.size() - *count + 1);
}

size_t World::words() const {
  size_t sum = 0;
  for (const BufferRef& buffer : buffers) sum += buffer->words.size();
  return sum;
}

namespace {

void Compare(const char* what, uint32_t number, const std::vector<uint32_t>& wanted,
             const uint32_t* found) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == found[i]) continue;
    size_t wrong = 0;
    for (size_t k = i; k < wanted.size(); ++k) wrong += wanted[k] != found[k];
    char text[256];
    std::snprintf(text, sizeof(text),
                  "%s %u of %zu words: word %zu is %08x and must be %08x; %zu words are wrong",
                  what, number, wanted.size(), i, found[i], wanted[i], wrong);
    Fail(text);
  }
}

}  // namespace

void World::Verify(const BufferRef& buffer) {
  const bool directly = buffer->host != nullptr && random_.Chance(80);
  const StreamRef stream = buffer->uses.size() == 1 && buffer->uses[0].stream != nullptr
                               ? buffer->uses[0].stream
                               : nullptr;
  if (directly) {
    Finish(&buffer->uses);
    return Compare(NameOf(buffer->place), buffer->number, buffer->words, buffer->host);
  }
  std::vector<uint32_t> found(buffer->size());
  const size_t bytes = found.size() * sizeof(uint32_t);
  if (stream != nullptr && random_.Chance(50)) {
    // To pageable memory: complete when the call returns.
    DO(cuMemcpyDtoHAsync_v2, found.data(), buffer->device, bytes, stream->handle);
  } else {
    // The legacy stream's barrier orders some.
    const bool ordered = stream != nullptr && stream->green == nullptr &&
                         (stream->legacy || (stream->blocking && random_.Chance(50)));
    if (!ordered) Finish(&buffer->uses);
    DO(cuMemcpyDtoH_v2, found.data(), buffer->device, bytes);
  }
  Compare(NameOf(buffer->place), buffer->number, buffer->words, found.data());
}

void World::Free(BufferRef buffer) {
  journal_.Note("%s %u", NameOf(buffer->place), buffer->number);
  buffer->gone = true;
  Remove(&buffers, buffer);
  switch (buffer->place) {
    case Place::kDevice:
    case Place::kManaged:
      Finish(&buffer->uses);
      DO(cuMemFree_v2, buffer->device);
      return;
    case Place::kPooled:
      if (random_.Chance(25)) {
        Finish(&buffer->uses);
        DO(cuMemFree_v2, buffer->device);
      } else {
        const StreamRef stream = AnyStream();
        Join(stream, &buffer->uses);
        DO(cuMemFreeAsync, buffer->device, stream->handle);
      }
      return;
    case Place::kPinned:
      Finish(&buffer->uses);
      DO(cuMemFreeHost, buffer->host);
      return;
    case Place::kRegistered:
      Finish(&buffer->uses);
      DO(cuMemHostUnregister, buffer->host);
      Compare("memory that was registered", buffer->number, buffer->words, buffer->host);
      munmap(buffer->pages, buffer->pages_bytes);
      return;
    case Place::kMapped:
      Finish(&buffer->uses);
      DO(cuMemUnmap, buffer->device, buffer->reserved_bytes);
      if (buffer->physical != 0) DO(cuMemRelease, buffer->physical);
      DO(cuMemAddressFree, buffer->device, buffer->reserved_bytes);
      return;
    case Place::kVariable:
      return;
  }
}

// ---- ends

void World::DestroyStream(StreamRef stream) {
  journal_.Note("stream %u", stream->number);
  Detach(stream);
  Remove(&streams, stream);
  DO(cuStreamDestroy_v2, stream->handle);
}

void World::DestroyExec(ExecRef exec) {
  Remove(&execs, exec);
  DO(cuGraphExecDestroy, exec->handle);
  if (exec->graph != nullptr) DO(cuGraphDestroy, exec->graph);
}

void World::DestroyArray(ArrayRef array) {
  Remove(&arrays, array);
  Finish(&array->uses);
  if (array->texture != 0) DO(cuTexObjectDestroy, array->texture);
  if (array->surface != 0) DO(cuSurfObjectDestroy, array->surface);
  if (array->mipmap != nullptr) {
    DO(cuMipmappedArrayDestroy, array->mipmap);
  } else {
    DO(cuArrayDestroy, array->array);
  }
}

void World::Unload(ModuleRef module) {
  journal_.Note("module %u", module->number);
  Finish(&module->uses);
  Finish(&module->table->uses);
  if (module->board != nullptr) Finish(&module->board->uses);
  module->gone = module->table->gone = true;
  if (module->board != nullptr) module->board->gone = true;
  Remove(&modules, module);
  if (module->library != nullptr) {
    DO(cuLibraryUnload, module->library);
  } else {
    DO(cuModuleUnload, module->module);
  }
}

Parcel World::Pack() {
  Parcel parcel;
  journal_.Begin("pack");
  for (uint32_t i = random_.Below(3); i-- > 0 && !buffers.empty();) {
    const BufferRef buffer = random_.Of(buffers);
    journal_.Note("buffer %u", buffer->number);
    for (Use& use : buffer->uses) {
      if (use.stream == nullptr) continue;
      const EventRef event = MakeEvent(CU_EVENT_DISABLE_TIMING);
      Record(event, use.stream);
      use = {nullptr, event};
    }
    for (size_t k = execs.size(); k-- > 0;) {
      const auto& used = execs[k]->buffers;
      if (std::find(used.begin(), used.end(), buffer) != used.end()) DestroyExec(execs[k]);
    }
    Remove(&buffers, buffer);
    parcel.buffers.push_back(buffer);
  }
  const StreamRef stream = AnyOwnStream();
  if (stream != nullptr && stream->green == nullptr && random_.Chance(50)) {
    journal_.Note("stream %u", stream->number);
    Detach(stream);
    Remove(&streams, stream);
    parcel.streams.push_back(stream);
  }
  if (!events.empty() && random_.Chance(50)) {
    const EventRef event = random_.Of(events);
    Remove(&events, event);
    parcel.events.push_back(event);
  }
  return parcel;
}

void World::Unpack(const Parcel& parcel) {
  buffers.insert(buffers.end(), parcel.buffers.begin(), parcel.buffers.end());
  streams.insert(streams.end(), parcel.streams.begin(), parcel.streams.end());
  events.insert(events.end(), parcel.events.begin(), parcel.events.end());
}

void World::Settle() {
  for (const BufferRef& buffer : buffers) Verify(buffer);
  for (const ModuleRef& module : modules) {
    if (module->shared) continue;
    Verify(module->table);
    if (module->board != nullptr) Verify(module->board);
  }
}

void World::End(bool everything) {
  journal_.Begin(everything ? "end" : "end before a reset");
  Settle();
  while (!execs.empty()) DestroyExec(execs.back());
  for (size_t i = buffers.size(); i-- > 0;) {
    const Place place = buffers[i]->place;
    // What a reset leaves.
    const bool stays =
        place == Place::kPooled || place == Place::kRegistered || place == Place::kMapped;
    if (everything || stays) Free(buffers[i]);
  }
  if (everything) {
    while (!arrays.empty()) DestroyArray(arrays.back());
  }
  for (size_t i = modules.size(); i-- > 0;) {
    if (!modules[i]->shared && (everything || modules[i]->library != nullptr)) Unload(modules[i]);
  }
  for (const PoolRef& pool : pools) DO(cuMemPoolDestroy, pool->handle);
  pools.clear();
  for (size_t i = streams.size(); i-- > 0;) {
    if (streams[i]->legacy || streams[i]->per_thread) continue;
    if (everything || streams[i]->green != nullptr) DestroyStream(streams[i]);
  }
  for (const GreenRef& green : greens) DO(cuGreenCtxDestroy, green->handle);
  greens.clear();
  if (!everything) {
    for (const EventRef& event : events) event->lost = true;
    ForEachUses([](Uses* uses) {
      for (const Use& use : *uses) {
        if (use.event != nullptr) use.event->lost = true;
      }
    });
  }
  events.clear();
  buffers.clear();
  arrays.clear();
  modules.clear();
  streams.clear();
}

}  // namespace gpuloom::sequences
