// SPDX-License-Identifier: Apache-2.0
// What the scheduler provides to its parts (docs/design/scheduler-parts.md): the loop, the device, the options, what
// exists on the GPU, and the few calls that go up. The scheduler derives from it; a part has a pointer to that base and
// is destroyed before it. `loop` and `device` outlive both. The scheduler's thread only; nothing blocks.
#pragma once

#include <string>
#include <utility>

#include "agent/scheduler/options.h"
#include "agent/scheduler/registry.h"

namespace gpuloom::scheduler {

class Device;
class EventLoop;

class SchedulerPort {
 public:
  SchedulerPort(const SchedulerPort&) = delete;
  SchedulerPort& operator=(const SchedulerPort&) = delete;

  EventLoop* loop() const { return loop_; }
  Device* device() const { return device_; }
  const Options& options() const { return options_; }
  Registry& registry() { return registry_; }
  // Whether everything is being ended, by nobody's fault.
  bool shutting_down() const { return shutting_down_; }

  // kAbort: the executor hangs, and is to log where. If it has not ended after exit_grace, it is killed in any case.
  enum class End { kAsk, kAbort, kKill };
  // The executor stops serving sessions: its tenants are disconnected, and its domain may start another one.
  // `for_neighbours` is `reason` without the name of who was at fault, which only the log and the culprit may see;
  // empty: `reason` names nobody.
  virtual void LoseExecutor(Executor* executor, End end, const std::string& reason,
                            const std::string& for_neighbours) = 0;
  void LoseExecutor(Executor* executor, End end, const std::string& reason) {
    LoseExecutor(executor, end, reason, std::string());
  }
  // Call when something that keeps an executor alive has gone.
  virtual void ArmIdleTimer(Executor* executor) = 0;

  // The executor that new sessions of the domain go to, started if there is none. Returns nullptr with a message for the
  // tenant.
  [[nodiscard]] virtual Executor* ExecutorFor(const std::string& domain, std::string* error) = 0;

  // Whether the scheduler has nothing left to do and is to end.
  virtual bool Unused() const = 0;
  // Call after everything that may have been the last of something.
  virtual void StopIfUnused() = 0;

 protected:
  SchedulerPort(EventLoop* loop, Device* device, Options options)
      : loop_(loop), device_(device), options_(std::move(options)) {}
  ~SchedulerPort() = default;

  EventLoop* const loop_;
  Device* const device_;
  const Options options_;
  Registry registry_;
  bool shutting_down_ = false;
};

// Base of the scheduler's parts. Gives access to the port under the names that the scheduler uses.
class Part {
 public:
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

 protected:
  using End = SchedulerPort::End;

  explicit Part(SchedulerPort* port)
      : port_(port),
        loop_(port->loop()),
        device_(port->device()),
        options_(port->options()),
        registry_(port->registry()) {}
  ~Part() = default;

  SchedulerPort* const port_;
  EventLoop* const loop_;
  Device* const device_;
  const Options& options_;
  Registry& registry_;
};

}  // namespace gpuloom::scheduler
