// SPDX-License-Identifier: Apache-2.0
// A place in a stream that others can wait for: a CUDA event that was recorded once. The user's
// EventRecord makes one, so does every mark that tells how far a stream has come. Shared by those
// who may still wait for it (the tenant's event, commands in queues, the stream's marks); the CUDA
// event goes back to the device's pool with the last of them. Ring thread only.
#pragma once

#include <memory>

#include "agent/executor/device/device.h"
#include "proto/wire/handles.h"

namespace gpuloom::executor {

struct Point {
  Point(Device* owner, wire::StreamId in_stream, wire::Ticket at_ticket, bool with_timing)
      : device(owner), stream(in_stream), ticket(at_ticket), timing(with_timing) {}
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;
  ~Point() {
    if (event != nullptr && event_owner == nullptr) device->GiveEvent(timing, event);
  }

  Device* const device;  // null in tests without a driver
  const wire::StreamId stream;
  const wire::Ticket ticket;
  const bool timing;
  CUevent event = nullptr;                  // null until it is recorded
  std::shared_ptr<const void> event_owner;  // when it is a graph's, which records it
  bool told = false;  // the device tells the tenant, before we know (completion_words.h)
  bool done = false;
};
using PointRef = std::shared_ptr<Point>;

}  // namespace gpuloom::executor
