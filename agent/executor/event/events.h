// SPDX-License-Identifier: Apache-2.0
// The part of a session for events, and for those who wait for one. Ring thread only.
#pragma once

#include <utility>
#include <vector>

#include "agent/executor/memory/physical_memory.h"
#include "agent/executor/session/id_table.h"
#include "agent/executor/session/session_port.h"
#include "agent/executor/stream/point.h"

namespace gpuloom::executor {

struct Event {
  bool timing = false;
  PointRef latest;        // null: never recorded
  SharedEventRef shared;  // other sessions know it, too
};

class Events final : public Part {
 public:
  explicit Events(SessionPort* port) : Part(port) {}

  void On(wire::Tag<wire::EventCreate>, const wire::EventCreate::Request&, const wire::Record&);
  void On(wire::Tag<wire::EventDestroy>, const wire::EventDestroy::Request&, const wire::Record&);
  void On(wire::Tag<wire::EventRecord>, const wire::EventRecord::Request&, const wire::Record&);
  void On(wire::Tag<wire::StreamWaitEvent>, const wire::StreamWaitEvent::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::EventElapsed>, const wire::EventElapsed::Request&, const wire::Record&);
  void On(wire::Tag<wire::EventShare>, const wire::EventShare::Request&, const wire::Record&);
  void On(wire::Tag<wire::EventOpen>, const wire::EventOpen::Request&, const wire::Record&);
  void On(wire::Tag<wire::EventDone>, const wire::EventDone::Request&, const wire::Record&);

  // Or null.
  Event* Find(wire::EventId id_untrusted) const { return events_.Find(id_untrusted); }
  // Some are or were shared with other sessions.
  bool shares_events() const { return shares_events_; }
  // Who waits for one that is done. True when there was any.
  bool AnswerEventWaits();

  // The session ends.
  void End() { event_waiting_.clear(); }
  // Then, a piece; true when that was the last.
  bool DropPiece() { return executor::DropPiece(&events_); }

 private:
  bool shares_events_ = false;
  IdTable<wire::EventId, Event, wire::kMaxEvents> events_;
  std::vector<std::pair<Caller, PointRef>> event_waiting_;
};

}  // namespace gpuloom::executor
