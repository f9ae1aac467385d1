// SPDX-License-Identifier: Apache-2.0
// gpuloom-change-weights: gives running tenants of one scheduler other weights, as an agent does when its policy
// changes: everything else of their terms stays. For the benchmark, whose tenants are commands of `gpuloom run`.
//   gpuloom-change-weights STATE_DIR OLD=NEW …       allocations of weight OLD get weight NEW, all at once
// Prints {"at_ns":…}: when the scheduler had accepted the last one, on CLOCK_MONOTONIC. Exit status 1, with a message,
// when an allocation could not be changed or a weight belongs to none.
#include <time.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "proto/control/client.h"

namespace gpuloom::bench {
namespace {

constexpr uint64_t kPinnedLimitBytes = uint64_t{16} << 30;  // as gpuloom run
constexpr unsigned kDefaultWeight = 100;
constexpr unsigned kLargestWeight = 1000;

template <size_t N>
void Copy(const char (&from)[N], char (&to)[N]) {
  std::memcpy(to, from, N);
}

control::BindAllocation Rebound(const control::AllocationState& state, uint32_t weight) {
  control::BindAllocation bind{};
  Copy(state.name, bind.name);
  Copy(state.pod_namespace, bind.pod_namespace);
  Copy(state.pod, bind.pod);
  Copy(state.pod_uid, bind.pod_uid);
  Copy(state.container, bind.container);
  Copy(state.trust_domain, bind.trust_domain);
  bind.memory_quota_bytes = state.memory_quota_bytes;
  bind.pinned_limit_bytes = kPinnedLimitBytes;
  bind.shares = state.shares;
  bind.shares.weight = weight;
  return bind;
}

bool Change(const char* state_dir, const std::map<unsigned, unsigned>& weights,
            std::string* error) {
  control::Client client;
  std::vector<control::AllocationState> states;
  if (!client.Connect(state_dir, control::Client::kDefaultTimeout, error) ||
      !client.ListAllocations(&states, error)) {
    return false;
  }
  std::set<unsigned> found;
  for (const control::AllocationState& state : states) {
    const unsigned weight = state.shares.weight == 0 ? kDefaultWeight : state.shares.weight;
    const auto wanted = weights.find(weight);
    if (state.bound == 0 || wanted == weights.end()) continue;
    if (!client.BindAllocation(Rebound(state, wanted->second), error)) return false;
    found.insert(weight);
  }
  for (const auto& [weight, ignored] : weights) {
    if (found.count(weight) != 0) continue;
    *error = std::string(state_dir) + ": no tenant has weight " + std::to_string(weight) +
             ": start it first";
    return false;
  }
  return true;
}

}  // namespace
}  // namespace gpuloom::bench

int main(int argc, char** argv) {
  std::map<unsigned, unsigned> weights;
  for (int i = 2; i < argc; ++i) {
    unsigned before = 0;
    unsigned after = 0;
    char rest = 0;
    if (std::sscanf(argv[i], "%u=%u%c", &before, &after, &rest) != 2 || before == 0 || after == 0 ||
        before > gpuloom::bench::kLargestWeight || after > gpuloom::bench::kLargestWeight) {
      std::fprintf(stderr, "gpuloom-change-weights: '%s': write OLD=NEW, weights from 1 to %u\n",
                   argv[i], gpuloom::bench::kLargestWeight);
      return 2;
    }
    weights[before] = after;
  }
  if (weights.empty()) {
    std::fputs("usage: gpuloom-change-weights STATE_DIR OLD=NEW …\n", stderr);
    return 2;
  }
  std::string error;
  if (!gpuloom::bench::Change(argv[1], weights, &error)) {
    std::fprintf(stderr, "gpuloom-change-weights: %s\n", error.c_str());
    return 1;
  }
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::printf("{\"at_ns\":%lld}\n",
              static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  return 0;
}
