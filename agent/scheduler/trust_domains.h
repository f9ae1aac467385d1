// SPDX-License-Identifier: Apache-2.0
// The book of trust domains (domain_book.h), and when one is forgotten. A part of the scheduler; its thread only. Owns
// the book; book() stays valid as long as this does, which outlives the parts that have it.
#pragma once

#include "agent/scheduler/domain_book.h"
#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/scheduler_port.h"

namespace gpuloom::scheduler {

class TrustDomains : public Part {
 public:
  explicit TrustDomains(SchedulerPort* port) : Part(port), book_(port->options().domain_linger) {}

  DomainBook* book() { return &book_; }
  // Call when an allocation has left a trust domain, or an executor has ended.
  void Forget();

 private:
  DomainBook book_;
  Timer timer_;  // its next moment
};

}  // namespace gpuloom::scheduler
