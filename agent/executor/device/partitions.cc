// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/partitions.h"

#include <algorithm>
#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/process/log.h"
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

// Only an allocation's first session changes the division.
bool Partitions::Begin(const control::AddSession& order, std::string* error) {
  if (layout_.groups == 0 && AsksForParts(order.partition)) {
    *error = kCannotDivide;
    return false;
  }
  Allocation& allocation = allocations_[order.allocation_id];
  if (allocation.sessions++ != 0) return true;
  allocation.name_space = order.namespace_id;
  allocation.claim.terms = OfAllocation(order.partition);
  Namespace& name_space = namespaces_[order.namespace_id];
  ++name_space.allocations;
  name_space.claim.terms = OfNamespace(order.partition);
  if (Divide()) return true;
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
}

// Running sessions cannot be refused: terms that do not fit leave them what they have.
void Partitions::Set(const control::SetShares& order) {
  const auto it = allocations_.find(order.allocation_id);
  if (it == allocations_.end()) return;  // its sessions have ended meanwhile
  SmTerms& terms = it->second.claim.terms;
  SmTerms& of_namespace = namespaces_.at(it->second.name_space).claim.terms;
  const SmTerms terms_before = terms;
  const SmTerms namespace_before = of_namespace;
  terms = OfAllocation(order.partition);
  of_namespace = OfNamespace(order.partition);
  if (terms == terms_before && of_namespace == namespace_before) return;
  const char* error = nullptr;
  if (layout_.groups == 0) {
    error = AsksForParts(order.partition) ? kCannotDivide : nullptr;
  } else if (!Divide()) {
    error = kDoesNotFit;
  }
  if (error == nullptr) return;
  terms = terms_before;
  of_namespace = namespace_before;
  Log(LogLevel::kError, "policy: allocation %llu keeps its multiprocessors: %s",
      static_cast<unsigned long long>(order.allocation_id), error);
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
  // Begins to create the partitions that are new; sessions follow when these are ready
  // (Session::FollowPartition).
  for (auto& [id, allocation] : allocations_) {
    allocation.claim.previous = of_allocations.at(id);
    Partition* partition = Find(allocation.claim.previous.groups);
    if (partition == allocation.partition) continue;
    allocation.partition = partition;
    ++changes_;
  }
  return true;
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
  if (found->state == Partition::State::kFailed) Make(found.get());
  return found.get();
}

// Counted against kMaxPartitions while it is being made, and not if that fails, so that it can be
// tried again. A context that has no stream yet is kept for the next try, as its memory would never come back.
void Partitions::Make(Partition* partition) {
  const bool has_context = partition->made.context != nullptr;
  if (!has_context && begun_ == kMaxPartitions) {
    Log(LogLevel::kError, "policy: no more than %u different sets of multiprocessors are made",
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
