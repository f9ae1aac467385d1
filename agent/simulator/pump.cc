// SPDX-License-Identifier: Apache-2.0
// What a simulated GPU's executors and scheduler do after each event: they submit, and give turns.
#include <algorithm>

#include "agent/simulator/gpu.h"

namespace gpuloom::simulator {
namespace {

using arbiter::Engine;

// How far ahead the executor submits of a stream that nothing bounds, in time and in kernels
// (agent/executor/stream/stream_set.h).
constexpr uint64_t kAheadNs = 8'000'000;
constexpr uint64_t kLeastAhead = 2;
constexpr uint64_t kMostAhead = 256;

}  // namespace

// Gives the first queued kernel to the device.
void Gpu::Submit(uint32_t number) {
  Tenant& it = tenants_[number];
  const Kernel kernel = it.queued.front();
  it.queued.pop_front();
  ++it.in_flight;
  domains_[it.spec.domain].arbiter->Submitted(it.session, Engine::kCompute,
                                              {1, kernel.predicted_ns}, now_ns_);
  device_.Submit(kernel, now_ns_);
  // An endless tenant fills up what it has handed over.
  if (it.spec.endless()) Fill(number);
}

// How many kernels of the tenant the executor has at the device at most.
uint64_t Gpu::MostAhead(const Tenant& tenant) const {
  const uint64_t each_ns = tenant.queued.empty() ? 0 : tenant.queued.front().predicted_ns;
  return std::max(tenant.spec.streams, 1u) *
         std::clamp(kAheadNs / std::max<uint64_t>(each_ns, 1), kLeastAhead, kMostAhead);
}

// Asks the domain's arbiter until it has no order more.
void Gpu::PumpDomain(Domain& domain) {
  arbiter::DomainArbiter& arbiter = *domain.arbiter;
  while (const auto order = arbiter.Next(Engine::kCompute, now_ns_)) {
    ++decisions_;
    const uint32_t number = domain.tenant_of_session[arbiter::Index(order->session)];
    Tenant& it = tenants_[number];
    const bool bounded = order->budget_ns != UINT64_MAX;
    if (!bounded && it.in_flight >= MostAhead(it)) break;
    // The ring of an endless tenant is never empty; what is in it now is enough for one order.
    uint64_t submitted_ns = 0;
    for (size_t left = it.queued.size(); left != 0; --left) {
      if (!bounded && it.in_flight >= MostAhead(it)) break;
      const uint64_t next_ns = it.queued.front().predicted_ns;
      // The first kernel goes whatever it takes: a budget below one kernel would stop the tenant.
      if (submitted_ns != 0 && submitted_ns + next_ns > order->budget_ns) break;
      submitted_ns += std::max<uint64_t>(next_ns, 1);
      Submit(number);
    }
    // For most_lower_in_flight_ns(), by which a test checks the bound.
    uint64_t lower_ns = 0;
    for (const auto priority : {arbiter::Priority::kNormal, arbiter::Priority::kLow}) {
      lower_ns += arbiter.in_flight_ns(priority, Engine::kCompute);
    }
    most_lower_in_flight_ns_ = std::max(most_lower_in_flight_ns_, lower_ns);
  }
}

// Ends a domain's turn: says who ran in it, then that it has stopped. Only when nothing of the
// domain is at the device, which may be long after kYield.
void Gpu::Drain(Domain& domain) {
  if (!domain.is_to_drain || domain.deaf || !domain.arbiter->drained()) return;
  SendUsage(domain);
  turns_.Drained(domain.in_turns, now_ns_);
  domain.is_to_drain = false;
}

// Who ran in the domain since it said so last.
void Gpu::SendUsage(Domain& domain) {
  std::vector<arbiter::Ran> division;
  meter_.SettleTo(now_ns_);
  for (const uint32_t number : domain.tenants) {
    Tenant& it = tenants_[number];
    // charged_ns() counts from the beginning.
    const uint64_t charged_ns = meter_.charged_ns(number);
    if (charged_ns != it.divided_ns) division.push_back({it.in_turns, charged_ns - it.divided_ns});
    it.divided_ns = charged_ns;
  }
  if (!division.empty()) turns_.Divide(domain.in_turns, division, now_ns_);
}

// Does the scheduler's work: passes orders to the executors and their answers back. A domain that
// can stop at once answers within the same round.
void Gpu::PumpTurns() {
  for (Domain& domain : domains_) Drain(domain);
  while (const auto order = turns_.Next(now_ns_)) {
    // Domains were added in order, so their number in turns_ is their place.
    Domain& domain = domains_[static_cast<size_t>(order->domain)];
    switch (order->kind) {
      case arbiter::TurnOrder::Kind::kGrant:
        domain.is_to_drain = false;
        domain.arbiter->SetTurn(order->lowest, order->in_flight_ns);
        break;
      // A deaf executor keeps submitting. It must drain all the same, and overruns.
      case arbiter::TurnOrder::Kind::kYield:
        if (!domain.deaf) domain.arbiter->EndTurn();
        domain.is_to_drain = true;
        Drain(domain);
        break;
      case arbiter::TurnOrder::Kind::kReport:
        break;
      case arbiter::TurnOrder::Kind::kEnd:
        // The next executor is not deaf, and begins with the same tenants.
        ++executors_ended_;
        domain.deaf = false;
        domain.arbiter->EndTurn();
        break;
    }
  }
}

// Turns first: they say which domains may submit.
void Gpu::Pump() {
  if (!spec_.governed) {
    // Ungoverned tenants fill the driver's queue, and the device takes the kernels as they come.
    for (uint32_t i = 0; i < tenants_.size(); ++i) {
      for (size_t left = tenants_[i].queued.size(); left != 0 && tenants_[i].in_flight < kMostAhead;
           --left) {
        Submit(i);
      }
    }
    return;
  }
  PumpTurns();
  for (Domain& domain : domains_) PumpDomain(domain);
}

}  // namespace gpuloom::simulator
