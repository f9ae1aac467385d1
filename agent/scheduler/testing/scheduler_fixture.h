// SPDX-License-Identifier: Apache-2.0
// For tests: a real Scheduler on its own thread, with memory that is only memfds and executors that
// do what the test's tenants tell them (scripted_executor.cc).
//
// A tenant tells its executor by bytes, each answered with one byte where nothing else is said:
//
//   p  answers with its process id (4 bytes)
//   m  asks for 64 MiB: answers with the CUresult
//   M  asks for 64 MiB and serves on: answers with the CUresult when it comes
//   G  the same for 256 MiB
//   E  the same for 32 GiB, which no device has
//   S  says that the session waits for its end, though nobody has told it to end
//   q  asks for 64 MiB of the quota, without memory: answers with the CUresult
//   r  returns all memory: answers 0 or 1
//   k  keeps all memory for nothing: returns it when the scheduler asks it back
//   l  will not hear when the scheduler asks memory back
//   i  asks how much is free: answers with MiB (4 bytes)
//   c  reports 42 kernels
//   h  holds the arenas of sessions that end from now on, and what is only charged to them
//   a  says that all arenas that are held are unmapped, and returns what was charged
//   u  will not drain
//   s  will ignore the end
//   t  says of every session that ignores the end that it waits for others
//   W  says so a hundred times
//   R  asks 300 times for 64 MiB, all at once, and answers with how many answers have come (4 bytes)
//   n  answers with how often memory has been asked back (4 bytes)
//   T  ends all those
//   b  begins a kernel that keeps the session from being held
//   B  ends it
//   H  answers whether the session is to be held, 0 or 1
//   L  says that the session is held, asked or not
//   v  answers with the weight of its allocation (4 bytes)
//   V  answers with how often terms have been set (4 bytes)
//   N  answers with the number of its namespace (4 bytes)
//   A  answers with the number of its allocation (4 bytes)
//   1  reports a second of every kind of use, 0  none, 9  as much as there is
//   +  says that its allocation wants the device, -  that it does not
//   =  says that its allocation and number 1 … 100 have used the device for a second each
//   /  answers with its turn (4 bytes): 0 none, 1 bounded, 2 endless, 3 as it began, without a word about it
//   #  answers with how many orders about turns have come (4 bytes)
//   ~  says that its turn has drained, whatever was asked
//   !  wants the device and does not, ten thousand times
//   ?  says that its allocation wants it twice as much
//   :  says that more have used the device than a message has room for
//   Q  says nothing more of traces
//   P  says of traces that it knows nothing of that they have ended, and of its own what is nothing
//   O  answers with how many traces it records (4 bytes)
//   ^  will say of its tenants' own traces that they have more than there is
//   K  says that its kernel has run for an hour: answers 0 or, once it must end, 1
//   D  the same of another kernel
//   Z  does not end when it must
//   Y  answers with the per cent of the multiprocessors that its allocation may use (4 bytes)
//   j  says that its allocation's part of the multiprocessors is pending, J  that it is not
//   f  says of allocations 0 … 99 but its own that theirs is pending
//   y  answers with how long its allocation's work may wait behind a higher class, in milliseconds (4 bytes)
//   z  answers with how long a kernel may run until it is ended, in milliseconds (4 bytes)
//   U  answers to no new session
//   x  exits
//   X  says something, and hangs up on everybody
//   F  reports a fault, then exits
//   e  ends the session for a broken ring
//   g  says something unknown
//   d  sends a descriptor
//   o  asks for memory in the name of every session
//   w  returns memory 1 … 100 in the name of every session
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
  void SendByte(char byte);
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
  // The children of this process, in which the scheduler runs: its executors.
  static std::vector<pid_t> Children();
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
