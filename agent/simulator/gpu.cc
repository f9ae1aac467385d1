// SPDX-License-Identifier: Apache-2.0
#include "agent/simulator/gpu.h"

#include <algorithm>
#include <array>

namespace gpuloom::simulator {
namespace {

using arbiter::Engine;

// How much an endless tenant has in its ring at a time; Submit() fills it up again.
constexpr size_t kRingDepth = 32;
// How often what runs is charged, as the arbiter asks for: at least each millisecond.
constexpr uint64_t kRoundNs = 1'000'000;
// An executor whose turn goes on says who ran as often as one that hands its turns over.
constexpr uint64_t kRoundsOfUsage = 2;

// Kernels of one tenant that were asked to take equally long are launches of the same function.
arbiter::LaunchKey Key(const Kernel& kernel) {
  arbiter::LaunchKey key;
  key.function = kernel.asked_ns;
  key.owner = key.allocation = kernel.tenant;
  return key;
}

}  // namespace

Gpu::Gpu(const GpuSpec& spec, uint64_t seed)
    : spec_(spec), random_(seed), device_(spec.capacity), turns_(spec.turns) {
  device_.OnBegun([this](const Execution& it) { meter_.Begin(it.kernel.tenant, it.begin_ns); });
  // Trust domains are numbered from 0; those between that nobody is in exist without effect.
  uint32_t domains = 1;
  for (const TenantSpec& tenant : spec.tenants) domains = std::max(domains, tenant.domain + 1);
  domains_.resize(domains);
  for (Domain& domain : domains_) {
    domain.arbiter = std::make_unique<arbiter::DomainArbiter>(spec.limits);
    domain.in_turns = turns_.AddDomain();
    // Nobody may submit before turns_ has given out a turn.
    domain.arbiter->EndTurn();
  }
  for (const arbiter::NamespacePolicy& space : spec.spaces) {
    spaces_.push_back(turns_.AddNamespace(space, 0));
    for (Domain& domain : domains_) {
      domain.spaces.push_back(domain.arbiter->AddNamespace(space, 0));
    }
  }
  // Each tenant has streams of its own.
  uint32_t streams = 0;
  for (const TenantSpec& its : spec.tenants) {
    const auto number = static_cast<uint32_t>(tenants_.size());
    Tenant& tenant = tenants_.emplace_back();
    tenant.spec = its;
    tenant.first_stream = streams;
    streams += std::max(its.streams, 1u);
    Domain& domain = domains_[its.domain];
    tenant.in_domain = domain.arbiter->AddAllocation(domain.spaces[its.space], its.policy, 0);
    tenant.session = domain.arbiter->BeginSession(tenant.in_domain, 0);
    tenant.in_turns = turns_.AddAllocation(spaces_[its.space], domain.in_turns, its.policy, 0);
    domain.tenants.push_back(number);
    domain.tenant_of_session.push_back(number);
    // All are off until they are switched on for the first time.
    Push(its.begins_ns, What::kSwitch, number);
  }
  // Pushes itself again for ever: events_ is never empty.
  Push(kRoundNs, What::kRound, 0);
}

// Events of one moment are handled in the order in which they were pushed, so that a run can be
// repeated.
void Gpu::Push(uint64_t at_ns, What what, uint32_t tenant, const Execution& done) {
  events_.push({at_ns, orders_++, what, tenant, done});
}

// From one moment at which something happens to the next: an event, the end of a kernel, or a time
// at which an arbiter may decide otherwise by itself.
void Gpu::RunTo(uint64_t until_ns) {
  for (;;) {
    uint64_t wake_ns = UINT64_MAX;
    if (spec_.governed) {
      wake_ns = turns_.wake_at_ns(now_ns_);
      for (const Domain& domain : domains_) {
        wake_ns = std::min(wake_ns, domain.arbiter->wake_at_ns(now_ns_));
      }
      // A real loop asks in every round for what is due; here time must go on.
      wake_ns = std::max(wake_ns, now_ns_ + 1000);
    }
    const uint64_t at_ns = std::min({events_.top().at_ns, device_.next_end_ns(), wake_ns});
    if (at_ns > until_ns) break;
    // Nothing has changed since the last moment, so the whole time between was idle with work
    // queued.
    if (device_.idle() && AnyEligible()) wasted_ns_ += at_ns - now_ns_;
    now_ns_ = at_ns;
    // The meter gets the end at once; the executor sees it after reaction_ns, and until then the
    // arbiters count the kernel as in flight.
    while (const auto ended = device_.TakeEnded(now_ns_)) {
      meter_.End(ended->kernel.tenant, ended->end_ns);
      Push(ended->end_ns + spec_.reaction_ns, What::kSeen, ended->kernel.tenant, *ended);
    }
    while (!events_.empty() && events_.top().at_ns <= now_ns_) {
      const Event event = events_.top();
      events_.pop();
      Handle(event);
    }
    // Once for all that has happened at this moment.
    Pump();
  }
  now_ns_ = until_ns;
  meter_.SettleTo(now_ns_);
}

// Somebody has queued work that no ceiling keeps back.
bool Gpu::AnyEligible() const {
  return std::any_of(tenants_.begin(), tenants_.end(), [this](const Tenant& it) {
    const bool limited = it.spec.policy.ceiling_permille < arbiter::kNoCeilingPermille ||
                         spec_.spaces[it.spec.space].ceiling_permille < arbiter::kNoCeilingPermille;
    return !it.queued.empty() && !limited;
  });
}

void Gpu::Handle(const Event& event) {
  switch (event.what) {
    case What::kRequest:
      Request(event.tenant);
      return;
    case What::kSwitch:
      Switch(event.tenant, !tenants_[event.tenant].on);
      return;
    case What::kSeen:
      Seen(event.tenant, event.done);
      return;
    // Otherwise a tenant that runs one long kernel would look as if it used nothing.
    case What::kRound:
      for (uint32_t i = 0; i < tenants_.size(); ++i) {
        if (tenants_[i].in_flight != 0) Charge(i);
      }
      if (++rounds_ % kRoundsOfUsage == 0) {
        for (Domain& domain : domains_) {
          if (domain.arbiter->has_turn()) SendUsage(domain);
        }
      }
      Push(now_ns_ + kRoundNs, What::kRound, 0);
      return;
  }
}

// Bursts: the time until the next switch is drawn at each one. A tenant that is switched off
// launches nothing more; what it has queued still runs.
void Gpu::Switch(uint32_t number, bool on) {
  Tenant& it = tenants_[number];
  it.on = on;
  if (it.spec.on_ns != 0 && it.spec.off_ns != 0) {
    const uint64_t length_ns = random_.Exponential(on ? it.spec.on_ns : it.spec.off_ns);
    Push(now_ns_ + length_ns, What::kSwitch, number);
  }
  if (!on) return;
  // Servers wait for a first request, which may be left from before; endless tenants fill their
  // ring.
  if (it.spec.endless()) {
    Fill(number);
  } else if (!it.has_next_request) {
    PushRequest(number);
  }
}

// Queues one kernel. Everything that is random about it is drawn here, in the order of launches.
void Gpu::Launch(uint32_t number, Kernel kernel) {
  Tenant& it = tenants_[number];
  const TenantSpec& its = it.spec;
  kernel.tenant = number;
  // Streams in turn.
  kernel.stream = it.first_stream + it.next_stream++ % std::max(its.streams, 1u);
  kernel.context = its.domain;
  kernel.priority = static_cast<uint32_t>(arbiter::Index(its.policy.priority));
  kernel.width = std::max(1u, spec_.capacity * its.width_permille / 1000);
  if (kernel.asked_ns == 0) kernel.asked_ns = its.kernel_ns;
  // Between jitter_ns less and jitter_ns more, evenly.
  const uint64_t jitter_ns = kernel.asked_ns * its.jitter_permille / 1000;
  kernel.length_ns =
      std::max<uint64_t>(1, kernel.asked_ns - jitter_ns + random_.Below(2 * jitter_ns + 1));
  // Kept with the kernel: Submitted and Finished must name the prediction with which it was queued.
  kernel.predicted_ns = predictor_.Predict(Key(kernel)).ns;
  kernel.queued_ns = now_ns_;
  // Its wait for a first end begins now.
  if (it.queued.empty() && it.in_flight == 0) it.wants_since_ns = now_ns_;
  it.queued.push_back(kernel);
  domains_[its.domain].arbiter->Queued(it.session, Engine::kCompute, {1, kernel.predicted_ns},
                                       now_ns_);
  NoteWants(number);
}

void Gpu::Fill(uint32_t number) {
  Tenant& it = tenants_[number];
  while (it.on && it.queued.size() < kRingDepth) Launch(number, Kernel{});
}

// Requests come independently: the next one does not wait until this one is done.
void Gpu::Request(uint32_t number) {
  Tenant& it = tenants_[number];
  it.has_next_request = false;
  if (!it.on) return;
  const uint64_t request = ++it.requests_made;
  Arrival arrival{now_ns_, it.spec.kernel_ns, it.spec.request_kernels};
  if (!it.spec.trace.empty()) arrival = it.spec.trace[it.next_arrival++];
  for (uint32_t i = 0; i < arrival.kernels; ++i) {
    Kernel kernel;
    kernel.asked_ns = arrival.kernel_ns;
    kernel.request = request;
    kernel.last_of_request = i + 1 == arrival.kernels;
    Launch(number, kernel);
  }
  PushRequest(number);
}

void Gpu::PushRequest(uint32_t number) {
  Tenant& it = tenants_[number];
  const std::vector<Arrival>& trace = it.spec.trace;
  if (!trace.empty()) {
    it.has_next_request = it.next_arrival < trace.size();
    if (it.has_next_request)
      Push(std::max(trace[it.next_arrival].at_ns, now_ns_), What::kRequest, number);
    return;
  }
  it.has_next_request = true;
  Push(now_ns_ + random_.Exponential(it.spec.request_gap_ns), What::kRequest, number);
}

// For turns and gaps only: inside a domain, Queued and Finished say the same.
void Gpu::NoteWants(uint32_t number) {
  Tenant& it = tenants_[number];
  const bool wants = !it.queued.empty() || it.in_flight != 0;
  turns_.SetWants(it.in_turns, wants, now_ns_);
  if (wants == it.wants) return;
  it.wants = wants;
  Class& its = ClassOf(it);
  its.wanting += wants ? 1 : -1;
  if (wants && its.wanting == 1) its.since_ns = now_ns_;
}

// What the tenant has used since it was last charged. Turns are charged elsewhere, when they end:
// see Drain().
void Gpu::Charge(uint32_t number) {
  const Tenant& it = tenants_[number];
  meter_.SettleTo(now_ns_);
  domains_[it.spec.domain].arbiter->Charge(it.session, Engine::kCompute, meter_.Take(number),
                                           now_ns_);
}

// The executor has seen the end of a kernel.
void Gpu::Seen(uint32_t number, const Execution& done) {
  Tenant& it = tenants_[number];
  const Kernel& kernel = done.kernel;
  const uint64_t took_ns = done.end_ns - done.begin_ns;
  // The lower and the upper bound of what it can have taken are equal: a simulated device knows
  // exactly.
  predictor_.Learn(Key(kernel), {took_ns, took_ns});
  Charge(number);
  // 0: the meter has charged it.
  domains_[it.spec.domain].arbiter->Finished(it.session, Engine::kCompute, {1, kernel.predicted_ns},
                                             0, now_ns_);
  --it.in_flight;
  ++it.kernels;
  it.longest_gap_ns = std::max(it.longest_gap_ns, now_ns_ - it.wants_since_ns);
  it.wants_since_ns = now_ns_;
  Class& its = ClassOf(it);
  its.longest_gap_ns = std::max(its.longest_gap_ns, now_ns_ - its.since_ns);
  its.since_ns = now_ns_;
  // By the device's clock: a request's latency is its tenant's, not the executor's.
  if (kernel.last_of_request) it.latency_ns.push_back(done.end_ns - kernel.queued_ns);
  NoteWants(number);
}

uint64_t Gpu::steps() const {
  uint64_t sum = turns_.steps();
  for (const Domain& domain : domains_) sum += domain.arbiter->steps();
  return sum;
}

// The gap in progress counts for the longest one, too.
TenantResult Gpu::Result(uint32_t number) const {
  const Tenant& it = tenants_[number];
  TenantResult result;
  result.charged_ns = meter_.charged_ns(number);
  result.kernels = it.kernels;
  result.requests = it.requests_made;
  result.latency_ns = it.latency_ns;
  std::sort(result.latency_ns.begin(), result.latency_ns.end());
  const bool wants = !it.queued.empty() || it.in_flight != 0;
  result.longest_gap_ns =
      std::max(it.longest_gap_ns, wants ? now_ns_ - it.wants_since_ns : uint64_t{0});
  result.waits = domains_[it.spec.domain].arbiter->waits(it.session, Engine::kCompute, now_ns_);
  return result;
}

uint64_t Gpu::longest_gap_ns(arbiter::Priority priority) const {
  const Class& its = classes_[arbiter::Index(priority)];
  return std::max(its.longest_gap_ns, its.wanting == 0 ? 0 : now_ns_ - its.since_ns);
}

// Both cores see the same policy at the same moment.
void Gpu::SetPolicy(uint32_t number, const arbiter::AllocationPolicy& policy) {
  Tenant& it = tenants_[number];
  if (it.wants) --ClassOf(it).wanting;
  it.spec.policy = policy;
  if (it.wants && ++ClassOf(it).wanting == 1) ClassOf(it).since_ns = now_ns_;
  domains_[it.spec.domain].arbiter->SetAllocation(it.in_domain, policy, now_ns_);
  turns_.SetAllocation(it.in_turns, policy, now_ns_);
}

void Gpu::SetSpace(uint32_t space, const arbiter::NamespacePolicy& policy) {
  for (Domain& domain : domains_) {
    domain.arbiter->SetNamespace(domain.spaces[space], policy, now_ns_);
  }
  turns_.SetNamespace(spaces_[space], policy, now_ns_);
}

}  // namespace gpuloom::simulator
