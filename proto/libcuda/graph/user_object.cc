// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/graph/user_object.h"

#include <stdlib.h>

#include <atomic>

#include "proto/libcuda/graph/handle_set.h"

namespace gpuloom::graph {
namespace {

// A call that is due, with its argument.
struct Destructor {
  CUhostFn function;
  void* value;
};

// All live user objects, guarded by GraphLock as `queued` is.
constinit HandleSet objects;
constinit Growing<Destructor> queued;
// The same number as queued.count(), so that RunDestructors need not take the lock when nothing is
// due.
std::atomic<uint32_t> queued_count{0};

}  // namespace

UserObject* FindUserObject(CUuserObject handle) {
  return objects.Contains(handle) ? reinterpret_cast<UserObject*>(handle) : nullptr;
}

UserObject* MakeUserObject(void* value, CUhostFn destroy, uint32_t references) {
  auto* object = static_cast<UserObject*>(calloc(1, sizeof(UserObject)));
  if (object == nullptr) return nullptr;
  *object = {value, destroy, references};
  if (!objects.Add(object)) {
    free(object);
    return nullptr;
  }
  return object;
}

void ReleaseUserObject(UserObject* object, uint64_t count) {
  // A program that releases more than it holds must not make the count wrap.
  object->references -= count < object->references ? count : object->references;
  if (object->references != 0) return;
  // If there is no memory, the destructor is not called; the program goes on.
  if (queued.Push({object->destroy, object->value})) {
    queued_count.fetch_add(1, std::memory_order_release);
  }
  objects.Remove(object);
  free(object);
}

bool HoldObject(Graph* graph, UserObject* object, uint32_t count) {
  for (ObjectReference& reference : graph->objects) {
    if (reference.object == object) {
      reference.count += count;
      return true;
    }
  }
  return graph->objects.Push({object, count});
}

void DropObject(Graph* graph, UserObject* object, uint32_t count) {
  for (size_t i = 0; i < graph->objects.count(); ++i) {
    ObjectReference& reference = graph->objects[i];
    if (reference.object != object) continue;
    if (count > reference.count) count = reference.count;
    reference.count -= count;
    if (reference.count == 0) graph->objects.Remove(i);
    ReleaseUserObject(object, count);
    return;
  }
}

void DropAllObjects(Graph* graph) {
  for (const ObjectReference& reference : graph->objects) {
    ReleaseUserObject(reference.object, reference.count);
  }
  graph->objects.Free();
}

void RunDestructors() {
  // One at a time, in the order of their release; several threads may share the work.
  while (queued_count.load(std::memory_order_acquire) != 0) {
    Destructor destructor;
    {
      GraphLock lock;
      if (queued.count() == 0) return;
      destructor = queued[0];
      queued.Remove(0);
      queued_count.fetch_sub(1, std::memory_order_acq_rel);
    }
    destructor.function(destructor.value);
  }
}

}  // namespace gpuloom::graph
