// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/peer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace gpuloom::scheduler {
namespace {

// A dead executor's end of the connection may live on in whoever was given it.
TEST(Peer, Malicious_WhoStillSendsWhenTheProcessIsDeadHoldsNobodyUp) {
  EventLoop loop;
  channel::UniqueFd ours, theirs;
  ASSERT_TRUE(channel::MakePair(SOCK_SEQPACKET, &ours, &theirs));
  control::Connection sender(std::move(theirs));
  size_t received = 0;
  Peer peer(
      &loop, std::move(ours),
      [&](const control::Incoming&) {
        ++received;
        ASSERT_TRUE(sender.Send(0, control::SessionCounters{1, received, {}, {}}));
      },
      [](const std::string&) {});
  ASSERT_TRUE(sender.Send(0, control::SessionCounters{1, 0, {}, {}}));
  peer.ReceivePending([] { return true; });  // comes back, though there is always more
  EXPECT_EQ(received, Peer::kMaxPending);
}

}  // namespace
}  // namespace gpuloom::scheduler
