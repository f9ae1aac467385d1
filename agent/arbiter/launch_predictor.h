// SPDX-License-Identifier: Apache-2.0
// What a launch will take: what the same launch took lately. "The same" is the same function with
// the same dimensions and shared memory, of the same owner: of a shared image each tenant has its
// own entries, so a tenant's arguments cannot spoil another's predictions.
//
//   const Prediction p = predictor.Predict(key);    // before it is submitted
//   predictor.Learn(key, measured_ns);              // when it was measured, or of a sample of them
//
// A prediction bounds what is in flight and orders who goes next. Charges never use it: what is
// charged is measured (busy_meter.h), so a tenant that makes its kernels unpredictable gains
// nothing.
//
// Of work that shared the device with others' it is often known only that it took between so long
// and so long (work_meter.h). What was measured alone is believed until that shows it to be wrong.
// Where nothing was, the least counts: kernels that fill the device run one after the other.
//
// Robust: the median of the last five measurements, so two outliers of five (a neighbour's burst, a
// first launch that loads code) move nothing. An unknown launch counts as kUnknownNs until it was
// seen once.
//
// Bounded: kSets sets of kWays entries (264 KiB), all made at construction; nothing allocates
// later. A full set gives up what was measured least, the oldest of that first; an owner that has
// half of a set already gives up one of its own, so a tenant whose every launch is new does not
// push the others out. Predict and Learn look at one set. One thread; one predictor for each
// domain.
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
  uint32_t owner = 0;

  bool operator==(const LaunchKey&) const = default;
};

struct Prediction {
  uint64_t ns = 0;
  uint32_t samples = 0;          // it rests on; 0: nothing is known, and ns is kUnknownNs
  uint32_t spread_permille = 0;  // the middle three of five differ by so much of the median

  // Good enough to cut chains by it.
  bool sure() const { return samples >= 3 && spread_permille <= 250; }
};

class LaunchPredictor {
 public:
  static constexpr uint32_t kSets = 512;
  static constexpr uint32_t kWays = 8;
  static constexpr uint32_t kSamples = 5;
  // What is unknown counts as long: beside a higher class one of them goes at a time.
  static constexpr uint64_t kUnknownNs = 1'000'000;

  LaunchPredictor();

  Prediction Predict(const LaunchKey& key) const;
  void Learn(const LaunchKey& key, const Duration& took);
  // All of an owner that has gone: its number may be used again. Walks over the whole table.
  void Forget(uint32_t owner);

  // Of all measurements that were learnt: what had been predicted right before.
  struct Errors {
    uint64_t launches = 0;
    uint64_t unknown = 0;  // of them; not in the sums
    uint64_t measured_ns = 0;
    uint64_t absolute_error_ns = 0;
    // Of those measured alone: by the error in whole per cent of what it took, the last one's being
    // 100 and more.
    std::array<uint64_t, 101> alone = {};

    uint64_t alone_count() const;
    // At most so much was the error of this part of them, 0 to 1; 0 where there are none.
    uint32_t AlonePercent(double part) const;
  };
  const Errors& errors() const { return errors_; }

 private:
  struct Entry {
    LaunchKey key;
    std::array<uint32_t, kSamples> samples_ns = {};  // a ring; longer than 4.2 s counts as that
    std::array<bool, kSamples> exact = {};           // that sample
    uint32_t learnt = 0;                             // 0: free
    uint64_t used = 0;                               // the moment, counted in Learns
  };
  static uint64_t Hash(const LaunchKey& key);
  const Entry* Find(const LaunchKey& key) const;
  Entry& FindOrAdd(const LaunchKey& key);
  static Prediction Of(const Entry& entry);
  static bool MostlyExact(const Entry& entry);

  std::vector<Entry> entries_;
  uint64_t learns_ = 0;
  Errors errors_;
};

}  // namespace gpuloom::arbiter
