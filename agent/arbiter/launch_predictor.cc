// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/launch_predictor.h"

#include <algorithm>
#include <numeric>

namespace gpuloom::arbiter {

uint64_t LaunchPredictor::Errors::alone_count() const {
  return std::accumulate(alone.begin(), alone.end(), uint64_t{0});
}

// The smallest whole per cent that `part` of the errors do not exceed. `sum != 0` makes a part of 0
// give the smallest error there is, not 0.
uint32_t LaunchPredictor::Errors::AlonePercent(double part) const {
  const double wanted = part * static_cast<double>(alone_count());
  uint64_t sum = 0;
  for (uint32_t percent = 0; percent < alone.size(); ++percent) {
    sum += alone[percent];
    if (sum != 0 && static_cast<double>(sum) >= wanted) return percent;
  }
  return 0;
}

LaunchPredictor::LaunchPredictor() : entries_(size_t{kSets} * kWays) {}

// A multiplicative mix (the constants are the golden ratio's and MurmurHash3's). It decides the set
// only; entries are compared by their whole keys, so a collision costs a place and never a wrong
// prediction.
uint64_t LaunchPredictor::Hash(const LaunchKey& key) {
  const std::array<uint64_t, 5> words = {key.function, uint64_t{key.grid[0]} << 32 | key.grid[1],
                                         uint64_t{key.grid[2]} << 32 | key.block[0],
                                         uint64_t{key.block[1]} << 32 | key.block[2],
                                         uint64_t{key.shared_bytes} << 32 | key.owner};
  uint64_t hash = 0x9e3779b97f4a7c15;
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
  }
  return hash;
}

// A group is an entry like any other. It has no dimensions, as no kernel has.
LaunchKey LaunchPredictor::GroupOf(const LaunchKey& key) {
  return {.function = key.group, .owner = key.owner, .allocation = key.allocation};
}

const LaunchPredictor::Entry* LaunchPredictor::Find(const LaunchKey& key) const {
  const Entry* set = &entries_[Hash(key) % kSets * kWays];
  for (const Entry* it = set; it != set + kWays; ++it) {
    if (it->learnt != 0 && it->key == key) return it;
  }
  return nullptr;
}

// A place for a key that is not there: a free one, or the victim's, cleared. The allocation's half of a
// set is its limit while the set is full; a free place is taken in any case.
LaunchPredictor::Entry& LaunchPredictor::FindOrAdd(const LaunchKey& key) {
  Entry* const set = &entries_[Hash(key) % kSets * kWays];
  uint32_t own = 0;
  for (Entry* it = set; it != set + kWays; ++it) {
    if (it->learnt == 0) return *it;
    if (it->key.allocation == key.allocation) ++own;
  }
  const bool only_own = own >= kWays / 2;
  Entry* victim = nullptr;
  for (Entry* it = set; it != set + kWays; ++it) {
    if (only_own && it->key.allocation != key.allocation) continue;
    // Seen once: most likely it never comes again.
    const bool once = it->learnt == 1;
    const bool victim_once = victim != nullptr && victim->learnt == 1;
    if (victim == nullptr || (once && !victim_once) ||
        (once == victim_once && it->used < victim->used)) {
      victim = it;
    }
  }
  *victim = Entry{};
  return *victim;
}

Prediction LaunchPredictor::Of(const Entry& entry) {
  std::array<uint32_t, kSamples> sorted = entry.samples_ns;
  const uint32_t count = std::min(entry.learnt, kSamples);
  std::sort(sorted.begin(), sorted.begin() + count);
  const uint64_t median = sorted[count / 2];
  // Without the smallest and the largest, where there are enough.
  const uint32_t cut = count >= 3 ? 1 : 0;
  const uint64_t spread = sorted[count - 1 - cut] - sorted[cut];
  const uint64_t permille = spread * 1000 / std::max<uint64_t>(median, 1);
  return {median, count, static_cast<uint32_t>(std::min<uint64_t>(permille, UINT32_MAX)),
          MostlyExact(entry)};
}

Prediction LaunchPredictor::Predict(const LaunchKey& key) const {
  if (const Entry* entry = Find(key)) return Of(*entry);
  const Entry* group = key.group == 0 ? nullptr : Find(GroupOf(key));
  return {.ns = group == nullptr ? kUnknownNs : Of(*group).ns};
}

