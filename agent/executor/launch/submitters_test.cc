// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/launch/submitters.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/graph/graph.h"
#include "agent/executor/session/slice.h"
#include "agent/executor/session/work_pool.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom::executor {
namespace {

constexpr uint64_t kOwners = 5;
constexpr uint64_t kJobsOfAnOwner = 300;
constexpr uint64_t kRefused = 9;

// What was launched, by stream.
struct Record {
  std::mutex mutex;
  std::map<CUstream, std::vector<uint64_t>> launches;
};
Record& Launched() {
  static auto* const kRecord = new Record;
  return *kRecord;
}

uint64_t ValueIn(void** extra) {
  uint64_t value;
  std::memcpy(&value, extra[1], sizeof(value));
  return value;
}

// A graph of the driver's, and what one was instantiated to. Not to be used by two threads at once.
struct TestingGraph {
  static std::atomic<int> live;
  TestingGraph() { ++live; }
  ~TestingGraph() { --live; }
  std::vector<uint64_t> values;
  uint64_t enabled = 0;
  std::atomic<bool> in_use{false};
};
std::atomic<int> TestingGraph::live{0};
class Use {
 public:
  explicit Use(TestingGraph* graph) : graph_(graph) {
    if (graph_->in_use.exchange(true)) ADD_FAILURE() << "two threads use one graph";
  }
  ~Use() { graph_->in_use = false; }

 private:
  TestingGraph* const graph_;
};
TestingGraph* Of(CUgraph graph) { return reinterpret_cast<TestingGraph*>(graph); }
TestingGraph* Of(CUgraphExec exec) { return reinterpret_cast<TestingGraph*>(exec); }
uint64_t IndexOf(CUgraphNode node) { return reinterpret_cast<uintptr_t>(node) - 1; }

// Every launch is written down; every tenth value is refused, in graphs too.
Driver RecordingDriver() {
  Driver driver;
  driver.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  driver.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream stream, void**, void** extra) {
    const uint64_t value = ValueIn(extra);
    std::lock_guard lock(Launched().mutex);
    Launched().launches[stream].push_back(value);
    return value % 10 == 9 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  driver.cuGraphCreate = [](CUgraph* graph, unsigned) {
    *graph = reinterpret_cast<CUgraph>(new TestingGraph);
    return CUDA_SUCCESS;
  };
  driver.cuGraphAddKernelNode_v2 = [](CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t,
                                      const CUDA_KERNEL_NODE_PARAMS_v2* params) {
    Of(graph)->values.push_back(ValueIn(params->extra));
    *node = reinterpret_cast<CUgraphNode>(Of(graph)->values.size());
    return CUDA_SUCCESS;
  };
  driver.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph graph, unsigned long long) {
    auto* made = new TestingGraph;
    made->values = Of(graph)->values;
    made->enabled = made->values.size();
    *exec = reinterpret_cast<CUgraphExec>(made);
    return CUDA_SUCCESS;
  };
  driver.cuGraphExecKernelNodeSetParams_v2 = [](CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v2* params) {
    const Use use(Of(exec));
    const uint64_t value = ValueIn(params->extra);
    if (value % 10 == 9) return CUDA_ERROR_INVALID_VALUE;
    Of(exec)->values.at(IndexOf(node)) = value;
    return CUDA_SUCCESS;
  };
  driver.cuGraphNodeSetEnabled = [](CUgraphExec exec, CUgraphNode node, unsigned enabled) {
    const Use use(Of(exec));
    Of(exec)->enabled = enabled != 0 ? IndexOf(node) + 1 : IndexOf(node);
    return CUDA_SUCCESS;
  };
  driver.cuGraphLaunch = [](CUgraphExec exec, CUstream stream) {
    const Use use(Of(exec));
    std::lock_guard lock(Launched().mutex);
    auto& launches = Launched().launches[stream];
    const auto begin = Of(exec)->values.begin();
    launches.insert(launches.end(), begin, begin + static_cast<ptrdiff_t>(Of(exec)->enabled));
    return CUDA_SUCCESS;
  };
  driver.cuGraphExecDestroy = [](CUgraphExec exec) {
    { const Use use(Of(exec)); }
    delete Of(exec);
    return CUDA_SUCCESS;
  };
  driver.cuGraphDestroy = [](CUgraph graph) {
    delete Of(graph);
    return CUDA_SUCCESS;
  };
  return driver;
}

