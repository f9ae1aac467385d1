// SPDX-License-Identifier: Apache-2.0
// How fast a driver takes what an executor gives it: threads of one context, each with a stream of its own.
#include <array>
#include <atomic>
#include <thread>

#include "tests/bench/lines.h"
#include "tests/bench/report.h"
#include "tests/bench/spin_kernel.h"

namespace gpuloom::bench {
namespace {

constexpr int kNodes = 40;
constexpr int kGraphs = 8;            // of a thread, in turn: one may be running
constexpr int kLaunchesAtOnce = 512;  // below the length of the driver's queue
constexpr int kGraphsAtOnce = 16;
constexpr int kEvents = 8;

// One thread's executable graphs.
class RewrittenGraphs {
 public:
  bool Start(Gpu& gpu, uint64_t seed) {
    sequence_ = LaunchSequence(seed);
    for (One& one : graphs_) {
      CUgraph graph = nullptr;
      if (!gpu.Ok(gpu.cu().cuGraphCreate(&graph, 0), "cuGraphCreate")) return false;
      for (int i = 0; i < kNodes; ++i) {
        const Node node(gpu, sequence_.Next());
        if (!gpu.Ok(gpu.cu().cuGraphAddKernelNode_v2(&one.nodes[i], graph,
                                                     i == 0 ? nullptr : &one.nodes[i - 1],
                                                     i == 0 ? 0 : 1, &node.value),
                    "cuGraphAddKernelNode")) {
          return false;
        }
      }
      if (!gpu.Ok(gpu.cu().cuGraphInstantiateWithFlags(&one.ready, graph, 0),
                  "cuGraphInstantiate")) {
        return false;
      }
    }
    return true;
  }

  // Every node with other function, dimensions and arguments, and the launch.
  CUresult LaunchNext(Gpu& gpu) {
    One& one = graphs_[next_++ % kGraphs];
    for (const CUgraphNode handle : one.nodes) {
      const Node node(gpu, sequence_.Next());
      const CUresult result =
          gpu.cu().cuGraphExecKernelNodeSetParams_v2(one.ready, handle, &node.value);
      if (result != CUDA_SUCCESS) return result;
    }
    return gpu.cu().cuGraphLaunch(one.ready, gpu.stream());
  }

 private:
  struct Node {
    Node(Gpu& gpu, const LaunchSequence::Step& step) : a(step.argument) {
      value.func = gpu.nothing(step.function);
      value.gridDimX = step.blocks;
      value.blockDimX = 32;
      value.gridDimY = value.gridDimZ = value.blockDimY = value.blockDimZ = 1;
      value.kernelParams = parameters;
    }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    uint64_t a, b = 0;
    uint32_t c = 0, d = 0;
    void* parameters[4] = {&a, &b, &c, &d};
    CUDA_KERNEL_NODE_PARAMS value = {};
  };
  struct One {
    CUgraphExec ready = nullptr;
    std::array<CUgraphNode, kNodes> nodes{};
  };

