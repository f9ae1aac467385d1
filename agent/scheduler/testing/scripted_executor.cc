// SPDX-License-Identifier: Apache-2.0
// A stand-in for gpuloom-executor that does what a test's tenant tells it, byte by byte, over the
// session's doorbell; each byte is answered with one or more. Without CUDA, and without honour.
//
// scheduler_fixture.h has the list of bytes.
//
// The file named in GPULOOM_EXECUTOR_START says how it starts: "die", "refuse", "strict"
// (its driver starts with --lenient only), "no driver" (it does not with that either), "hang", "no session", "older" (says nothing of its release), or well.
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/scheduler/testing/scripted_session.h"
#include "proto/control/connection.h"
#include "proto/wire/fatal.h"
#include "proto/wire/trace_region.h"

namespace gpuloom {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{64} << 20;

class Executor {
 public:
  Executor(std::string start, bool lenient)
      : start_(std::move(start)),
        lenient_(lenient),
        control_(channel::UniqueFd(control::kExecutorControlFd)) {}

  int Run() {
    if (start_ == "die") return 1;
    if (start_ == "hang") pause();
    control::ExecutorReady ready{};
    ready.driver_failed = start_ == "no driver" || (start_ == "strict" && !lenient_);
    ready.ok = start_ != "refuse" && ready.driver_failed == 0;
    ready.stream_priority_greatest = -5;
    control::SetText(ready.message, "the scripted executor refuses");
    if (start_ != "older") {
      control::SetText(ready.version, "1.2.4 (scripted\x1b)");
      control::SetText(ready.cupti, "libcupti.so.0");
      ready.has_cupti = 1;
    }
    Send(ready);
    if (!ready.ok) return 1;
    for (;;) {
      std::vector<pollfd> polled = {{control_.fd(), POLLIN, 0}};
      std::vector<uint64_t> ids = {0};
      for (const auto& [id, session] : sessions_) {
        polled.push_back({session.doorbell.get(), POLLIN, 0});
        ids.push_back(id);
      }
      poll(polled.data(), polled.size(), -1);
      if (polled[0].revents != 0) {
        control::Incoming in;
        if (!control_.Receive(&in, control::kSessionFds)) return 0;
        OnOrder(&in);
        continue;
      }
      for (size_t i = 1; i < polled.size(); ++i) {
        if (polled[i].revents != 0) OnByte(ids[i]);
      }
    }
  }

 private:
  template <control::Message M>
  void Send(const M& message) {
    if (!control_.Send(0, message)) _exit(0);
  }

  // Asks, and serves orders until the answer is there.
  template <control::Message A, control::Message M>
  A Ask(const M& message) {
    const uint32_t request = ++last_request_;
    if (!control_.Send(request, message)) _exit(0);
    for (;;) {
      control::Incoming in;
      if (!control_.Receive(&in, control::kSessionFds)) _exit(0);
      A answer;
      if (in.header.request == request && in.As(&answer)) return answer;
      OnOrder(&in);
    }
  }

