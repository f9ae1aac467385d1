// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/partitions.h"

#include <algorithm>
#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/process/log.h"
#include "agent/executor/session/scheduler_link.h"
#include "proto/control/connection.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {
namespace {

using arbiter::SmClaim;
using arbiter::SmGroups;
using arbiter::SmShare;
using arbiter::SmTerms;

// Asks for the smallest groups in which the driver keeps clusters of blocks together.
constexpr uint32_t kSmallest = 2;

SmTerms OfNamespace(const control::PartitionTerms& terms) {
  return {terms.namespace_sm_percent, terms.namespace_sm_reserved};
}
SmTerms OfAllocation(const control::PartitionTerms& terms) {
  return {terms.sm_percent, terms.sm_reserved};
}
// Whether the policy wants anything but the whole device for everybody.
bool AsksForParts(const control::PartitionTerms& terms) {
  for (const SmTerms& one : {OfNamespace(terms), OfAllocation(terms)}) {
    if (one.IsLimited() || one.reserved != 0) return true;
  }
  return false;
}

// Reported to the program that cannot begin, or logged if it runs already.
constexpr char kCannotDivide[] =
    "the policy's smPercent and smReserved need green contexts, which this driver does not have "
    "(NVIDIA's has them from CUDA 12.5 on): update the driver, or take the two keys out of the "
    "policy";
constexpr char kDoesNotFit[] =
    "the policy's smReserved does not fit: other allocations of this trust domain have reserved "
    "multiprocessors, and one group is left to those without a reservation";

std::string Spelled(const SmTerms& terms) {
  return "smPercent " + std::to_string(terms.IsLimited() ? terms.percent : 100) + "%, smReserved " +
         std::to_string(terms.reserved) + "%";
}

// The groups of the whole device, and what is left over.
// Always the same for one device, so group i is the same multiprocessors each time.
CUresult SplitDevice(const Driver& cuda, CUdevice device, std::vector<CUdevResource>* groups,
                     CUdevResource* left_over) {
  CUdevResource whole{};
  CUDA_RETURN_IF_ERROR(cuda.cuDeviceGetDevResource(device, &whole, CU_DEV_RESOURCE_TYPE_SM));
  const wire::SplitArguments split{0, kSmallest, wire::kMaxSplitGroups, 0};
  CUDA_RETURN_IF_ERROR(SplitResource(cuda, whole, split, groups, left_over));
  return groups->empty() ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION : CUDA_SUCCESS;
}

// The multiprocessors of these groups of the layout's, which has at most as many as fit into the bits of SmGroups: one
// of them may be several of the driver's. Of those, the last may be left over as well.
CUresult Pick(const Driver& cuda, CUdevice device, const arbiter::SmLayout& layout, SmGroups groups,
              std::vector<CUdevResource>* picked) {
  std::vector<CUdevResource> of_driver;
  CUdevResource left_over{};
  CUDA_RETURN_IF_ERROR(SplitDevice(cuda, device, &of_driver, &left_over));
  const size_t in_one = layout.group_size / of_driver.front().sm.smCount;
  for (size_t i = 0; i < of_driver.size(); ++i) {
    const size_t group = std::min<size_t>(i / in_one, layout.groups);
    if ((groups >> group & 1) != 0) picked->push_back(of_driver[i]);
  }
  if ((groups & ~layout.regular()) != 0 && left_over.sm.smCount != 0) {
    picked->push_back(left_over);
  }
  return CUDA_SUCCESS;
}

}  // namespace

// Where this fails layout_ has no groups: sessions without limits run, others are refused by name.
void Partitions::Start() {
  const Driver& cuda = device_->cuda();
  if (!HasGreenContexts(cuda)) return;
  CUdevResource whole{};
  std::vector<CUdevResource> groups;
  CUdevResource left_over{};
  CUresult result = cuda.cuDeviceGetDevResource(device_->device(), &whole, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) {
    result = SplitDevice(cuda, device_->device(), &groups, &left_over);
  }
  if (result != CUDA_SUCCESS) {
    Log(LogLevel::kInfo, "cuda: the device cannot be divided: %s", device_->NameOf(result));
    return;
  }
  layout_ = arbiter::SmLayout::Of(whole.sm.smCount, groups.front().sm.smCount,
                                  static_cast<uint32_t>(groups.size()));
}

// Only an allocation's first session can be refused: the others run where it does.
bool Partitions::Begin(const control::AddSession& order, std::string* error) {
  tells_scheduler_ = order.scheduler_minor >= 8;
  if (layout_.groups == 0 && AsksForParts(order.partition)) {
    *error = kCannotDivide;
    return false;
  }
  Allocation& allocation = allocations_[order.allocation_id];
  if (allocation.sessions++ != 0) {
    // The scheduler sends changes only to where it has sessions, and the others here may be ending.
    Want(&allocation, order.partition);
    return true;
  }
  allocation.name_space = order.namespace_id;
  allocation.label = control::TextOf(order.label);
  allocation.wanted = allocation.claim.terms = OfAllocation(order.partition);
  Namespace& name_space = namespaces_[order.namespace_id];
  ++name_space.allocations;
  const SmTerms wanted_before = name_space.wanted;
  const SmTerms terms_before = name_space.claim.terms;
  name_space.wanted = name_space.claim.terms = OfNamespace(order.partition);
  if (Divide()) {
    Follow();
    return true;
  }
  // Or no later division of the device would work while others of the namespace run.
  name_space.wanted = wanted_before;
  name_space.claim.terms = terms_before;
  *error = kDoesNotFit;
  Forget(order.allocation_id);
  return false;
}

