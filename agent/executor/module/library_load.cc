// SPDX-License-Identifier: Apache-2.0
// Loading images: what a tenant sends, or names by its hash (docs/design/module-loading.md).
#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/module/loading.h"
#include "agent/executor/process/log.h"
#include "agent/executor/session/work_pool.h"

namespace gpuloom::executor {
namespace {

// Far larger than any image in CUDA's own libraries; bounds how much one load can make us copy.
constexpr uint64_t kMaxImageBytes = 1u << 30;

// Whether the hash is computed before loading: of small images no tenant has asked by hash.
bool HashFirst(uint64_t image_bytes) {
  return image_bytes < wire::kByHashBytes || !HashesImagesFast();
}

}  // namespace

void LibraryLoader::On(wire::Tag<wire::LibraryLoad>, const wire::LibraryLoad::Request& request,
                       const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.image);
  const uint64_t size_bytes = request.image_bytes;
  if (size_bytes == 0 || !host_->range.Contains(address, size_bytes)) {
    return Refuse(wire::Fatal::kBadRange);
  }
  if (libraries_.Add(request.library) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  auto loading = std::make_shared<Loading>(CallerOf(record), request.library, left_, tenant_.get(),
                                           host_->budget);
  // With Loading's initial result, CUDA_ERROR_INVALID_IMAGE.
  if (size_bytes > kMaxImageBytes) return AnswerLoad(*loading);
  modules_.Post(
      // A small image is hashed at once, so that a known one need not be examined again. An honest
      // tenant has asked for the hash of a large one before, so that one is new.
      [loading, host = host_, cache = services_.libraries, address, size_bytes] {
        loading->Copy(*host, address, size_bytes);
        if (loading->fresh != nullptr && HashFirst(size_bytes)) loading->Hash(*cache);
      },
      // Releases the arena, on this thread.
      [this, loading, held = host_] {
        if (!serving()) return;
        if (loading->fresh == nullptr) return AnswerLoad(*loading);
        if (loading->is_hashed && LoadWhatIsKnown(loading)) return;
        LoadFresh(loading);
      });
}

// Neither taken from the cache nor put into it: the result depends on this tenant's options.
void LibraryLoader::On(wire::Tag<wire::LibraryCompile>,
                       const wire::LibraryCompile::Request& request, const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.image);
  const uint64_t size_bytes = request.image_bytes;
  if (size_bytes == 0 || !host_->range.Contains(address, size_bytes)) {
    return Refuse(wire::Fatal::kBadRange);
  }
  if (const wire::Fatal fatal = JudgeTexts(host_->range, request.texts, request.info_capacity_bytes,
                                           request.error_capacity_bytes);
      fatal != wire::Fatal::kNone) {
    return Refuse(fatal);
  }
  if (record.payload.size() % sizeof(wire::LinkOption) != 0) {
    return Refuse(wire::Fatal::kRecordSize);
  }
  auto loading = std::make_shared<Loading>(CallerOf(record), request.library, left_, tenant_.get(),
                                           host_->budget);
  if (!loading->jit.Add(record.payload)) return Refuse(wire::Fatal::kBadArgument);
  if (libraries_.Add(request.library) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  modules_.Post(
      [loading, host = host_, address, size_bytes] {
        if (size_bytes <= kMaxImageBytes) loading->Copy(*host, address, size_bytes);
      },
      // Releases the arena, on this thread, so that compiling does not hold it.
      [this, loading, request, held = host_] {
        if (serving()) CompileFresh(loading, request);
      });
}

// `then` runs on this thread while the session lives.
void LibraryLoader::Look(const std::shared_ptr<Loading>& loading, bool whole,
                         std::function<void()> then) {
  modules_.PostNext(
      [loading, whole, device = services_.device, cache = services_.libraries] {
        if (loading->fresh != nullptr) loading->Look(device, *cache, whole);
      },
      [this, loading, then = std::move(then)] {
        if (!loading->NeedsReading()) {
          if (serving()) then();
          return;
        }
        // Unloaded in a quiet moment, as all libraries, also if the session has ended.
        auto text =
            std::make_shared<LoadedLibrary>(services_.quiet, nullptr, &services_.device->cuda());
        text->handle = loading->managed->TakeText();
        if (!serving()) return;
        loaded_->UseLibrary(
            text,
            [loading, handle = text->handle, &cuda = services_.device->cuda()] {
              loading->ReadManaged(cuda, handle);
              return true;
            },
            [this, loading, then] {
              if (!serving()) return;
              modules_.PostNext(
                  [loading, device = services_.device, cache = services_.libraries] {
                    loading->FinishLook(device, *cache);
                  },
                  [this, then] {
                    if (serving()) then();
                  });
            });
      });
}

// The same steps as LoadFresh, but for what is remembered: look, pay, load, and then write the
// compiler's texts into the arena.
void LibraryLoader::CompileFresh(const std::shared_ptr<Loading>& loading,
                                 const wire::LibraryCompile::Request& request) {
  Look(loading, /*whole=*/true, [this, loading, request] {
    Charge(loading->device_bytes(),
           [this, loading, request](CUresult charged, DeviceChargeRef charge) {
             loading->Pay(charged, std::move(charge));
             modules_.PostNext([loading, device = services_.device] { loading->Load(device); },
                               [this, loading, request] {
                                 UnloadTried(loading.get());
                                 // Unloads it again if the session has ended.
                                 HoldLibrary(loading.get());
                                 if (serving()) AnswerCompile(loading, request);
                               });
           });
  });
}

void LibraryLoader::AnswerCompile(const std::shared_ptr<Loading>& loading,
                                  const wire::LibraryCompile::Request& request) {
  modules_.PostNext(
      [loading, host = host_, request] {
        loading->report =
            loading->jit.Report(*host, static_cast<uint64_t>(request.texts),
                                request.info_capacity_bytes, request.error_capacity_bytes);
      },
      [this, loading, held = host_] {
        if (!serving()) return;
        wire::LibraryCompile::Reply reply{};
        reply.report = loading->report;
        reply.result = static_cast<uint32_t>(loading->result);
        if (loading->managed != nullptr) {
          reply.managed_bytes = static_cast<uint32_t>(loading->managed->size_bytes());
          // The load goes on with LibraryPlace, when the tenant has chosen an address.
          libraries_.Find(loading->id)->placing = loading;
        } else {
          reply.kernel_count = loading->kernel_count;
          Settle(*loading);
        }
        Reply<wire::LibraryCompile>(loading->caller, CUDA_SUCCESS, reply);
      });
}

void LibraryLoader::On(wire::Tag<wire::LibraryLoadByHash>,
                       const wire::LibraryLoadByHash::Request& request,
                       const wire::Record& record) {
  if (libraries_.Add(request.library) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  auto loading = std::make_shared<Loading>(CallerOf(record), request.library, left_, tenant_.get(),
                                           host_->budget);
  loading->by_hash = loading->is_hashed = true;
  loading->hash = {{request.hash[0], request.hash[1], request.hash[2], request.hash[3]}};
  if (LoadWhatIsKnown(loading)) return;
  // Not known: the tenant sends the image, under the same id if it likes.
  libraries_.Take(request.library);
  Reply<wire::LibraryLoadByHash>(loading->caller, CUDA_SUCCESS, {0, 0});
}

void LibraryLoader::On(wire::Tag<wire::LibrarySizeKnown>,
                       const wire::LibrarySizeKnown::Request& request, const wire::Record& record) {
  const bool known = services_.libraries->KnowsSize(request.image_bytes);
  Reply<wire::LibrarySizeKnown>(CallerOf(record), CUDA_SUCCESS, {known ? 1u : 0u, 0});
}

// Returns false if no image with its hash is known. Otherwise the answer follows: either the
// domain's loaded library is shared, or, where the image has variables or the library is no longer
// there, its bytes are loaded once more.
bool LibraryLoader::LoadWhatIsKnown(const std::shared_ptr<Loading>& loading) {
  LibraryCache::Known known = services_.libraries->Find(loading->hash, now_ns());
  if (known.image == nullptr) return false;
  loading->is_known = true;
  // The copy has served for the hash only.
  loading->fresh.reset();
  loading->image = std::move(known.image);
  // A session pays for what it shares, even though another one has loaded it.
  loading->cost->host.ShrinkTo(0);
  if (!loading->Afford(loading->image->cost_bytes)) {
    AnswerLoad(*loading);
    return true;
  }
  Charge(loading->image->device_bytes, [this, loading, shared = std::move(known.library)](
                                           CUresult charged, DeviceChargeRef charge) {
    loading->Pay(charged, std::move(charge));
    if (!serving()) return;
    if (charged != CUDA_SUCCESS) return AnswerLoad(*loading);
    if (shared != nullptr) {
      loading->result = CUDA_SUCCESS;
      loading->kernel_count = shared->kernel_count;
      loading->library = shared;
      return AnswerLoad(*loading);
    }
    modules_.Post([loading, device = services_.device] { loading->LoadKnown(device); },
                  [this, loading] { FinishLoad(loading); });
  });
  return true;
}

// Loads an image that nobody has loaded before, before the next one is copied.
void LibraryLoader::LoadFresh(const std::shared_ptr<Loading>& loading) {
  Look(loading, /*whole=*/loading->went_back, [this, loading] {
    Charge(loading->device_bytes(), [this, loading](CUresult charged, DeviceChargeRef charge) {
      loading->Pay(charged, std::move(charge));
      modules_.PostNext([loading, device = services_.device] { loading->Load(device); },
                        [this, loading] {
                          UnloadTried(loading.get());
                          if (!loading->GoBackToFatbin(services_.device)) {
                            FinishLoad(loading);
                          } else if (serving()) {
                            LoadFresh(loading);
                          }
                        });
    });
  });
}

void LibraryLoader::FinishLoad(const std::shared_ptr<Loading>& loading) {
  // If the session has ended, this unloads it again, and no other session gets it.
  HoldLibrary(loading.get());
  if (!serving()) return;
  if (loading->managed != nullptr) {
    // Never remembered.
    loading->DropSent();
    const auto bytes = static_cast<uint32_t>(loading->managed->size_bytes());
    libraries_.Find(loading->id)->placing = loading;
    return Reply<wire::LibraryLoad>(loading->caller, CUDA_SUCCESS, {0, bytes});
  }
  // Before the tenant can name it. Others get it later, as it is then.
  if (loading->library != nullptr) loading->library->shared = !loading->image->has_variables;
  AnswerLoad(*loading);
  Remember(loading);
}

// In a quiet moment, as all libraries.
void LibraryLoader::UnloadTried(Loading* loading) const {
  if (loading->tried == nullptr) return;
  LoadedLibrary tried(services_.quiet, nullptr, &services_.device->cuda());
  tried.handle = std::exchange(loading->tried, nullptr);
}

// Gives the driver's library an owner that unloads it, before anything can end the load.
void LibraryLoader::HoldLibrary(Loading* loading) const {
  if (loading->handle == nullptr) return;
  loading->library =
      std::make_shared<LoadedLibrary>(services_.quiet, services_.chains, &services_.device->cuda());
  LoadedLibrary& library = *loading->library;
  library.handle = loading->handle;
  library.image = loading->image;
  library.cost = loading->cost;
  library.kernel_count = loading->kernel_count;
  library.prints = loading->image->prints;
}

void LibraryLoader::AnswerLoad(const Loading& loading) {
  if (loading.by_hash) {
    return AnswerLoad<wire::LibraryLoadByHash>(loading.caller, loading, {loading.kernel_count, 1});
  }
  AnswerLoad<wire::LibraryLoad>(loading.caller, loading, {loading.kernel_count, 0});
}

// The load is over, with or without success: the id gets its library, or is free again.
void LibraryLoader::Settle(const Loading& loading) {
  if (loading.is_damaged) {
    LogFor(&tenant_->lines, LogLevel::kWarning,
           "session %llu (%s): an image whose structure leads nowhere was not loaded",
           static_cast<unsigned long long>(id()), label());
  }
  services_.device->JudgeImage(loading.result);
  const uint64_t image_bytes = loading.image == nullptr ? 0 : loading.image->bytes.size() - 1;
  Log(LogLevel::kDebug,
      "load: %s bytes=%llu copy=%.2f look=%.2f load=%.2f ms variables=%d result=%d",
      loading.by_hash    ? "by hash"
      : loading.is_known ? "known"
                         : "new",
      static_cast<unsigned long long>(image_bytes), loading.copy_ms, loading.look_ms,
      loading.load_ms, loading.image != nullptr && loading.image->has_variables ? 1 : 0,
      static_cast<int>(loading.result));
  if (loading.result == CUDA_SUCCESS) {
    Library* library = libraries_.Find(loading.id);
    library->loaded = loading.library;
    library->cost = loading.cost;
  } else {
    libraries_.Take(loading.id);
  }
}

// For future tenants. This tenant already has its answer, because hashing a large image takes a
// while; meanwhile others learn that it is worth asking.
void LibraryLoader::Remember(const std::shared_ptr<Loading>& loading) {
  if (loading->result != CUDA_SUCCESS) return;
  LibraryCache* cache = services_.libraries;
  if (loading->is_hashed) {
    return cache->Add(loading->hash, loading->image, loading->library, now_ns());
  }
  cache->Expect(loading->image->sent_bytes);
  services_.modules->Post([loading, cache] { loading->HashLoaded(*cache); },
                          [loading, cache, now_ns = now_ns()] {
                            loading->DropSent();
                            cache->Add(loading->hash, loading->image, loading->library, now_ns);
                            cache->Expected(loading->image->sent_bytes);
                          });
}

}  // namespace gpuloom::executor
