// SPDX-License-Identifier: Apache-2.0
// Events: their records, what waits for them, and events that processes of one trust domain share.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

struct EventCreate {
  static constexpr std::string_view kName = "EventCreate";
  static constexpr bool kReply = false;
  struct Request {
    EventId event;    // unused so far
    uint32_t timing;  // 1: EventElapsed may be asked of it
  };
  using Reply = NoReply;
};

struct EventDestroy {
  static constexpr std::string_view kName = "EventDestroy";
  static constexpr bool kReply = false;
  struct Request {
    EventId event;
  };
  using Reply = NoReply;
};

// Done when completed[stream] has reached this command's ticket.
struct EventRecord {
  static constexpr std::string_view kName = "EventRecord";
  static constexpr bool kReply = false;
  struct Request {
    EventId event;
    StreamId stream;
  };
  using Reply = NoReply;
};

// Later work of `stream` waits for the event's latest record before this command; if there is none, it does not wait.
struct StreamWaitEvent {
  static constexpr std::string_view kName = "StreamWaitEvent";
  static constexpr bool kReply = false;
  struct Request {
    StreamId stream;
    EventId event;
  };
  using Reply = NoReply;
};

// CUDA_ERROR_NOT_READY unless both events are done.
struct EventElapsed {
  static constexpr std::string_view kName = "EventElapsed";
  static constexpr bool kReply = true;
  struct Request {
    EventId start;
    EventId end;
  };
  struct Reply {
    uint32_t milliseconds_bits;  // of a float
  };
};

// Names an event to other processes of the domain; from then on they share its state.
struct EventShare {
  static constexpr std::string_view kName = "EventShare";
  static constexpr bool kReply = true;
  struct Request {
    EventId event;
  };
  struct Reply {
    Token token;
  };
};

// CUDA_ERROR_INVALID_HANDLE if this executor knows no such event.
struct EventOpen {
  static constexpr std::string_view kName = "EventOpen";
  static constexpr bool kReply = true;
  struct Request {
    EventId event;  // unused so far
    uint32_t unused;
    Token token;
  };
  struct Reply {};
};

// Whether the latest record is done, in whichever process it was made: completion numbers cover only the tenant's own.
// CUDA_ERROR_NOT_READY if it is not and `wait` is 0.
struct EventDone {
  static constexpr std::string_view kName = "EventDone";
  static constexpr bool kReply = true;
  struct Request {
    EventId event;
    uint32_t wait;  // 1: answered once it is
  };
  struct Reply {};
};

}  // namespace gpuloom::wire
