// SPDX-License-Identifier: Apache-2.0
// Routes a record to its typed handler. `Handler` has one `void On(Tag<C>, …)` per command:
//
//   void On(wire::Tag<Launch>, const Launch::Request& request, const Record& record);
//
// A command without a handler fails to compile. Dispatch is one indirect call, on the caller's thread, and keeps no
// state.
#pragma once

#include <array>

#include "proto/wire/command_list.h"
#include "proto/wire/ring_reader.h"

namespace gpuloom::wire {

template <Command C>
struct Tag {};

template <typename Handler, typename C>
concept Handles = requires(Handler& handler, const typename C::Request& request,
                           const Record& record) {
  handler.On(Tag<C>{}, request, record);
};

// For a handler made of parts: the one that handles the command. None, or two, fail to compile.
template <Command C, typename First, typename... Others>
constexpr auto& PartWith(First& first, Others&... others) {
  if constexpr (Handles<First, C>) {
    static_assert(!(Handles<Others, C> || ...), "two parts have a handler for this command");
    return first;
  } else {
    static_assert(
        sizeof...(Others) != 0,
        "no part has a handler for this command: write On(Tag<Command>, request, record)");
    return PartWith<C>(others...);
  }
}

namespace internal {

template <typename Handler, Command C>
void Invoke(Handler& handler, const Record& record) {
  static_assert(Handles<Handler, C>,
                "this command has no handler: write Handler::On(Tag<Command>, request, record)");
  if constexpr (std::is_empty_v<typename C::Request>) {
    handler.On(Tag<C>{}, typename C::Request{}, record);
  } else {
    typename C::Request request;
    std::memcpy(&request, record.request, sizeof(request));
    handler.On(Tag<C>{}, request, record);
  }
}

template <typename Handler, Command... Cs>
constexpr std::array<void (*)(Handler&, const Record&), sizeof...(Cs)> MakeTable(
    CommandList<Cs...>) {
  return {&Invoke<Handler, Cs>...};
}

}  // namespace internal

// `record` comes from RingReader::Next, so its opcode and sizes have been checked.
template <typename Handler>
void Dispatch(Handler& handler, const Record& record) {
  static constexpr auto kTable = internal::MakeTable<Handler>(AllCommands{});
  kTable[record.opcode](handler, record);
}

}  // namespace gpuloom::wire
