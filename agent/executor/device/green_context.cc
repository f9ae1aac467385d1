// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/green_context.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "agent/executor/device/device.h"
#include "agent/executor/device/green_contexts.h"
#include "agent/executor/device/partitions.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/process/log.h"
#include "agent/executor/stream/stream_set.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {
namespace {

// All flags that CUDA has for a split; no shim sends others.
constexpr uint32_t kSplitFlags = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                                 CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;

// What may go to the driver: it writes `groups` entries. The driver decides whether the device can
// be divided in this way.
bool IsSplit(const wire::SplitArguments& split) {
  return split.groups != 0 && split.groups <= wire::kMaxSplitGroups &&
         (split.use_flags & ~kSplitFlags) == 0;
}

// Either all of a part, or some groups of a valid split of it.
bool IsDescription(const wire::GreenCreate::Request& request) {
  uint32_t picked = 0;
  uint32_t highest = 0;
  for (uint32_t i = 0; i < wire::kMaxSplitGroups; ++i) {
    if ((request.picked[i / 64] >> i % 64 & 1) == 0) continue;
    ++picked;
    highest = i;
  }
  if (request.whole > 1 || request.remaining > 1) return false;
  if (request.whole == 1) return request.remaining == 0 && picked == 0;
  return IsSplit(request.split) && (request.remaining == 1 || picked != 0) &&
         (picked == 0 || highest < request.split.groups);
}

// One more piece of a description, beyond the groups that the request itself names.
bool IsPick(const wire::PartPick& pick) {
  if (pick.what == wire::PartPick::What::kWhole) return true;
  return pick.what <= wire::PartPick::What::kGroup && IsSplit(pick.split) &&
         pick.group < pick.split.groups;
}

}  // namespace

// A context that is being made for a tenant. Make runs on a worker.
struct GreenContexts::NewGreen {
  Caller caller{};
  GreenContextRef owner;
  wire::GreenCreate::Request request{};
  std::vector<wire::PartPick> more;
  CUdevResource of{};
  MadeGreen made;
  SpareGreens* counted_by = nullptr;
  TenantRef tenant;
  CUresult result = CUDA_SUCCESS;

  NewGreen() = default;
  NewGreen(const NewGreen&) = delete;
  NewGreen& operator=(const NewGreen&) = delete;
  // Counted before it was created. If it was not created, because of a failure or because the
  // session ended before its turn, the count is taken back.
  ~NewGreen() {
    if (counted_by != nullptr && made.context == nullptr) counted_by->Discount(tenant->label);
  }

  // Equal for equal parts of the device: fields without meaning are left out.
  std::string Key() const {
    wire::GreenCreate::Request named = request;
    named.context = {};
    named.part = named.of = wire::kWholeDevice;
    named.unused = named.split.unused = 0;
    if (named.whole == 1) named.split = {};
    std::string key(reinterpret_cast<const char*>(&of), sizeof(of));
    key.append(reinterpret_cast<const char*>(&named), sizeof(named));
    for (wire::PartPick pick : more) {
      pick.split.unused = 0;
      if (pick.what != wire::PartPick::What::kGroup) pick.group = 0;
      if (pick.what == wire::PartPick::What::kWhole) pick.split = {};
      key.append(reinterpret_cast<const char*>(&pick), sizeof(pick));
    }
    return key;
  }

