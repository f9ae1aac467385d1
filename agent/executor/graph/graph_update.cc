// SPDX-License-Identifier: Apache-2.0
// Updates of executable graphs: what a judged update changes in the driver's graphs, and in what is kept of them.
#include <algorithm>
#include <vector>

#include "agent/executor/device/device.h"
#include "agent/executor/graph/graph.h"
#include "agent/executor/graph/graph_node.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {

using wire::GraphNodeKind;

// Node by node into the executable graph. A section in which an attribute has changed is then
// updated as a whole from its original graph. Stops at the first failure: what came before it
// stays, as when the program had made the calls one by one.
void Graph::Apply(GraphPlan* plan) {
  std::vector<bool> whole(sections_.size());
  for (uint32_t i = 0; i < plan->reader.nodes(); ++i) {
    bool whole_section = false;
    const CUresult applied = ApplyEntry(*plan, i, &whole_section);
    const uint32_t node = plan->reader.Node(i).index;
    if (applied != CUDA_SUCCESS) return plan->Fail(applied, node);
    if (whole_section) whole[nodes_[node].section] = true;
  }
  for (size_t i = 0; i < sections_.size() && plan->result == CUDA_SUCCESS; ++i) {
    if (!whole[i]) continue;
    CUgraphExecUpdateResultInfo info = {};
    plan->result =
        device_->cuda().cuGraphExecUpdate_v2(sections_[i].exec, sections_[i].graph, &info);
  }
}