void Partitions::Forget(uint64_t allocation_id) {
  const auto allocation = allocations_.find(allocation_id);
  const auto name_space = namespaces_.find(allocation->second.name_space);
  allocations_.erase(allocation);
  if (--name_space->second.allocations == 0) namespaces_.erase(name_space);
}

void Partitions::End(uint64_t allocation_id) {
  const auto it = allocations_.find(allocation_id);
  if (it == allocations_.end() || --it->second.sessions != 0) return;
  Forget(allocation_id);
  // Ending a session only makes room.
  (void)Divide();
  Follow();
}

void Partitions::Set(const control::SetShares& order) {
  const auto it = allocations_.find(order.allocation_id);
  if (it == allocations_.end()) return;  // its sessions have ended meanwhile
  Want(&it->second, order.partition);
}

// Running sessions cannot be refused: terms that do not fit leave them what they have.
void Partitions::Want(Allocation* allocation, const control::PartitionTerms& terms) {
  Namespace& of = namespaces_.at(allocation->name_space);
  if (allocation->wanted == OfAllocation(terms) && of.wanted == OfNamespace(terms)) return;
  allocation->wanted = OfAllocation(terms);
  of.wanted = OfNamespace(terms);
  Follow();
}

bool Partitions::HasWhatItWants(const Allocation& allocation) const {
  const Namespace& of = namespaces_.at(allocation.name_space);
  return allocation.claim.terms == allocation.wanted && of.claim.terms == of.wanted;
}

// A file's changes come one allocation at a time, and each may need the room that another one
// leaves: allocations of a namespace that becomes smaller fit only together. So all of them are
// tried first; if there is one that cannot be kept, a namespace's, then single ones, in order of
// arrival, for as long as that helps.
void Partitions::Follow() {
  if (layout_.groups == 0) return ReportChanges();
  bool goes_on = !Adopt([](const Allocation&) { return true; });
  while (std::exchange(goes_on, false)) {
    for (const auto& known : namespaces_) {
      goes_on |= Adopt([&](const Allocation& one) { return one.name_space == known.first; });
    }
    for (const auto& known : allocations_) {
      goes_on |= Adopt([&](const Allocation& one) { return &one == &known.second; });
    }
  }
  Place();
  ReportChanges();
}

template <typename F>
bool Partitions::Adopt(F&& concerns) {
  std::vector<std::pair<SmTerms*, SmTerms>> before;
  const auto adopt = [&before](const SmTerms& wanted, SmTerms* terms) {
    if (*terms == wanted) return;
    before.emplace_back(terms, std::exchange(*terms, wanted));
  };
  for (auto& [id, allocation] : allocations_) {
    if (!concerns(allocation)) continue;
    Namespace& of = namespaces_.at(allocation.name_space);
    adopt(allocation.wanted, &allocation.claim.terms);
    adopt(of.wanted, &of.claim.terms);
  }
  if (before.empty()) return false;
  if (Divide()) return true;
  for (const auto& [terms, was] : before) *terms = was;
  return false;
}

// In force are what the first session began with, without a part where the device cannot be divided, and whatever has
// fitted since.
std::string Partitions::WhyPending(const Allocation& allocation) const {
  if (HasWhatItWants(allocation)) return {};
  if (layout_.groups == 0) return kCannotDivide;
  return "there is no room yet for its namespace's " +
         Spelled(namespaces_.at(allocation.name_space).wanted) + ", and its own " +
         Spelled(allocation.wanted) + ", beside what others of this trust domain have reserved";
}

// Each change once: an operator looks for what has become of a policy.
void Partitions::ReportChanges() {
  for (auto& [id, allocation] : allocations_) {
    std::string why = WhyPending(allocation);
    if (why == allocation.pending) continue;
    allocation.pending = std::move(why);
    if (tells_scheduler_) {
      control::PartitionPending message{};
      message.allocation_id = id;
      control::SetText(message.why, allocation.pending.c_str());
      scheduler_->Send(message);
    }
    if (allocation.pending.empty()) {
      Log(LogLevel::kInfo, "policy: %s now has the multiprocessors that the policy says",
          allocation.label.c_str());
    } else {
      Log(LogLevel::kError, "policy: %s keeps its multiprocessors: %s", allocation.label.c_str(),
          allocation.pending.c_str());
    }
  }
}

