// SPDX-License-Identifier: Apache-2.0
// The socket of one allocation: whoever connects here *is* that allocation. Listens, reads each connection's Hello, checks
// its version, and passes on those that may become sessions and those that only query. A peer that connects and
// sends nothing, sends too much, or comes too often costs a descriptor for a few seconds at most, and other allocations
// do not notice. Owned by the registry; the scheduler's thread only.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "agent/scheduler/event_loop.h"
#include "proto/channel/unique_fd.h"
#include "proto/wire/session.h"

namespace gpuloom::scheduler {

struct TenantConnection {
  channel::UniqueFd socket;
  // Of a version that is served. Its magic is kHelloMagic, or kQueryMagic or kTraceMagic for a mere query.
  wire::Hello hello;
  // Of the peer as the kernel reports it. For logs only: the process may be gone, or the pid reused.
  int pid = 0;
};

// Each sends a refusing Welcome, QueryAnswer or TraceAnswer, whole or not at all. Never blocks.
void Refuse(int socket, wire::Admission admission, const std::string& message);
void RefuseQuery(int socket, wire::Admission admission, const std::string& message);
void RefuseTrace(int socket, wire::Admission admission, const std::string& message);

class TenantDoor {
 public:
  // A tenant sends Hello right after it connects; five seconds cover a stopped or swapped-out one.
  static constexpr std::chrono::seconds kHelloTimeout{5};
  // Above this, the oldest silent connection is disconnected: an honest one is not silent.
  static constexpr size_t kMaxSilent = 16;
  // More connections in a second than any program makes; further ones wait in the backlog.
  static constexpr int kMaxConnectionsPerSecond = 200;

  using OnConnection = std::function<void(TenantConnection)>;

  TenantDoor(EventLoop* loop, OnConnection on_connection)
      : loop_(loop), on_connection_(std::move(on_connection)) {}
  ~TenantDoor();

  // Creates `directory`/gpuloom.sock. Returns false with a message.
  [[nodiscard]] bool Open(const std::string& directory, std::string* error);
  // Returns false if the socket's file has been removed since Open.
  bool present() const;

 private:
  struct Silent {
    channel::UniqueFd socket;
    int pid;
    Watch watch;
    Timer deadline;
  };
  using SilentList = std::list<Silent>;

  void Accept();
  void Pause(EventLoop::Clock::duration time);
  void ReadHello(SilentList::iterator connection);

  EventLoop* loop_;
  OnConnection on_connection_;
  std::string path_;
  channel::UniqueFd listener_;
  Watch watch_;
  SilentList silent_;
  EventLoop::Clock::time_point second_began_{};
  int connections_this_second_ = 0;
  Timer pause_;
};

}  // namespace gpuloom::scheduler
