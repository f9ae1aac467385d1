// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/meter.h"

#include <time.h>

#include <algorithm>

namespace gpuloom::executor {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{16} << 30;
constexpr uint64_t kHostBytes = uint64_t{256} << 20;
constexpr uint64_t kSliceNs = 200'000;
// What a worker may take before it says anything.
constexpr uint64_t kSettledNs = 4'000'000;

uint64_t ProcessorNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

Meter::Meter(const Driver& driver) : rounds_(driver, Habits()) {}

TestingRounds::Habits Meter::Habits() {
  TestingRounds::Habits habits;
  habits.threads = 2;
  habits.slice_ns = kSliceNs;
  habits.batches = true;
  habits.run = [this](const std::function<bool()>& part) {
    const uint64_t begin_ns = ProcessorNs();
    const bool worked = part();
    const uint64_t took_ns = ProcessorNs() - begin_ns;
    if (worked) {
      cost_.stretch_ns = std::max(cost_.stretch_ns, took_ns);
      cost_.all_ns += took_ns;
    }
    return worked;
  };
  return habits;
}

bool Meter::Round() { return rounds_.Round(NowNs()); }

void Meter::BeginSession() {
  EndSession();
  order_ = rounds_.NewOrder(kDeviceBytes, kHostBytes);
  order_.pinned_limit_bytes = kHostBytes;
  std::fill(std::begin(asked_), std::end(asked_), Asked{});
  rounds_.Begin(order_);
}

Cost Meter::EndSession() {
  Session* session = rounds_.session();
  Begin();
  if (session == nullptr) return cost_;
  rounds_.Part([&] {
    session->End(wire::Fatal::kNone, NowNs());
    return true;
  });
  while (!session->HasLeft()) Round();
  rounds_.Part([&] {
    rounds_.DropSession();
    return true;
  });
  const Cost cost = cost_;
  while (!rounds_.IsQuiet()) Round();
  Settle();  // the arena goes
  complaint_.clear();
  return cost;
}

uint16_t Meter::FreeSlot() {
  last_slot_ = static_cast<uint16_t>((last_slot_ + 1) % wire::kReplySlots);
  WaitFor(last_slot_);
  return last_slot_;
}

void Meter::WaitFor(uint16_t slot) {
  while (!TakeAnswer(slot) && serving()) Round();
}

bool Meter::TakeAnswer(uint16_t slot) {
  Asked& asked = asked_[slot];
  if (asked.ticket == wire::Ticket{0}) return true;
  const wire::ReplySlot* answer = rounds_.tenant().reader.FindReply(slot, asked.ticket);
  if (answer == nullptr) return false;
  std::copy(std::begin(answer->reply), std::end(answer->reply), replies_[slot]);
  if (complaint_.empty() && asked.expected &&
      static_cast<uint32_t>(*asked.expected) != answer->result) {
    complaint_ = std::string(asked.command) + " was answered with CUresult " +
                 std::to_string(answer->result);
  }
  asked.ticket = wire::Ticket{0};
  return true;
}

bool Meter::Waits() {
  bool waits = false;
  for (uint16_t slot = 0; slot < wire::kReplySlots; ++slot) waits |= !TakeAnswer(slot);
  return waits && serving();
}

void Meter::Settle() {
  uint64_t idle_since_ns = NowNs();
  while (Waits() || NowNs() - idle_since_ns < kSettledNs) {
    if (Round()) idle_since_ns = NowNs();
  }
}

void Meter::ReturnHostFunctions() {
  TestingRegions& tenant = rounds_.tenant();
  tenant.writer.PublishHostFunctionsDone(tenant.reader.host_functions_due());
  Settle();
}

std::string Meter::TakeComplaint() {
  std::string complaint = std::exchange(complaint_, {});
  if (const wire::Fatal fatal = rounds_.tenant().reader.fatal(); fatal != wire::Fatal::kNone) {
    complaint += (complaint.empty() ? "" : "; then ") + std::string("the session has ended: ") +
                 std::string(wire::FatalText(fatal));
  }
  return complaint;
}

}  // namespace gpuloom::executor
