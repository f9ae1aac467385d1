// SPDX-License-Identifier: Apache-2.0
// Whose turn it is by weight: start-time fair queueing over a tree. One root for each priority
// class, below it groups (namespaces, allocations), below those leaves (sessions, or what else
// takes turns).
//
// Each node has a *virtual time*: what it has used, divided by its weight. Among siblings the one with the smallest
// goes first. Work in flight counts in advance with its predicted time, which the measured time later replaces; so
// predictions decide the order but never a charge. Two bounds keep virtual times together (their *lag*):
//
// - No node gets far ahead: a node may submit only while it is at most Limits::lag_window_ns ahead of the sibling
//   that is furthest behind, counted in time of the device. Inside the window all may have work in flight side by
//   side. The one that is furthest behind always may, so where a node wants the device and nothing is
//   in flight, one is picked.
// - The past does not count, neither for nor against a node: a node that becomes active begins at its siblings' virtual
//   time at the earliest. What it is ahead by is kept, or going idle for an instant would clear it; but never more than
//   Limits::max_debt_ns of the siblings' time, and nothing after an idle period of that length.
//
// A leaf is *active* when it has work, queued or in flight, and *ready* when some of it may be submitted at once. A
// group is active or ready when one of its children is. A node whose ceiling (ceiling.h) is empty is neither, until the
// ceiling has refilled.
//
// Cost: an event or a Pick takes O(log of the active siblings) on each level of the path; idle nodes are only in the
// table. steps() counts what was looked at. Only Add… and PartOf allocate.
//
//   tree.SetLeaf(leaf, true, true, now);          // work came
//   while ((leaf = tree.Pick(Priority::kNormal)) != ShareTree::kNone) {
//     tree.AddInFlight(leaf, predicted_ns, now);  // and SetLeaf(…, false) when it has no room or work left
//   }
//   tree.Charge(leaf, measured_ns, now); tree.RemoveInFlight(leaf, predicted_ns, now);
//   tree.Wake(now);                               // at wake_at_ns() at the latest
//
// `now_ns` is any clock that does not go back. Plain value, owned by its policy tree; one thread. A wrong call (for a
// node that does not exist) is our bug and is asserted.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "agent/arbiter/ceiling.h"
#include "agent/arbiter/node_heap.h"
#include "agent/arbiter/priority.h"

namespace gpuloom::arbiter {

class ShareTree {
 public:
  using Node = uint32_t;
  using CeilingId = uint32_t;
  static constexpr uint32_t kNone = UINT32_MAX;
  // A policy's weight (1–1000) times slots.
  static constexpr uint32_t kMaxWeight = 1u << 20;

  struct Limits {
    // Far below the 30 ms by which shares may be off in a second; far above the time in which a completion is seen and
    // the next work submitted.
    uint64_t lag_window_ns = 2'000'000;
    // Long enough for exact shares beside kernels of 5 ms at 1:1000, and short enough that no session waits longer
    // because of a single kernel of its own.
    uint64_t max_debt_ns = 10'000'000'000;
  };

  ShareTree() : ShareTree(Limits()) {}
  explicit ShareTree(const Limits& limits);

  Node root(Priority priority) const { return static_cast<Node>(Index(priority)); }
  // Weights are clamped to 1 … kMaxWeight.
  Node AddGroup(Node parent, uint32_t weight) { return Add(parent, weight, false); }
  Node AddLeaf(Node parent, uint32_t weight) { return Add(parent, weight, true); }
  // Removes a node that has no children. What it has in flight is forgotten; what that still uses at the device is
  // charged to its group with ChargeGroup.
  void Remove(Node node, uint64_t now_ns);
  // Moves the node with all that is below it. It is a newcomer in its new group.
  void Move(Node node, Node parent, uint64_t now_ns);
  void SetWeight(Node node, uint32_t weight, uint64_t now_ns);

  // One ceiling may bind several nodes, none of which is above another. A root has none.
  CeilingId AddCeiling(uint32_t permille, uint64_t now_ns);
  void ChangeCeiling(CeilingId ceiling, uint32_t permille, uint64_t now_ns);
  void Bind(Node node, CeilingId ceiling, uint64_t now_ns);
  void RemoveCeiling(CeilingId ceiling);  // when no node is bound to it

  void SetLeaf(Node leaf, bool active, bool ready, uint64_t now_ns);
  void AddInFlight(Node leaf, uint64_t predicted_ns, uint64_t now_ns);
  // Takes back what was added for work that is done, or that was not submitted after all.
  void RemoveInFlight(Node leaf, uint64_t predicted_ns, uint64_t now_ns);
  // Charges time that the leaf has used: for finished work, and for running work as far as its time is known. It
  // replaces as much of what is in flight.
  void Charge(Node leaf, uint64_t measured_ns, uint64_t now_ns);
  // Charges a leaf that has been removed.
  void ChargeGroup(Node group, uint64_t measured_ns, uint64_t now_ns);

  // The ready leaf of the class that goes next; kNone when there is none. Changes nothing.
  Node Pick(Priority priority);
  bool active(Priority priority) const { return !nodes_[root(priority)].competing.empty(); }

