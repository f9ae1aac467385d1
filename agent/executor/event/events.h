// SPDX-License-Identifier: Apache-2.0
// The part of a session for events and for callers waiting for one. Ring thread only.
//
// Owns the events. What others wait for is a point (point.h), which they share: it outlives the event. Callers that
// still wait when the session ends get no answer.
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
  SharedEventRef shared;  // also known to other sessions
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

  // Returns nullptr if there is none.
  Event* Find(wire::EventId id_untrusted) const { return events_.Find(id_untrusted); }
  // Returns true if any event is or was shared with other sessions.
  bool shares_events() const { return shares_events_; }
  // Answers callers whose event is done. Returns true if there were any.
  bool AnswerEventWaits();

  // Call when the session ends.
  void End() { event_waiting_.clear(); }
  // After End: drops one piece; returns true if that was the last.
  bool DropPiece() { return executor::DropPiece(&events_); }

 private:
  bool shares_events_ = false;
  IdTable<wire::EventId, Event, wire::kMaxEvents> events_;
  std::vector<std::pair<Caller, PointRef>> event_waiting_;
};

}  // namespace gpuloom::executor
