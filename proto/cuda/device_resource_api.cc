#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "proto/cuda/device_resource.h"
#include "proto/cuda/growing.h"

namespace gpuloom {
namespace {

// In the bytes of a CUdevResource that programs leave alone.
struct Origin {
  uint32_t mark;  // kMark
  uint32_t kind;
  int32_t device;
  uint32_t of;     // a description's id, or 0 for the device
  uint32_t index;  // of a group
  uint32_t call;   // which split call it came from: groups of several calls are not put together
  SmSplit split;
};
static_assert(sizeof(Origin) <= sizeof(CUdevResource::_internal_padding));
constexpr uint32_t kMark = 0x4d4c5047;
enum Kind : uint32_t { kWhole = 1, kGroup, kRemaining };

struct Descriptions {
  pthread_mutex_t mutex;
  Growing<ResourceDescription*> all;  // by id, from 1
};
constinit Descriptions descriptions = {PTHREAD_MUTEX_INITIALIZER, {}};
constinit std::atomic<uint32_t> split_calls{0};

class HoldingDescriptions {
 public:
  HoldingDescriptions() { pthread_mutex_lock(&descriptions.mutex); }
  ~HoldingDescriptions() { pthread_mutex_unlock(&descriptions.mutex); }
  HoldingDescriptions(const HoldingDescriptions&) = delete;
  HoldingDescriptions& operator=(const HoldingDescriptions&) = delete;
};

void Fill(CUdevResource* resource, const Origin& origin, const SmCounts& has) {
  memset(resource, 0, sizeof(*resource));
  if (has.count == 0) return;  // CU_DEV_RESOURCE_TYPE_INVALID
  resource->type = CU_DEV_RESOURCE_TYPE_SM;
  memcpy(resource->_internal_padding, &origin, sizeof(origin));
  resource->sm = {has.count, has.min_partition, has.alignment};
}

CUresult FillWhole(CUdevice device, uint32_t part, CUdevResource* resource) {
  SmCounts has = {};
  const CUresult result = GetPart(device, part, &has);
  if (result == CUDA_SUCCESS) Fill(resource, {kMark, kWhole, device, part, 0, 0, {}}, has);
  return result;
}

CUresult CheckType(const CUdevResource* resource, CUdevResourceType type) {
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

// Of a resource that one of these functions has filled.
bool ReadOrigin(const CUdevResource& resource, Origin* origin) {
  memcpy(origin, resource._internal_padding, sizeof(*origin));
  if (origin->mark != kMark || origin->split.groups > kMaxResourceGroups ||
      (origin->kind == kGroup && origin->index >= origin->split.groups)) {
    return false;
  }
  const HoldingDescriptions holding;
  return origin->of <= descriptions.all.count();
}

CUresult Split(CUdevResource* groups, unsigned* count, const CUdevResource* input,
               CUdevResource* remaining, unsigned use_flags, unsigned min_count) {
  if (count == nullptr || input == nullptr || (groups != nullptr && *count == 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  Origin origin = {};
  if (!ReadOrigin(*input, &origin) || origin.kind != kWhole) {
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  constexpr unsigned kKnown = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                              CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
  SmSplit split = {use_flags & kKnown, min_count, kMaxResourceGroups};  // others mean nothing
  if (groups != nullptr && *count < split.groups) split.groups = *count;
  uint32_t made = 0;
  SmCounts group = {};
  SmCounts left = {};
  const CUresult result = SplitPart(origin.device, origin.of, split, &made, &group, &left);
  if (result != CUDA_SUCCESS) {
    if (groups == nullptr) *count = 0;
    return result;
  }
  const uint32_t call = split_calls.fetch_add(1, std::memory_order_relaxed) + 1;
  for (uint32_t i = 0; groups != nullptr && i < made; ++i) {
    Fill(&groups[i], {kMark, kGroup, origin.device, origin.of, i, call, split}, group);
  }
  if (remaining != nullptr) {
    Fill(remaining, {kMark, kRemaining, origin.device, origin.of, 0, call, split}, left);
  }
  *count = made;
  return CUDA_SUCCESS;
}

bool SameContent(const ResourceDescription& a, const ResourceDescription& b) {
  return a.device == b.device && a.of == b.of && a.whole == b.whole && a.remaining == b.remaining &&
         memcmp(&a.split, &b.split, sizeof(a.split)) == 0 &&
         memcmp(a.picked, b.picked, sizeof(a.picked)) == 0;
}

// The resources as one description, without an id.
CUresult Describe(const CUdevResource* resources, unsigned count, ResourceDescription* described) {
  Origin first = {};
  for (unsigned i = 0; i < count; ++i) {
    if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    Origin origin = {};
    if (!ReadOrigin(resources[i], &origin)) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (i == 0) first = origin;
    if (origin.device != first.device || origin.of != first.of || origin.call != first.call ||
        (origin.kind == kWhole) != (first.kind == kWhole)) {
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    bool twice = false;
    switch (origin.kind) {
      case kWhole:
        twice = described->whole;
        described->whole = true;
        break;
      case kRemaining:
        twice = described->remaining;
        described->remaining = true;
        break;
      case kGroup: {
        uint64_t& word = described->picked[origin.index / 64];
        const uint64_t bit = uint64_t{1} << origin.index % 64;
        twice = (word & bit) != 0;
        word |= bit;
        break;
      }
      default:
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    if (twice) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    described->count += resources[i].sm.smCount;
  }
  described->device = first.device;
  described->of = first.of;
  described->split = first.split;
  return CUDA_SUCCESS;
}

CUresult Generate(CUdevResourceDesc* handle, const CUdevResource* resources, unsigned count) {
  // Of nothing: NVIDIA's driver crashes.
  if (handle == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  ResourceDescription described = {};
  const CUresult result = Describe(resources, count, &described);
  if (result != CUDA_SUCCESS) return result;
  const HoldingDescriptions holding;
  for (ResourceDescription* known : descriptions.all) {
    if (!SameContent(*known, described)) continue;
    *handle = reinterpret_cast<CUdevResourceDesc>(known);
    return CUDA_SUCCESS;
  }
  if (descriptions.all.count() == kMaxResourceDescriptions) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* made = static_cast<ResourceDescription*>(malloc(sizeof(ResourceDescription)));
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = described;
  made->id = static_cast<uint32_t>(descriptions.all.count()) + 1;
  if (!descriptions.all.Push(made)) {
    free(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = reinterpret_cast<CUdevResourceDesc>(made);
  return CUDA_SUCCESS;
}

}  // namespace

const ResourceDescription* FindDescription(CUdevResourceDesc handle) {
  const HoldingDescriptions holding;
  for (const ResourceDescription* known : descriptions.all) {
    if (reinterpret_cast<CUdevResourceDesc>(const_cast<ResourceDescription*>(known)) == handle) {
      return known;
    }
  }
  return nullptr;
}

}  // namespace gpuloom

using namespace gpuloom;  // NOLINT: CUDA's functions are written in our terms

extern "C" {

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  CUresult result = CheckResourceDevice(device);
  if (result == CUDA_SUCCESS) result = CheckType(resource, type);
  return result != CUDA_SUCCESS ? result : FillWhole(device, 0, resource);
}

CUresult cuCtxGetDevResource(CUcontext context, CUdevResource* resource, CUdevResourceType type) {
  CUdevice device = 0;
  uint32_t part = 0;
  CUresult result = PartOfContext(context, &device, &part);
  if (result == CUDA_SUCCESS) result = CheckType(resource, type);
  return result != CUDA_SUCCESS ? result : FillWhole(device, part, resource);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx context, CUdevResource* resource,
                                  CUdevResourceType type) {
  CUdevice device = 0;
  uint32_t part = 0;
  CUresult result = PartOfGreenContext(context, &device, &part);
  if (result == CUDA_SUCCESS) result = CheckType(resource, type);
  return result != CUDA_SUCCESS ? result : FillWhole(device, part, resource);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* groups, unsigned* count,
                                     const CUdevResource* input, CUdevResource* remaining,
                                     unsigned use_flags, unsigned min_count) {
  const CUresult result = CheckResourceDevice(0);
  if (result != CUDA_SUCCESS) return result;
  return Split(groups, count, input, remaining, use_flags, min_count);
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* handle, CUdevResource* resources,
                                   unsigned count) {
  const CUresult result = CheckResourceDevice(0);
  return result != CUDA_SUCCESS ? result : Generate(handle, resources, count);
}

}  // extern "C"
