// SPDX-License-Identifier: Apache-2.0
// Agent ↔ scheduler: the control socket, who may ask over it, and the answers (docs/design/control.md). A part of the
// scheduler; its thread only. The parts that it calls outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "agent/scheduler/controller.h"
#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/scheduler_port.h"
#include "proto/channel/unique_fd.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

class Allocations;
class OperatorTraces;
class Reports;
class Shares;

class Controllers : public Part {
 public:
  static constexpr size_t kMaxControlConnections = 64;

  Controllers(SchedulerPort* port, OperatorTraces* operator_traces, Shares* shares,
              Reports* reports, Allocations* allocations)
      : Part(port),
        operator_traces_(operator_traces),
        shares_(shares),
        reports_(reports),
        allocations_(allocations) {}

  // Creates the control socket, but accepts nobody before Serve. Returns false with a message.
  [[nodiscard]] bool Listen(std::string* error);
  void Serve();
  // Removes the socket, so that nobody finds one that is not served: a client that comes later starts another scheduler.
  void Close();
  bool empty() const { return controllers_.empty(); }
  // Whether anybody has ever connected.
  bool was_used() const { return was_used_; }

  [[nodiscard]] bool Apply(Controller* controller, const control::ControlHello& message,
                           std::string* error);
  // These two only say that the request is known: Reports sends what it asks for, before the answer.
  [[nodiscard]] bool Apply(Controller* controller, const control::ListAllocations& message,
                           std::string* error);
  [[nodiscard]] bool Apply(Controller* controller, const control::DescribeGpu& message,
                           std::string* error);

 private:
  std::string Path() const;
  void Accept();
  void OnMessage(uint64_t controller_id, const control::Incoming& in);
  // Returns false with the reason.
  [[nodiscard]] bool Dispatch(Controller* controller, const control::Incoming& in,
                              std::string* error);
  void OnGone(uint64_t controller_id);

  OperatorTraces* const operator_traces_;
  Shares* const shares_;
  Reports* const reports_;
  Allocations* const allocations_;
  channel::UniqueFd listener_;
  Watch watch_;
  Timer pause_;
  bool was_used_ = false;
  std::map<uint64_t, Controller> controllers_;
};

}  // namespace gpuloom::scheduler
