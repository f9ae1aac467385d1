// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/share_tree.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>

namespace gpuloom::arbiter {

ShareTree::ShareTree(const Limits& limits) : limits_(limits), nodes_(kPriorities) {
  for (NodeState& node : nodes_) node.used = true;
}

// A use in virtual time. A longer one than kLongestNs is cut, so that the product does not
// overflow.
uint64_t ShareTree::Virtual(uint64_t ns, uint64_t weight) {
  return std::min(ns, kLongestNs) * kScale / std::max<uint64_t>(weight, 1);
}

ShareTree::Node ShareTree::Add(Node parent, uint32_t weight, bool leaf) {
  assert(nodes_[parent].used && !nodes_[parent].leaf);
  Node node;
  if (free_nodes_.empty()) {
    node = static_cast<Node>(nodes_.size());
    nodes_.emplace_back();
    // So that Remove does not allocate: as many places as there are nodes can be free.
    free_nodes_.reserve(nodes_.capacity());
  } else {
    node = free_nodes_.back();
    free_nodes_.pop_back();
    nodes_[node] = NodeState{};
  }
  NodeState& it = nodes_[node];
  it.parent = parent;
  it.weight = std::clamp(weight, 1u, kMaxWeight);
  it.used = true;
  it.leaf = leaf;
  NodeState& above = nodes_[parent];
  ++above.children;
  above.competing.Reserve(above.children);
  above.ready.Reserve(above.children);
  return node;
}

// Removes a node from its siblings' competition when it goes idle or away. Its virtual time stays:
// it is the debt with which the node may come back (BeginsAt).
void ShareTree::Leave(Node node, uint64_t now_ns) {
  NodeState& it = nodes_[node];
  NodeState& parent = nodes_[it.parent];
  if (it.competing_place != kNotInHeap) {
    parent.weight_sum -= it.weight;
    it.idle_since_ns = now_ns;
  }
  parent.competing.Remove(node, CompetingAccess{this}, &steps_);
  parent.ready.Remove(node, ReadyAccess{this}, &steps_);
}

void ShareTree::Remove(Node node, uint64_t now_ns) {
  NodeState& it = nodes_[node];
  assert(it.used && it.children == 0 && !IsRoot(node));
  Bind(node, kNone, now_ns);
  // The ancestors counted what the node had in flight: it is forgotten with it.
  AddUncharged(it.parent, 0, it.uncharged_ns);
  Leave(node, now_ns);
  const Node parent = it.parent;
  --nodes_[parent].children;
  it.used = false;
  free_nodes_.push_back(node);
  JudgePath(parent, now_ns);
  Update(parent, now_ns);
}

// Leaves one group as Remove does and enters the other as Add does, with all that is below it and
// in flight. Both paths are judged anew: the ceilings above it change.
void ShareTree::Move(Node node, Node parent, uint64_t now_ns) {
  NodeState& it = nodes_[node];
  const Node from = it.parent;
  if (from == parent) return;
  AddUncharged(from, 0, it.uncharged_ns);
  Leave(node, now_ns);
  --nodes_[from].children;
  JudgePath(from, now_ns);
  Update(from, now_ns);

  NodeState& above = nodes_[parent];
  ++above.children;
  above.competing.Reserve(above.children);
  above.ready.Reserve(above.children);
  it.parent = parent;
  it.has_competed = false;
  AddUncharged(parent, it.uncharged_ns, 0);
  JudgePath(parent, now_ns);
  Update(node, now_ns);
}

void ShareTree::SetWeight(Node node, uint32_t weight, uint64_t now_ns) {
  NodeState& it = nodes_[node];
  weight = std::clamp(weight, 1u, kMaxWeight);
  if (it.competing_place != kNotInHeap) {
    nodes_[it.parent].weight_sum += weight;
    nodes_[it.parent].weight_sum -= it.weight;
  }
  it.weight = weight;
  Update(node, now_ns);
}

// Ceilings.

// `ready` without `active` means nothing: a leaf that does not want the device has no room to fill.
void ShareTree::SetLeaf(Node leaf, bool active, bool ready, uint64_t now_ns) {
  NodeState& it = nodes_[leaf];
  assert(it.used && it.leaf);
  if (it.wants == active && it.has_room == ready) return;
  it.wants = active;
  it.has_room = ready && active;
  Update(leaf, now_ns);
}

// Adds to the node and all above it, and to their ceilings. The difference may be negative: the
// unsigned sums wrap and come out right, because no sum ever falls below zero.
void ShareTree::AddUncharged(Node node, uint64_t more_ns, uint64_t less_ns) {
  for (; node != kNone; node = nodes_[node].parent) {
    NodeState& it = nodes_[node];
    it.uncharged_ns += more_ns - less_ns;
    if (it.ceiling != kNone) ceilings_[it.ceiling].uncharged_ns += more_ns - less_ns;
  }
}

// After a change of the leaf's in_flight_ns or charged_ahead_ns: what is in flight counts only as
// far as it has not been charged yet. More than is in flight cannot be charged ahead, or the next
// work would go for nothing.
void ShareTree::Recount(Node leaf, uint64_t now_ns) {
  NodeState& it = nodes_[leaf];
  it.charged_ahead_ns = std::min(it.charged_ahead_ns, it.in_flight_ns);
  AddUncharged(leaf, it.in_flight_ns - it.charged_ahead_ns, it.uncharged_ns);
  JudgePath(leaf, now_ns);
  Update(leaf, now_ns);
}

void ShareTree::AddInFlight(Node leaf, uint64_t predicted_ns, uint64_t now_ns) {
  nodes_[leaf].in_flight_ns += std::min(predicted_ns, kLongestNs);
  Recount(leaf, now_ns);
}

void ShareTree::RemoveInFlight(Node leaf, uint64_t predicted_ns, uint64_t now_ns) {
  NodeState& it = nodes_[leaf];
  predicted_ns = std::min({predicted_ns, kLongestNs, it.in_flight_ns});
  it.in_flight_ns -= predicted_ns;
  // The charge in advance was most likely for this work.
  it.charged_ahead_ns -= std::min(it.charged_ahead_ns, predicted_ns);
  Recount(leaf, now_ns);
}

void ShareTree::Charge(Node leaf, uint64_t measured_ns, uint64_t now_ns) {
  if (measured_ns == 0) return;
  NodeState& it = nodes_[leaf];
  assert(it.used && it.leaf);
  it.charged_ahead_ns += std::min(measured_ns, kLongestNs);
  Use(leaf, measured_ns);
  Recount(leaf, now_ns);
}

void ShareTree::ChargeGroup(Node group, uint64_t measured_ns, uint64_t now_ns) {
  assert(nodes_[group].used && !nodes_[group].leaf);
  Use(group, measured_ns);
  JudgePath(group, now_ns);
  Update(group, now_ns);
}

// Each node on the path pays in the virtual time of its own siblings. A ceiling takes the real
// time.
void ShareTree::Use(Node node, uint64_t measured_ns) {
  for (; !IsRoot(node); node = nodes_[node].parent) {
    NodeState& it = nodes_[node];
    it.virtual_time += Virtual(measured_ns, it.weight);
    const uint64_t latest = LatestTime(it, nodes_[it.parent]);
    if (Before(latest, it.virtual_time)) it.virtual_time = latest;
    if (it.ceiling != kNone) ceilings_[it.ceiling].bucket.Take(measured_ns);
  }
}

// The debt that a node may have: its siblings catch up within max_debt_ns of the device's time.
// `node` may or may not compete at the moment; its own weight is not among the others'.
uint64_t ShareTree::LatestTime(const NodeState& node, const NodeState& parent) const {
  const uint64_t own = node.competing_place == kNotInHeap ? 0 : node.weight;
  const uint64_t others = parent.weight_sum - own;
  // If it is alone, nobody waits: its siblings' time is its own.
  if (others == 0) return node.virtual_time;
  return parent.children_time + Virtual(limits_.max_debt_ns, others);
}

// Where a node that becomes active begins among its siblings: at their time if it is behind it,
// comes for the first time, or has been idle for max_debt_ns; else with the debt it has, as far as
// LatestTime allows.
uint64_t ShareTree::BeginsAt(const NodeState& node, const NodeState& parent,
                             uint64_t now_ns) const {
  if (!node.has_competed || now_ns - node.idle_since_ns >= limits_.max_debt_ns) {
    return parent.children_time;
  }
  if (Before(node.virtual_time, parent.children_time)) return parent.children_time;
  const uint64_t latest = LatestTime(node, parent);
  return Before(latest, node.virtual_time) ? latest : node.virtual_time;
}

bool ShareTree::Owes(Node node, uint64_t now_ns) const {
  const NodeState& it = nodes_[node];
  if (it.ceiling != kNone && !ceilings_[it.ceiling].bucket.Full(now_ns)) return true;
  const NodeState& parent = nodes_[it.parent];
  return Before(parent.children_time, BeginsAt(it, parent, now_ns));
}

// Whether a child of the group may submit: the ready one that is furthest behind, measured against
// the one that competes and is furthest behind, whether that is ready or not. The heaps have what
// is in flight in their keys, so a child that has filled its window waits.
bool ShareTree::InWindow(const NodeState& group) const {
  if (group.ready.empty()) return false;
  const uint64_t ahead = nodes_[group.ready.top()].key - nodes_[group.competing.top()].key;
  // While the children share by weight, each one's virtual time moves by the device's time divided
  // by the sum of their weights: so the window is converted.
  return ahead <= Virtual(limits_.lag_window_ns, group.weight_sum);
}

// Brings the node's place among its siblings up to date. Order matters: it joins at BeginsAt before
// its key is computed, and the group's time moves on only when the heap is right.
void ShareTree::UpdateOne(Node node, uint64_t now_ns) {
  NodeState& it = nodes_[node];
  NodeState& parent = nodes_[it.parent];
  bool active = it.leaf ? it.wants : !it.competing.empty();
  bool ready = it.leaf ? it.has_room : InWindow(it);
  if (it.ceiling != kNone && ceilings_[it.ceiling].empty) active = ready = false;

  if (active && it.competing_place == kNotInHeap) {
    it.virtual_time = BeginsAt(it, parent, now_ns);
    it.has_competed = true;
    parent.weight_sum += it.weight;
  }
  it.key = it.virtual_time + Virtual(it.uncharged_ns, it.weight);
  if (active) {
    parent.competing.InsertOrMove(node, CompetingAccess{this}, &steps_);
  } else {
    Leave(node, now_ns);
  }
  if (ready) {
    parent.ready.InsertOrMove(node, ReadyAccess{this}, &steps_);
  } else {
    parent.ready.Remove(node, ReadyAccess{this}, &steps_);
  }
  if (!parent.competing.empty()) {
    // Without what is in flight: that is predicted, and a newcomer would pay for a wrong
    // prediction.
    const uint64_t time = nodes_[parent.competing.top()].virtual_time;
    if (Before(parent.children_time, time)) parent.children_time = time;
  }
}

// From the node upwards: whether a group competes and is in its window depends on its children.
void ShareTree::Update(Node node, uint64_t now_ns) {
  for (; !IsRoot(node); node = nodes_[node].parent) UpdateOne(node, now_ns);
}

double ShareTree::PartOf(std::span<const Node> leaves) const {
  std::map<Node, uint64_t> sums;  // of weights, by parent
  std::set<Node> seen;
  for (const Node leaf : leaves) {
    // Each node on the leaves' paths once, though they share groups: one that does not compete at
    // present adds its weight to the sum of its siblings, as if it did.
    for (Node node = leaf; !IsRoot(node) && seen.insert(node).second; node = nodes_[node].parent) {
      const NodeState& it = nodes_[node];
      uint64_t& sum = sums.try_emplace(it.parent, nodes_[it.parent].weight_sum).first->second;
      if (it.competing_place == kNotInHeap) sum += it.weight;
    }
  }
  double together = 0;
  for (const Node leaf : leaves) {
    double part = 1;
    for (Node node = leaf; !IsRoot(node); node = nodes_[node].parent) {
      part *= static_cast<double>(nodes_[node].weight) /
              static_cast<double>(sums.at(nodes_[node].parent));
    }
    together += part;
  }
  return together;
}

ShareTree::Node ShareTree::Pick(Priority priority) {
  Node node = root(priority);
  if (!InWindow(nodes_[node])) return kNone;
  while (!nodes_[node].leaf) {
    ++steps_;
    node = nodes_[node].ready.top();
  }
  return node;
}

}  // namespace gpuloom::arbiter