// The graph from which the executable one was made gets the same parameters, so that it can be
// updated as a whole when an attribute changes: the driver cannot change attributes of a single
// node.
CUresult Graph::ApplyEntry(const GraphPlan& plan, uint32_t entry, bool* whole) {
  const Driver& cuda = device_->cuda();
  const wire::GraphNode form = plan.reader.Node(entry);
  Node& node = nodes_[form.index];
  const CUgraphExec exec = sections_[node.section].exec;
  CUresult result = CUDA_SUCCESS;
  // A node that only writes runs on the device, and an update cannot move it to the host.
  if (form.kind == GraphNodeKind::kMemoryOperations && !node.on_host &&
      RunsOnHost(plan.reader, form)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // CUDA does not allow an update to change the kind of memory that a copy names.
  if (form.kind == GraphNodeKind::kCopy && form.body_bytes != 0 &&
      RunsOnHost(plan.reader, form) != node.on_host) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (node.on_host) return CUDA_SUCCESS;  // AdoptUpdate
  if (form.body_bytes != 0) {
    switch (form.kind) {
      case GraphNodeKind::kKernel: {
        const GraphKernelParams kernel(plan, entry, context_, cuda);
        // The original graph stays as it was made: see Renew.
        if (reservation_ != nullptr && HashAttributes(plan, form) != node.attributes_hash) {
          return CUDA_ERROR_NOT_SUPPORTED;
        }
        CUDA_RETURN_IF_ERROR(
            cuda.cuGraphExecKernelNodeSetParams_v2(exec, node.handle, &kernel.value()));
        result = cuda.cuGraphKernelNodeSetParams_v2(node.handle, &kernel.value());
        node.kernel = plan.callees[entry].kernel;
        const uint64_t hash = HashAttributes(plan, form);
        if (result != CUDA_SUCCESS || hash == node.attributes_hash) break;
        node.attributes_hash = hash;
        *whole = true;
        result = SetAttributes(plan, entry, &node);
        break;
      }
      case GraphNodeKind::kCopy: {
        const CUDA_MEMCPY3D copy = CopyNode(plan, entry);
        result = cuda.cuGraphExecMemcpyNodeSetParams(exec, node.handle, &copy, CopyContext());
        if (result == CUDA_SUCCESS) result = cuda.cuGraphMemcpyNodeSetParams(node.handle, &copy);
        break;
      }
      case GraphNodeKind::kFill: {
        const auto fill = FillNode(plan.reader.Body<wire::GraphFill>(form));
        result = cuda.cuGraphExecMemsetNodeSetParams(exec, node.handle, &fill, CopyContext());
        if (result == CUDA_SUCCESS) result = cuda.cuGraphMemsetNodeSetParams(node.handle, &fill);
        break;
      }
      case GraphNodeKind::kMemoryOperations: {
        auto operations = Operations(plan, form);
        const auto batch = BatchNode(&operations, CopyContext());
        result = cuda.cuGraphExecBatchMemOpNodeSetParams(exec, node.handle, &batch);
        if (result == CUDA_SUCCESS) {
          result = cuda.cuGraphBatchMemOpNodeSetParams(node.handle, &batch);
        }
        break;
      }
      default:
        break;  // AdoptUpdate
    }
  }
  if (result != CUDA_SUCCESS) return result;
  // Only these kinds can be switched off in CUDA.
  const bool has_switch = form.kind == GraphNodeKind::kKernel ||
                          form.kind == GraphNodeKind::kCopy || form.kind == GraphNodeKind::kFill;
  if (!has_switch) return CUDA_SUCCESS;
  const bool enabled = (form.flags & wire::kGraphNodeDisabled) == 0;
  if (enabled == !node.disabled) return CUDA_SUCCESS;
  result = cuda.cuGraphNodeSetEnabled(exec, node.handle, enabled ? 1 : 0);
  if (result == CUDA_SUCCESS) node.disabled = !enabled;
  return result;
}

// CUDA lets an update give a node another kernel, whose parameters may be larger. The device is asked for pieces, so
// that a graph that grows little by little has few charges.
Graph::Growth Graph::GrowthOf(const GraphPlan& plan) const {
  Growth growth;
  for (uint32_t i = 0; i < plan.reader.nodes(); ++i) {
    const wire::GraphNode form = plan.reader.Node(i);
    const Node& node = nodes_[form.index];
    const uint64_t kept = KeptBytes(plan.reader, form);
    const uint64_t params = ParamBytes(plan.reader, form);
    growth.kept_bytes += kept - std::min<uint64_t>(kept, node.kept_bytes);
    growth.param_bytes += params - std::min<uint64_t>(params, node.param_bytes);
  }
  if (growth.param_bytes > spare_bytes_) {
    const uint64_t pieces = (growth.param_bytes - spare_bytes_ + kGraphTakesOfDeviceBytes - 1) /
                            kGraphTakesOfDeviceBytes;
    growth.charge_bytes = pieces * kGraphTakesOfDeviceBytes;
  }
  return growth;
}

bool Graph::Grow(const GraphPlan& plan, const Growth& growth,
                 std::shared_ptr<DeviceCharge> charge) {
  if (charge != nullptr) growth_charges_.push_back(std::move(charge));
  spare_bytes_ += growth.charge_bytes;
  if (!charge_->Add(kGraphKeepsBodies * growth.kept_bytes)) return false;
  // The original graph may outlive this one.
  if (reservation_ != nullptr && !reservation_->Keep(0, growth.kept_bytes)) return false;
  spare_bytes_ -= std::min(spare_bytes_, growth.param_bytes);
  for (uint32_t i = 0; i < plan.reader.nodes(); ++i) {
    const wire::GraphNode form = plan.reader.Node(i);
    Node& node = nodes_[form.index];
    const auto kept = static_cast<uint32_t>(KeptBytes(plan.reader, form));
    const auto params = static_cast<uint32_t>(ParamBytes(plan.reader, form));
    node.kept_bytes = std::max(node.kept_bytes, kept);
    node.param_bytes = std::max(node.param_bytes, params);
  }
  return true;
}

bool Graph::IsSureOf(const GraphPlan& plan) const {
  // Events are looked up when a launch is read, functions are the tenant's as long as its shim thinks so, and handles of
  // a reservation are made by its shim when nothing else is under way.
  if (!waits_for_values_ || plan.result != CUDA_SUCCESS || reservation_ != nullptr ||
      plan.records + plan.waits != 0 || plan.host_nodes != 0) {
    return false;
  }
  for (uint32_t i = 0; i < plan.reader.nodes(); ++i) {
    const wire::GraphNode form = plan.reader.Node(i);
    if (form.body_bytes != 0 && RunsOnHost(plan.reader, form) && !nodes_[form.index].on_host) {
      return false;
    }
    if (form.kind == GraphNodeKind::kCopy && nodes_[form.index].on_host) return false;
  }
  return true;
}

// Decides where Apply runs: a worker makes what takes as long as the graph is large.
bool Graph::ChangesAttributes(const GraphPlan& plan) const {
  for (uint32_t i = 0; i < plan.reader.nodes(); ++i) {
    const wire::GraphNode form = plan.reader.Node(i);
    if (form.kind == GraphNodeKind::kKernel && form.body_bytes != 0 &&
        HashAttributes(plan, form) != nodes_[form.index].attributes_hash) {
      return true;
    }
  }
  return false;
}

void Graph::AdoptUpdate(const GraphPlan& plan) {
  prints_ |= plan.prints;
  // What is behind a node that is switched off may be at the head.
  if (plan.disables) heads_ = std::max(heads_, static_cast<uint32_t>(counted_branches_));
  // An update usually names nothing new, and is made on the ring thread, however much the graph holds.
  const bool holds_all =
      std::all_of(plan.libraries.begin(), plan.libraries.end(), [this](const auto& library) {
        return std::binary_search(libraries_.begin(), libraries_.end(), library);
      });
  if (!holds_all) {
    libraries_.insert(libraries_.end(), plan.libraries.begin(), plan.libraries.end());
    std::sort(libraries_.begin(), libraries_.end());
    libraries_.erase(std::unique(libraries_.begin(), libraries_.end()), libraries_.end());
    // The original graph has been updated, too, and outlives this one.
    if (reservation_ != nullptr) reservation_->libraries = libraries_;
  }
  for (const uint32_t i : plan.special) {
    const wire::GraphNode form = plan.reader.Node(i);
    // As in Apply: what came before the failure is taken over.
    if (plan.result != CUDA_SUCCESS && form.index == plan.failed_node) return;
    const Node& node = nodes_[form.index];
    const uint32_t place = node.place;
    if (node.on_host) {
      HostNode& host_node = sections_[node.section].host_nodes[place];
      if (form.body_bytes != 0) SetHostNode(plan, i, &host_node);
      if (form.kind == GraphNodeKind::kCopy) {
        host_node.disabled = (form.flags & wire::kGraphNodeDisabled) != 0;
      }
      continue;
    }
    if (form.body_bytes == 0) continue;
    if (form.kind == GraphNodeKind::kEventRecord) {
      records_[place].event = plan.reader.Body<wire::GraphEvent>(form).event;
    } else if (form.kind == GraphNodeKind::kEventWait) {
      waits_[place].event = plan.reader.Body<wire::GraphEvent>(form).event;
    }
  }
}

}  // namespace gpuloom::executor