  void OnOrder(control::Incoming* in) {
    control::AddSession add;
    control::RemoveSession remove;
    control::MemoryReclaim reclaim;
    control::SetShares shares;
    control::HoldSession hold;
    control::MemoryGranted granted;
    control::GiveTurn give;
    control::EndTurn end;
    control::StartTracing start_tracing;
    control::StartTracingOwn start_tracing_own;
    control::StopTracing stop_tracing;
    if (in->As(&start_tracing)) {
      StartTracing(start_tracing.trace_id, 0, in->fds[0].get());
    } else if (in->As(&start_tracing_own)) {
      StartTracing(start_tracing_own.trace_id, start_tracing_own.allocation_id, in->fds[0].get());
    } else if (in->As(&stop_tracing)) {
      if (stop_tracing.trace_id == trace_) traces_ = 0;
      SendTraceStep(stop_tracing.trace_id, control::TraceStep::kStopped);
      SendTraceStep(stop_tracing.trace_id, control::TraceStep::kWritten);
    } else if (in->As(&granted)) {
      const auto it = sessions_.find(granted.session_id);
      if (it == sessions_.end()) return;
      if (granted.result == 0) it->second.memory.push_back(granted.memory_id);
      const auto result = static_cast<uint8_t>(granted.result);
      send(it->second.doorbell.get(), &result, 1, MSG_NOSIGNAL);
    } else if (in->As(&give)) {
      ++turn_orders_;
      turn_ = give.in_flight_ns == UINT64_MAX ? 2 : 1;
      drains_ = false;
    } else if (in->As(&end)) {
      ++turn_orders_;
      turn_ = 0;
      drains_ = true;
      end_request_ = in->header.request;
      MaybeSendDrained();
    } else if (in->As(&add)) {
      if (!answers_sessions_) return;
      control::SessionReady ready{};
      ready.session_id = add.session_id;
      ready.ok = start_ != "no session";
      control::SetText(ready.message, "the scripted executor takes no session");
      if (ready.ok) {
        Session& session = sessions_[add.session_id];
        session.doorbell = std::move(in->fds[control::kSessionDoorbellFd]);
        session.order = add;
        session.held = add.held != 0;
      }
      Send(ready);
      if (ready.ok) SendHeld(add.session_id);
    } else if (in->As(&shares)) {
      ++set_shares_;
      for (auto& [id, session] : sessions_) {
        if (session.order.allocation_id != shares.allocation_id) continue;
        session.order.shares = shares.shares;
        session.order.partition = shares.partition;
        session.order.kernels = shares.kernels;
        session.order.rescue_after_ms = shares.rescue_after_ms;
      }
    } else if (in->As(&hold)) {
      const auto it = sessions_.find(hold.session_id);
      if (it == sessions_.end()) return;
      it->second.held = hold.hold != 0;
      it->second.hold_request = in->header.request;
      SendHeld(hold.session_id);
    } else if (in->As(&remove)) {
      const auto it = sessions_.find(remove.session_id);
      if (it != sessions_.end() && it->second.ends) End(it, wire::Fatal::kNone);
    } else if (in->As(&reclaim)) {
      ++asked_back_;
      const auto it = sessions_.find(reclaim.session_id);
      if (it == sessions_.end() || !it->second.hears) return;
      if (std::exchange(it->second.keeps, false)) {
        for (std::vector<uint64_t>* all : {&it->second.memory, &it->second.charged}) {
          for (const uint64_t memory : *all) Send(control::MemoryReturn{it->first, memory});
          all->clear();
        }
      }
      Send(control::MemoryReclaimed{reclaim.session_id, reclaim.reclaim_id});
    }
  }

  // Writes a record for each session, of this allocation's; 0: of all.
  void StartTracing(uint64_t trace_id, uint64_t allocation_id, int region) {
    traces_ = 1;
    trace_ = static_cast<uint32_t>(trace_id);
    uint64_t records = 0;
    for (const auto& [id, session] : sessions_) {
      if (allocation_id != 0 && session.order.allocation_id != allocation_id) continue;
      const wire::TraceRecord record{id, 0, 0, 0, 0, 0, 0, 0, 0, 0};
      const size_t at = wire::kTraceRecordsAt + records++ * sizeof(record);
      if (pwrite(region, &record, sizeof(record), static_cast<off_t>(at)) < 0) _exit(1);
    }
    uint64_t counts[] = {records, 0};
    if (exaggerates_ && allocation_id != 0) counts[0] = counts[1] = UINT64_MAX;
    if (pwrite(region, counts, sizeof(counts), 0) < 0) _exit(1);
    SendTraceStep(trace_id, control::TraceStep::kRecords);
  }

  void SendTraceStep(uint64_t trace_id, control::TraceStep step) {
    if (tells_traces_) Send(control::TraceProgress{trace_id, static_cast<uint32_t>(step), 0});
  }

  void SendHeld(uint64_t id) {
    const Session& session = sessions_.at(id);
    if (!session.held || session.works) return;
    if (!control_.Send(session.hold_request, control::SessionHeld{id, 0, 0})) _exit(0);
  }

  // As far as its sessions begin kernels, see b.
  void MaybeSendDrained() {
    const bool works = std::any_of(sessions_.begin(), sessions_.end(),
                                   [](const auto& entry) { return entry.second.works; });
    if (!drains_ || works) return;
    drains_ = false;
    if (!control_.Send(end_request_, control::TurnDrained{})) _exit(0);
  }

