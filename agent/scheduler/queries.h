// SPDX-License-Identifier: Apache-2.0
// Questions about an allocation, without a session (proto/wire/query.h): one answer each, and
// nothing changes. A part of the scheduler; its thread only. `reclaims` outlives it.
#pragma once

#include "agent/scheduler/scheduler_port.h"

namespace gpuloom::scheduler {

class MemoryReclaims;

class Queries : public Part {
 public:
  Queries(SchedulerPort* port, MemoryReclaims* reclaims) : Part(port), reclaims_(reclaims) {}

  // Answers after the allocation's sessions have returned the memory that they keep without using
  // it.
  void AnswerWhenReturned(const AllocationPtr& allocation, TenantConnection connection);

 private:
  void Answer(const Allocation& allocation, const TenantConnection& connection);

  MemoryReclaims* const reclaims_;
};

}  // namespace gpuloom::scheduler