// Owners' jobs, one at a time for each, as sessions have them.
class SubmittersTest : public ::testing::Test {
 protected:
  ~SubmittersTest() override {
    submitters_.Stop();
    pool_.Stop();
    close(wake_);
  }
  void SetUp() override { Launched().launches.clear(); }

  static CUstream StreamOf(uint64_t owner) { return reinterpret_cast<CUstream>(owner + 1); }

  SubmitJobPtr JobOf(uint64_t owner, const std::vector<uint64_t>& values) {
    auto job = std::make_unique<SubmitJob>();
    job->chunk = std::make_unique<Chunk>();
    job->cuda_stream = StreamOf(owner);
    job->stream = reinterpret_cast<Stream*>(owner + 1);  // a name
    for (const uint64_t value : values) {
      uint8_t params[sizeof(value)];
      std::memcpy(params, &value, sizeof(value));
      const CUkernel kernel = value == kRefused ? refused_ : kernel_;
      job->chunk->Append({kernel, library_.get(), {1, 1, 1}, {1, 1, 1}, 0, sizeof(params)}, params,
                         library_);
    }
    return job;
  }
  // Posts the owner's next launches; they are remembered as expected.
  void Post(uint64_t owner, const std::vector<uint64_t>& values) {
    std::vector<uint64_t>& expected = expected_[StreamOf(owner)];
    expected.insert(expected.end(), values.begin(), values.end());
    busy_[owner] = true;
    submitters_.Post(owner, JobOf(owner, values));
  }

  void RunFinished() {
    Slice slice(UINT64_MAX);
    pool_.RunFinished(&slice);
  }
  void TakeDone() {
    submitters_.TakeDone(&done_);
    for (const SubmitJobPtr& job : done_) {
      busy_[reinterpret_cast<uintptr_t>(job->cuda_stream) - 1] = false;
      errors_ += job->errors.size();
      graphs_ += job->chain != nullptr;
      if (job->chain != nullptr) Chains::Done(*job->chain);
      ++done_jobs_;
    }
    done_.clear();
  }

  const CUkernel kernel_ = reinterpret_cast<CUkernel>(0x10);
  const CUkernel refused_ = reinterpret_cast<CUkernel>(0x20);
  const std::shared_ptr<const void> library_ = std::make_shared<int>();
  const int wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const Driver driver_ = RecordingDriver();
  Device device_{driver_};
  WorkPool pool_{&device_, 1, wake_};
  Quiet quiet_{&pool_};
  GraphRoom room_;
  Chains chains_{&device_, &pool_, &quiet_, &room_};
  Submitters submitters_{&device_, &chains_, 3};
  std::vector<SubmitJobPtr> done_;
  std::map<CUstream, std::vector<uint64_t>> expected_;
  bool busy_[kOwners] = {};
  uint64_t done_jobs_ = 0;
  uint64_t errors_ = 0;
  uint64_t graphs_ = 0;
};

