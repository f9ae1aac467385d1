// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/control_client.h"

#include <poll.h>
#include <spdlog/spdlog.h>

#include <cerrno>

#include "absl/strings/str_split.h"
#include "agent/cat.h"
#include "proto/control/client.h"
#include "proto/cuda/driver_features.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

// False when the text does not fit: cutting an identity would make two tenants one.
template <size_t N>
bool Fill(char (&field)[N], const std::string& text) {
  if (text.size() >= N || text.find('\0') != text.npos) return false;
  control::SetText(field, text.data(), text.size());
  return true;
}

// One connection. mutex_ is held for the whole of a request and its answer, so requests of several
// threads follow one another, and one that hangs holds up the others for its time limit: then the
// connection is closed, and all of them fail at once.
class ControlClient : public SchedulerClient {
 public:
  explicit ControlClient(const std::string& directory) : directory_(directory) {}

  absl::Status Connect() {
    const MutexLock lock(mutex_);
    std::string error;
    if (client_.Connect(directory_, control::Client::kDefaultTimeout, &error)) {
      const std::string off = MissingFeatures(static_cast<int>(client_.driver_version()));
      // Said at each connection, so that the log of every agent has it.
      if (!off.empty()) spdlog::warn("cuda: GPU in {}: {}", directory_, off);
      return absl::OkStatus();
    }
    // The supervisor tells the three apart: only where nobody is there may it start one.
    if (client_.not_listening()) return absl::NotFoundError(error);
    if (client_.refused()) return absl::FailedPreconditionError(error);
    return Gone(error);
  }

  absl::Status AddAllocation(const std::string& name, const std::string& directory,
                             int slots) override {
    // ends_with_connection stays 0: the allocation outlives this agent.
    control::AddAllocation order = {};
    order.slots = static_cast<uint32_t>(slots);
    if (!Fill(order.name, name) || !Fill(order.directory, directory)) {
      return absl::InvalidArgumentError(Cat("scheduler: too long a path: ", directory));
    }
    return Ask([&](control::Client& client, std::string* error) {
      return client.AddAllocation(order, error);
    });
  }

  absl::Status BindAllocation(const BindOrder& order) override {
    control::BindAllocation message = {};
    if (!Fill(message.name, order.name) || !Fill(message.pod_namespace, order.pod_namespace) ||
        !Fill(message.pod, order.pod) || !Fill(message.container, order.container)) {
      return absl::InvalidArgumentError(
          Cat("scheduler: too long a name: ", order.pod_namespace, "/", order.pod));
    }
    if (!Fill(message.trust_domain, order.trust_domain)) {
      return absl::InvalidArgumentError(Cat("scheduler: trust domain '", order.trust_domain,
                                            "' is too long: shorten the pod's name"));
    }
    message.memory_quota_bytes = order.memory_quota_bytes;
    message.pinned_limit_bytes = order.pinned_limit_bytes;
    message.shares = order.shares;
    message.memory_wait_ms = order.memory_wait_ms;
    message.kernels = order.kernels;
    message.partition = order.partition;
    message.trace = static_cast<uint32_t>(order.trace);
    message.rescue_after_ms = order.rescue_after_ms;
    // Bound all the same: an older scheduler takes what it knows of the message.
    SayWhatItDoesNotKnow(order);
    return Ask([&](control::Client& client, std::string* error) {
      return client.BindAllocation(message, error);
    });
  }

  absl::Status PrepareExecutor(const std::string& name) override {
    return Ask([&](control::Client& client, std::string* error) {
      return client.PrepareExecutor(name, error);
    });
  }

  absl::Status RemoveAllocation(const std::string& name) override {
    return Ask([&](control::Client& client, std::string* error) {
      return client.RemoveAllocation(name, error);
    });
  }

  absl::StatusOr<std::vector<std::string>> ListAllocations() override {
    std::vector<control::AllocationState> states;
    if (absl::Status status = List(&states); !status.ok()) return status;
    std::vector<std::string> names;
    for (const control::AllocationState& state : states)
      names.push_back(control::TextOf(state.name));
    return names;
  }

  absl::StatusOr<std::vector<UnsupportedCalls>> ListUnsupported() override {
    std::vector<control::AllocationState> states;
    if (absl::Status status = List(&states); !status.ok()) return status;
    std::vector<UnsupportedCalls> all;
    for (const control::AllocationState& state : states) {
      all.push_back({control::TextOf(state.name), control::TextOf(state.pod_namespace),
                     control::TextOf(state.pod), control::TextOf(state.container),
                     absl::StrSplit(control::TextOf(state.unsupported), '\n', absl::SkipEmpty())});
    }
    return all;
  }

