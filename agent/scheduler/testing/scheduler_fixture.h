// SPDX-License-Identifier: Apache-2.0
// For tests: a real Scheduler on its own thread, with memory that is only memfds and executors that
// do what the test's tenants tell them (scripted_executor.cc).
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/scheduler/scheduler.h"
#include "agent/scheduler/testing/device.h"
#include "proto/control/client.h"
#include "proto/wire/session.h"

namespace gpuloom::scheduler {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// A tenant's end of a session.
class Tenant {
 public:
  // Connects and sends Hello. See `welcome` for the result.
  bool Attach(const std::string& directory, uint16_t major = wire::kWireMajor,
              uint16_t minor = wire::kWireMinor);
  // Connects without sending anything.
  bool Connect(const std::string& directory);
  bool ReceiveWelcome();
  bool accepted() const { return welcome.admission == wire::Admission::kAccepted && attached_; }

  // Sends an order to the scripted executor; -1 if it is gone.
  int Order(char byte);
  uint32_t OrderForNumber(char byte);
  // The same in two steps; `limit` 0: only if it is there. -1 if nothing has come.
  void Tell(char byte);
  int Answer(std::chrono::milliseconds limit = std::chrono::seconds(60));
  // Returns true if the scheduler or the executor closes its end within `limit`.
  bool HungUp(std::chrono::milliseconds limit = std::chrono::seconds(60)) const;
  bool DoorbellHungUp(std::chrono::milliseconds limit = std::chrono::seconds(60)) const;
  void Leave();

  channel::UniqueFd socket;
  wire::Welcome welcome{};
  channel::UniqueFd fds[wire::kWelcomeFds];
  size_t fd_count = 0;

 private:
  bool attached_ = false;
};

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest();
  ~SchedulerTest() override;

  void Start();
  // Waits until the loop has ended by itself.
  bool EndsWithin(std::chrono::milliseconds limit);
  // The next executors start in this mode: see scripted_executor.cc.
  void SetExecutorStart(const std::string& mode);

  control::Client Controller();
  // Creates the directory and adds the allocation; returns the directory.
  std::string Add(control::Client* client, const std::string& name,
                  bool ends_with_connection = false);
  static control::BindAllocation BindMessage(const std::string& name, const std::string& domain,
                                             uint64_t quota_bytes);
  // Adds and binds.
  std::string Allocate(control::Client* client, const std::string& name, const std::string& domain,
                       uint64_t quota_bytes = kGiB);
  control::AllocationState State(control::Client* client, const std::string& name);
  // Polls State until `done`, at most a minute.
  bool Becomes(control::Client* client, const std::string& name,
               const std::function<bool(const control::AllocationState&)>& done);
  // Expects that a new tenant of this directory gets its session and memory, whatever has happened
  // before.
  void ExpectServed(const std::string& directory);

  std::filesystem::path root_;
  TestingDevice device_;
  Options options_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Scheduler> scheduler_;

 private:
  channel::UniqueFd signals_;
  channel::UniqueFd stop_;
  Watch signal_watch_;
  Watch stop_watch_;
  std::thread thread_;
  std::atomic<bool> ended_{false};
};

}  // namespace gpuloom::scheduler
