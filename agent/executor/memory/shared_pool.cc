// SPDX-License-Identifier: Apache-2.0
// Pools that several sessions of the domain share: each has a name, and memory that its maker has
// put into it.
#include "agent/executor/memory/device_memory.h"

namespace gpuloom::executor {

SharedPoolRef* DeviceMemory::FindPool(wire::PoolId id_untrusted) {
  SharedPoolRef* pool = pools_.Find(id_untrusted);
  if (pool == nullptr) Refuse(wire::Fatal::kBadHandle);
  return pool;
}

void DeviceMemory::On(wire::Tag<wire::PoolShare>, const wire::PoolShare::Request& request,
                      const wire::Record& record) {
  const Caller caller = CallerOf(record);
  SharedPoolRef* slot = pools_.Add(request.pool);
  if (slot == nullptr) return Refuse(wire::Fatal::kBadHandle);
  auto pool = std::make_shared<SharedPool>();
  pool->maker_session = id();
  if (!services_.shared->Export(pool)) {
    pools_.Take(request.pool);
    return Reply<wire::PoolShare>(caller, CUDA_ERROR_OPERATING_SYSTEM);
  }
  *slot = pool;
  const auto [first, second] = pool->token;
  Reply<wire::PoolShare>(caller, CUDA_SUCCESS, {{{first, second}}, pool->number});
}

void DeviceMemory::On(wire::Tag<wire::PoolOpen>, const wire::PoolOpen::Request& request,
                      const wire::Record& record) {
  const Caller caller = CallerOf(record);
  // Who knows the token may open it: 128 random bits that the maker has passed on.
  SharedPoolRef pool = services_.shared->FindPool(request.token);
  if (pool == nullptr) return Reply<wire::PoolOpen>(caller, CUDA_ERROR_INVALID_HANDLE);
  SharedPoolRef* slot = pools_.Add(request.pool);
  if (slot == nullptr) return Refuse(wire::Fatal::kBadHandle);
  *slot = std::move(pool);
  Reply<wire::PoolOpen>(caller, CUDA_SUCCESS, {(*slot)->number});
}

void DeviceMemory::On(wire::Tag<wire::PoolClose>, const wire::PoolClose::Request& request,
                      const wire::Record&) {
  if (FindPool(request.pool) != nullptr) pools_.Take(request.pool);
}

void DeviceMemory::On(wire::Tag<wire::PoolPut>, const wire::PoolPut::Request& request,
                      const wire::Record& record) {
  SharedPoolRef* pool = FindPool(request.pool);
  if (pool == nullptr) return;
  // Only the maker's own memory may get into its pool.
  if ((*pool)->maker_session != id()) return Refuse(wire::Fatal::kBadHandle);
  // Memory in a slab cannot be shared: other allocations of the tenant lie in the same slab.
  const auto address = static_cast<uint64_t>(request.address);
  if (!space_.Contains(address, 1) || space_.SpanBytes(address) == 0) {
    return Refuse(wire::Fatal::kBadRange);
  }
  const uint64_t memory = services_.shared->Put(blocks_.at(address), pool->get());
  Reply<wire::PoolPut>(CallerOf(record), memory != 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM,
                       {memory});
}

void DeviceMemory::On(wire::Tag<wire::PoolTake>, const wire::PoolTake::Request& request,
                      const wire::Record& record) {
  const Caller caller = CallerOf(record);
  const SharedPoolRef* pool = FindPool(request.pool);
  if (pool == nullptr) return;
  const PhysicalRef memory = services_.shared->FindIn(**pool, request.memory);
  if (memory == nullptr) return Reply<wire::PoolTake>(caller, CUDA_ERROR_INVALID_HANDLE);
  const uint64_t size_bytes = memory->size_bytes;
  const uint64_t address = space_.ReserveSpan(size_bytes);
  if (address == 0) return Reply<wire::PoolTake>(caller, CUDA_ERROR_OUT_OF_MEMORY);
  Hold(memory);  // so that it stays, whatever its maker does
  MapHeld(memory, address, [this, caller, address, size_bytes](CUresult result) {
    if (result == CUDA_SUCCESS) {
      space_.AddLarge(address, size_bytes, size_bytes);
    } else {
      space_.ReleaseSpan(address, size_bytes);
    }
    Reply<wire::PoolTake>(caller, result, {wire::DevicePtr{address}, size_bytes});
  });
}

}  // namespace gpuloom::executor
