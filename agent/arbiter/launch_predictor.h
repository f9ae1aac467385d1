// SPDX-License-Identifier: Apache-2.0
// How long a launch will take: as long as the same launch took lately. "The same" means the same
// function with the same dimensions and shared memory, of the same owner. Each tenant of a shared
// image has its own entries, so that no tenant's arguments can spoil another's predictions. One that
// was never seen takes as long as such launches of its group did at their first time: programs whose
// shapes grow, as a language model's cache does, launch little that they have launched before.
//
//   const Prediction p = predictor.Predict(key);    // before it is submitted
//   predictor.Learn(key, measured_ns);              // when it was measured, or for a sample of launches
//
// A prediction bounds what is in flight and orders who goes next. Charges never use it: they are
// measured (busy_meter.h), so a tenant that makes its kernels unpredictable gains nothing.
//
// For work that shared the device with others' work, often only a lower and an upper bound of its
// time are known (work_meter.h). A time that was measured alone is believed until such bounds prove
// it wrong, or kDoubtful lower bounds in a row have not come near it: then it is forgotten. Where none
// was measured alone, the lower bound counts: kernels that fill the device run one after the other.
// The first launch never counts as measured alone: it may load code, and an idle device takes longer to begin.
//
// Robust: the median of the last five measurements, so that two outliers of five (a neighbour's
// burst, a first launch that loads code) change nothing. A launch of which nothing is known, nor of
// its group, counts as kUnknownNs.
//
// Bounded: kSets sets of kWays entries (416 KiB), all made at construction; nothing allocates later. A full set evicts
// what was measured least often, the oldest of that first. An allocation that already has half of a set evicts one of
// its own, so that a tenant whose every launch is new does not push the others out, however many processes it has.
// Predict and Learn look at one set. The executor's ring thread only; one predictor for each domain. Nothing fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/arbiter/work.h"

namespace gpuloom::arbiter {

struct LaunchKey {
  uint64_t function = 0;  // identity; never dereferenced
  std::array<uint32_t, 3> grid = {};
  std::array<uint32_t, 3> block = {};
  uint32_t shared_bytes = 0;
  uint64_t group = 0;  // of launches that take about as long, as their size differs little; 0: none
  uint32_t owner = 0;
  uint32_t allocation = 0;  // the owner's; the same of all keys of an owner

  bool operator==(const LaunchKey&) const = default;
};

struct Prediction {
  uint64_t ns = 0;
  uint32_t samples = 0;          // of this launch; 0: ns is its group's, or kUnknownNs
  uint32_t spread_permille = 0;  // by how much of the median the middle three of five differ
  bool alone = false;  // it was measured on an idle device; otherwise it is a bound, or a guess

  // Good enough to cut chains by it.
  bool sure() const { return samples >= 3 && spread_permille <= 250; }
};

class LaunchPredictor {
 public:
  static constexpr uint32_t kSets = 512;
  static constexpr uint32_t kWays = 8;
  static constexpr uint32_t kSamples = 5;
  static constexpr uint32_t kDoubtful = 16;
  // An unknown launch counts as long, so that beside a higher class one of them goes at a time.
  static constexpr uint64_t kUnknownNs = 1'000'000;

  LaunchPredictor();

  Prediction Predict(const LaunchKey& key) const;
  void Learn(const LaunchKey& key, const Duration& took);
  // Forgets an owner that has gone, so that its number may be reused. Walks over the whole table.
  void Forget(uint32_t owner);

  // How far the measurements that were learnt were from what had been predicted right before.
  struct Errors {
    uint64_t launches = 0;
    uint64_t unknown = 0;  // of them, whatever was known of their groups; not in the sums
    uint64_t measured_ns = 0;
    uint64_t absolute_error_ns = 0;
    // How many of the launches measured alone had which error, in whole per cent of what they took; the last entry is
    // for 100 and more.
    std::array<uint64_t, 101> alone = {};

    uint64_t alone_count() const;
    // The error, in per cent, that this part (0 to 1) of them did not exceed; 0 where there are none.
    uint32_t AlonePercent(double part) const;
  };
  const Errors& errors() const { return errors_; }

 private:
  struct Entry {
    LaunchKey key;
    std::array<uint32_t, kSamples> samples_ns = {};  // a ring; longer than 4.2 s counts as that
    std::array<bool, kSamples> exact = {};           // that sample
    uint32_t learnt = 0;                             // 0: free
    // Observations since the last sample that allowed the prediction, and the greatest lower bound among them.
    uint32_t possible = 0;
    uint32_t possible_ns = 0;
    uint64_t used = 0;  // the moment, counted in Learns
  };
  static uint64_t Hash(const LaunchKey& key);
  static LaunchKey GroupOf(const LaunchKey& key);
  const Entry* Find(const LaunchKey& key) const;
  Entry& FindOrAdd(const LaunchKey& key);
  static Prediction Of(const Entry& entry);
  static bool MostlyExact(const Entry& entry);
  static bool IsExact(const Duration& took);
  void Learn(const LaunchKey& key, const Duration& took, Errors* errors);
  static bool Disproves(Entry* entry, uint64_t known_ns, const Duration& took);

  std::vector<Entry> entries_;
  uint64_t learns_ = 0;
  Errors errors_;
};

}  // namespace gpuloom::arbiter
