// SPDX-License-Identifier: Apache-2.0
// One simulated GPU: tenants launch kernels, the real deciding core (agent/arbiter/) says who submits, and a model of a
// device (device.h) runs them. The parts of the executor and of the scheduler that surround the core are here in their
// simplest form, so this is also the shortest example of how the core is driven.
//
// Deterministic: the same spec and seed give the same results everywhere. Times are nanoseconds of the simulated clock.
// It owns all that it simulates; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "agent/arbiter/busy_meter.h"
#include "agent/arbiter/domain_arbiter.h"
#include "agent/arbiter/launch_predictor.h"
#include "agent/arbiter/turn_arbiter.h"
#include "agent/simulator/device.h"
#include "agent/simulator/random.h"

namespace gpuloom::simulator {

// A request of a trace: `kernels` of one length, one after the other, launched at that moment.
struct Arrival {
  uint64_t at_ns = 0;
  uint64_t kernel_ns = 0;
  uint32_t kernels = 1;
};

struct TenantSpec {
  std::string name;
  uint32_t space = 0;   // its namespace: a place in GpuSpec::spaces
  uint32_t domain = 0;  // its trust domain, from 0
  arbiter::AllocationPolicy policy;
  uint64_t kernel_ns = 50'000;
  uint32_t jitter_permille = 0;    // by how much each kernel's length may differ, up or down
  uint32_t width_permille = 1000;  // of the device
  uint32_t streams = 1;
  uint64_t request_gap_ns = 0;   // mean time between requests; 0: wants the device always
  uint32_t request_kernels = 1;  // one after the other
  uint64_t on_ns = 0;            // bursts: it works for this long,
  uint64_t off_ns = 0;           // and then pauses for this long; 0: always on
  uint64_t begins_ns = 0;
  // In the order of time; instead of kernel_ns, requests and bursts.
  std::vector<Arrival> trace = {};

  bool endless() const { return request_gap_ns == 0 && trace.empty(); }
};

struct GpuSpec {
  std::vector<arbiter::NamespacePolicy> spaces = {{}};
  std::vector<TenantSpec> tenants = {};
  arbiter::EngineLimits limits = {};
  arbiter::TurnLimits turns = {};
  // The time from the end of a kernel until the executor has seen it.
  uint64_t reaction_ns = 20'000;
  uint32_t capacity = 132;
  bool governed = true;  // false: everything goes to the device as it comes
};

struct TenantResult {
  uint64_t charged_ns = 0;
  uint64_t kernels = 0;
  uint64_t requests = 0;
  // of each request, sorted: from its launch to its last kernel's end
  std::vector<uint64_t> latency_ns;
  // the longest time without the end of a kernel while it wanted the device
  uint64_t longest_gap_ns = 0;
  arbiter::Waits waits;
};

class Gpu {
 public:
  Gpu(const GpuSpec& spec, uint64_t seed);

  void RunTo(uint64_t until_ns);

  // The results so far; the latencies are sorted.
  TenantResult Result(uint32_t tenant) const;
  // In the order in which the requests ended.
  const std::vector<uint64_t>& latencies(uint32_t tenant) const {
    return tenants_[tenant].latency_ns;
  }
  uint64_t charged_ns(uint32_t tenant) const { return meter_.charged_ns(tenant); }
  uint64_t busy_ns() const { return device_.busy_ns(now_ns_); }
  // The time in which the device did nothing although somebody had queued work that no ceiling held back. Only the
  // executor's reaction contributes to it, where nothing else is at the device.
  uint64_t wasted_ns() const { return wasted_ns_; }
  uint64_t now_ns() const { return now_ns_; }
  uint64_t decisions() const { return decisions_; }
  uint64_t steps() const;
  const arbiter::BusyMeter& meter() const { return meter_; }
  const arbiter::TurnArbiter& turns() const { return turns_; }
  uint32_t executors_ended() const { return executors_ended_; }
  uint64_t most_lower_in_flight_ns() const { return most_lower_in_flight_ns_; }

