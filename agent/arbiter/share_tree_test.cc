// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/share_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace gpuloom::arbiter {
namespace {

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
constexpr auto kNormal = Priority::kNormal;

struct Leaves {
  ShareTree tree;
  std::vector<ShareTree::Node> nodes;
  uint64_t now_ns = 0;

  explicit Leaves(std::initializer_list<uint32_t> weights) {
    for (const uint32_t weight : weights) {
      nodes.push_back(tree.AddLeaf(tree.root(kNormal), weight));
    }
  }
  void Want(size_t leaf, bool wants = true) { tree.SetLeaf(nodes[leaf], wants, wants, now_ns); }
  size_t Pick() {
    const ShareTree::Node node = tree.Pick(kNormal);
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i] == node) return i;
    }
    return SIZE_MAX;
  }
  // Each picked one uses so much, one after the other. What each has used.
  std::vector<uint64_t> Run(int turns, uint64_t use_ns) {
    std::vector<uint64_t> used(nodes.size());
    for (; turns != 0; --turns) {
      const size_t leaf = Pick();
      now_ns += use_ns;
      tree.Charge(nodes[leaf], use_ns, now_ns);
      used[leaf] += use_ns;
    }
    return used;
  }
};

TEST(ShareTree, WeightsDivide) {
  Leaves leaves({1, 2, 7});
  for (size_t i = 0; i < 3; ++i) leaves.Want(i);
  const auto used = leaves.Run(1000, kMs);
  EXPECT_NEAR(double(used[0]), 100.0 * kMs, 2 * kMs);
  EXPECT_NEAR(double(used[1]), 200.0 * kMs, 2 * kMs);
  EXPECT_NEAR(double(used[2]), 700.0 * kMs, 2 * kMs);
}

TEST(ShareTree, NobodyIsPickedWhoIsNotReady) {
  Leaves leaves({1, 1});
  EXPECT_EQ(leaves.Pick(), SIZE_MAX);
  leaves.Want(1);
  EXPECT_EQ(leaves.Pick(), 1u);
  leaves.tree.SetLeaf(leaves.nodes[1], true, false, 0);
  EXPECT_EQ(leaves.Pick(), SIZE_MAX);
  leaves.Want(1, false);
  EXPECT_FALSE(leaves.tree.active(kNormal));
}

TEST(ShareTree, WhoIsAheadWaitsForWhoIsBehindAlsoWhileThatOneHasNoRoom) {
  Leaves leaves({1, 1});
  leaves.Want(0);
  leaves.tree.SetLeaf(leaves.nodes[1], true, false, 0);
  EXPECT_EQ(leaves.Pick(), 0u) << "inside the window";
  leaves.tree.AddInFlight(leaves.nodes[0], 5 * kMs, 0);
  EXPECT_EQ(leaves.Pick(), SIZE_MAX) << "5 ms ahead";
  leaves.tree.Charge(leaves.nodes[1], 4500 * kUs, 0);
  EXPECT_EQ(leaves.Pick(), 0u);
  leaves.Want(1, false);
  leaves.tree.AddInFlight(leaves.nodes[0], 500 * kMs, 0);
  EXPECT_EQ(leaves.Pick(), 0u) << "alone, nobody is behind";
}

TEST(ShareTree, WhatWasMeasuredTakesThePlaceOfWhatWasPredicted) {
  Leaves leaves({1, 1});
  leaves.Want(0);
  leaves.Want(1);
  // Predicted long, and short in the end: it loses nothing.
  leaves.tree.AddInFlight(leaves.nodes[0], 100 * kMs, 0);
  EXPECT_EQ(leaves.Pick(), 1u);
  leaves.tree.Charge(leaves.nodes[1], kMs, 0);
  leaves.tree.Charge(leaves.nodes[0], kUs, 0);
  leaves.tree.RemoveInFlight(leaves.nodes[0], 100 * kMs, 0);
  EXPECT_EQ(leaves.Pick(), 0u);
  // Predicted short, and long in the end: it gains nothing.
  leaves.tree.AddInFlight(leaves.nodes[0], kUs, 0);
  leaves.tree.Charge(leaves.nodes[0], 100 * kMs, 0);
  leaves.tree.RemoveInFlight(leaves.nodes[0], kUs, 0);
  const auto used = leaves.Run(99, kMs);
  EXPECT_EQ(used[0], 0u);
}

TEST(ShareTree, IdlenessEarnsNothing) {
  Leaves leaves({1, 1});
  leaves.Want(0);
  leaves.Run(1000, kMs);
  leaves.Want(1);
  const auto used = leaves.Run(100, kMs);
  EXPECT_NEAR(double(used[0]), 50.0 * kMs, kMs);
}

