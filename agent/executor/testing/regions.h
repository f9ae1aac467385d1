// SPDX-License-Identifier: Apache-2.0
// The memory shared by a session's tenant and executor, and the tenant's ends of it, in a test's own process.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "proto/channel/region.h"
#include "proto/control/messages.h"
#include "proto/wire/completion_reader.h"
#include "proto/wire/ring_writer.h"

namespace gpuloom::executor {

struct TestingRegions {
  // Recreates them; returns the executor's descriptors, as in AddSession. A process that cannot
  // have them ends.
  std::array<channel::UniqueFd, control::kSessionFds> Make(uint64_t arena_bytes);

  // Writes a command, which the executor sees at once; returns false if the ring is full.
  template <wire::Command C>
  [[nodiscard]] bool TryPost(const typename C::Request& request, std::span<const uint8_t> payload,
                             uint16_t slot, wire::Ticket* ticket) {
    uint8_t* tail = nullptr;
    typename C::Request* out =
        writer.Reserve<C>(static_cast<uint32_t>(payload.size()), &tail, slot);
    if (out == nullptr) return false;
    if constexpr (!std::is_empty_v<typename C::Request>) *out = request;
    if (!payload.empty()) std::memcpy(tail, payload.data(), payload.size());
    *ticket = writer.Commit();
    return true;
  }

  wire::RingWriter writer;
  wire::CompletionReader reader;
  channel::Mapping commands;
  channel::Mapping completions;
  channel::UniqueFd arena;
  channel::UniqueFd doorbell;
};

}  // namespace gpuloom::executor
