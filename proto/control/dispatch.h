// SPDX-License-Identifier: Apache-2.0
// Routes a received message to its typed handler. `handler` is called with one message of the route, or not at all:
//
//   const Judgement judged = Dispatch<Route::kAgentAsks>(in, [&](const auto& message) { On(message); });
//
// A message of the route without a handler fails to compile. Keeps no state; runs the handler on the caller's thread.
#pragma once

#include <array>
#include <type_traits>

#include "proto/control/connection.h"

namespace gpuloom::control {

enum class Judgement {
  kHandled,
  kUnknown,    // not in the list: from a newer minor, or garbage
  kMalformed,  // shorter than it ever was, with other descriptors, or of another route
};

namespace internal {

template <Message M, typename Handler>
Judgement Invoke(const Incoming& in, Handler& handler) {
  static_assert(std::is_invocable_v<Handler&, const M&>, "this message has no handler");
  M message{};
  if (in.fd_count != Descriptors<M>() || !in.As(&message)) return Judgement::kMalformed;
  handler(message);
  return Judgement::kHandled;
}

template <typename Handler>
using Entry = Judgement (*)(const Incoming&, Handler&);

template <Route kRoute, typename Handler, Message M>
constexpr Entry<Handler> MakeEntry() {
  if constexpr (M::kRoute == kRoute) {
    return &Invoke<M, Handler>;
  } else {
    return nullptr;
  }
}

template <Route kRoute, typename Handler, Message... Ms>
constexpr std::array<Entry<Handler>, sizeof...(Ms)> MakeTable(MessageList<Ms...>) {
  return {MakeEntry<kRoute, Handler, Ms>()...};
}

}  // namespace internal

// The descriptors stay in `in`, where the handler may take them.
template <Route kRoute, typename Handler>
[[nodiscard]] Judgement Dispatch(const Incoming& in, Handler&& handler) {
  using Called = std::remove_reference_t<Handler>;
  static constexpr auto kTable = internal::MakeTable<kRoute, Called>(AllMessages{});
  if (FindMessage(in.header.type) == nullptr) return Judgement::kUnknown;
  const auto entry = kTable[in.header.type - 1];
  return entry == nullptr ? Judgement::kMalformed : entry(in, handler);
}

}  // namespace gpuloom::control
