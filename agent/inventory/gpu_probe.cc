// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/gpu_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <iterator>

#include "agent/cat.h"
#include "agent/node/gpu_uuid.h"
#include "agent/node/one_line.h"
#include "agent/node/process.h"
#include "proto/channel/unique_fd.h"
#include "proto/cuda/driver.h"
#include "proto/cuda/errors.h"

namespace gpuloom {
namespace {

// Small, because the GPU may be full of tenants' memory.
constexpr size_t kProbedBytes = 1 << 20;
// Neither all zeros nor all ones, which a device that does not work may read as.
constexpr uint32_t kPattern = 0x5a17c0de;
// The most output that is read: a driver may print without end.
constexpr size_t kMaxAnswerBytes = 1024;
// How soon it is seen that the agent is to end.
constexpr int kPollMs = 100;

std::string Failed(const char* call, CUresult result) {
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return kGpuIsFull;
  const char* const name = ErrorName(result);
  return Cat("cuda: ", call, ": ", name == nullptr ? "unknown error" : name, " (",
             static_cast<int>(result), ")");
}

// Nothing is freed: the process ends right after it, and a sick driver may hang in what it frees.
std::string UseDevice(const Driver& driver, CUdevice device) {
  CUcontext context = nullptr;
  if (const CUresult result = driver.cuDevicePrimaryCtxRetain(&context, device); result != 0) {
    return Failed("cuDevicePrimaryCtxRetain", result);
  }
  if (const CUresult result = driver.cuCtxSetCurrent(context); result != 0) {
    return Failed("cuCtxSetCurrent", result);
  }
  CUdeviceptr memory = 0;
  if (const CUresult result = driver.cuMemAlloc_v2(&memory, kProbedBytes); result != 0) {
    return Failed("cuMemAlloc", result);
  }
  const size_t words = kProbedBytes / sizeof(kPattern);
  if (const CUresult result = driver.cuMemsetD32_v2(memory, kPattern, words); result != 0) {
    return Failed("cuMemsetD32", result);
  }
  std::vector<uint32_t> copy(words);
  // Waits for the fill before it, whose failure it reports, too.
  if (const CUresult result = driver.cuMemcpyDtoH_v2(copy.data(), memory, kProbedBytes);
      result != 0) {
    return Failed("cuMemcpyDtoH", result);
  }
  for (const uint32_t word : copy) {
    if (word != kPattern) return "cuda: memory holds something else than was written";
  }
  return "";
}

}  // namespace

std::string ProbeGpu(const std::string& cuda_library, const std::string& gpu_uuid) {
  Driver driver;
  std::string error;
  if (!Load(cuda_library.c_str(), &driver, &error)) return error;
  if (const CUresult result = driver.cuInit(0); result != 0) return Failed("cuInit", result);
  int count = 0;
  if (const CUresult result = driver.cuDeviceGetCount(&count); result != 0) {
    return Failed("cuDeviceGetCount", result);
  }
  for (int index = 0; index < count; ++index) {
    CUdevice device = 0;
    CUuuid uuid = {};
    // By UUID, because CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES change numbers. Others may be as
    // broken as they like.
    if (driver.cuDeviceGet(&device, index) != 0) continue;
    const CUresult result = driver.cuDeviceGetUuid_v2 != nullptr
                                ? driver.cuDeviceGetUuid_v2(&uuid, device)
                                : driver.cuDeviceGetUuid(&uuid, device);
    if (result == 0 && FormatUuid(uuid.bytes) == gpu_uuid) return UseDevice(driver, device);
  }
  return Cat("cuda: the driver does not find the GPU among its ", count);
}

ProbeResult RunGpuProbe(const std::vector<std::string>& arguments,
                        const std::atomic<bool>& is_cancelled) {
  int ends[2] = {-1, -1};
  // Nothing is known of a GPU that could not be probed for want of the node's resources.
  if (pipe2(&ends[0], O_CLOEXEC) != 0) return {};
  const channel::UniqueFd reader(ends[0]);
  channel::UniqueFd writer(ends[1]);
  pid_t pid = 0;
  const ProcessStart start = {
      .arguments = arguments, .environment = environ, .output = writer.get(), .descriptors = {}};
  if (StartProcess(start, &pid) != 0) return {};
  // So that the pipe ends with the child.
  writer.Reset();
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(kProbeTimeoutSeconds);
  std::string said;
  bool has_ended = false, is_late = false;
  while (!has_ended && !is_late && !is_cancelled) {
    pollfd entry = {reader.get(), POLLIN, 0};
    if (poll(&entry, 1, kPollMs) > 0) {
      std::array<char, 512> buffer{};
      const ssize_t n = read(reader.get(), buffer.data(), buffer.size());
      has_ended = n == 0 || (n < 0 && errno != EINTR);
      // What a driver prints comes first, and the answer last.
      if (n > 0) said.append(buffer.data(), static_cast<size_t>(n));
      if (said.size() > 2 * kMaxAnswerBytes) said.erase(0, said.size() - kMaxAnswerBytes);
    }
    is_late = std::chrono::steady_clock::now() >= deadline;
  }
  // Its process group, which StartProcess has made, and with it whatever the driver has started.
  if (!has_ended) kill(-pid, SIGKILL);
  // One that hangs in the driver ends when that lets it; the agent reaps it then, as all that it did not expect.
  int status = 0;
  const pid_t reaped = waitpid(pid, &status, has_ended ? 0 : WNOHANG);
  if (!has_ended) {
    // Cancelled.
    if (!is_late) return {};
    return {true, Cat("the GPU has not answered a probe for ", kProbeTimeoutSeconds, " s")};
  }
  if (said.ends_with(kGpuIsWell)) return {true, ""};
  while (said.ends_with('\n')) said.pop_back();
  // The last line: a program that says more ends with its answer.
  const size_t line = said.rfind('\n');
  std::string trouble = OneLine(line == said.npos ? said : said.substr(line + 1), kMaxAnswerBytes);
  if (trouble == kGpuIsFull) return {true, "", /*is_full=*/true};
  if (trouble.empty()) {
    trouble =
        Cat("a probe of the GPU ", reaped == pid ? ExitText(status) : "ended", " without a word");
  }
  return {true, trouble};
}

}  // namespace gpuloom
