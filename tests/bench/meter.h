// SPDX-License-Identifier: Apache-2.0
// A tenant's session on an executor's parts (agent/executor/testing/rounds.h), and what its records cost the ring thread. Times
// are the thread's own processor time, so a busy machine changes them little. One thread's.
//
//   meter.BeginSession(); meter.Begin(); meter.Post<…>(…); meter.Settle(); … meter.cost()
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "agent/executor/testing/rounds.h"

namespace gpuloom::executor {

struct Cost {
  uint64_t stretch_ns =
      0;  // the longest part of a round: a look at one session, at one pool of workers
  uint64_t all_ns = 0;
};

class Meter {
 public:
  explicit Meter(const Driver& driver);

  // The one before ends first.
  void BeginSession();
  // What that costs; nothing where there is no session.
  Cost EndSession();

  // Counts anew.
  void Begin() { cost_ = {}; }
  const Cost& cost() const { return cost_; }

  // Answers to what is posted from here on must say this; nullopt: anything.
  void Expect(std::optional<CUresult> result) { expected_ = result; }
  // What was answered with something else, or why the session has ended; empty: nothing of the kind.
  std::string TakeComplaint();

  template <wire::Command C>
  void Post(const typename C::Request& request, std::span<const uint8_t> payload = {}) {
    const uint16_t slot = C::kReply ? FreeSlot() : wire::kNoReply;
    wire::Ticket ticket{};
    while (!rounds_.tenant().TryPost<C>(request, payload, slot, &ticket)) {
      if (!serving()) return;
      Round();
    }
    if (C::kReply) asked_[slot] = {ticket, C::kName, expected_};
  }
  // Waits for the answer.
  template <wire::Command C>
  typename C::Reply Ask(const typename C::Request& request, std::span<const uint8_t> payload = {}) {
    Post<C>(request, payload);
    WaitFor(last_slot_);
    typename C::Reply reply{};
    std::memcpy(&reply, replies_[last_slot_], wire::kWireSize<typename C::Reply>);
    return reply;
  }
  // Until all is answered and nothing has happened for a while.
  void Settle();
  // The tenant's functions whose turn has come have returned.
  void ReturnHostFunctions();

  bool serving() {
    return rounds_.session() != nullptr && rounds_.session()->state() == Session::State::kServing;
  }
  const control::AddSession& order() const { return order_; }

 private:
  struct Asked {
    wire::Ticket ticket{};  // 0: nothing
    std::string_view command;
    std::optional<CUresult> expected;
  };
  TestingRounds::Habits Habits();
  bool Round();
  uint16_t FreeSlot();
  void WaitFor(uint16_t slot);
  // False: no answer yet.
  bool TakeAnswer(uint16_t slot);
  bool Waits();

  TestingRounds rounds_;
  control::AddSession order_{};
  Cost cost_;
  std::optional<CUresult> expected_ = CUDA_SUCCESS;
  std::string complaint_;
  Asked asked_[wire::kReplySlots];
  uint8_t replies_[wire::kReplySlots][sizeof(wire::ReplySlot::reply)] = {};
  uint16_t last_slot_ = 0;
};

}  // namespace gpuloom::executor