  // Splits and picks the groups for which `wants(group)` holds and, if requested, the remaining
  // part.
  template <typename Wants>
  CUresult PickOf(const Driver& cuda, const wire::SplitArguments& split, bool with_remaining,
                  Wants&& wants, std::vector<CUdevResource>* picked) const {
    std::vector<CUdevResource> groups;
    CUdevResource remaining{};
    CUDA_RETURN_IF_ERROR(SplitResource(cuda, of, split, &groups, &remaining));
    for (uint32_t i = 0; i < wire::kMaxSplitGroups; ++i) {
      if (!wants(i)) continue;
      // The driver gave fewer groups than requested.
      if (i >= groups.size()) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
      picked->push_back(groups[i]);
    }
    if (!with_remaining) return CUDA_SUCCESS;
    // The driver crashes on a descriptor of nothing.
    if (remaining.type != CU_DEV_RESOURCE_TYPE_SM || remaining.sm.smCount == 0) {
      return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    picked->push_back(remaining);
    return CUDA_SUCCESS;
  }

  // Makes the same calls as the program's own splits: a split is a function of its input alone, so
  // the pieces are those that the program knows.
  CUresult Pick(const Driver& cuda, std::vector<CUdevResource>* picked) const {
    if (request.whole == 1) {
      picked->push_back(of);
    } else {
      CUDA_RETURN_IF_ERROR(PickOf(
          cuda, request.split, request.remaining == 1,
          [&](uint32_t i) { return (request.picked[i / 64] >> i % 64 & 1) != 0; }, picked));
    }
    for (const wire::PartPick& pick : more) {
      if (pick.what == wire::PartPick::What::kWhole) {
        picked->push_back(of);
        continue;
      }
      const bool group = pick.what == wire::PartPick::What::kGroup;
      CUDA_RETURN_IF_ERROR(PickOf(
          cuda, pick.split, !group, [&](uint32_t i) { return group && i == pick.group; }, picked));
    }
    return CUDA_SUCCESS;
  }

  // In a quiet moment, because creating the context waits for the device.
  CUresult Make(const Driver& cuda, CUdevice device) {
    if (of.type == CU_DEV_RESOURCE_TYPE_INVALID) {
      CUDA_RETURN_IF_ERROR(cuda.cuDeviceGetDevResource(device, &of, CU_DEV_RESOURCE_TYPE_SM));
    }
    std::vector<CUdevResource> picked;
    CUDA_RETURN_IF_ERROR(Pick(cuda, &picked));
    return executor::MakeGreen(cuda, device, &picked, &made);
  }
};

// Never destroyed: the session keeps it for the next request of the same part (spare_greens.h).
GreenContext::~GreenContext() {
  if (made.context != nullptr) home->Keep(key, made, std::move(charge));
}

CUresult MakeGreen(const Driver& cuda, CUdevice device, std::vector<CUdevResource>* resources,
                   MadeGreen* made) {
  CUdevResourceDesc description = nullptr;
  CUDA_RETURN_IF_ERROR(cuda.cuDevResourceGenerateDesc(&description, resources->data(),
                                                      static_cast<unsigned>(resources->size())));
  CUDA_RETURN_IF_ERROR(
      cuda.cuGreenCtxCreate(&made->context, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
  CUresult done = cuda.cuCtxFromGreenCtx(&made->converted, made->context);
  if (done == CUDA_SUCCESS) {
    done = cuda.cuGreenCtxGetDevResource(made->context, &made->has, CU_DEV_RESOURCE_TYPE_SM);
  }
  if (done == CUDA_SUCCESS) return done;
  cuda.cuGreenCtxDestroy(made->context);
  made->context = nullptr;
  return done;
}

// All or nothing: a driver may have some of them and lack others.
bool HasGreenContexts(const Driver& cuda) {
  return cuda.cuDeviceGetDevResource != nullptr && cuda.cuDevSmResourceSplitByCount != nullptr &&
         cuda.cuDevResourceGenerateDesc != nullptr && cuda.cuGreenCtxCreate != nullptr &&
         cuda.cuGreenCtxDestroy != nullptr && cuda.cuCtxFromGreenCtx != nullptr &&
         cuda.cuGreenCtxGetDevResource != nullptr && cuda.cuGreenCtxStreamCreate != nullptr;
}

// The driver returns the number of groups in `count`; it may be lower than requested.
CUresult SplitResource(const Driver& cuda, const CUdevResource& resource,
                       const wire::SplitArguments& split, std::vector<CUdevResource>* groups,
                       CUdevResource* remaining) {
  groups->resize(split.groups);
  unsigned count = split.groups;
  const CUresult result = cuda.cuDevSmResourceSplitByCount(
      groups->data(), &count, &resource, remaining, split.use_flags, split.min_count);
  groups->resize(result == CUDA_SUCCESS ? std::min<size_t>(count, groups->size()) : 0);
  return result;
}

wire::Multiprocessors MultiprocessorsOf(const CUdevResource& resource) {
  if (resource.type != CU_DEV_RESOURCE_TYPE_SM) return {};
  return {resource.sm.smCount, resource.sm.minSmPartitionSize, resource.sm.smCoscheduledAlignment,
          0};
}

const CUdevResource* GreenContexts::FindPart(wire::DevicePartId id_untrusted) {
  // An invalid resource stands for the whole device until a driver call is due anyway.
  static constexpr CUdevResource kAskedLater{};
  // The multiprocessors that the policy lets the session use.
  const Partition* partition = port_->partition();
  if (id_untrusted != wire::kWholeDevice) {
    const DevicePart* part = parts_.Find(id_untrusted);
    // A part that was made in another partition is no longer valid.
    const bool is_within =
        part != nullptr && (partition == nullptr || part->within == port_->context());
    return is_within ? &part->has : nullptr;
  }
  return partition == nullptr ? &kAskedLater : &partition->made.has;
}

void GreenContexts::On(wire::Tag<wire::PartGet>, const wire::PartGet::Request& request,
                       const wire::Record& record) {
  const CUdevResource* part = FindPart(request.part);
  const Caller caller = CallerOf(record);
  // A program can write anything into a CUdevResource.
  if (part == nullptr) {
    return Reply<wire::PartGet>(caller, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  }
  const Driver& cuda = services_.device->cuda();
  if (!HasGreenContexts(cuda)) return Reply<wire::PartGet>(caller, CUDA_ERROR_NOT_SUPPORTED);
  CUdevResource resource = *part;
  CUresult result = CUDA_SUCCESS;
  // On this thread: microseconds, and nothing waits (measured).
  if (resource.type == CU_DEV_RESOURCE_TYPE_INVALID) {
    result =
        cuda.cuDeviceGetDevResource(services_.device->device(), &resource, CU_DEV_RESOURCE_TYPE_SM);
  }
  Reply<wire::PartGet>(caller, services_.device->Judge(result), {MultiprocessorsOf(resource)});
}

void GreenContexts::On(wire::Tag<wire::PartSplit>, const wire::PartSplit::Request& request,
                       const wire::Record& record) {
  const CUdevResource* part = FindPart(request.part);
  if (!IsSplit(request.split)) return Refuse(wire::Fatal::kBadArgument);
  const Caller caller = CallerOf(record);
  if (part == nullptr) {
    return Reply<wire::PartSplit>(caller, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  }
  if (!HasGreenContexts(services_.device->cuda())) {
    return Reply<wire::PartSplit>(caller, CUDA_ERROR_NOT_SUPPORTED);
  }
  struct Answer {
    CUdevResource of;
    wire::PartSplit::Reply reply{};
    CUresult result = CUDA_SUCCESS;
  };
  auto answer = std::make_shared<Answer>();
  answer->of = *part;
  // On a worker, though it takes microseconds: the driver may take a lock for it.
  memory_.Post(
      [answer, request, device = services_.device->device(), &cuda = services_.device->cuda()] {
        if (answer->of.type == CU_DEV_RESOURCE_TYPE_INVALID) {
          answer->result =
              cuda.cuDeviceGetDevResource(device, &answer->of, CU_DEV_RESOURCE_TYPE_SM);
          if (answer->result != CUDA_SUCCESS) return;
        }
        std::vector<CUdevResource> groups;
        CUdevResource remaining{};
        answer->result = SplitResource(cuda, answer->of, request.split, &groups, &remaining);
        answer->reply.groups = static_cast<uint32_t>(groups.size());
        if (!groups.empty()) answer->reply.group = MultiprocessorsOf(groups.front());
        answer->reply.remaining = MultiprocessorsOf(remaining);
      },
      [this, answer, caller] {
        Reply<wire::PartSplit>(caller, services_.device->Judge(answer->result), answer->reply);
      });
}

// A context of the same part that this session has kept is taken at once. Otherwise the new one is
// charged, and then either one that an ended session has left is taken, or one is created.
void GreenContexts::On(wire::Tag<wire::GreenCreate>, const wire::GreenCreate::Request& request,
                       const wire::Record& record) {
  auto made = std::make_shared<NewGreen>();
  made->request = request;
  made->more.resize(record.payload.size() / sizeof(wire::PartPick));
  if (!made->more.empty()) {
    std::memcpy(made->more.data(), record.payload.data(),
                made->more.size() * sizeof(wire::PartPick));
  }
  const auto part = static_cast<uint32_t>(request.part);
  if (part == 0 || part >= wire::kMaxDeviceParts) return Refuse(wire::Fatal::kBadHandle);
  if (!IsDescription(request) || record.payload.size() % sizeof(wire::PartPick) != 0 ||
      !std::all_of(made->more.begin(), made->more.end(), IsPick)) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  const CUdevResource* of = FindPart(request.of);
  made->caller = CallerOf(record);
  if (of == nullptr) {
    return Reply<wire::GreenCreate>(made->caller, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  }
  made->of = *of;
  // The driver adds up parts that overlap: it gives 72 multiprocessors for 64 and 8 of the same,
  // and some of these belong to others (measured).
  if (port_->partition() != nullptr && !made->more.empty()) {
    return Reply<wire::GreenCreate>(made->caller, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  }
  if (!HasGreenContexts(services_.device->cuda())) {
    return Reply<wire::GreenCreate>(made->caller, CUDA_ERROR_NOT_SUPPORTED);
  }
  std::string key = made->Key();
  const bool kept = greens_->Has(key);
  // Contexts outlive their ids while they have work, so they are counted apart from those kept.
  // Taking a kept one makes room among the kept.
  if (green_.size() >= kMaxGreenContexts || (!kept && greens_->kept() >= kMaxGreenContexts)) {
    return Reply<wire::GreenCreate>(made->caller, CUDA_ERROR_OUT_OF_MEMORY);
  }
  if (green_.Add(request.context) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  made->owner =
      std::make_shared<GreenContext>(services_.device, greens_, std::move(key), port_->context());
  GreenContext& owner = *made->owner;
  if (greens_->Take(owner.key, &owner.made, &owner.charge)) return AnswerGreen(*made);
  Charge(kGreenContextBytes, [this, made](CUresult charged, DeviceChargeRef charge) {
    made->result = charged;
    made->owner->charge = std::move(charge);
    if (serving()) MakeGreen(made);
  });
}

// Called once the charge has been decided.
void GreenContexts::MakeGreen(const std::shared_ptr<NewGreen>& made) {
  GreenContext& owner = *made->owner;
  if (made->result == CUDA_SUCCESS && services_.greens->Take(owner.key, &owner.made)) {
    return AnswerGreen(*made);
  }
  // Counted only when it is sure to be created: taking a spare one costs the device nothing.
  if (made->result == CUDA_SUCCESS && !services_.greens->Count(tenant_->label)) {
    LogFor(
        &tenant_->lines, LogLevel::kInfo,
        "session %llu (%s): no more green contexts: this executor makes %u different ones ever, %u "
        "of them for one tenant",
        static_cast<unsigned long long>(id()), label(), kMaxMadeGreens, kMaxMadeOfTenant);
    made->result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (made->result != CUDA_SUCCESS) return AnswerGreen(*made);
  made->counted_by = services_.greens;
  made->tenant = tenant_;
  ++outstanding_;
  services_.quiet->Need(
      port_->owner(),
      [made, device = services_.device->device(), &cuda = services_.device->cuda()] {
        made->result = made->Make(cuda, device);
      },
      [this, made] {
        --outstanding_;
        services_.device->Judge(made->result);
        made->owner->made = made->made;
        if (serving()) AnswerGreen(*made);
      });
}

// The entry is there since the request and null, so no other command could use or remove it.
void GreenContexts::AnswerGreen(NewGreen& made) {
  GreenContextRef owner = std::move(made.owner);
  if (made.result != CUDA_SUCCESS) {
    green_.Take(made.request.context);
    owner.reset();
    return Reply<wire::GreenCreate>(made.caller, made.result);
  }
  *green_.Find(made.request.context) = owner;
  const CUdevResource& has = owner->made.has;
  // Several contexts may have the same description, and so the same part.
  if (parts_.Find(made.request.part) == nullptr) {
    *parts_.Add(made.request.part) = {has, owner->within};
  }
  Reply<wire::GreenCreate>(made.caller, CUDA_SUCCESS, {MultiprocessorsOf(has)});
}

GreenContextRef GreenContexts::FindGreen(wire::GreenContextId id_untrusted) {
  const GreenContextRef* context = green_.Find(id_untrusted);
  if (context != nullptr && *context != nullptr) return *context;
  Refuse(wire::Fatal::kBadHandle);
  return nullptr;
}

void GreenContexts::On(wire::Tag<wire::GreenDestroy>, const wire::GreenDestroy::Request& request,
                       const wire::Record&) {
  // Its streams hold it while they have work.
  if (FindGreen(request.context) != nullptr) green_.Take(request.context);
}

void GreenContexts::On(wire::Tag<wire::GreenStreamCreate>,
                       const wire::GreenStreamCreate::Request& request,
                       const wire::Record& record) {
  const GreenContextRef* found = green_.Find(request.context);
  // Another thread of the program may destroy it meanwhile.
  if (found == nullptr || *found == nullptr) {
    return Reply<wire::GreenStreamCreate>(CallerOf(record), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  }
  const GreenContextRef context = *found;
  if (request.stream == wire::kLegacyStream) return Refuse(wire::Fatal::kBadHandle);
  const int priority = std::clamp(request.priority, services_.device->priority_greatest(),
                                  services_.device->priority_least());
  // Charged as StreamCreate charges.
  ChargeStream(request.stream, [this, name = request.stream, context, priority,
                                caller = CallerOf(record), ticket = record.ticket](
                                   CUresult charged, StreamChargeRef charge, bool is_handler) {
    if (charged != CUDA_SUCCESS) return Reply<wire::GreenStreamCreate>(caller, charged);
    Stream* stream = streams_.Add(name, /*blocking=*/false, priority, ticket);
    if (stream == nullptr) {
      return is_handler ? Refuse(wire::Fatal::kBadHandle) : EndFor(wire::Fatal::kBadHandle);
    }
    stream->charge = std::move(charge);
    stream->green = context;
    Reply<wire::GreenStreamCreate>(caller, CUDA_SUCCESS);
  });
}

}  // namespace gpuloom::executor