  absl::StatusOr<GpuReport> Report() override {
    GpuReport report;
    const absl::Status status = Ask([&](control::Client& client, std::string* error) {
      report.tells_gpu = client.scheduler_speaks_3_3();
      // Both under one lock, but not of one instant: the scheduler goes on between its two answers.
      return client.ListAllocations(&report.allocations, error) &&
             (!report.tells_gpu || client.DescribeGpu(&report.gpu, &report.domains, error));
    });
    if (!status.ok()) return status;
    return report;
  }

  bool IsConnected() override {
    const MutexLock lock(mutex_);
    if (!client_.connected()) return false;
    // POLLHUP and POLLERR are always reported. POLLIN is not requested, because nothing is read here.
    pollfd entry = {client_.fd(), POLLRDHUP, 0};
    int ready = 0;
    do {
      ready = poll(&entry, 1, 0);
      // Though it does not wait, a signal that comes now ends it so.
    } while (ready < 0 && errno == EINTR);
    return ready == 0;
  }

 private:
  // `say(client, error)` asks, and tells whether the answer was yes.
  template <typename Say>
  absl::Status Ask(Say say) {
    const MutexLock lock(mutex_);
    if (!client_.connected()) return Gone("the connection was lost");
    std::string error;
    if (say(client_, &error)) return absl::OkStatus();
    // The client closes the connection when an answer is late or makes no sense: a scheduler that
    // can still say no is one that serves.
    return client_.connected() ? absl::FailedPreconditionError(error) : Gone(error);
  }

  absl::Status List(std::vector<control::AllocationState>* states) {
    return Ask([&](control::Client& client, std::string* error) {
      return client.ListAllocations(states, error);
    });
  }

  // Says which keys of the policy an older scheduler ignores. Only where the policy uses one: terms
  // that are the defaults lose nothing. Once for a connection, whatever pods there are.
  void SayWhatItDoesNotKnow(const BindOrder& order) {
    // Weights of 100, priority normal, no ceilings.
    constexpr control::ShareTerms kNotSaid{}, kDefault{100, 100, 2, 0, 0};
    const bool says_shares =
        (order.shares != kNotSaid && order.shares != kDefault) || order.memory_wait_ms != 0;
    const bool says_kernels = order.kernels != control::KernelTerms{};
    const bool says_partition = order.partition != control::PartitionTerms{};
    const bool says_trace = order.trace != control::TraceTerms::kNone;
    constexpr uint32_t kDefaultRescueMs = 100;
    const bool says_rescue =
        order.rescue_after_ms != 0 && order.rescue_after_ms != kDefaultRescueMs;
    const MutexLock lock(mutex_);
    if (!client_.connected() || said_what_it_does_not_know_) return;
    // From the oldest release on: each one lacks what the next ones lack, too.
    const char* keys = nullptr;
    if ((says_shares || says_kernels || says_partition || says_trace || says_rescue) &&
        !client_.scheduler_speaks_3_2()) {
      keys =
          "weight, priority, timeShareMax, memoryWait, maxKernelTime, smPercent, smReserved, trace "
          "and rescueAfter have";
    } else if ((says_kernels || says_partition || says_trace || says_rescue) &&
               !client_.scheduler_speaks_3_4()) {
      keys = "maxKernelTime, smPercent, smReserved, trace and rescueAfter have";
    } else if ((says_trace || says_rescue) && !client_.scheduler_speaks_3_6()) {
      keys = "trace and rescueAfter have";
    } else if (says_rescue && !client_.scheduler_speaks_3_7()) {
      keys = "rescueAfter has";
    }
    if (keys == nullptr) return;
    said_what_it_does_not_know_ = true;
    spdlog::warn(
        "policy: the scheduler in {} is of an older release: {} no effect on its GPU until it is "
        "replaced (drain the node's GPU pods and delete its gpuloom-schedulers pod)",
        directory_, keys);
  }

  absl::Status Gone(const std::string& why) const {
    return absl::UnavailableError(
        Cat("scheduler: ", directory_, ": ", why, "; see ", directory_, "/scheduler.log"));
  }

  const std::string directory_;
  Mutex mutex_;
  control::Client client_ GPULOOM_GUARDED_BY(mutex_);
  bool said_what_it_does_not_know_ GPULOOM_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::StatusOr<std::shared_ptr<SchedulerClient>> ConnectToScheduler(const std::string& directory) {
  auto client = std::make_shared<ControlClient>(directory);
  if (absl::Status status = client->Connect(); !status.ok()) return status;
  return std::shared_ptr<SchedulerClient>(std::move(client));
}

}  // namespace gpuloom
