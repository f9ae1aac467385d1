// SPDX-License-Identifier: Apache-2.0
// Memory and events that another process opens: this program again, as a peer that looks at the memory,
// changes it and ends.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "tests/sequences/world.h"

namespace gpuloom::sequences {
namespace {

template <typename Handle>
std::string HexOf(const Handle& handle) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&handle);
  for (size_t i = 0; i < sizeof(handle); ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

template <typename Handle>
Handle FromHex(const std::string& text) {
  Handle handle = {};
  auto* bytes = reinterpret_cast<unsigned char*>(&handle);
  for (size_t i = 0; i < sizeof(handle) && 2 * i + 1 < text.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  }
  return handle;
}

uint64_t HashOf(const std::vector<uint32_t>& words) {
  uint64_t hash = 1469598103934665603u;
  for (const uint32_t word : words) hash = (hash ^ word) * 1099511628211u;
  return hash;
}

bool Share(World& world) {
  if (!world.shared().has_interprocess) return false;
  const BufferRef buffer =
      world.AnyBuffer([](const Buffer& b) { return b.place == Place::kDevice; });
  if (buffer == nullptr) return false;
  const StreamRef stream = world.AnyStream();
  world.Join(stream, &buffer->uses);
  if (world.random().Chance(50)) world.Spin(stream, 2'000'000);
  DO(cuMemsetD32Async, buffer->device, buffer->words[0] + 1, 1, stream->handle);
  ++buffer->words[0];
  // The peer waits for this, and we do not.
  const EventRef event = world.MakeEvent(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  world.Record(event, stream);
  CUipcMemHandle memory;
  CUipcEventHandle recorded;
  DO(cuIpcGetMemHandle, &memory, buffer->device);
  DO(cuIpcGetEventHandle, &recorded, event->handle);
  const auto value = static_cast<uint32_t>(world.random().Next());
  std::vector<std::string> words = {
      "gpuloom-valid-sequences", "--libcuda", world.shared().library, "--peer",
      HexOf(memory) + "," + HexOf(recorded) + "," + std::to_string(buffer->size()) + "," +
          std::to_string(HashOf(buffer->words)) + "," + std::to_string(value)};
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  world.journal().Note("device %u", buffer->number);
  pid_t child = 0;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ) != 0) {
    Fail("cannot start a peer");
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) {
    Fail("the peer ended with status " + std::to_string(status));
  }
  std::fill(buffer->words.begin(), buffer->words.end(), value);
  return true;
}

}  // namespace

int RunPeer(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5) return 2;
  const auto size = static_cast<uint32_t>(std::stoul(arguments[2]));
  CUdevice device = 0;
  CUcontext context = nullptr;
  DO(cuInit, 0);
  DO(cuDeviceGet, &device, 0);
  DO(cuDevicePrimaryCtxRetain, &context, device);
  DO(cuCtxSetCurrent, context);
  CUdeviceptr memory = 0;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  DO(cuIpcOpenMemHandle_v2, &memory, FromHex<CUipcMemHandle>(arguments[0]),
     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  DO(cuIpcOpenEventHandle, &event, FromHex<CUipcEventHandle>(arguments[1]));
  DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  DO(cuStreamWaitEvent, stream, event, 0);
  std::vector<uint32_t> words(size);
  DO(cuMemcpyDtoHAsync_v2, words.data(), memory, size_t{size} * 4, stream);
  DO(cuStreamSynchronize, stream);
  if (std::to_string(HashOf(words)) != arguments[3]) Fail("a peer finds other words");
  DO(cuMemsetD32Async, memory, static_cast<uint32_t>(std::stoul(arguments[4])), size, stream);
  DO(cuStreamSynchronize, stream);
  DO(cuIpcCloseMemHandle, memory);
  DO(cuEventDestroy_v2, event);
  DO(cuStreamDestroy_v2, stream);
  DO(cuDevicePrimaryCtxRelease_v2, device);
  return 0;
}

std::vector<Step> ProcessSteps() { return {{"process.share", 1, Share}}; }

}  // namespace gpuloom::sequences
