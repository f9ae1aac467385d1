// SPDX-License-Identifier: Apache-2.0
// gpuloom-bench: what CUDA calls cost one process. It asks a libcuda given by name, and is
// otherwise the same program whether that is NVIDIA's, the software one, or (run as a tenant) the
// shim, so that figures stand side by side. tests/bench/run.py runs it both ways;
// docs/benchmarks.md explains the lines.
//
// Ways of use, one process each:
//   measure          every line in turn, each on the GPU alone;
//   --rate, --work, --hold, --load
//                    start, (--load: time how long a library takes to load,) print
//                    {"name":"ready"}, then wait for a line on standard input and launch (--rate)
//                    or compete for the device (--work), or stay idle: what several processes do at
//                    the same time;
//   --first-kernel   what `start_up` starts: one kernel, and when it was done.
//   --fresh-launches what `launch_fresh_50` starts: how many ns 50 launches behind the first kernel and their end took.
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/bench/lines.h"
#include "tests/bench/report.h"

namespace gpuloom::bench {
namespace {

constexpr char kUsage[] =
    "usage: gpuloom-bench [--library libcuda.so.1] [--tiny] [--only A,B] [--skip C,D]\n"
    "                     [--seed N]        measure the lines, or those whose names begin (not) "
    "so\n"
    "       gpuloom-bench --check           results are right; measures nothing\n"
    "       gpuloom-bench --rate SECONDS [--changing [--seed N]] [--threads N]\n"
    "                                       launch for so long, after a line on standard input; "
    "each\n"
    "                                       thread in a stream of its own, with a line of its own\n"
    "       gpuloom-bench --work KERNEL_US [--iterations N] [--blocks N] [--queued N]\n"
    "                     [--graph KERNELS | --cooperative | --changing]\n"
    "                     [--busy PERCENT [--seed N]]\n"
    "                                       work as lines.h says, after a line on standard input\n"
    "       gpuloom-bench --driver-rates SECONDS [--only A,B]\n"
    "                                       what the driver takes into one context, by threads\n"
    "       gpuloom-bench --load FILE       load this image (-: our kernels), then stay idle\n"
    "       gpuloom-bench --hold SECONDS    stay idle, or until a pipe on standard input closes\n"
    "       gpuloom-bench --first-kernel    print when the first kernel was done\n"
    "One JSON object per line on standard output; exit status 1 when a line failed.\n";

enum class Mode {
  kMeasure,
  kCheck,
  kRate,
  kHold,
  kLoad,
  kFirstKernel,
  kFreshLaunches,
  kWork,
  kDriverRates
};

constexpr uint32_t kMostThreads = 64;

struct Options {
  Mode mode = Mode::kMeasure;
  double seconds = 0;
  bool changing = false;
  uint32_t threads = 1;
  uint64_t seed = 1;  // of what changes from launch to launch
  std::string image;
  Work work;
  Plan plan;
};

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// A number from `least` to `most`, and nothing else.
bool ParseNumber(const char* text, double least, double most, double* number) {
  char* end = nullptr;
  *number = std::strtod(text, &end);
  return end != text && *end == '\0' && *number >= least && *number <= most;
}

template <typename T>
bool ParseCount(const char* text, double least, double most, T* count) {
  double number = 0;
  if (!ParseNumber(text, least, most, &number)) return false;
  *count = static_cast<T>(number);
  return static_cast<double>(*count) == number;
}

// Options of --work with a value, one a call: false if the word is none, or its value is none.
bool ParseWork(const std::string& word, const char* value, Work& work) {
  if (word == "--work") return ParseNumber(value, 1, 1e6, &work.kernel_us);
  if (word == "--iterations") return ParseCount(value, 1, 4e9, &work.iterations);
  if (word == "--queued") return ParseCount(value, 1, 1024, &work.queued);
  if (word == "--blocks") return ParseCount(value, 1, 1'000'000, &work.blocks);
  if (word == "--graph") return ParseCount(value, 1, 1000, &work.graph_kernels);
  return word == "--busy" && ParseNumber(value, 1, 99, &work.busy_percent);
}

bool Parse(int argc, char** argv, Options& options) {
  options.plan.library = "libcuda.so.1";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--tiny") {
      options.plan.full = false;
    } else if (word == "--check") {
      options.mode = Mode::kCheck;
    } else if (word == "--first-kernel") {
      options.mode = Mode::kFirstKernel;
    } else if (word == "--fresh-launches") {
      options.mode = Mode::kFreshLaunches;
    } else if (word == "--library" && has_value) {
      options.plan.library = argv[++i];
    } else if (word == "--only" && has_value) {
      options.plan.only = SplitAtCommas(argv[++i]);
    } else if (word == "--skip" && has_value) {
      options.plan.skip = SplitAtCommas(argv[++i]);
    } else if (word == "--cooperative") {
      options.work.cooperative = true;
    } else if (word == "--changing") {
      options.changing = options.work.changing = true;
    } else if (word == "--threads" && has_value) {
      if (!ParseCount(argv[++i], 1, kMostThreads, &options.threads)) return false;
    } else if (word == "--seed" && has_value) {
      if (!ParseCount(argv[++i], 0, 1e15, &options.seed)) return false;
      options.work.seed = options.seed;
    } else if (word == "--load" && has_value) {
      options.mode = Mode::kLoad;
      options.image = argv[++i];
    } else if ((word == "--rate" || word == "--hold" || word == "--driver-rates") && has_value) {
      options.mode = word == "--rate"   ? Mode::kRate
                     : word == "--hold" ? Mode::kHold
                                        : Mode::kDriverRates;
      char* end = nullptr;
      options.seconds = std::strtod(argv[++i], &end);
      if (*end != '\0' || !(options.seconds >= 0)) return false;
    } else if (has_value && ParseWork(word, argv[i + 1], options.work)) {
      if (word == "--work") options.mode = Mode::kWork;
      ++i;
    } else {
      return false;
    }
  }
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  options.plan.self = length > 0 ? std::string(self, static_cast<size_t>(length)) : argv[0];
  return true;
}

