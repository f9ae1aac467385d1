// SPDX-License-Identifier: Apache-2.0
// Conditional nodes: a handle belongs to a graph; kernels of that graph and of the bodies in it set its value, and the
// one node that was created with it runs its bodies by that value.
//
// The handle is the driver's, because kernels get it as a parameter; what the driver keeps for the handles of one
// graph is called its reservation (docs/design/conditional-nodes.md). Needs GraphLock.
#pragma once

#include "proto/libcuda/graph/graph.h"

namespace gpuloom::graph {

// Per node; programs have a few.
inline constexpr uint32_t kMaxBodies = 1024;
// Nesting depth of conditional nodes.
inline constexpr uint32_t kMaxConditionDepth = 16;

// `root` has no owner. CONTEXT_IS_DESTROYED if the driver has forgotten its other handles.
[[nodiscard]] CUresult MakeCondition(Graph* root, CUcontext context, unsigned default_value,
                                     unsigned flags, CUgraphConditionalHandle* handle);
// Returns null if the graph has no such handle.
Condition* FindCondition(Graph* root, CUgraphConditionalHandle handle);

// The parameters of a new node of `graph`, with empty bodies.
[[nodiscard]] CUresult ReadConditional(const CUgraphNodeParams& from, Graph* graph, NodeParams* to);

// Whether it is a body of a conditional node, or a child graph in one.
bool IsBody(const Graph* graph);
// A node in a body of `graph` that cannot run there, or null. Only kernels, copies, fills, empty and conditional nodes
// can, and child graphs of such nodes. Bodies may hold any as long as they do not run.
Node* FindUnfitInBodies(const Graph* graph);
// Whether it has handles or, at any depth, conditional nodes: then it can neither be cloned nor be a child graph.
bool HasConditions(const Graph* graph);

// ---- provided by the library this is compiled into, called with GraphLock held

// Creates a handle for the nodes of `root`; sets root->reservation if that is null.
[[nodiscard]] CUresult DriverMakeCondition(Graph* root, unsigned default_value, unsigned flags,
                                           CUgraphConditionalHandle* handle);
// Drops the handles; root->reservation becomes null. Executable graphs keep what they need.
void DriverDropConditions(Graph* root);

}  // namespace gpuloom::graph
