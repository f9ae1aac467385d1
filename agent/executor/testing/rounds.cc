// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/testing/rounds.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "agent/executor/session/slice.h"
#include "agent/executor/testing/device.h"
#include "proto/channel/socket.h"

namespace gpuloom::executor {
namespace {

constexpr uint64_t kIdleNs = 2'000'000;  // long enough for what waits until the device is idle

void Check(bool ok, const std::string& what) {
  if (ok) return;
  fprintf(stderr, "an executor's parts: %s\n", what.c_str());
  abort();
}

std::unique_ptr<SchedulerLink> MakeLink(control::Connection* scheduler) {
  channel::UniqueFd ours, theirs;
  Check(channel::MakePair(SOCK_SEQPACKET, &ours, &theirs), "the scheduler's socket");
  *scheduler = control::Connection(std::move(ours));
  return std::make_unique<SchedulerLink>(std::move(theirs));
}

}  // namespace

TestingRounds::StartedDevice::StartedDevice(const Driver& driver) : Device(driver) {
  StartFirst(this);
}

TestingRounds::TestingRounds(const Driver& driver, Habits habits)
    : habits_(std::move(habits)),
      device_(driver),
      grants_(&driver),
      link_(MakeLink(&scheduler_)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      modules_(&device_, habits_.threads, wake_.get()),
      memory_(&device_, habits_.threads, wake_.get()),
      quiet_work_(&device_, habits_.threads == 0 ? 0 : 1, wake_.get()),
      device_end_(kTestingDeviceBegin),
      host_end_(kTestingHostBegin) {
  context_memory_ = std::make_unique<ContextMemory>(device_.ResidentThreads());
  std::string error;
  Check(internal_.Start([](CUstream) {}, &error), error);
  staging_.Start(&device_);
}

TestingRounds::~TestingRounds() {
  session_.reset();
  modules_.Stop();
  quiet_work_.Stop();
  memory_.Stop();
  quiet_.Close();
}

control::AddSession TestingRounds::NewOrder(uint64_t device_bytes, uint64_t host_bytes) {
  control::AddSession order{};
  order.session_id = ++sessions_;
  order.device_range_begin = std::exchange(device_end_, device_end_ + device_bytes);
  order.device_range_bytes = device_bytes;
  order.device_own_bytes = device_bytes / 2;
  order.host_range_begin = std::exchange(host_end_, host_end_ + host_bytes);
  order.host_range_bytes = host_bytes;
  order.pinned_limit_bytes = host_bytes / 2;
  order.drain_timeout_ms = 60'000;
  control::SetText(order.label, "tests/tenant/main");
  return order;
}

void TestingRounds::Begin(const control::AddSession& order) {
  auto fds = tenant_.Make(order.host_range_bytes);
  const Services services{&device_,
                          &modules_,
                          &memory_,
                          link_.get(),
                          &quiet_,
                          &libraries_,
                          &internal_,
                          &staging_,
                          &graphs_,
                          &greens_,
                          &shared_,
                          &printer_,
                          &tenants_,
                          &room_,
                          &sharing_,
                          &partitions_,
                          budget_,
                          context_memory_.get(),
                          habits_.batches ? &chains_ : nullptr};
  std::string error;
  session_ = Session::Make(services, order, fds.data(), &error);
  Check(session_ != nullptr, error);
}

void TestingRounds::AnswerQuestions() {
  control::Incoming in;
  while (scheduler_.Receive(&in, 0, MSG_DONTWAIT)) grants_.Answer(&scheduler_, in);
}

bool TestingRounds::Round(uint64_t now_ns) {
  AnswerQuestions();
  bool worked = false;
  const auto run = [&](const std::function<bool()>& part) { worked |= habits_.run(part); };
  run([this] {
    control::Incoming in;
    bool is_order = false;
    bool any = false;
    link_->Flush();
    while (link_->Receive(&in, &is_order)) any = true;
    return any;
  });
  for (WorkPool* pool : {&modules_, &quiet_work_, &memory_}) {
    run([this, pool] {
      Slice slice(habits_.slice_ns);
      return pool->RunFinished(&slice);
    });
  }
  modules_.Tick(now_ns);
  run([this] { return internal_.Poll(); });
  if (session_ != nullptr) {
    run([&] {
      Slice slice(habits_.slice_ns);
      return session_->Read(now_ns, &slice);
    });
    run([&] {
      Slice slice(habits_.slice_ns);
      return session_->SubmitWaiting(now_ns, &slice);
    });
    run([&] {
      Slice slice(habits_.slice_ns);
      return session_->Poll(now_ns, &slice);
    });
    session_->Notify();
  }
  upkeep_.Look(now_ns);
  run([&] { return Quieten(now_ns); });
  return worked;
}

bool TestingRounds::Quieten(uint64_t now_ns) {
  std::vector<Quiet::Party> parties;
  if (session_ != nullptr) parties.push_back(session_->Party());
  const bool begun = quiet_.Tick(now_ns, parties, !internal_.Idle(), kIdleNs);
  if (session_ != nullptr) session_->SetHeld(parties[0].held);
  return begun;
}

}  // namespace gpuloom::executor
