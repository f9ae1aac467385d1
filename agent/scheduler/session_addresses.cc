// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/session_addresses.h"

namespace gpuloom::scheduler {

static_assert(Registry::kMaxAllocations * kAssuredDeviceRanges * kLeastDeviceRangeBytes <=
                      kAssuredDeviceBytes &&
                  Registry::kMaxAllocations * kAssuredHostRanges * kMinHostRangeBytes <=
                      kAssuredHostBytes,
              "what every allocation is assured of must be kept for it");

bool SessionAddresses::Take(Session* session, std::string* error) {
  Allocation& allocation = *session->allocation;
  const uint64_t quota_bytes = allocation.usage.quota_bytes();
  const AddressLimits device = DeviceAddressLimits(quota_bytes);
  if (!allocation.device_addresses.Take(device, &device_window_, &session->device_range)) {
    *error = allocation.Label() + " holds " + allocation.device_addresses.Refusal(device);
    return false;
  }
  const AddressLimits host = HostAddressLimits(allocation.pinned_limit_bytes);
  if (!allocation.host_addresses.Take(host, &host_window_, &session->host_range)) {
    *error = allocation.Label() + " holds " + allocation.host_addresses.Refusal(host);
    allocation.device_addresses.EndServing();
    allocation.device_addresses.Free(session->device_range, &device_window_);
    return false;
  }
  session->device_own_bytes = DeviceOwnBytes(quota_bytes, session->device_range.size_bytes);
  session->pinned_limit_bytes =
      PinnedLimitBytes(allocation.pinned_limit_bytes, session->host_range.size_bytes);
  return true;
}

void SessionAddresses::Return(const Session& session) {
  Allocation& allocation = *session.allocation;
  allocation.device_addresses.Free(session.device_range, &device_window_);
  if (session.arena_returned) {
    allocation.host_addresses.Free(session.host_range, &host_window_);
  } else {
    session.executor->arenas.emplace(session.id,
                                     Executor::Arena{session.allocation, session.host_range});
  }
}

void SessionAddresses::On(Executor* executor, const control::ArenaReturned& message,
                          control::Incoming&) {
  const auto it = executor->arenas.find(message.session_id);
  if (it != executor->arenas.end()) {
    // The executor has unmapped the arena, maybe long after the session's end.
    it->second.allocation->host_addresses.Free(it->second.range, &host_window_);
    executor->arenas.erase(it);
  } else if (Session* session = registry_.FindSession(message.session_id, *executor)) {
    session->arena_returned = true;  // the executor could not take the session
  }
}

void SessionAddresses::FreeArenas(const Executor& executor) {
  for (const auto& [id, arena] : executor.arenas) {
    arena.allocation->host_addresses.Free(arena.range, &host_window_);
  }
}

}  // namespace gpuloom::scheduler
