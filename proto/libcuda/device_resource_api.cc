// SPDX-License-Identifier: Apache-2.0
// Resources of multiprocessors, and their descriptions for green contexts. A CUdevResource is the
// program's own struct: what it stands for is written into its reserved bytes and judged when it
// comes back, so no table of resources is needed. A description's handle is the address of one that
// is never freed, since CUDA has no call to destroy it; equal ones are the same, so programs that
// ask again and again cannot fill the table.
//
// Compiled into the shim and into the software driver.
#include <stdlib.h>
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/device_resource.h"
#include "proto/libcuda/growing.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

// In the bytes of a CUdevResource that programs leave alone.
struct Origin {
  uint32_t mark;  // kMark
  uint32_t kind;
  int32_t device;
  uint32_t of;     // a description's id, or 0 for the device
  uint32_t index;  // of a group
  uint32_t count;  // of multiprocessors
  SmSplit split;
};
static_assert(sizeof(Origin) <= sizeof(CUdevResource::_internal_padding));
// "GPLM" in memory: the bytes are ours and not another library's.
constexpr uint32_t kMark = 0x4d4c5047;
// All that a device or description has; one group of a split of it; what the split left over.
enum Kind : uint32_t { kWhole = 1, kGroup, kRemaining };

struct Descriptions {
  Mutex mutex;
  Growing<ResourceDescription*> all GPULOOM_GUARDED_BY(mutex);  // by id, from 1
};
constinit Descriptions descriptions;

// Makes the resource that the program gets.
void Fill(CUdevResource* resource, Origin origin, const SmCounts& has) {
  memset(resource, 0, sizeof(*resource));
  if (has.count == 0) return;  // CU_DEV_RESOURCE_TYPE_INVALID
  origin.count = has.count;
  resource->type = CU_DEV_RESOURCE_TYPE_SM;
  memcpy(resource->_internal_padding, &origin, sizeof(origin));
  resource->sm = {has.count, has.min_partition, has.alignment};
}

// `part`: a description's id, or 0 for the device.
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

constexpr uint32_t kSplitFlags = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                                 CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;

// Reads what one of these functions stored in a resource. The program may have overwritten it.
bool ReadOrigin(const CUdevResource& resource, Origin* origin) {
  memcpy(origin, resource._internal_padding, sizeof(*origin));
  const SmSplit& split = origin->split;
  const bool is_split = split.groups != 0 && split.groups <= kMaxResourceGroups &&
                        (split.use_flags & ~kSplitFlags) == 0;
  if (origin->mark != kMark || origin->count != resource.sm.smCount ||
      !(origin->kind == kWhole || (origin->kind == kRemaining && is_split) ||
        (origin->kind == kGroup && is_split && origin->index < split.groups))) {
    return false;
  }
  // The number of descriptions only grows.
  const MutexLock lock(descriptions.mutex);
  return origin->of <= descriptions.all.count();
}

// cuDevSmResourceSplitByCount. Without `groups` only tells how many there would be. Only a whole
// can be split, not what a split has made.
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
  SmSplit split = {use_flags & kSplitFlags, min_count,
                   kMaxResourceGroups};  // unknown flags are ignored
  if (groups != nullptr && *count < split.groups) split.groups = *count;
  uint32_t made = 0;
  SmCounts group = {};
  SmCounts left = {};
  const CUresult result = SplitPart(origin.device, origin.of, split, &made, &group, &left);
  if (result != CUDA_SUCCESS) {
    if (groups == nullptr) *count = 0;
    return result;
  }
  for (uint32_t i = 0; groups != nullptr && i < made; ++i) {
    Fill(&groups[i], {kMark, kGroup, origin.device, origin.of, i, 0, split}, group);
  }
  if (remaining != nullptr) {
    Fill(remaining, {kMark, kRemaining, origin.device, origin.of, 0, 0, split}, left);
  }
  *count = made;
  return CUDA_SUCCESS;
}