// More than half of the samples that are kept are of work that ran alone. The first never counts as such.
bool LaunchPredictor::MostlyExact(const Entry& entry) {
  const auto exact = std::count(entry.exact.begin(), entry.exact.end(), true);
  return 2 * static_cast<uint32_t>(exact) > std::min(entry.learnt, kSamples);
}

// Whoever was alone and whose end was seen soon: the device may have begun it, and ended it, any time in an eighth of what it
// took.
bool LaunchPredictor::IsExact(const Duration& took) {
  return took.most_ns - took.least_ns <= took.most_ns / 8 && took.late_ns <= took.most_ns / 8;
}

// Notes what was observed while the prediction was possible. True if kDoubtful observations in a row, seen soon, had no lower
// bound near the prediction. A kernel that ran beside others in part is now and then seen with nearly its whole length; never
// so, if what was measured alone was longer than usual.
bool LaunchPredictor::Disproves(Entry* entry, uint64_t known_ns, const Duration& took) {
  if (took.late_ns > took.least_ns / 2) return false;
  entry->possible_ns = std::max(
      entry->possible_ns, static_cast<uint32_t>(std::min<uint64_t>(took.least_ns, UINT32_MAX)));
  if (++entry->possible < kDoubtful) return false;
  const uint64_t greatest_ns = entry->possible_ns;
  entry->possible = entry->possible_ns = 0;
  return greatest_ns < known_ns - known_ns / 8;
}

void LaunchPredictor::Learn(const LaunchKey& key, const Duration& took) {
  if (key.group != 0 && Find(key) == nullptr) {
    Errors of_groups;
    Learn(GroupOf(key), took, &of_groups);
  }
  Learn(key, took, &errors_);
}

void LaunchPredictor::Learn(const LaunchKey& key, const Duration& took, Errors* errors) {
  Entry* entry = const_cast<Entry*>(Find(key));  // ours: entries_ is not const here
  const bool exact = IsExact(took);
  // When in the time in which nobody looked it ended is not known: about in the middle of it.
  uint64_t measured_ns = exact ? took.least_ns - took.late_ns / 2 : took.least_ns;
  bool forgets = false;
  if (!exact && entry != nullptr && MostlyExact(*entry)) {
    const uint64_t known_ns = Of(*entry).ns;
    const uint64_t surely_ns = took.surely_ns();
    if (known_ns >= surely_ns && known_ns <= took.most_ns) {
      forgets = Disproves(entry, known_ns, took);
      // The prediction lies within what was observed, so nothing is learned. But the entry was
      // needed, and is kept before those that were not.
      if (!forgets) {
        entry->used = ++learns_;
        return;
      }
    } else {
      // Proved wrong: moved to the nearest value that the observation allows, as one sample of five.
      measured_ns = std::clamp(known_ns, surely_ns, took.most_ns);
    }
  }
  ++errors->launches;
  if (entry == nullptr) {
    ++errors->unknown;
    entry = &FindOrAdd(key);
    entry->key = key;
  } else {
    const uint64_t predicted_ns = Of(*entry).ns;
    const uint64_t error_ns =
        predicted_ns > measured_ns ? predicted_ns - measured_ns : measured_ns - predicted_ns;
    errors->measured_ns += measured_ns;
    errors->absolute_error_ns += error_ns;
    if (exact) {
      const uint64_t percent = error_ns * 100 / std::max<uint64_t>(measured_ns, 1);
      ++errors->alone[std::min<uint64_t>(percent, errors->alone.size() - 1)];
    }
  }
  // As if nothing had been measured alone.
  if (forgets) *entry = Entry{.key = key};
  entry->possible = entry->possible_ns = 0;
  entry->exact[entry->learnt % kSamples] = exact && entry->learnt != 0;
  entry->samples_ns[entry->learnt % kSamples] =
      static_cast<uint32_t>(std::min<uint64_t>(measured_ns, UINT32_MAX));
  // Wraps to kSamples, not to 0, which means "free": the ring stays full, and its index continues.
  entry->learnt = entry->learnt == UINT32_MAX ? kSamples : entry->learnt + 1;
  entry->used = ++learns_;
}

void LaunchPredictor::Forget(uint32_t owner) {
  for (Entry& entry : entries_) {
    if (entry.learnt != 0 && entry.key.owner == owner) entry = Entry{};
  }
}

}  // namespace gpuloom::arbiter
