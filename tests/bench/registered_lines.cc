// SPDX-License-Identifier: Apache-2.0
// Memory that the program made itself and registered (cuMemHostRegister): private memory, and shared
// memory of a descriptor of the program's own.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/bench/lines.h"
#include "tests/bench/report.h"

namespace gpuloom::bench {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
// A part begins inside of a page and of the range.
constexpr size_t kPartBegin = 3 * 4096 + 64;

enum class Of { kPrivate, kShared };
enum class Direction { kToDevice, kToHost };
enum class What {
  kFirst,  // the first copy after registering
  kLater,  // those after it
  kPart,   // of a part of the range
  kCall,   // how long the asynchronous call takes
};

// Registered while it lives.
class Registered {
 public:
  Registered(Gpu& gpu, Of of, size_t bytes) : gpu_(gpu), bytes_(bytes) {
    const int file = of == Of::kShared ? memfd_create("gpuloom-bench", MFD_CLOEXEC) : -1;
    const int flags = of == Of::kShared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void* memory = MAP_FAILED;
    if (of == Of::kPrivate || (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0)) {
      memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    }
    if (file >= 0) close(file);
    if (memory == MAP_FAILED) {
      gpu.Wrong("out of host memory");
      return;
    }
    host_ = static_cast<char*>(memory);
    std::memset(host_, 0x11, bytes);  // Page faults are not what is measured.
    const uint64_t start_ns = NowNs();
    registered_ = gpu.Ok(gpu.cu().cuMemHostRegister_v2(host_, bytes, 0), "cuMemHostRegister");
    register_ms_ = static_cast<double>(NowNs() - start_ns) / 1e6;
    if (registered_) gpu.Ok(gpu.cu().cuMemAlloc_v2(&device_, bytes), "cuMemAlloc");
  }
  ~Registered() {
    if (device_ != 0) gpu_.Ok(gpu_.cu().cuMemFree_v2(device_), "cuMemFree");
    Unregister();
    if (host_ != nullptr) munmap(host_, bytes_);
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  double register_ms() const { return register_ms_; }
  // How long it took, in ms.
  double Unregister() {
    if (!registered_) return 0;
    registered_ = false;
    const uint64_t start_ns = NowNs();
    gpu_.Ok(gpu_.cu().cuMemHostUnregister(host_), "cuMemHostUnregister");
    return static_cast<double>(NowNs() - start_ns) / 1e6;
  }

  // One copy and its end. *call_us: how long the call took.
  double Copy(Direction direction, size_t begin, size_t bytes, double* call_us) {
    const uint64_t start_ns = NowNs();
    if (direction == Direction::kToDevice) {
      gpu_.Ok(gpu_.cu().cuMemcpyHtoDAsync_v2(device_ + begin, host_ + begin, bytes, gpu_.stream()),
              "cuMemcpyHtoDAsync");
    } else {
      gpu_.Ok(gpu_.cu().cuMemcpyDtoHAsync_v2(host_ + begin, device_ + begin, bytes, gpu_.stream()),
              "cuMemcpyDtoHAsync");
    }
    *call_us = static_cast<double>(NowNs() - start_ns) / 1e3;
    gpu_.Synchronize();
    return static_cast<double>(bytes) / static_cast<double>(NowNs() - start_ns);
  }

  // Puts bytes that no earlier copy left there to where the next copies come from.
  void Fill(Direction direction, size_t begin, size_t bytes) {
    static unsigned char value = 0x20;
    ++value;
    expected_ = static_cast<char>(value);
    if (direction == Direction::kToDevice) {
      std::memset(host_ + begin, value, bytes);
    } else {
      gpu_.Ok(gpu_.cu().cuMemsetD8Async(device_ + begin, value, bytes, gpu_.stream()),
              "cuMemsetD8Async");
      gpu_.Synchronize();
    }
  }
  // And looks whether they have arrived.
  void Check(Direction direction, size_t begin, size_t bytes) {
    if (gpu_.failed()) return;
    std::vector<char> seen(bytes);
    if (direction == Direction::kToDevice) {
      gpu_.Ok(gpu_.cu().cuMemcpyDtoH_v2(seen.data(), device_ + begin, bytes), "cuMemcpyDtoH");
    } else {
      std::memcpy(seen.data(), host_ + begin, bytes);
    }
    if (!gpu_.failed() && seen != std::vector<char>(bytes, expected_)) {
      gpu_.Wrong("the timed copies did not bring the right bytes");
    }
  }

 private:
  Gpu& gpu_;
  const size_t bytes_;
  char* host_ = nullptr;
  CUdeviceptr device_ = 0;
  bool registered_ = false;
  double register_ms_ = 0;
  char expected_ = 0;
};

void Collect(Gpu& gpu, const Plan& plan, Of of, Direction direction, What what, size_t bytes,
             std::vector<double>& samples) {
  const int rounds = what == What::kFirst ? plan.Times(3, 1) : 1;
  for (int round = 0; round < rounds && !gpu.failed(); ++round) {
    Registered memory(gpu, of, bytes);
    const bool part = what == What::kPart;
    const size_t begin = part ? kPartBegin : 0;
    const size_t size = part ? bytes / 2 + 1000 : bytes;
    if (gpu.failed()) return;
    memory.Fill(direction, begin, size);
    double call_us;
    if (what != What::kFirst) memory.Copy(direction, begin, size, &call_us);
    const int times = what == What::kFirst ? 1 : plan.Times(part ? 100 : 10, 1);
    for (int i = 0; i < times && !gpu.failed(); ++i) {
      const double rate = memory.Copy(direction, begin, size, &call_us);
      samples.push_back(what == What::kCall ? call_us : rate);
    }
    memory.Check(direction, begin, size);
  }
}

bool RegisterLines(Gpu& gpu, const Plan& plan, const std::string& name, size_t bytes) {
  bool good = true;
  for (const bool back : {false, true}) {
    good &= RunLine(gpu, plan, (back ? "unregister_" : "register_") + name, "ms",
                    [&](std::vector<double>& samples) {
                      for (int i = 0; i < plan.Times(5, 1) && !gpu.failed(); ++i) {
                        Registered memory(gpu, Of::kPrivate, bytes);
                        samples.push_back(back ? memory.Unregister() : memory.register_ms());
                      }
                    });
  }
  return good;
}

}  // namespace

bool MeasureRegistered(Gpu& gpu, const Plan& plan) {
  const size_t bytes = plan.full ? 512 * kMiB : 3 * kMiB;
  const size_t part_bytes = plan.full ? 8 * kMiB : 3 * kMiB;
  const std::string size = plan.full ? "512MiB" : "3MiB";
  bool good = RegisterLines(gpu, plan, size, bytes);
  for (const Of of : {Of::kPrivate, Of::kShared}) {
    for (const Direction direction : {Direction::kToDevice, Direction::kToHost}) {
      const std::string kind =
          std::string(direction == Direction::kToDevice ? "copy_h2d_" : "copy_d2h_") +
          (of == Of::kPrivate ? "registered_" : "registered_shared_");
      const auto line = [&](const std::string& name, const char* unit, What what, size_t of_bytes) {
        good &= RunLine(gpu, plan, kind + name, unit, [&](std::vector<double>& samples) {
          Collect(gpu, plan, of, direction, what, of_bytes, samples);
        });
      };
      line("first_" + size, "GB/s", What::kFirst, bytes);
      line(size, "GB/s", What::kLater, bytes);
      line("part", "GB/s", What::kPart, part_bytes);
      line("call", "us", What::kCall, bytes);
    }
  }
  return good;
}

}  // namespace gpuloom::bench