  // The part of their class's time that these leaves, all of one class, are to have together beside the leaves that
  // compete at present, whether or not they compete themselves: 0 … 1. For rare use: it walks over all of them, and
  // allocates.
  double PartOf(std::span<const Node> leaves) const;

  // Readmits the nodes whose ceiling has refilled.
  void Wake(uint64_t now_ns);
  uint64_t wake_at_ns() const;  // UINT64_MAX: no node waits for a ceiling
  bool throttled(Node node) const;
  bool has_ceiling(Node node) const;  // or one above it has
  // For how long in all a ceiling on the path has been empty (the longest of them).
  uint64_t throttled_ns(Node node, uint64_t now_ns) const;

  // Whether a node without work that is removed now would owe less if it were added again: what its ceiling lacks to be
  // full, and what it is ahead of its siblings by. Not what is due from those above it.
  bool Owes(Node node, uint64_t now_ns) const;

  uint64_t steps() const { return steps_; }

 private:
  // Virtual nanoseconds at weight 1: fine enough to count single nanoseconds at nearly all weights.
  static constexpr uint64_t kScale = 1u << 16;
  static constexpr uint64_t kLongestNs = uint64_t{1} << 46;  // 19 hours; x kScale < 2^63

  struct CompetingAccess;
  struct ReadyAccess;
  struct CeilingAccess;

  struct NodeState {
    Node parent = kNone;
    uint32_t weight = 1;
    bool used = false;
    bool leaf = false;
    bool wants = false;     // a leaf: active, apart from ceilings
    bool has_room = false;  // a leaf: ready, apart from ceilings
    bool has_competed = false;
    CeilingId ceiling = kNone;
    uint32_t children = 0;
    // Among its siblings.
    uint64_t virtual_time = 0;
    uint64_t key = 0;  // with what is in flight
    uint64_t uncharged_ns = 0;
    uint64_t idle_since_ns = 0;
    uint32_t competing_place = kNotInHeap;
    uint32_t ready_place = kNotInHeap;
    // A leaf: what is in flight as predicted, and what of it is charged already.
    uint64_t in_flight_ns = 0;
    uint64_t charged_ahead_ns = 0;
    // A group: its children.
    NodeHeap<CompetingAccess> competing;
    NodeHeap<ReadyAccess> ready;
    uint64_t weight_sum = 0;     // of those that compete
    uint64_t children_time = 0;  // where a newcomer begins; never goes back
  };

  struct CeilingState {
    explicit CeilingState(const Ceiling& full) : bucket(full) {}
    Ceiling bucket;
    uint64_t uncharged_ns = 0;
    bool empty = false;
    uint64_t opens_at_ns = 0;
    uint64_t empty_since_ns = 0;
    uint64_t empty_ns = 0;
    uint32_t place = kNotInHeap;
    std::vector<Node> nodes;
  };

  struct CompetingAccess {
    ShareTree* tree;
    uint64_t key(Node node) const { return tree->nodes_[node].key; }
    uint32_t& place(Node node) const { return tree->nodes_[node].competing_place; }
  };
  struct ReadyAccess {
    ShareTree* tree;
    uint64_t key(Node node) const { return tree->nodes_[node].key; }
    uint32_t& place(Node node) const { return tree->nodes_[node].ready_place; }
  };
  struct CeilingAccess {
    ShareTree* tree;
    uint64_t key(CeilingId ceiling) const { return tree->ceilings_[ceiling].opens_at_ns; }
    uint32_t& place(CeilingId ceiling) const { return tree->ceilings_[ceiling].place; }
  };

  // Virtual times and moments wrap: of two that are less than 2^63 apart, whether a is the earlier one.
  static bool Before(uint64_t a, uint64_t b) { return static_cast<int64_t>(a - b) < 0; }
  static uint64_t Virtual(uint64_t ns, uint64_t weight);
  bool IsRoot(Node node) const { return node < kPriorities; }
  Node Add(Node parent, uint32_t weight, bool leaf);
  void Recount(Node leaf, uint64_t now_ns);
  void AddUncharged(Node node, uint64_t more_ns, uint64_t less_ns);
  void Use(Node node, uint64_t measured_ns);
  void Update(Node node, uint64_t now_ns);
  void UpdateOne(Node node, uint64_t now_ns);
  void Leave(Node node, uint64_t now_ns);
  bool InWindow(const NodeState& group) const;
  uint64_t BeginsAt(const NodeState& node, const NodeState& parent, uint64_t now_ns) const;
  uint64_t LatestTime(const NodeState& node, const NodeState& parent) const;
  void Judge(CeilingId ceiling, uint64_t now_ns);
  void JudgePath(Node node, uint64_t now_ns);

  const Limits limits_;
  std::vector<NodeState> nodes_;
  std::vector<Node> free_nodes_;
  std::vector<CeilingState> ceilings_;
  std::vector<CeilingId> free_ceilings_;
  NodeHeap<CeilingAccess> empty_ceilings_;
  uint64_t steps_ = 0;
};

}  // namespace gpuloom::arbiter
