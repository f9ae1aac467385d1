// SPDX-License-Identifier: Apache-2.0
// A whole session's plumbing under load: ring, completions and doorbells, both sides sleeping and
// waking each other, between two threads (for ThreadSanitizer) and between two processes of which
// either dies at any moment.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <random>
#include <semaphore>
#include <thread>

#include "proto/channel/region.h"
#include "proto/channel/socket.h"
#include "proto/wire/completion_reader.h"
#include "proto/wire/completion_writer.h"
#include "proto/wire/ring_reader.h"
#include "proto/wire/ring_writer.h"

namespace gpuloom {
namespace {

using wire::Ticket;

struct Session {
  channel::Mapping commands;
  channel::Mapping completions;
  channel::UniqueFd tenant_doorbell;
  channel::UniqueFd executor_doorbell;

  bool Make() {
    const channel::UniqueFd command =
        channel::MakeSealedMemory("command", sizeof(wire::CommandRegion));
    const channel::UniqueFd completion =
        channel::MakeSealedMemory("completion", sizeof(wire::CompletionRegion));
    return commands.Map(command.get(), sizeof(wire::CommandRegion),
                        channel::Mapping::Access::kReadWrite) &&
           completions.Map(completion.get(), sizeof(wire::CompletionRegion),
                           channel::Mapping::Access::kReadWrite) &&
           channel::MakePair(SOCK_STREAM, &tenant_doorbell, &executor_doorbell);
  }
  auto* command_region() const { return reinterpret_cast<wire::CommandRegion*>(commands.data()); }
  auto* completion_region() const {
    return reinterpret_cast<wire::CompletionRegion*>(completions.data());
  }
};

// Sleeps on a doorbell. False when the peer has hung up.
bool SleepOn(int doorbell) {
  pollfd polled{doorbell, POLLIN, 0};
  poll(&polled, 1, -1);
  return channel::DrainDoorbell(doorbell);
}

uint8_t Pattern(uint64_t ticket, size_t i) { return static_cast<uint8_t>(ticket * 31 + i); }

// Kills a process once so many commands have been counted, wherever it then is: how far it gets
// depends on no clock. Join comes before the end.
class Killer {
 public:
  // `later` moves the moment, for variety only.
  Killer(pid_t victim, uint64_t count, std::chrono::microseconds later)
      : count_(count), thread_([this, victim, later] {
          reached_.acquire();
          std::this_thread::sleep_for(later);
          kill(victim, SIGKILL);
        }) {
    OnCommand(0);
  }
  void OnCommand(uint64_t number) {
    if (number == count_) reached_.release();
  }
  void Join() { thread_.join(); }

