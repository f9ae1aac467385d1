// SPDX-License-Identifier: Apache-2.0
// Ceilings of a share tree: who is throttled, and until when.
#include <algorithm>
#include <cassert>

#include "agent/arbiter/share_tree.h"

namespace gpuloom::arbiter {

ShareTree::CeilingId ShareTree::AddCeiling(uint32_t permille, uint64_t now_ns) {
  CeilingId ceiling;
  if (free_ceilings_.empty()) {
    ceiling = static_cast<CeilingId>(ceilings_.size());
    ceilings_.emplace_back(Ceiling(permille, kCeilingWindowNs, now_ns));
    free_ceilings_.reserve(ceilings_.capacity());
    empty_ceilings_.Reserve(ceilings_.size());
  } else {
    ceiling = free_ceilings_.back();
    free_ceilings_.pop_back();
    ceilings_[ceiling] = CeilingState(Ceiling(permille, kCeilingWindowNs, now_ns));
  }
  return ceiling;
}

void ShareTree::ChangeCeiling(CeilingId ceiling, uint32_t permille, uint64_t now_ns) {
  ceilings_[ceiling].bucket.Change(permille, now_ns);
  Judge(ceiling, now_ns);
}

void ShareTree::Bind(Node node, CeilingId ceiling, uint64_t now_ns) {
  NodeState& it = nodes_[node];
  assert(!IsRoot(node));
  if (it.ceiling == ceiling) return;
  const CeilingId before = it.ceiling;
  if (before != kNone) {
    CeilingState& state = ceilings_[before];
    // What is in flight counts against the ceiling that binds the node at that time, so it moves
    // from the one to the other.
    state.uncharged_ns -= it.uncharged_ns;
    std::erase(state.nodes, node);
  }
  it.ceiling = ceiling;
  if (ceiling != kNone) {
    ceilings_[ceiling].uncharged_ns += it.uncharged_ns;
    ceilings_[ceiling].nodes.push_back(node);
    Judge(ceiling, now_ns);
  }
  if (before != kNone) Judge(before, now_ns);
  Update(node, now_ns);
}

void ShareTree::RemoveCeiling(CeilingId ceiling) {
  assert(ceilings_[ceiling].nodes.empty());
  empty_ceilings_.Remove(ceiling, CeilingAccess{this}, &steps_);
  free_ceilings_.push_back(ceiling);
}

// Decides whether the ceiling is empty by its tokens and what is in flight under it, keeps it in
// the heap of those that wait to be refilled, and shows its nodes to their parents when that
// changed.
void ShareTree::Judge(CeilingId ceiling, uint64_t now_ns) {
  CeilingState& state = ceilings_[ceiling];
  state.bucket.Refill(now_ns);
  const bool empty = state.bucket.Empty(state.uncharged_ns);
  const bool changed = empty != state.empty;
  if (changed) {
    state.empty = empty;
    if (empty) {
      state.empty_since_ns = now_ns;
    } else {
      state.empty_ns += now_ns - state.empty_since_ns;
    }
  }
  if (empty) {
    state.opens_at_ns = state.bucket.OpensAtNs(state.uncharged_ns);
    empty_ceilings_.InsertOrMove(ceiling, CeilingAccess{this}, &steps_);
  } else {
    empty_ceilings_.Remove(ceiling, CeilingAccess{this}, &steps_);
  }
  if (changed) {
    for (const Node node : state.nodes) Update(node, now_ns);
  }
}

// Up to the root: a ceiling anywhere above may have been filled or emptied by what happened to the
// node.
void ShareTree::JudgePath(Node node, uint64_t now_ns) {
  for (; node != kNone; node = nodes_[node].parent) {
    if (nodes_[node].ceiling != kNone) Judge(nodes_[node].ceiling, now_ns);
  }
}

void ShareTree::Wake(uint64_t now_ns) {
  while (!empty_ceilings_.empty() && !Before(now_ns, wake_at_ns())) {
    // Refilled up to now, and it opens then: it leaves the heap.
    Judge(empty_ceilings_.top(), now_ns);
  }
}

uint64_t ShareTree::wake_at_ns() const {
  return empty_ceilings_.empty() ? UINT64_MAX : ceilings_[empty_ceilings_.top()].opens_at_ns;
}

bool ShareTree::throttled(Node node) const {
  for (; node != kNone; node = nodes_[node].parent) {
    const CeilingId ceiling = nodes_[node].ceiling;
    if (ceiling != kNone && ceilings_[ceiling].empty) return true;
  }
  return false;
}

bool ShareTree::has_ceiling(Node node) const {
  for (; node != kNone; node = nodes_[node].parent) {
    if (nodes_[node].ceiling != kNone) return true;
  }
  return false;
}

uint64_t ShareTree::throttled_ns(Node node, uint64_t now_ns) const {
  uint64_t longest_ns = 0;
  for (; node != kNone; node = nodes_[node].parent) {
    if (nodes_[node].ceiling == kNone) continue;
    const CeilingState& state = ceilings_[nodes_[node].ceiling];
    const uint64_t last_ns = state.empty ? now_ns - state.empty_since_ns : 0;
    longest_ns = std::max(longest_ns, state.empty_ns + last_ns);
  }
  return longest_ns;
}

// Leaves.

}  // namespace gpuloom::arbiter
