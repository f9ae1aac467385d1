// SPDX-License-Identifier: Apache-2.0
// A position in a stream that others can wait for: a CUDA event that was recorded once. Made by the
// user's EventRecord, and by every mark that tracks a stream's progress. Shared by everything that
// may still wait for it (the tenant's event, queued commands, the stream's marks); the last one
// returns the CUDA event to the device's pool. Ring thread only.
#pragma once

#include <memory>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom::executor {

class Device;
struct Tenant;

struct Point {
  Point(Device* owner, wire::StreamId in_stream, wire::Ticket at_ticket, bool with_timing)
      : device(owner),
        stream(in_stream),
        ticket(at_ticket),
        timing(with_timing),
        timed(with_timing) {}
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;
  ~Point();
  // For a program's event: it counts as the tenant's as long as this lasts.
  void CountFor(std::shared_ptr<Tenant> tenant);

  Device* const device;  // null in tests without a driver
  const wire::StreamId stream;
  const wire::Ticket ticket;
  bool timing;                              // the CUDA event has it (timing_events.h)
  const bool timed;                         // its time may be asked for
  CUevent event = nullptr;                  // null until it is recorded
  std::shared_ptr<const void> event_owner;  // for a graph's event, which the graph records
  bool awaited = false;  // a thread waited when it was recorded: for this, or for an older one
  bool device_notifies =
      false;  // the device notifies the tenant, before we know (completion_words.h)
  bool done = false;
  uint64_t seen_ns = 0;                 // of one that is timed: when it was seen to be done
  std::shared_ptr<Tenant> counted_for;  // null: nobody's
};
using PointRef = std::shared_ptr<Point>;

}  // namespace gpuloom::executor