TEST(ShareTree, GoingIdleForAnInstantClearsNoDebt) {
  Leaves leaves({1, 1});
  leaves.Want(0);
  leaves.Want(1);
  leaves.tree.Charge(leaves.nodes[0], 50 * kMs, 0);
  leaves.Want(0, false);
  leaves.Want(0);
  const auto used = leaves.Run(49, kMs);
  EXPECT_EQ(used[0], 0u);
}

TEST(ShareTree, ADebtIsBoundedAndForgottenAfterAsLong) {
  const ShareTree::Limits limits;
  Leaves leaves({1, 1});
  leaves.Want(0);
  leaves.Want(1);
  leaves.tree.Charge(leaves.nodes[0], 1000 * limits.max_debt_ns, 0);
  const auto used = leaves.Run(11'000, kMs);
  EXPECT_GE(used[1], limits.max_debt_ns - 10 * kMs);
  EXPECT_GE(used[0], 400 * kMs);
  leaves.tree.Charge(leaves.nodes[0], 1000 * limits.max_debt_ns, leaves.now_ns);
  leaves.Want(0, false);
  leaves.now_ns += limits.max_debt_ns;
  leaves.Want(0);
  const auto after = leaves.Run(100, kMs);
  EXPECT_NEAR(double(after[0]), 50.0 * kMs, kMs);
}

TEST(ShareTree, GroupsShareBeforeTheirLeaves) {
  ShareTree tree;
  const auto one = tree.AddGroup(tree.root(kNormal), 1);
  const auto many = tree.AddGroup(tree.root(kNormal), 1);
  std::vector<ShareTree::Node> leaves = {tree.AddLeaf(one, 1)};
  for (int i = 0; i < 9; ++i) leaves.push_back(tree.AddLeaf(many, 1));
  for (const auto leaf : leaves) tree.SetLeaf(leaf, true, true, 0);
  uint64_t of_one = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto leaf = tree.Pick(kNormal);
    tree.Charge(leaf, kMs, 0);
    of_one += leaf == leaves[0] ? 1 : 0;
  }
  EXPECT_NEAR(double(of_one), 500, 2);
}

TEST(ShareTree, AMovedGroupTakesItsLeavesAlong) {
  ShareTree tree;
  const auto group = tree.AddGroup(tree.root(kNormal), 1);
  const auto leaf = tree.AddLeaf(group, 1);
  tree.SetLeaf(leaf, true, true, 0);
  tree.AddInFlight(leaf, kMs, 0);
  tree.Move(group, tree.root(Priority::kHigh), 0);
  EXPECT_FALSE(tree.active(kNormal));
  EXPECT_EQ(tree.Pick(Priority::kHigh), leaf);
  tree.RemoveInFlight(leaf, kMs, 0);
  tree.SetLeaf(leaf, false, false, 0);
  EXPECT_FALSE(tree.active(Priority::kHigh));
}

TEST(ShareTree, AnEmptyCeilingLetsOthersGoUntilItRefills) {
  Leaves leaves({1, 1});
  const auto ceiling = leaves.tree.AddCeiling(100, 0);
  leaves.tree.Bind(leaves.nodes[0], ceiling, 0);
  leaves.Want(0);
  leaves.tree.Charge(leaves.nodes[0], 11 * kMs, 0);
  EXPECT_TRUE(leaves.tree.throttled(leaves.nodes[0]));
  EXPECT_EQ(leaves.Pick(), SIZE_MAX);
  EXPECT_NEAR(double(leaves.tree.wake_at_ns()), 10.0 * kMs, 2);
  leaves.tree.Wake(9 * kMs);
  EXPECT_EQ(leaves.Pick(), SIZE_MAX);
  leaves.tree.Wake(leaves.tree.wake_at_ns());
  EXPECT_EQ(leaves.Pick(), 0u);
  EXPECT_EQ(leaves.tree.wake_at_ns(), UINT64_MAX);
  EXPECT_NEAR(double(leaves.tree.throttled_ns(leaves.nodes[0], kMs * 20)), 10.0 * kMs, 2);
  leaves.tree.Bind(leaves.nodes[0], ShareTree::kNone, 20 * kMs);
  leaves.tree.RemoveCeiling(ceiling);
  EXPECT_FALSE(leaves.tree.has_ceiling(leaves.nodes[0]));
}