  void End(std::map<uint64_t, Session>::iterator it, wire::Fatal fatal) {
    control::SessionEnded ended{};
    ended.session_id = it->first;
    ended.kernels_launched = it->second.kernels;
    ended.fatal = static_cast<uint32_t>(fatal);
    ended.drained = it->second.drains ? 1 : 0;
    ended.time = it->second.time;
    std::vector<uint64_t> charged = std::move(it->second.charged);
    sessions_.erase(it);
    Send(ended);
    held_.emplace_back(ended.session_id, std::move(charged));
    if (!holds_) GiveHeld();
  }

  void GiveHeld() {
    for (const auto& [ended, charged] : std::exchange(held_, {})) {
      Send(control::ArenaReturned{ended});
      for (const uint64_t memory : charged) Send(control::MemoryReturn{ended, memory});
    }
  }

  void OnByte(uint64_t id) {
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) return;
    Session& session = it->second;
    char byte = 0;
    if (recv(session.doorbell.get(), &byte, 1, MSG_DONTWAIT) != 1) {
      session.doorbell.Reset();  // the scheduler will say what to do
      return;
    }
    const auto answer = [&](const void* data, size_t size) {
      send(session.doorbell.get(), data, size, MSG_NOSIGNAL);
    };
    const auto done = [&] { answer("k", 1); };
    switch (byte) {
      case 'p': {
        const int32_t pid = getpid();
        answer(&pid, sizeof(pid));
        break;
      }
      case 'm': {
        const auto granted = Ask<control::MemoryGranted>(control::MemoryRequest{id, kPieceBytes});
        if (granted.result == 0) session.memory.push_back(granted.memory_id);
        const auto result = static_cast<uint8_t>(granted.result);
        answer(&result, 1);
        break;
      }
      case 'M':
      case 'G':
      case 'E': {
        const uint64_t size_bytes = kPieceBytes * (byte == 'M' ? 1 : byte == 'G' ? 4 : 512);
        if (!control_.Send(++last_request_, control::MemoryRequest{id, size_bytes})) _exit(0);
        break;
      }
      case 'S':
        Send(control::SessionWaits{id});
        break;
      case 'q': {
        const auto granted = Ask<control::MemoryGranted>(control::MemoryCharge{id, kPieceBytes});
        if (granted.result == 0) session.charged.push_back(granted.memory_id);
        const auto result = static_cast<uint8_t>(granted.result);
        answer(&result, 1);
        break;
      }
      case 'r': {
        uint8_t result = 0;
        for (const uint64_t memory : session.memory) {
          if (Ask<control::Answer>(control::MemoryReturn{id, memory}).ok == 0) result = 1;
        }
        for (const uint64_t memory : session.charged) {
          if (Ask<control::Answer>(control::MemoryReturn{id, memory}).ok == 0) result = 1;
        }
        session.memory.clear();
        session.charged.clear();
        answer(&result, 1);
        break;
      }
      case 'k':
        session.keeps = true;
        done();
        break;
      case 'l':
        session.hears = false;
        done();
        break;
      case 'i': {
        const auto info = Ask<control::MemoryInfo>(control::MemoryInfoRequest{id});
        const auto free_mib = static_cast<uint32_t>(info.free_bytes >> 20);
        answer(&free_mib, sizeof(free_mib));
        break;
      }
      case 'c':
        session.kernels = 42;
        Send(control::SessionCounters{id, session.kernels, session.time, session.work});
        done();
        break;
      case 'h':
        holds_ = true;
        done();
        break;
      case 'a':
        GiveHeld();
        done();
        break;
      case 'u':
        session.drains = false;
        done();
        break;
      case 's':
        session.ends = false;
        done();
        break;
      case 't':
        for (const auto& [other, its] : sessions_) {
          if (!its.ends) Send(control::SessionWaits{other});
        }
        done();
        break;
      case 'W':
        for (int i = 0; i < 100; ++i) {
          for (const auto& [other, its] : sessions_) {
            if (!its.ends) Send(control::SessionWaits{other});
          }
        }
        done();
        break;
      case 'R': {
        constexpr uint32_t kRequests = 300;
        const uint32_t first = last_request_ + 1;
        for (uint32_t i = 0; i < kRequests; ++i) {
          if (!control_.Send(++last_request_, control::MemoryRequest{id, kPieceBytes})) _exit(0);
        }
        uint32_t answers = 0;
        while (answers < kRequests) {
          control::Incoming in;
          if (!control_.Receive(&in, control::kSessionFds)) _exit(0);
          control::MemoryGranted granted;
          if (in.As(&granted) && in.header.request >= first) {
            ++answers;
          } else {
            OnOrder(&in);
          }
        }
        answer(&answers, sizeof(answers));
        break;
      }
      case 'n':
        answer(&asked_back_, sizeof(asked_back_));
        break;
      case 'T':
        for (auto other = sessions_.begin(); other != sessions_.end();) {
          const auto ignorer = other++;
          if (!ignorer->second.ends) End(ignorer, wire::Fatal::kNone);
        }
        if (sessions_.contains(id)) done();  // it may be one of them
        break;
      case 'F':
        Send(FaultOf(700, id));
        _exit(1);
      case 'b':
        session.works = true;
        done();
        break;
      case 'B':
        session.works = false;
        SendHeld(id);
        MaybeSendDrained();
        done();
        break;
      case 'H': {
        const uint8_t held = session.held ? 1 : 0;
        answer(&held, 1);
        break;
      }
      case 'L':
        Send(control::SessionHeld{id, 0, 0});
        Send(control::SessionHeld{id, UINT32_MAX, 0});
        done();
        break;
      case 'v':
        answer(&session.order.shares.weight, 4);
        break;
      case 'V':
        answer(&set_shares_, sizeof(set_shares_));
        break;
      case 'N':
      case 'A': {
        const control::AddSession& order = session.order;
        const auto number =
            static_cast<uint32_t>(byte == 'N' ? order.namespace_id : order.allocation_id);
        answer(&number, sizeof(number));
        break;
      }
      case '0':
      case '1':
      case '9': {
        const uint64_t ns = byte == '0' ? 0 : byte == '1' ? 1'000'000 : UINT64_MAX;
        std::array<uint64_t, sizeof(control::WorkCounts) / sizeof(uint64_t)> figures;
        figures.fill(ns);
        session.work = std::bit_cast<control::WorkCounts>(figures);
        session.time = {ns, ns, ns, ns, ns, ns};
        Send(control::SessionCounters{id, session.kernels, session.time, session.work});
        done();
        break;
      }
      case '+':
      case '-':
        Send(control::AllocationWants{session.order.allocation_id, byte == '+' ? 1u : 0u, 0});
        done();
        break;
      case '=': {
        control::TurnUsage usage = {};
        usage.count = control::kUsesAtOnce;
        usage.uses[0] = {session.order.allocation_id, 1'000'000'000};
        for (uint64_t other = 1; other <= 100; ++other) {
          usage.uses[1 + other % (control::kUsesAtOnce - 1)] = {other, 1'000'000'000};
          usage.more = other < 100;
          Send(usage);
        }
        done();
        break;
      }
      case '/':
      case '#':
        answer(byte == '/' ? &turn_ : &turn_orders_, sizeof(turn_));
        break;
      case '~':
        if (!control_.Send(end_request_, control::TurnDrained{})) _exit(0);
        Send(control::TurnDrained{});
        done();
        break;
      case '!':
        for (int i = 0; i < 10'000; ++i) {
          Send(control::AllocationWants{session.order.allocation_id, 1, 0});
          Send(control::AllocationWants{session.order.allocation_id, 0, 0});
        }
        done();
        break;
      case '?':
        Send(control::AllocationWants{session.order.allocation_id, 2, 0});
        break;
      case ':': {
        control::TurnUsage usage = {};
        usage.count = control::kUsesAtOnce + 1;
        Send(usage);
        break;
      }
      case 'Q':
        tells_traces_ = false;
        done();
        break;
      case '^':
        exaggerates_ = true;
        done();
        break;
      case 'P':
        for (uint64_t trace = 0; trace < 100; ++trace) {
          if (trace == trace_) continue;
          for (uint32_t step = 0; step < 3; ++step) Send(control::TraceProgress{trace, step, 0});
        }
        for (const uint32_t step : {0u, 3u, ~0u}) Send(control::TraceProgress{trace_, step, 0});
        done();
        break;
      case 'O':
        answer(&traces_, sizeof(traces_));
        break;
      case 'K':
      case 'D': {
        const uint8_t ends = Ask<control::Answer>(LongKernelOf(byte == 'D' ? 2 : 1, id)).ok == 0;
        answer(&ends, 1);
        if (ends == 0 || stays_) break;
        Send(FaultOf(702, id));
        _exit(1);
      }
      case 'Z':
        stays_ = true;
        done();
        break;
      case 'j':
      case 'J':
        Send(PendingOf(session.order.allocation_id, byte == 'j' ? "no\nroom" : ""));
        done();
        break;
      case 'f':
        for (uint64_t other = 0; other < 100; ++other) {
          if (other != session.order.allocation_id) Send(PendingOf(other, "hostile"));
        }
        done();
        break;
      case 'Y':
        answer(&session.order.partition.sm_percent, 4);
        break;
      case 'y':
        answer(&session.order.rescue_after_ms, 4);
        break;
      case 'z':
        answer(&session.order.kernels.end_after_ms, 4);
        break;
      case 'x':
        _exit(1);
      case 'X':
        Send(control::SessionCounters{id, session.kernels, session.time, session.work});
        control_.Close();
        sessions_.clear();
        for (;;) pause();
      case 'e':
        End(it, wire::Fatal::kUnknownOpcode);
        break;
      case 'g': {
        const uint32_t noise[6] = {0xffffffff, 1, 2, 3, 4, 5};
        send(control_.fd(), noise, sizeof(noise), MSG_NOSIGNAL);
        break;
      }
      case 'd': {
        const int fd = STDERR_FILENO;
        const control::SessionCounters counters{id, 1, {}, {}};
        (void)control_.Send(0, counters, &fd, 1);
        break;
      }
      case 'U':
        answers_sessions_ = false;
        done();
        break;
      case 'o': {
        uint8_t granted = 0;
        for (uint64_t other = 0; other < 100; ++other) {
          if (other == id || sessions_.count(other) != 0) continue;
          granted +=
              Ask<control::MemoryGranted>(control::MemoryRequest{other, kPieceBytes}).result == 0;
        }
        answer(&granted, 1);
        break;
      }
      case 'w': {
        uint8_t returned = 0;
        for (uint64_t other = 0; other < 100; ++other) {
          for (uint64_t memory = 0; memory < 100; ++memory) {
            returned |= Ask<control::Answer>(control::MemoryReturn{other, memory}).ok != 0;
          }
        }
        answer(&returned, 1);
        break;
      }
      default:
        break;
    }
  }

  std::string start_;
  const bool lenient_;
  control::Connection control_;
  std::map<uint64_t, Session> sessions_;
  bool holds_ = false;
  std::vector<std::pair<uint64_t, std::vector<uint64_t>>>
      held_;  // sessions that ended, and charges
  uint32_t last_request_ = 0;
  uint32_t asked_back_ = 0;
  uint32_t set_shares_ = 0;
  uint32_t turn_ = 3;
  uint32_t turn_orders_ = 0;
  bool drains_ = false;
  bool stays_ = false;
  uint32_t end_request_ = 0;
  bool answers_sessions_ = true;
  bool tells_traces_ = true, exaggerates_ = false;
  uint32_t traces_ = 0, trace_ = 0;
};

std::string StartMode() {
  const char* path = getenv("GPULOOM_EXECUTOR_START");
  std::string mode;
  if (path != nullptr) std::getline(std::ifstream(path), mode);
  return mode;
}

}  // namespace
}  // namespace gpuloom

int main(int argc, char** argv) {
  const bool lenient = std::any_of(
      argv, argv + argc, [](const char* word) { return std::strcmp(word, "--lenient") == 0; });
  return gpuloom::Executor(gpuloom::StartMode(), lenient).Run();
}
