// SPDX-License-Identifier: Apache-2.0
// For tests of StreamSet: a set whose sink notes what is submitted, and behind what. Marks are made and completed by the test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "agent/executor/session/slice.h"
#include "agent/executor/stream/stream_set.h"

namespace gpuloom::executor {

struct Submitted {
  uint32_t stream;
  uint64_t ticket;
  std::vector<std::pair<uint32_t, uint64_t>> after;
  bool operator==(const Submitted&) const = default;
};

class StreamSetTest : public ::testing::Test, private StreamSink {
 protected:
  Stream& Add(uint32_t id, bool blocking = true) {
    return *set_.Add(wire::StreamId{id}, blocking, 0, wire::Ticket{last_ticket_});
  }

  uint64_t Enqueue(Stream& stream, std::vector<Dependency> dependencies = {}, Work work = {}) {
    StreamCommand command;
    command.work = std::move(work);
    command.ticket = wire::Ticket{++last_ticket_};
    command.dependencies = std::move(dependencies);
    set_.Enqueue(stream, std::move(command));
    return last_ticket_;
  }

  void Mark(Stream& stream) {
    set_.AddMark(stream,
                 std::make_shared<Point>(nullptr, stream.id, wire::Ticket{stream.submitted}, false),
                 now_ns_);
  }
  void Complete(Stream& stream) {
    if (stream.unmarked != 0) Mark(stream);
    while (!stream.marks.empty()) set_.CompleteOldestMark(stream, now_ns_);
  }

  bool SubmitWaiting() {
    Slice slice(UINT64_MAX);
    return set_.SubmitWaiting(&slice);
  }

  std::vector<Submitted> TakeSubmitted() { return std::move(submitted_); }

  std::vector<Submitted> submitted_;
  uint64_t last_ticket_ = 0;
  uint64_t now_ns_ = 1'000'000;
  bool hold_ = false;
  bool room_ = true;
  bool may_submit_ = true;
  DriverRoom queues_;
  uint32_t allocation_queues_ = 0;
  StreamSet set_{this, &hold_, &queues_, &allocation_queues_};
  std::map<uint32_t, std::vector<std::pair<uint32_t, uint64_t>>> waits_;  // told before the command
  std::map<uint64_t, QueueNeed> needs_;  // of the commands with these tickets
  Stream& legacy_ = Add(0);

 private:
  bool HasRoom(const Stream&, const StreamCommand&) const override { return room_; }
  bool MaySubmit(const Stream&, const StreamCommand&) const override { return may_submit_; }
  bool MaySubmit(const Stream&, const Chunk&) const override { return may_submit_; }
  QueueNeed QueuesFor(const StreamCommand& command) const override {
    const auto need = needs_.find(static_cast<uint64_t>(command.ticket));
    return need == needs_.end() ? QueueNeed{} : need->second;
  }

  void WaitFor(Stream& stream, const Dependency& dependency) override {
    waits_[static_cast<uint32_t>(stream.id)].emplace_back(static_cast<uint32_t>(dependency.stream),
                                                          static_cast<uint64_t>(dependency.ticket));
  }

  void Submit(Stream& stream, StreamCommand& command) override {
    Submitted one{static_cast<uint32_t>(stream.id), static_cast<uint64_t>(command.ticket),
                  std::move(waits_[static_cast<uint32_t>(stream.id)])};
    waits_.erase(static_cast<uint32_t>(stream.id));
    for (const Dependency& d : command.dependencies) {
      one.after.emplace_back(static_cast<uint32_t>(d.stream), static_cast<uint64_t>(d.ticket));
    }
    submitted_.push_back(std::move(one));
  }
};

}  // namespace gpuloom::executor
