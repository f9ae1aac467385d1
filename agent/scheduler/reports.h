// SPDX-License-Identifier: Apache-2.0
// What the scheduler tells agents and commands of allocations, trust domains and the GPU. Sums of what executors report
// stop at the largest number. A part of the scheduler; its thread only. The parts that it asks outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/scheduler_port.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

class Accounting;
class Executors;
class MemoryGrants;
class Peer;
class TrustDomains;
class Turns;

class Reports : public Part {
 public:
  Reports(SchedulerPort* port, const Turns* turns, TrustDomains* trust_domains,
          Accounting* accounting, const MemoryGrants* memory_grants, const Executors* executors)
      : Part(port),
        turns_(turns),
        trust_domains_(trust_domains),
        accounting_(accounting),
        memory_grants_(memory_grants),
        executors_(executors) {}

  // What ListAllocations and DescribeGpu ask for, before their answer.
  void SendStates(Peer* peer, uint32_t request);
  void SendGpu(Peer* peer, uint32_t request);

 private:
  // Those that have something at present, by name. The book keeps the figures of others for when they come back.
  using Domains = std::map<std::string, control::DomainState>;

  // Adds what the allocation's sessions have done, live and ended ones.
  void AddSessions(const Allocation& allocation, control::AllocationState* state) const;
  // Adds what all allocations use, also removed ones.
  void AddMemory(control::GpuState* gpu) const;
  void SendDomains(Domains* domains, Peer* peer, uint32_t request);

  const Turns* const turns_;
  TrustDomains* const trust_domains_;
  Accounting* const accounting_;
  const MemoryGrants* const memory_grants_;
  const Executors* const executors_;
  const EventLoop::Clock::time_point began_ = EventLoop::Clock::now();
};

}  // namespace gpuloom::scheduler
