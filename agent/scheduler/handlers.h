// SPDX-License-Identifier: Apache-2.0
// Which of the scheduler's parts handles a control message: found at compile time, by the part's overloads of `On` (what
// an executor says) and `Apply` (what an agent or command asks):
//
//   void On(Executor* executor, const control::MemoryReturn& message, control::Incoming& in);
//   bool Apply(Controller* controller, const control::BeginTrace& message, std::string* error);
//
// An executor names only its own sessions; whatever else it says is checked by the handler. `in` has the request number
// and descriptors. `Apply` returns false with the reason.
#pragma once

#include <concepts>
#include <string>

#include "proto/control/connection.h"

namespace gpuloom::scheduler {

struct Controller;
class Executor;

template <typename Part, typename M>
concept HandlesExecutors = requires(Part& part, Executor* executor, const M& message,
                                    control::Incoming& in) {
  part.On(executor, message, in);
};

template <typename Part, typename M>
concept HandlesControllers = requires(Part& part, Controller* controller, const M& message,
                                      std::string* error) {
  { part.Apply(controller, message, error) } -> std::same_as<bool>;
};

// The one part that handles the message. None, or two, fail to compile.
template <control::Message M, typename First, typename... Others>
constexpr auto& PartWith(First& first, Others&... others) {
  if constexpr (HandlesExecutors<First, M> || HandlesControllers<First, M>) {
    static_assert(!((HandlesExecutors<Others, M> || HandlesControllers<Others, M>) || ...),
                  "two parts have a handler for this message");
    return first;
  } else {
    static_assert(sizeof...(Others) != 0,
                  "no part has a handler for this message: write On or Apply");
    return PartWith<M>(others...);
  }
}

}  // namespace gpuloom::scheduler
