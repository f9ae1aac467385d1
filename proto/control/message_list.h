// SPDX-License-Identifier: Apache-2.0
// The control protocol's messages in the order of their types, and what the compiler derives from the list: types,
// names, sizes, directions, descriptors, and checks that each message is well-formed. Constants and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "proto/channel/socket.h"
#include "proto/control/messages.h"
#include "proto/control/trace_messages.h"

namespace gpuloom::control {

template <typename... Ms>
struct MessageList {
  static constexpr size_t kCount = sizeof...(Ms);
};

// Append only: the position, counted from 1, is the type.
// clang-format off
using AllMessages = MessageList<
    ControlHello,
    Answer,
    AddAllocation,
    BindAllocation,
    RemoveAllocation,
    ListAllocations,
    AllocationState,
    ExecutorReady,
    AddSession,
    SessionReady,
    RemoveSession,
    SessionEnded,
    MemoryRequest,
    MemoryGranted,
    MemoryReturn,
    MemoryInfoRequest,
    MemoryInfo,
    ExecutorFault,
    SessionCounters,
    ArenaReturned,
    MemoryTransfer,
    MemoryCharge,
    UnsupportedCall,
    MemoryReclaim,
    MemoryReclaimed,
    PrepareExecutor,
    SessionWaits,
    RefusedCalls,
    SetShares,
    HoldSession,
    SessionHeld,
    SuspendAllocation,
    GiveTurn,
    EndTurn,
    AllocationWants,
    TurnUsage,
    TurnDrained,
    DescribeGpu,
    GpuState,
    DomainState,
    BeginTrace,
    EndTrace,
    TracePart,
    TraceSession,
    StartTracing,
    StopTracing,
    TraceProgress,
    LongKernel,
    StartTracingOwn,
    PartitionPending>;
// clang-format on

// An empty struct has size 1 in C++ and takes 0 bytes in a message.
template <typename M>
inline constexpr uint32_t kBodyBytes = std::is_empty_v<M> ? 0 : sizeof(M);

// The size of the message when it was added to the list; those that have grown since set kShortestBytes.
template <typename M>
constexpr uint32_t ShortestBytes() {
  if constexpr (requires { M::kShortestBytes; }) {
    return M::kShortestBytes;
  } else {
    return kBodyBytes<M>;
  }
}

// The number of descriptors that are sent with the message.
template <typename M>
constexpr size_t Descriptors() {
  if constexpr (requires { M::kFds; }) {
    return M::kFds;
  } else {
    return 0;
  }
}

template <typename M>
concept Message = wire::WireStruct<M> && !M::kName.empty() && M::kRoute <= Route::kAnswers &&
                  sizeof(MessageHeader) + kBodyBytes<M> <= kMaxMessageBytes &&
                  ShortestBytes<M>() <= kBodyBytes<M> && Descriptors<M>() <= channel::kMaxFds;

struct MessageInfo {
  std::string_view name;
  Route route;
  uint32_t body_bytes;
  uint32_t shortest_bytes;
  size_t fds;
};

namespace internal {

template <typename M, typename List>
struct TypeOf;
template <typename M, typename... Ms>
struct TypeOf<M, MessageList<Ms...>> {
  static constexpr uint32_t Find() {
    uint32_t i = 1;
    const bool found = ((std::is_same_v<M, Ms> ? true : (++i, false)) || ...);
    return found ? i : 0;
  }
};

template <Message... Ms>
constexpr std::array<MessageInfo, sizeof...(Ms)> Describe(MessageList<Ms...>) {
  return {MessageInfo{Ms::kName, Ms::kRoute, kBodyBytes<Ms>, ShortestBytes<Ms>(),
                      Descriptors<Ms>()}...};
}

}  // namespace internal

template <Message M>
inline constexpr uint32_t kType = internal::TypeOf<M, AllMessages>::Find();

// By type, which counts from 1.
inline constexpr auto kMessages = internal::Describe(AllMessages{});

// nullptr: a type from a newer minor, or garbage.
constexpr const MessageInfo* FindMessage(uint32_t type_untrusted) {
  return type_untrusted - 1 < kMessages.size() ? &kMessages[type_untrusted - 1] : nullptr;
}

// The most descriptors that any message of this route has.
constexpr size_t MostDescriptors(Route route) {
  size_t most = 0;
  for (const MessageInfo& info : kMessages) {
    if (info.route == route && info.fds > most) most = info.fds;
  }
  return most;
}

}  // namespace gpuloom::control
