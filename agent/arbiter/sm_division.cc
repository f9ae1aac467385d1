// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/sm_division.h"

#include <algorithm>
#include <array>

namespace gpuloom::arbiter {
namespace {

uint32_t Count(SmGroups groups) { return static_cast<uint32_t>(std::popcount(groups)); }

// How many limited claims use each group.
using Load = std::array<uint32_t, kMaxSmGroups + 1>;

// Calls f with the number of each group that is set, the lowest first.
template <typename F>
void ForEach(SmGroups groups, F&& f) {
  for (; groups != 0; groups &= groups - 1) f(static_cast<uint32_t>(std::countr_zero(groups)));
}

void Add(Load* load, SmGroups groups) {
  ForEach(groups, [&](uint32_t i) { ++(*load)[i]; });
}

// The last `count` of them, with those in `preferred` first. Reservations are taken from the end,
// so that windows of limited tenants, which begin at the front, stay whole for as long as possible.
SmGroups Last(SmGroups groups, uint32_t count, SmGroups preferred) {
  SmGroups taken = 0;
  for (SmGroups from : {groups & preferred, groups & ~preferred}) {
    while (from != 0 && Count(taken) < count) {
      const SmGroups last = std::bit_floor(from);
      taken |= last;
      from &= ~last;
    }
  }
  return taken;
}

// The least used of the windows of `count` groups that begin at multiples of `count`, counted from
// either end. From both ends, because the groups that are left at one end when `count` does not
// divide them would otherwise never be used. Reserved groups are not in `groups`: a window may
// reach across them.
SmGroups LeastUsed(SmGroups groups, uint32_t count, const Load& load) {
  std::vector<uint32_t> places;
  ForEach(groups, [&](uint32_t i) { places.push_back(i); });
  SmGroups best = 0;
  uint32_t best_load = UINT32_MAX;
  const auto look = [&](size_t begin) {
    SmGroups window = 0;
    uint32_t used = 0;
    for (size_t i = begin; i < begin + count; ++i) {
      window |= SmGroups{1} << places[i];
      used += load[places[i]];
    }
    if (used >= best_load) return;
    best = window;
    best_load = used;
  };
  for (size_t begin = 0; begin + count <= places.size(); begin += count) look(begin);
  for (size_t end = places.size(); end >= count; end -= count) look(end - count);
  return best;
}

}  // namespace

SmLayout SmLayout::Of(uint32_t multiprocessors, uint32_t group_size, uint32_t groups) {
  SmLayout layout{multiprocessors, std::max(group_size, 1u), groups};
  layout.groups = std::min(layout.groups, multiprocessors / layout.group_size);
  // Merges pairs of groups, so that a set always fits into the bits of SmGroups, with one bit left
  // for the rest.
  while (layout.groups > kMaxSmGroups) {
    layout.group_size *= 2;
    layout.groups /= 2;
  }
  return layout;
}

uint32_t SmLayout::GroupsOf(uint32_t percent) const {
  const uint64_t some = uint64_t{multiprocessors} * percent / 100 / group_size;
  return static_cast<uint32_t>(std::clamp<uint64_t>(some, 1, std::max(groups, 1u)));
}

uint32_t SmLayout::Multiprocessors(SmGroups of) const {
  const bool rest = (of & ~regular()) != 0;
  return Count(of & regular()) * group_size + (rest ? left_over() : 0);
}

std::vector<SmShare> DivideSms(const SmLayout& layout, SmGroups of,
                               std::span<const SmClaim> claims) {
  std::vector<SmShare> divided(claims.size());
  std::vector<bool> refused(claims.size());
  SmGroups shared = of;
  // Reservations are served before all limits, in order of arrival; one that does not fit is
  // refused and leaves room for smaller ones behind it.
  for (size_t i = 0; i < claims.size(); ++i) {
    const SmTerms& terms = claims[i].terms;
    if (terms.reserved == 0) continue;
    uint32_t count = layout.GroupsOf(std::min(terms.reserved, 100u));
    if (terms.IsLimited()) count = std::min(count, layout.GroupsOf(terms.percent));
    // At least one group is left for allocations to come.
    if (count >= Count(shared & layout.regular())) {
      refused[i] = true;
      continue;
    }
    divided[i].reserved = Last(shared & layout.regular(), count, claims[i].previous.reserved);
    shared &= ~divided[i].reserved;
  }

  Load load{};
  const SmGroups regular = shared & layout.regular();
  // What a claim gets besides its own reservation.
  const auto count_of = [&](size_t i) {
    const uint32_t wanted = layout.GroupsOf(claims[i].terms.percent) - Count(divided[i].reserved);
    return std::min(wanted, Count(regular));
  };
  // Claims that can keep what they have go first.
  for (size_t i = 0; i < claims.size(); ++i) {
    if (refused[i]) continue;
    SmShare& share = divided[i];
    if (!claims[i].terms.IsLimited()) {
      // All others have what nobody reserved, including the multiprocessors that are left over.
      share.groups = share.reserved | shared;
      continue;
    }
    const SmShare& previous = claims[i].previous;
    const SmGroups kept = previous.groups & ~previous.reserved;
    // Something has changed for this claim: another reservation, fewer groups in common, or another
    // limit. It gets a window below.
    if (previous.groups == 0 || previous.reserved != share.reserved) continue;
    if ((kept & ~regular) != 0 || Count(kept) != count_of(i)) continue;
    share.groups = previous.groups;
    Add(&load, kept);
  }
  for (size_t i = 0; i < claims.size(); ++i) {
    if (refused[i] || divided[i].groups != 0) continue;
    const uint32_t count = count_of(i);
    const SmGroups window = count == 0 ? 0 : LeastUsed(regular, count, load);
    divided[i].groups = divided[i].reserved | window;
    Add(&load, window);
  }
  return divided;
}

}  // namespace gpuloom::arbiter