// Divides in two levels: the device among namespaces, then each namespace's groups among its
// allocations. Nothing is stored before all of it has worked. The previous division is an input, so
// that whoever can stays where it is.
bool Partitions::Divide() {
  if (layout_.groups == 0) return true;
  std::vector<SmClaim> claims;
  for (const auto& [id, name_space] : namespaces_) claims.push_back(name_space.claim);
  const std::vector<SmShare> of_namespaces = arbiter::DivideSms(layout_, layout_.whole(), claims);
  std::map<uint64_t, SmShare> of_allocations;
  size_t next = 0;
  for (const auto& [id, name_space] : namespaces_) {
    const SmGroups of = of_namespaces[next++].groups;
    if (of == 0) return false;
    claims.clear();
    std::vector<uint64_t> ids;
    for (const auto& [allocation_id, allocation] : allocations_) {
      if (allocation.name_space != id) continue;
      ids.push_back(allocation_id);
      claims.push_back(allocation.claim);
    }
    const std::vector<SmShare> divided = arbiter::DivideSms(layout_, of, claims);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (divided[i].groups == 0) return false;
      of_allocations[ids[i]] = divided[i];
    }
  }
  next = 0;
  for (auto& [id, name_space] : namespaces_) name_space.claim.previous = of_namespaces[next++];
  for (auto& [id, allocation] : allocations_) allocation.claim.previous = of_allocations.at(id);
  return true;
}

// Begins to create the partitions that are new; sessions follow when these are ready
// (Session::FollowPartition). Only once all terms are in force that can be: each partition costs
// memory for ever.
void Partitions::Place() {
  for (auto& [id, allocation] : allocations_) {
    Partition* partition = Find(allocation.claim.previous.groups);
    if (partition == allocation.partition) continue;
    allocation.partition = partition;
    ++changes_;
  }
}

// Null for the whole device, which needs no partition: kernels run in the primary context.
Partition* Partitions::Find(SmGroups groups) {
  if (groups == layout_.whole()) return nullptr;
  std::unique_ptr<Partition>& found = made_[groups];
  if (found == nullptr) {
    found = std::make_unique<Partition>();
    found->groups = groups;
    found->multiprocessors = layout_.Multiprocessors(groups);
    found->state = Partition::State::kFailed;
  }
  // After a failure, too: the device may have had no memory.
  if (found->HasFailed()) Make(found.get());
  return found.get();
}

// Counted against kMaxPartitions while it is being made, and not if that fails, so that it can be
// tried again. A context that has no stream yet is kept for the next try, as its memory would never come back.
void Partitions::Make(Partition* partition) {
  const bool has_context = partition->made.context != nullptr;
  if (!has_context && begun_ == kMaxPartitions) {
    if (std::exchange(partition->state, Partition::State::kTooMany) == Partition::State::kTooMany)
      return;
    Log(LogLevel::kError,
        "policy: this executor has made %u different sets of multiprocessors and makes no more "
        "before it ends: who has no part yet cannot begin, others keep what they have",
        kMaxPartitions);
    return;
  }
  if (!has_context) ++begun_;
  partition->state = Partition::State::kMaking;
  struct Work {
    MadeGreen made;
    CUstream stream = nullptr;
    CUresult result = CUDA_SUCCESS;
  };
  auto work = std::make_shared<Work>();
  work->made = partition->made;
  const auto make = [groups = partition->groups, layout = layout_, device = device_->device(),
                     &cuda = device_->cuda()](Work* result) {
    if (result->made.context == nullptr) {
      std::vector<CUdevResource> picked;
      CUDA_RETURN_IF_ERROR(Pick(cuda, device, layout, groups, &picked));
      CUDA_RETURN_IF_ERROR(MakeGreen(cuda, device, &picked, &result->made));
    }
    return cuda.cuGreenCtxStreamCreate(&result->stream, result->made.context,
                                       CU_STREAM_NON_BLOCKING, 0);
  };
  quiet_->Need(
      this, [work, make] { work->result = make(work.get()); },
      [this, work, partition] {
        device_->Judge(work->result);
        if (work->stream != nullptr) device_->CountGreenStream(work->made.context);
        ++changes_;
        partition->made = work->made;
        if (work->result != CUDA_SUCCESS) {
          if (partition->made.context == nullptr) --begun_;
          partition->state = Partition::State::kFailed;
          Log(LogLevel::kError,
              "cuda: a partition of %u multiprocessors cannot be made: %s; its sessions end, and "
              "the next one tries again",
              partition->multiprocessors, device_->NameOf(work->result));
          return;
        }
        partition->stream = work->stream;
        partition->multiprocessors = work->made.has.sm.smCount;
        partition->state = Partition::State::kMade;
        Log(LogLevel::kInfo, "a partition of %u of %u multiprocessors is made",
            partition->multiprocessors, layout_.multiprocessors);
      });
}

const Partition* Partitions::Of(uint64_t allocation_id) const {
  const auto it = allocations_.find(allocation_id);
  return it == allocations_.end() ? nullptr : it->second.partition;
}

uint32_t Partitions::Multiprocessors(uint64_t allocation_id) const {
  const Partition* partition = Of(allocation_id);
  return partition == nullptr ? 0 : partition->multiprocessors;
}

}  // namespace gpuloom::executor