  std::array<One, kGraphs> graphs_;
  size_t next_ = 0;
  LaunchSequence sequence_{0};
};

// Kernels a second of one thread.
double RateOf(Gpu& gpu, const Plan& plan, double seconds, RewrittenGraphs* graphs) {
  const int length =
      graphs != nullptr ? plan.Times(kGraphsAtOnce, 2) : plan.Times(kLaunchesAtOnce, 8);
  const auto limit_ns = static_cast<uint64_t>(seconds * 1e9);
  const uint64_t start_ns = NowNs();
  uint64_t passed_ns = 0;
  double kernels = 0;
  while (passed_ns < limit_ns && !gpu.failed()) {
    for (int i = 0; i < length; ++i) {
      gpu.Ok(graphs != nullptr ? graphs->LaunchNext(gpu) : gpu.LaunchChanging(),
             graphs != nullptr ? "cuGraphLaunch" : "cuLaunchKernel");
    }
    gpu.Synchronize();
    kernels += length * (graphs != nullptr ? kNodes : 1);
    passed_ns = NowNs() - start_ns;
  }
  return kernels * 1e9 / static_cast<double>(passed_ns);
}

// Asks for events that have not happened, all the time. They are behind a kernel that ends by itself, and is launched
// again then.
void Query(Gpu& gpu, SpinKernel& spin, const std::array<CUevent, kEvents>& events,
           uint64_t kernel_ns, const std::atomic<bool>& stop) {
  const Driver& cu = gpu.cu();
  while (!stop && !gpu.failed()) {
    gpu.Ok(spin.Launch(kernel_ns), "cuLaunchKernel");
    for (const CUevent event : events) {
      gpu.Ok(cu.cuEventRecord(event, gpu.stream()), "cuEventRecord");
    }
    bool waits = true;
    while (waits && !stop && !gpu.failed()) {
      for (const CUevent event : events) {
        const CUresult result = cu.cuEventQuery(event);
        waits &= result == CUDA_ERROR_NOT_READY;
        if (result != CUDA_ERROR_NOT_READY) gpu.Ok(result, "cuEventQuery");
      }
    }
  }
  gpu.Synchronize();
}

// All threads' rates together. `asker`: with a further thread that queries events.
double RateTogether(std::vector<Gpu>& gpus, const Plan& plan, double seconds,
                    std::vector<RewrittenGraphs>* graphs, Gpu* asker) {
  SpinKernel spin;
  std::array<CUevent, kEvents> events{};
  std::atomic<bool> stop = false;
  std::thread asking;
  if (asker != nullptr) {
    if (!spin.Start(*asker)) return 0;
    for (CUevent& event : events) {
      asker->Ok(asker->cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    const uint64_t kernel_ns = static_cast<uint64_t>(plan.Times(20'000, 500)) * 1000;
    asking = std::thread([&, kernel_ns] {
      if (asker->MakeCurrent()) Query(*asker, spin, events, kernel_ns, stop);
    });
  }
  std::atomic<double> total = 0;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < gpus.size(); ++i) {
    threads.emplace_back([&, i] {
      if (!gpus[i].MakeCurrent()) return;
      const double rate =
          RateOf(gpus[i], plan, seconds, graphs != nullptr ? &(*graphs)[i] : nullptr);
      for (double sum = total; !total.compare_exchange_weak(sum, sum + rate);) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  if (asking.joinable()) asking.join();
  return total;
}

bool Line(Gpu& gpu, const Plan& plan, double seconds, size_t threads, bool rewrites, bool queries) {
  const std::string name = std::string(rewrites ? "driver_rewritten_" : "driver_launches_") +
                           std::to_string(threads) + (queries ? "_queried" : "");
  return RunLine(gpu, plan, name, "launches/s", [&](std::vector<double>& samples) {
    std::vector<Gpu> gpus(threads);
    std::vector<RewrittenGraphs> graphs(rewrites ? threads : 0);
    Gpu asker;
    bool ready = !queries || asker.Start(plan.library);
    for (size_t i = 0; i < threads && ready; ++i) {
      gpus[i].Seed(i);
      ready = gpus[i].Start(plan.library) && (!rewrites || graphs[i].Start(gpus[i], i));
    }
    const double rate = ready ? RateTogether(gpus, plan, seconds, rewrites ? &graphs : nullptr,
                                             queries ? &asker : nullptr)
                              : 0;
    gpus.push_back(std::move(asker));
    for (Gpu& other : gpus) {
      if (other.failed()) gpu.Wrong(other.TakeError());
    }
    if (rate > 0) samples.push_back(rate);
  });
}

}  // namespace

bool MeasureDriverRates(Gpu& gpu, const Plan& plan, double seconds) {
  bool good = true;
  for (const size_t threads : {1, 2, 4, 8}) {
    for (const bool queries : {false, true}) {
      good &= Line(gpu, plan, seconds, threads, false, queries);
      if (threads < 8) good &= Line(gpu, plan, seconds, threads, true, queries);
    }
  }
  return good;
}

}  // namespace gpuloom::bench
