#include "agent/executor/submitters.h"

#include <gtest/gtest.h>

#include <map>

namespace gpuloom::executor {
namespace {

constexpr uint64_t kOwners = 5;
constexpr uint64_t kLaunchesOfAJob = 4;
constexpr uint64_t kJobsOfAnOwner = 300;

// What was launched, by stream. Every tenth launch is refused.
struct Record {
  std::mutex mutex;
  std::map<CUstream, std::vector<uint64_t>> launches;
};
Record& Launched() {
  static auto* const kRecord = new Record;
  return *kRecord;
}

TEST(SubmittersTest, EveryOwnersJobsAreDoneInOrderAndTheirErrorsCounted) {
  Driver driver;
  driver.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  driver.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream stream, void**, void** extra) {
    uint64_t value;
    std::memcpy(&value, extra[1], sizeof(value));
    std::lock_guard lock(Launched().mutex);
    Launched().launches[stream].push_back(value);
    return value % 10 == 9 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  Device device(driver);
  Chains chains(&device, nullptr, nullptr, nullptr);  // has none, and nothing comes again
  Submitters submitters(&device, &chains, 3);
  uint64_t next[kOwners] = {};
  bool busy[kOwners] = {};
  uint64_t done_jobs = 0;
  uint64_t errors = 0;
  std::vector<SubmitJobPtr> done;
  while (done_jobs < kOwners * kJobsOfAnOwner) {
    for (uint64_t owner = 0; owner < kOwners; ++owner) {
      if (busy[owner] || next[owner] == kJobsOfAnOwner * kLaunchesOfAJob) continue;
      auto job = std::make_unique<SubmitJob>();
      job->chunk = std::make_unique<Chunk>();
      job->cuda_stream = reinterpret_cast<CUstream>(owner + 1);
      for (uint64_t i = 0; i < kLaunchesOfAJob; ++i, ++next[owner]) {
        uint8_t params[sizeof(uint64_t)];
        std::memcpy(params, &next[owner], sizeof(params));
        job->chunk->Append({nullptr, nullptr, {1, 1, 1}, {1, 1, 1}, 0, sizeof(params)}, params,
                           nullptr);
      }
      busy[owner] = true;
      submitters.Post(owner, std::move(job));
    }
    submitters.TakeDone(&done);
    for (const SubmitJobPtr& job : done) {
      busy[reinterpret_cast<uintptr_t>(job->cuda_stream) - 1] = false;
      errors += job->errors.size();
      ++done_jobs;
    }
    done.clear();
    // Also after the threads have gone to sleep.
    if (done_jobs % 500 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  submitters.Stop();
  EXPECT_EQ(errors, kOwners * kJobsOfAnOwner * kLaunchesOfAJob / 10);
  ASSERT_EQ(Launched().launches.size(), kOwners);
  for (const auto& [stream, values] : Launched().launches) {
    ASSERT_EQ(values.size(), kJobsOfAnOwner * kLaunchesOfAJob);
    for (uint64_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i);
  }
}

}  // namespace
}  // namespace gpuloom::executor
