// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/refused_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(RefusedRequests, TheSameAgainIsOneMoreOfIt) {
  RefusedRequests refusals({"Allocate", "PreStartContainer"});
  EXPECT_THAT(refusals.Counts(), ElementsAre(Pair("Allocate", 0), Pair("PreStartContainer", 0)));
  EXPECT_THAT(refusals.Requests(), ElementsAre(Pair("Allocate", 0), Pair("PreStartContainer", 0)));
  for (int i = 0; i < 3; ++i) refusals.CountRequest("PreStartContainer");
  refusals.Add("PreStartContainer", "policy: no");
  refusals.Add("Allocate", "policy: no");
  refusals.Add("PreStartContainer", "policy: no");
  EXPECT_THAT(refusals.Counts(), ElementsAre(Pair("Allocate", 1), Pair("PreStartContainer", 2)));
  EXPECT_THAT(refusals.Requests(), ElementsAre(Pair("Allocate", 0), Pair("PreStartContainer", 3)));
  EXPECT_THAT(refusals.Latest(), ElementsAre(RefusedRequest{"PreStartContainer", "policy: no", 2},
                                             RefusedRequest{"Allocate", "policy: no", 1}));
}

TEST(RefusedRequests, Malicious_OneNamespacesRefusalsLeaveTheOthers) {
  RefusedRequests refusals({});
  refusals.Add("PreStartContainer", "pod b/p: no", "b");
  refusals.Add("Allocate", "no GPU has 4");
  for (int i = 0; i < 1000; ++i) {
    refusals.Add("PreStartContainer", "pod a/p-" + std::to_string(i) + ": no", "a");
  }
  const std::vector<RefusedRequest> latest = refusals.Latest();
  ASSERT_EQ(latest.size(), RefusedRequests::kMostKept);
  EXPECT_EQ(latest[0], (RefusedRequest{"PreStartContainer", "pod a/p-999: no", 1, "a"}));
  EXPECT_EQ(latest[17], (RefusedRequest{"PreStartContainer", "pod a/p-982: no", 1, "a"}));
  EXPECT_EQ(latest[18], (RefusedRequest{"Allocate", "no GPU has 4", 1}));
  EXPECT_EQ(latest[19], (RefusedRequest{"PreStartContainer", "pod b/p: no", 1, "b"}));
}

TEST(RefusedRequests, Malicious_RefusalsWithoutEndLeaveTheLatest) {
  RefusedRequests refusals({});
  for (int i = 0; i < 1000; ++i) {
    refusals.Add("Allocate", std::to_string(i) + "\n" + std::string(100'000, 'x'));
  }
  EXPECT_THAT(refusals.Counts(), ElementsAre(Pair("Allocate", 1000)));
  ASSERT_EQ(refusals.Latest().size(), RefusedRequests::kMostKept);
  EXPECT_TRUE(refusals.Latest().front().reason.starts_with("999\\n"));
  EXPECT_LT(refusals.Latest().front().reason.size(), RefusedRequests::kMostReasonBytes + 8);
}

}  // namespace
}  // namespace gpuloom