 private:
  const uint64_t count_;
  std::binary_semaphore reached_{0};
  std::thread thread_;
};

// Reads until the tenant hangs up. Returns the last ticket, or 0 with a failed check.
uint64_t ServeAsExecutor(const Session& session, Killer* killer = nullptr) {
  wire::RingReader reader(session.command_region(), &session.completion_region()->head);
  wire::CompletionWriter writer(session.completion_region(), session.command_region());
  const int doorbell = session.executor_doorbell.get();
  uint64_t last = 0;
  for (;;) {
    wire::Record record;
    switch (reader.Next(&record)) {
      case wire::RingReader::Status::kFatal:
        return 0;
      case wire::RingReader::Status::kEmpty:
        if (reader.AnnounceSleep()) {
          const bool alive = SleepOn(doorbell);
          reader.Awake();
          // What was committed before the hang-up is still read.
          if (!alive && !reader.HasWork()) return last;
        }
        break;
      case wire::RingReader::Status::kRecord:
        if (static_cast<uint64_t>(record.ticket) != last + 1) return 0;
        ++last;
        if (killer != nullptr) killer->OnCommand(last);
        for (size_t i = 0; i < record.payload.size(); ++i) {
          if (record.payload[i] != Pattern(last, i)) return 0;
        }
        writer.PublishCompleted(wire::kLegacyStream, record.ticket);
        if (writer.TenantSleeps()) channel::RingDoorbell(doorbell);
        break;
    }
  }
}

// Writes `count` commands and waits for some of them; false when the executor has hung up.
bool RunAsTenant(const Session& session, uint64_t count, uint32_t seed, Killer* killer = nullptr) {
  wire::RingWriter writer(session.command_region(), session.completion_region());
  const wire::CompletionReader reader(session.completion_region());
  const int doorbell = session.tenant_doorbell.get();
  std::atomic_ref<uint32_t> sleeps(session.command_region()->head.tenant_sleeps);
  std::mt19937 random(seed);
  const auto wait = [&](auto done) {
    while (!done()) {
      sleeps.store(1, std::memory_order_seq_cst);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      const bool alive = done() || SleepOn(doorbell);
      sleeps.store(0, std::memory_order_relaxed);
      if (!alive) return done();
    }
    return true;
  };
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t bytes = random() % 16 == 0 ? random() % 40000 : random() % 300;
    uint8_t* payload = nullptr;
    wire::CopyInline::Request* request = nullptr;
    const auto last = writer.last_ticket();
    while ((request = writer.Reserve<wire::CopyInline>(bytes, &payload)) == nullptr) {
      if (!wait([&] { return reader.Done(wire::kLegacyStream, last); })) return false;
    }
    *request = wire::CopyInline::Request{};
    const uint64_t ticket = static_cast<uint64_t>(last) + 1;
    for (uint32_t k = 0; k < bytes; ++k) payload[k] = Pattern(ticket, k);
    const Ticket committed = writer.Commit();
    if (killer != nullptr) killer->OnCommand(ticket);
    if (writer.ExecutorSleeps()) channel::RingDoorbell(doorbell);
    if (random() % 8 == 0 && !wait([&] { return reader.Done(wire::kLegacyStream, committed); })) {
      return false;
    }
  }
  return wait([&] { return reader.Done(wire::kLegacyStream, writer.last_ticket()); });
}

TEST(SessionStress, TwoThreadsWakeEachOther) {
  constexpr uint64_t kCount = 30'000;
  Session session;
  ASSERT_TRUE(session.Make());
  uint64_t served = 0;
  std::thread executor([&] { served = ServeAsExecutor(session); });
  EXPECT_TRUE(RunAsTenant(session, kCount, 1));
  session.tenant_doorbell.Reset();
  executor.join();
  EXPECT_EQ(served, kCount);
}

// In the child, everything of the parent's side is closed, as after exec.
template <typename Body>
pid_t Child(Session* session, bool is_tenant, Body body) {
  const pid_t child = fork();
  if (child != 0) return child;
  (is_tenant ? session->executor_doorbell : session->tenant_doorbell).Reset();
  _exit(body());
}

// Before its peer is killed; more than fit into a ring.
constexpr uint64_t kMostCommands = 1000;

TEST(SessionStress, ATenantThatIsKilledAnywhereEndsOnlyItsSession) {
  std::mt19937 random(2);
  for (int round = 0; round < 60; ++round) {
    Session session;
    ASSERT_TRUE(session.Make());
    const pid_t tenant = Child(&session, true, [&] {
      return RunAsTenant(session, UINT64_MAX, static_cast<uint32_t>(round)) ? 0 : 1;
    });
    ASSERT_GT(tenant, 0);
    session.tenant_doorbell.Reset();
    const uint64_t count = random() % kMostCommands;
    Killer killer(tenant, count, std::chrono::microseconds(random() % 500));
    const uint64_t served = ServeAsExecutor(session, &killer);  // ends by the hang-up alone
    EXPECT_GE(served, count);
    wire::RingReader fresh(session.command_region(), &session.completion_region()->head);
    EXPECT_EQ(fresh.fatal(), wire::Fatal::kNone);
    killer.Join();
    waitpid(tenant, nullptr, 0);
  }
}

TEST(SessionStress, AnExecutorThatIsKilledAnywhereWakesItsTenant) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    Session session;
    ASSERT_TRUE(session.Make());
    const pid_t executor =
        Child(&session, false, [&] { return ServeAsExecutor(session) > 0 ? 0 : 1; });
    ASSERT_GT(executor, 0);
    session.executor_doorbell.Reset();
    Killer killer(executor, random() % kMostCommands, std::chrono::microseconds(random() % 500));
    EXPECT_FALSE(RunAsTenant(session, UINT64_MAX, static_cast<uint32_t>(round), &killer));
    killer.Join();
    waitpid(executor, nullptr, 0);
  }
  // And an honest pair afterwards.
  Session session;
  ASSERT_TRUE(session.Make());
  uint64_t served = 0;
  std::thread executor([&] { served = ServeAsExecutor(session); });
  EXPECT_TRUE(RunAsTenant(session, 100, 1));
  session.tenant_doorbell.Reset();
  executor.join();
  EXPECT_EQ(served, 100u);
}

}  // namespace
}  // namespace gpuloom