  // The longest time in which somebody of the class wanted the device and no kernel of the class ended.
  uint64_t longest_gap_ns(arbiter::Priority priority) const;

  void SetPolicy(uint32_t tenant, const arbiter::AllocationPolicy& policy);
  void SetSpace(uint32_t space, const arbiter::NamespacePolicy& policy);
  // A deaf domain's executor does not stop when its turn is over.
  void MakeDeaf(uint32_t domain, bool deaf) { domains_[domain].deaf = deaf; }

 private:
  struct Tenant {
    TenantSpec spec;
    arbiter::SessionId session{};
    arbiter::AllocationId in_turns{};
    arbiter::AllocationId in_domain{};
    uint32_t first_stream = 0;
    uint32_t next_stream = 0;
    bool on = false;
    bool wants = false;
    bool has_next_request = false;  // among the events
    size_t next_arrival = 0;        // of its trace
    std::deque<Kernel> queued;
    uint32_t in_flight = 0;
    uint64_t requests_made = 0;
    // since then it wants the device, or since its last kernel's end if that is later
    uint64_t wants_since_ns = 0;
    uint64_t divided_ns = 0;
    uint64_t kernels = 0;
    uint64_t longest_gap_ns = 0;
    std::vector<uint64_t> latency_ns;
  };
  struct Domain {
    std::unique_ptr<arbiter::DomainArbiter> arbiter;
    std::vector<arbiter::NamespaceId> spaces;
    arbiter::DomainId in_turns{};
    bool deaf = false;
    bool is_to_drain = false;
    std::vector<uint32_t> tenants;
    std::vector<uint32_t> tenant_of_session;
  };
  struct Class {
    uint32_t wanting = 0;
    uint64_t since_ns = 0;  // it has wanted the device without the end of a kernel
    uint64_t longest_gap_ns = 0;
  };
  enum class What : uint8_t { kRequest, kSwitch, kSeen, kRound };
  struct Event {
    uint64_t at_ns;
    uint64_t order;
    What what;
    uint32_t tenant;
    Execution done;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.order > b.order;
    }
  };

  void Push(uint64_t at_ns, What what, uint32_t tenant, const Execution& done = {});
  void Handle(const Event& event);
  void Switch(uint32_t number, bool on);
  void Request(uint32_t number);
  void PushRequest(uint32_t number);
  void Fill(uint32_t number);
  void Seen(uint32_t number, const Execution& done);
  void Launch(uint32_t number, Kernel kernel);
  void Charge(uint32_t number);
  void NoteWants(uint32_t number);
  Class& ClassOf(const Tenant& tenant) {
    return classes_[arbiter::Index(tenant.spec.policy.priority)];
  }
  void Submit(uint32_t number);
  uint64_t MostAhead(const Tenant& tenant) const;
  void Pump();
  void PumpDomain(Domain& domain);
  void PumpTurns();
  void Drain(Domain& domain);
  void SendUsage(Domain& domain);
  bool AnyEligible() const;

  const GpuSpec spec_;
  Random random_;
  Device device_;
  arbiter::BusyMeter meter_;
  arbiter::LaunchPredictor predictor_;
  arbiter::TurnArbiter turns_;
  std::vector<arbiter::NamespaceId> spaces_;
  std::vector<Tenant> tenants_;
  std::vector<Domain> domains_;
  std::array<Class, arbiter::kPriorities> classes_ = {};
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  uint64_t orders_ = 0;
  uint64_t now_ns_ = 0;
  uint64_t wasted_ns_ = 0;
  uint64_t rounds_ = 0;
  uint64_t decisions_ = 0;
  uint64_t most_lower_in_flight_ns_ = 0;
  uint32_t executors_ended_ = 0;  // because they did not leave the device to others
};

}  // namespace gpuloom::simulator