// Whatever happens in whatever order: no heap loses a node, and somebody is picked when somebody is ready and
// nothing is in flight.
TEST(ShareTree, RandomEventsKeepItWhole) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    ShareTree tree;
    struct Leaf {
      ShareTree::Node node;
      bool wants = false;
      uint64_t in_flight_ns = 0;
    };
    std::vector<ShareTree::Node> groups;
    std::vector<Leaf> leaves;
    for (int i = 0; i < 4; ++i) {
      groups.push_back(tree.AddGroup(tree.root(kAllPriorities[i % 3]), 1 + random() % 1000));
    }
    uint64_t now_ns = random();  // clocks begin anywhere
    for (int i = 0; i < 5000; ++i) {
      now_ns += random() % kMs;
      const uint64_t what = random() % 8;
      if (what == 0 && leaves.size() < 30) {
        leaves.push_back({tree.AddLeaf(groups[random() % groups.size()], 1 + random() % 9)});
      } else if (leaves.empty()) {
        continue;
      } else {
        const size_t at = random() % leaves.size();
        Leaf& leaf = leaves[at];
        if (what <= 2) {
          leaf.wants = random() % 2 == 0;
          tree.SetLeaf(leaf.node, leaf.wants, leaf.wants, now_ns);
        } else if (what == 3) {
          const uint64_t ns = random() % (5 * kMs);
          tree.AddInFlight(leaf.node, ns, now_ns);
          leaf.in_flight_ns += ns;
        } else if (what == 4) {
          tree.RemoveInFlight(leaf.node, leaf.in_flight_ns, now_ns);
          leaf.in_flight_ns = 0;
        } else if (what == 5) {
          tree.Charge(leaf.node, random() % (5 * kMs), now_ns);
        } else if (what == 6) {
          tree.SetWeight(leaf.node, 1 + random() % 1000, now_ns);
          const auto group = groups[random() % groups.size()];
          tree.Move(group, tree.root(kAllPriorities[random() % 3]), now_ns);
        } else if (random() % 4 == 0) {
          tree.Remove(leaf.node, now_ns);
          leaves.erase(leaves.begin() + static_cast<ptrdiff_t>(at));
        }
      }
      bool wants = false;
      bool in_flight = false;
      for (const Leaf& leaf : leaves) {
        wants |= leaf.wants;
        in_flight |= leaf.in_flight_ns != 0;
      }
      bool picked = false;
      for (const Priority priority : kAllPriorities) {
        const auto node = tree.Pick(priority);
        if (node == ShareTree::kNone) continue;
        picked = true;
        const auto it = std::find_if(leaves.begin(), leaves.end(),
                                     [node](const Leaf& leaf) { return leaf.node == node; });
        ASSERT_NE(it, leaves.end());
        ASSERT_TRUE(it->wants);
      }
      if (!in_flight) {
        ASSERT_EQ(picked, wants);
      }
      ASSERT_TRUE(wants || !picked);
    }
  }
}

TEST(ShareTree, WhatPartLeavesAreToHaveBesideThoseThatCompete) {
  ShareTree tree;
  const auto root = tree.root(Priority::kNormal);
  const auto light = tree.AddGroup(root, 1);
  const auto heavy = tree.AddGroup(root, 3);
  const auto a = tree.AddLeaf(light, 1);
  const auto b = tree.AddLeaf(light, 4);
  const auto c = tree.AddLeaf(heavy, 1);
  const auto d = tree.AddLeaf(heavy, 1);
  const auto part = [&](std::initializer_list<ShareTree::Node> leaves) {
    return tree.PartOf(std::vector<ShareTree::Node>(leaves));
  };
  EXPECT_DOUBLE_EQ(part({}), 0);
  EXPECT_DOUBLE_EQ(part({a}), 1) << "nobody competes";
  tree.SetLeaf(c, true, true, 0);
  EXPECT_DOUBLE_EQ(part({c}), 1);
  EXPECT_DOUBLE_EQ(part({a}), 0.25);
  EXPECT_DOUBLE_EQ(part({a, b}), 0.25) << "more leaves of a group gain it nothing";
  EXPECT_DOUBLE_EQ(part({d}), 0.5);
  EXPECT_DOUBLE_EQ(part({a, d}), 0.25 + 0.75 / 2);
  tree.SetLeaf(b, true, true, 0);
  EXPECT_DOUBLE_EQ(part({a}), 0.05);
  tree.SetLeaf(a, true, true, 0);
  EXPECT_DOUBLE_EQ(part({a}), 0.05) << "whether or not it competes itself";
}

}  // namespace
}  // namespace gpuloom::arbiter