bool Same(const SmSplit& a, const SmSplit& b) {
  return a.use_flags == b.use_flags && a.min_count == b.min_count && a.groups == b.groups;
}

// Apart from their ids and the count, which follows from the rest.
bool SameContent(const ResourceDescription& a, const ResourceDescription& b) {
  if (a.device != b.device || a.of != b.of || a.whole != b.whole || a.remaining != b.remaining ||
      !Same(a.split, b.split) || memcmp(a.picked, b.picked, sizeof(a.picked)) != 0 ||
      a.more_count != b.more_count) {
    return false;
  }
  for (uint32_t i = 0; i < a.more_count; ++i) {
    const ResourcePick& one = a.more[i];
    const ResourcePick& other = b.more[i];
    if (one.whole != other.whole || one.remaining != other.remaining || one.group != other.group ||
        !Same(one.split, other.split)) {
      return false;
    }
  }
  return true;
}

// Returns true if it is a part of the description's first split that the description does not have
// yet.
bool TakesFirst(const Origin& origin, bool is_first, ResourceDescription* described) {
  if (is_first) described->split = origin.split;
  if (origin.kind == kWhole) return is_first && (described->whole = true);
  if (described->whole || !Same(origin.split, described->split)) return false;
  if (origin.kind == kRemaining) {
    const bool twice = described->remaining;
    described->remaining = true;
    return !twice;
  }
  uint64_t& word = described->picked[origin.index / 64];
  const uint64_t bit = uint64_t{1} << origin.index % 64;
  const bool twice = (word & bit) != 0;
  word |= bit;
  return !twice;
}

// Combines the resources into one description, without an id.
CUresult Describe(const CUdevResource* resources, unsigned count, ResourceDescription* described) {
  for (unsigned i = 0; i < count; ++i) {
    if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    Origin origin = {};
    if (!ReadOrigin(resources[i], &origin)) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (i == 0) {
      described->device = origin.device;
      described->of = origin.of;
    }
    if (origin.device != described->device || origin.of != described->of) {
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    described->count += origin.count;
    if (TakesFirst(origin, i == 0, described)) continue;
    // Parts of further splits, or the same part again, are listed one by one; the library judges
    // whether they overlap.
    if (described->more_count == kMaxMorePicks) return CUDA_ERROR_OUT_OF_MEMORY;
    described->more[described->more_count++] = {origin.kind == kWhole, origin.kind == kRemaining,
                                                origin.index, origin.split};
  }
  return CUDA_SUCCESS;
}

CUresult Generate(CUdevResourceDesc* handle, const CUdevResource* resources, unsigned count) {
  // For a description of nothing NVIDIA's driver crashes; this is an error instead.
  if (handle == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  ResourceDescription described = {};
  CUDA_RETURN_IF_ERROR(Describe(resources, count, &described));
  const MutexLock lock(descriptions.mutex);
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

CUresult FindDescription(CUdevResourceDesc handle, CUdevice device,
                         const ResourceDescription** description) {
  if (handle == nullptr) {
    CUresult result = CheckResourceDevice(device);
    CUdevResource whole;
    if (result == CUDA_SUCCESS) result = FillWhole(device, 0, &whole);
    if (result == CUDA_SUCCESS) result = Generate(&handle, &whole, 1);
    if (result != CUDA_SUCCESS) return result;
  }
  const MutexLock lock(descriptions.mutex);
  for (const ResourceDescription* known : descriptions.all) {
    if (reinterpret_cast<CUdevResourceDesc>(const_cast<ResourceDescription*>(known)) == handle) {
      *description = known;
      return known->device == device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

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
  CUDA_RETURN_IF_ERROR(CheckResourceDevice(0));
  return Split(groups, count, input, remaining, use_flags, min_count);
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* handle, CUdevResource* resources,
                                   unsigned count) {
  const CUresult result = CheckResourceDevice(0);
  return result != CUDA_SUCCESS ? result : Generate(handle, resources, count);
}

}  // extern "C"