TEST_F(SubmittersTest, EveryOwnersJobsAreDoneInOrderAndTheirErrorsCounted) {
  uint64_t next[kOwners] = {};
  while (done_jobs_ < kOwners * kJobsOfAnOwner) {
    for (uint64_t owner = 0; owner < kOwners; ++owner) {
      if (busy_[owner] || next[owner] == kJobsOfAnOwner * 4) continue;
      Post(owner, {next[owner], next[owner] + 1, next[owner] + 2, next[owner] + 3});
      next[owner] += 4;
    }
    TakeDone();
    // Also after the threads have gone to sleep.
    if (done_jobs_ % 500 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_EQ(errors_, kOwners * kJobsOfAnOwner * 4 / 10);
  EXPECT_EQ(Launched().launches, expected_);
}

// Launches wait here while it is closed.
struct LaunchGate {
  std::atomic<bool> closed{false};
  std::atomic<int> waiting{0};
  std::mutex mutex;
  std::set<std::thread::id> threads;  // that have come here
};
LaunchGate& TheGate() {
  static LaunchGate gate;
  return gate;
}

TEST_F(SubmittersTest, AThirdThreadHelpsOnlyWhenWorkWaitsForTheFirstTwo) {
  Driver driver = driver_;
  driver.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream, void**, void**) {
    {
      std::lock_guard lock(TheGate().mutex);
      TheGate().threads.insert(std::this_thread::get_id());
    }
    ++TheGate().waiting;
    while (TheGate().closed) std::this_thread::yield();
    --TheGate().waiting;
    return CUDA_SUCCESS;
  };
  TheGate().closed = true;
  TheGate().threads.clear();
  Device device{driver};
  Submitters submitters{&device, &chains_, 3};
  const auto becomes = [](int waiting) {
    return WaitFor([&] { return TheGate().waiting == waiting; });
  };
  const auto post = [&](uint64_t jobs) {
    for (uint64_t owner = 0; owner < jobs; ++owner) submitters.Post(owner, JobOf(owner, {0}));
  };
  post(4);
  EXPECT_TRUE(becomes(2));
  TheGate().closed = false;
  EXPECT_TRUE(WaitFor([&] {
    submitters.TakeDone(&done_);
    return done_.size() == 4;
  }));
  EXPECT_EQ(TheGate().threads.size(), 2u) << "each had one that waited for it";
  TheGate().closed = true;
  post(5);
  EXPECT_TRUE(becomes(3));
  TheGate().closed = false;
  submitters.Stop();
}

// Graphs are made, used by all threads, forgotten and let go, and everything goes as it was posted.
TEST_F(SubmittersTest, GraphsAreSharedWhileTheyComeAndGo) {
  room_.most_graphs = 64;
  room_.most_nodes = 64 * 64;
  uint64_t jobs[kOwners] = {};
  // For all of them, under sanitizers and beside other tests.
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  for (uint64_t turn = 0; done_jobs_ < kOwners * kJobsOfAnOwner || graphs_ == 0; ++turn) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << graphs_ << " by graphs";
    for (uint64_t owner = 0; owner < kOwners; ++owner) {
      if (busy_[owner]) continue;
      const uint64_t job = jobs[owner]++;
      // Three sequences of each owner's, others once in a while, and one that is refused.
      const uint64_t content = job % 7 == 0 ? 100 + job : job % 3;
      std::vector<uint64_t> values(8 + owner);
      for (uint64_t i = 0; i < values.size(); ++i) values[i] = (content * 100 + i) * 10 + owner;
      if (job % 50 == 49) values.back() = kRefused;
      Post(owner, values);
    }
    TakeDone();
    RunFinished();
    chains_.MakeWanted();
    // On a busy machine no graph may have lasted by now: the next ones do.
    const bool forgets = done_jobs_ < kOwners * kJobsOfAnOwner;
    if (forgets && turn % 200 == 100) chains_.Forget(kernel_);
    if (forgets && turn % 500 == 250) {
      std::vector<ChainRef> users = chains_.TakeOut(library_.get());
      pool_.Post([users = std::move(users)]() mutable { users.clear(); }, [] {});
    }
  }
  while (std::find(std::begin(busy_), std::end(busy_), true) != std::end(busy_)) TakeDone();
  EXPECT_EQ(Launched().launches, expected_);
}

TEST_F(SubmittersTest, WhatGraphsNameWaitsUntilTheyAreLetGo) {
  Chunk chunk;
  const uint8_t params[8] = {};
  chunk.Append({kernel_, library_.get(), {1, 1, 1}, {1, 1, 1}, 0, sizeof(params)}, params,
               library_);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!chains_.LaunchOne(chunk, chunk.nodes.front(), params,
                            {nullptr, StreamOf(0), nullptr, false})) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "no graph is made";
    chains_.MakeWanted();
    RunFinished();
  }
  while (pool_.busy()) RunFinished();
  ASSERT_EQ(TestingGraph::live, 2) << "a graph, and what it was instantiated to";
  // The worker has something else to do first.
  std::atomic<bool> occupied{true};
  pool_.Post(
      [&] {
        while (occupied) std::this_thread::yield();
      },
      [] {});
  chains_.Forget(kernel_);
  bool gone = false;
  int live = -1;
  chains_.AfterRelease([&] {
    gone = true;
    live = TestingGraph::live;
  });
  RunFinished();
  EXPECT_FALSE(gone);
  occupied = false;
  while (!gone) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    RunFinished();
  }
  EXPECT_EQ(live, 0);
  gone = false;
  chains_.AfterRelease([&] { gone = true; });
  EXPECT_TRUE(gone) << "there are none";
}

}  // namespace
}  // namespace gpuloom::executor
