// SPDX-License-Identifier: Apache-2.0
// Which multiprocessors each tenant of a trust domain may use, by the policy's smPercent and
// smReserved.
//
// A device divides its multiprocessors into groups of equal size, and some may be left over (H100:
// 15 groups of 8, and 12). A limit is a number of whole groups, rounded down, but at least one.
// Limited tenants get aligned windows of groups, where the fewest others are. So tenants disturb
// each other as little as possible, and there are few different sets, each of which costs the
// executor a green context (docs/design/green-contexts.md). The groups that an allocation has
// reserved are used by no other one. An allocation that is neither limited nor beside a reservation
// has the whole device.
//
// Pure: no clock, no I/O, no CUDA. Nothing fails. Percentages are of the whole device's
// multiprocessors, on every level.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace gpuloom::arbiter {

// Bit i stands for group i; the bit after the last group, for the multiprocessors that are left
// over.
using SmGroups = uint64_t;

inline constexpr uint32_t kMaxSmGroups = 63;

struct SmLayout {
  uint32_t multiprocessors = 0;
  uint32_t group_size = 1;  // multiprocessors
  uint32_t groups = 0;      // at most kMaxSmGroups

  // The layout of a device with groups of this size; with larger groups where there would be more
  // than kMaxSmGroups.
  static SmLayout Of(uint32_t multiprocessors, uint32_t group_size, uint32_t groups);

  SmGroups regular() const { return (SmGroups{1} << groups) - 1; }
  uint32_t left_over() const { return multiprocessors - groups * group_size; }
  SmGroups whole() const {
    return left_over() == 0 ? regular() : regular() | SmGroups{1} << groups;
  }
  // How many whole groups `percent` makes; at least one.
  uint32_t GroupsOf(uint32_t percent) const;
  uint32_t Multiprocessors(SmGroups of) const;

  bool operator==(const SmLayout&) const = default;
};

struct SmTerms {
  uint32_t percent = 0;   // an upper limit; 0 or from 100 on: none
  uint32_t reserved = 0;  // percent that nobody else may use; at most `percent`

  bool IsLimited() const { return percent != 0 && percent < 100; }
  bool operator==(const SmTerms&) const = default;
};

struct SmShare {
  SmGroups groups = 0;    // all groups that it may use; 0: its reservation does not fit
  SmGroups reserved = 0;  // those of `groups` that nobody else may use

  bool operator==(const SmShare&) const = default;
};

struct SmClaim {
  SmTerms terms;
  SmShare previous;  // what it had before, and keeps if it can
};

// Divides `of` on one level among the claims, which are in order of arrival. The result has an
// entry for each claim. A reservation fits if the earlier ones leave room for it and it leaves
// something to the others.
std::vector<SmShare> DivideSms(const SmLayout& layout, SmGroups of,
                               std::span<const SmClaim> claims);

}  // namespace gpuloom::arbiter
