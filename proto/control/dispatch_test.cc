// SPDX-License-Identifier: Apache-2.0
// Every message of the list, by name: from bytes to its handler, and refused when it is anything else.
#include "proto/control/dispatch.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace gpuloom::control {
namespace {

// Dispatches as all three that listen do; the name of what was handled, or "".
template <Route kRoute>
Judgement DispatchOn(const Incoming& in, std::string* handled) {
  return Dispatch<kRoute>(in, [&]<Message M>(const M&) { *handled = std::string(M::kName); });
}

Judgement DispatchOn(Route route, const Incoming& in, std::string* handled) {
  handled->clear();
  switch (route) {
    case Route::kAgentAsks:
      return DispatchOn<Route::kAgentAsks>(in, handled);
    case Route::kExecutorSays:
      return DispatchOn<Route::kExecutorSays>(in, handled);
    case Route::kSchedulerOrders:
      return DispatchOn<Route::kSchedulerOrders>(in, handled);
    case Route::kAnswers:
      return DispatchOn<Route::kAnswers>(in, handled);
  }
  return Judgement::kUnknown;
}

constexpr Route kRoutes[] = {Route::kAgentAsks, Route::kExecutorSays, Route::kSchedulerOrders,
                             Route::kAnswers};

class EveryMessage : public ::testing::TestWithParam<uint32_t> {
 protected:
  EveryMessage() { in_.header.type = GetParam(); }
  const MessageInfo& info_ = kMessages[GetParam() - 1];
  Incoming in_;
  std::string handled_;
};

INSTANTIATE_TEST_SUITE_P(List, EveryMessage,
                         ::testing::Range(1u, static_cast<uint32_t>(kMessages.size()) + 1),
                         [](const auto& type) {
                           return std::string(kMessages[type.param - 1].name);
                         });

TEST_P(EveryMessage, ReachesItsHandlerAtEverySizeThatItHasHad) {
  in_.fd_count = info_.fds;
  for (const uint32_t bytes :
       {info_.shortest_bytes, info_.body_bytes, kMaxMessageBytes - uint32_t{sizeof(in_.header)}}) {
    in_.body_bytes = bytes;
    EXPECT_EQ(DispatchOn(info_.route, in_, &handled_), Judgement::kHandled);
    EXPECT_EQ(handled_, info_.name);
  }
}

TEST_P(EveryMessage, Malicious_IsRefusedShorterThanThat) {
  if (info_.shortest_bytes == 0) GTEST_SKIP() << "it has no body";
  in_.fd_count = info_.fds;
  for (const uint32_t bytes : {0u, info_.shortest_bytes - 1}) {
    in_.body_bytes = bytes;
    EXPECT_EQ(DispatchOn(info_.route, in_, &handled_), Judgement::kMalformed);
    EXPECT_EQ(handled_, "");
  }
}

TEST_P(EveryMessage, Malicious_IsRefusedWithOtherDescriptors) {
  in_.body_bytes = info_.body_bytes;
  for (size_t fds = 0; fds <= channel::kMaxFds; ++fds) {
    if (fds == info_.fds) continue;
    in_.fd_count = fds;
    EXPECT_EQ(DispatchOn(info_.route, in_, &handled_), Judgement::kMalformed);
    EXPECT_EQ(handled_, "");
  }
}

TEST_P(EveryMessage, Malicious_IsRefusedFromAnybodyElse) {
  in_.body_bytes = info_.body_bytes;
  in_.fd_count = info_.fds;
  for (const Route route : kRoutes) {
    if (route == info_.route) continue;
    EXPECT_EQ(DispatchOn(route, in_, &handled_), Judgement::kMalformed);
    EXPECT_EQ(handled_, "");
  }
}

TEST(AllMessages, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const MessageInfo& info : kMessages) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
  }
}

TEST(AllMessages, ANewerMinorsMessageIsUnknown) {
  Incoming in;
  std::string handled;
  for (const uint32_t type : {0u, static_cast<uint32_t>(kMessages.size()) + 1, UINT32_MAX}) {
    in.header.type = type;
    EXPECT_EQ(FindMessage(type), nullptr);
    for (const Route route : kRoutes) {
      EXPECT_EQ(DispatchOn(route, in, &handled), Judgement::kUnknown);
    }
  }
}

}  // namespace
}  // namespace gpuloom::control
