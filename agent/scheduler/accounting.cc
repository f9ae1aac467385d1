// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/accounting.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "agent/scheduler/device_time.h"
#include "agent/scheduler/domain_book.h"
#include "agent/scheduler/time_usage.h"
#include "agent/scheduler/turns.h"

namespace gpuloom::scheduler {
namespace {

struct Engine {
  uint64_t control::TimeUsage::*used;
  uint64_t control::BusyTime::*busy;
};
constexpr Engine kEngines[] = {
    {&control::TimeUsage::compute_ns, &control::BusyTime::compute_ns},
    {&control::TimeUsage::copy_to_device_ns, &control::BusyTime::copy_to_device_ns},
    {&control::TimeUsage::copy_from_device_ns, &control::BusyTime::copy_from_device_ns}};
static_assert(std::size(kEngines) == DeviceTime::kEngines);

}  // namespace

void Accounting::On(Executor* executor, const control::SessionCounters& message,
                    control::Incoming&) {
  Session* session = registry_.FindSession(message.session_id, *executor);
  if (session == nullptr) return;
  Raise(session, message.kernels_launched, message.time, message.work);
}

void Accounting::Raise(Session* session, uint64_t kernels_launched_untrusted,
                       const control::TimeUsage& time_untrusted,
                       const control::WorkCounts& work_untrusted) {
  session->kernels_launched = std::max(session->kernels_launched, kernels_launched_untrusted);
  RaiseTo(time_untrusted, &session->reported);
  RaiseTo(work_untrusted, &session->work);
  Charge(session);
}

// What was reported and not charged yet is tried again each time: the executor's part grows.
// Waiting times are taken as they are, since they are nobody's device time.
void Accounting::Charge(Session* session) {
  control::TimeUsage& time = session->time;
  const control::TimeUsage before = time;
  time = session->reported;
  for (size_t i = 0; i < std::size(kEngines); ++i) {
    const uint64_t charged_ns = before.*kEngines[i].used;
    const uint64_t wanted_ns = session->reported.*kEngines[i].used - charged_ns;
    const uint64_t ns = wanted_ns == 0 ? 0 : turns_->Charge(*session->executor, i, wanted_ns);
    time.*kEngines[i].used = charged_ns + ns;
    if (ns == 0) continue;
    busy_.*kEngines[i].busy += ns;
    book_->Of(session->executor->domain).busy.*kEngines[i].busy += ns;
  }
}

void Accounting::ChargeAll() {
  for (const auto& [id, session] : registry_.sessions) Charge(session.get());
}

// One fault for each session: the first is the cause, the rest follows from it.
void Accounting::NoteFault(Session* session, control::Fault fault, const std::string& what) {
  if (std::exchange(session->faulted, true)) return;
  Allocation& allocation = *session->allocation;
  ++allocation.faults[static_cast<size_t>(fault)];
  // The fault of one of the allocation's own processes is recorded already, and says more than the loss of the others.
  const bool is_said =
      fault == control::Fault::kLostExecutor && session->executor->blamed == &allocation;
  if (!is_said) allocation.latest_fault = what;
}

}  // namespace gpuloom::scheduler