// Until the time is over, or whoever started us closes the pipe. A terminal or a file that ends at
// once, as /dev/null does, is no such sign.
void StayIdle(double seconds) {
  struct stat input {};
  const bool pipe = fstat(STDIN_FILENO, &input) == 0 && S_ISFIFO(input.st_mode);
  const auto end_ns = NowNs() + static_cast<uint64_t>(seconds * 1e9);
  pollfd watched{STDIN_FILENO, POLLIN, 0};
  for (uint64_t now_ns = NowNs(); now_ns < end_ns; now_ns = NowNs()) {
    const auto left_ms = static_cast<int>((end_ns - now_ns) / 1'000'000 + 1);
    if (poll(&watched, pipe ? 1 : 0, left_ms) <= 0) continue;
    char byte;
    if (read(STDIN_FILENO, &byte, 1) <= 0) return;
  }
}

bool LaunchOnce(Gpu& gpu) {
  return gpu.Ok(gpu.LaunchNothing(), "cuLaunchKernel") && gpu.Synchronize();
}

bool MeasureAll(Gpu& gpu, const Plan& plan) {
  bool good = MeasureLaunches(gpu, plan);
  good &= MeasureEvents(gpu, plan);
  good &= MeasureWaits(gpu, plan);
  good &= MeasureGraphs(gpu, plan);
  good &= MeasureMemory(gpu, plan);
  good &= MeasureCopies(gpu, plan);
  good &= MeasureRegistered(gpu, plan);
  good &= MeasureManaged(gpu, plan);
  good &= MeasureStartUp(gpu, plan);
  return good;
}

// Ready for what several processes do together: everything is loaded and has run once.
bool Ready(Gpu& gpu) {
  if (!LaunchOnce(gpu)) return false;
  ReportFact("ready", "\"pid\":" + std::to_string(getpid()));
  return true;
}

// In one context, each in a stream of its own: what executors would reach at most, whose tenants share a context.
bool RateByThreads(Gpu& gpu, const Options& options) {
  std::vector<Gpu> others(options.threads - 1);
  // No thread repeats another one's sequence, of whichever process.
  uint64_t seed = options.seed * kMostThreads;
  gpu.Seed(seed);
  for (Gpu& other : others) {
    other.Seed(++seed);
    if (!other.Start(options.plan.library) || !LaunchOnce(other)) {
      return gpu.Wrong(other.TakeError());
    }
  }
  char go[64];
  if (!Ready(gpu) || std::fgets(go, sizeof(go), stdin) == nullptr) return false;
  std::atomic<bool> good = true;
  const auto measure = [&](Gpu* its) {
    if (!its->MakeCurrent() ||
        !MeasureLaunchRate(*its, options.plan, options.seconds, options.changing)) {
      good = false;
    }
  };
  std::vector<std::thread> threads;
  for (Gpu& other : others) threads.emplace_back(measure, &other);
  measure(&gpu);
  for (std::thread& thread : threads) thread.join();
  return good;
}

bool Run(Gpu& gpu, const Options& options) {
  // Else streams share hardware queues, and launches wait behind another stream's kernel.
  if (options.mode == Mode::kDriverRates) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (!gpu.Start(options.plan.library)) return false;
  gpu.Seed(options.seed);
  if (options.mode == Mode::kFirstKernel) {
    if (!LaunchOnce(gpu)) return false;
    std::printf("%llu\n", static_cast<unsigned long long>(NowNs()));
    return true;
  }
  if (options.mode == Mode::kFreshLaunches) {
    if (!LaunchOnce(gpu)) return false;
    const uint64_t start_ns = NowNs();
    for (int i = 0; i < 50; ++i) gpu.Ok(gpu.LaunchNothing(), "cuLaunchKernel");
    if (!gpu.Synchronize()) return false;
    std::printf("%llu\n", static_cast<unsigned long long>(NowNs() - start_ns));
    return !gpu.failed();
  }
  if (options.mode == Mode::kHold) {
    if (!Ready(gpu)) return false;
    StayIdle(options.seconds);
    return true;
  }
  if (options.mode == Mode::kLoad) {
    if (!LaunchOnce(gpu) || !MeasureLibraryLoad(gpu, options.image) || !Ready(gpu)) return false;
    StayIdle(600);
    return true;
  }
  if (options.mode == Mode::kDriverRates) {
    return MeasureDriverRates(gpu, options.plan, options.seconds);
  }
  if (options.mode == Mode::kWork) return RunWork(gpu, options.plan, options.work);
  if (options.mode == Mode::kRate) {
    return RateByThreads(gpu, options);
  }
  const std::string facts = gpu.Describe();
  if (gpu.failed()) return false;
  ReportFact("device", facts);
  if (options.mode == Mode::kCheck) return CheckResults(gpu);
  return MeasureAll(gpu, options.plan);
}

}  // namespace
}  // namespace gpuloom::bench

int main(int argc, char** argv) {
  gpuloom::bench::Options options;
  if (!gpuloom::bench::Parse(argc, argv, options)) {
    std::fputs(gpuloom::bench::kUsage, stderr);
    return 2;
  }
  gpuloom::bench::Gpu gpu;
  const bool good = gpuloom::bench::Run(gpu, options);
  if (gpu.failed()) gpuloom::bench::ReportError("start", gpu.TakeError());
  return good ? 0 : 1;
}
