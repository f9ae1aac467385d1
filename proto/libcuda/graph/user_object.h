// SPDX-License-Identifier: Apache-2.0
// User objects: counted references to an object of the program's, whose destructor is called when
// the last one is released. Graphs and executable graphs hold references.
//
// Counting needs GraphLock. A destructor may do anything but call CUDA, so it is never called under
// the lock: the last release queues it, RunDestructors calls the queued ones.
#pragma once

#include "proto/libcuda/graph/graph.h"

namespace gpuloom::graph {

struct UserObject {
  void* value;
  CUhostFn destroy;
  uint64_t references;
};

UserObject* FindUserObject(CUuserObject handle);
// Null if out of memory.
UserObject* MakeUserObject(void* value, CUhostFn destroy, uint32_t references);
void ReleaseUserObject(UserObject* object, uint64_t count);

// References that a graph owns. HoldObject takes `count` of them from the caller; false if out of
// memory.
[[nodiscard]] bool HoldObject(Graph* graph, UserObject* object, uint32_t count);
// Releases `count` of the graph's references, at most as many as it has.
void DropObject(Graph* graph, UserObject* object, uint32_t count);
void DropAllObjects(Graph* graph);

// Calls the queued destructors. Must be called without the lock.
void RunDestructors();

}  // namespace gpuloom::graph
