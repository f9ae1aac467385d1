// SPDX-License-Identifier: Apache-2.0
// Whom a domain's arbiter knows: the namespaces and allocations of a trust domain, by the scheduler's numbers, while they have
// sessions and for as long as they owe something. A program that starts a process for each kernel would otherwise have a full
// ceiling, and its siblings' time, for each of them. docs/design/sharing-time.md.
//
// Owned by whoever owns the arbiter, which outlives it. One thread. `now_ns` as in DomainArbiter. A wrong id is our bug.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "agent/arbiter/domain_arbiter.h"

namespace gpuloom::arbiter {

class DomainMembers {
 public:
  // How many without sessions are remembered for what they owe, each some 3 KiB: as many as a GPU has allocations.
  static constexpr size_t kMostUnused = 1024;

  explicit DomainMembers(DomainArbiter* arbiter) : arbiter_(arbiter) {}

  struct Terms {
    NamespacePolicy of_namespace;
    AllocationPolicy of_allocation;
  };
  // A session of the allocation begins, under these terms. Numbers are never reused.
  AllocationId Join(uint64_t space, uint64_t allocation, const Terms& terms, uint64_t now_ns);
  // One of its sessions has ended in the arbiter, too.
  void Leave(AllocationId id);
  // Returns false if the allocation is not known.
  bool Set(uint64_t allocation, const Terms& terms, uint64_t now_ns);

  // Forgets who has no sessions and owes nothing. Walks over all, if any may have none: call it now and then.
  void Forget(uint64_t now_ns);
  size_t size() const { return allocations_.size() + namespaces_.size(); }

 private:
  struct Namespace {
    NamespaceId id;
    uint32_t allocations = 0;
  };
  struct Allocation {
    AllocationId id;
    uint64_t space;
    uint32_t sessions = 0;
  };

  DomainArbiter* const arbiter_;
  std::unordered_map<uint64_t, Namespace> namespaces_;
  std::unordered_map<uint64_t, Allocation> allocations_;
  bool any_unused_ = false;  // some may have no sessions
};

}  // namespace gpuloom::arbiter
