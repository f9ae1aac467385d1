// SPDX-License-Identifier: Apache-2.0
// Graphs: definitions and updates of what the tenant has.
#include <algorithm>

#include "agent/executor/testing/graph.h"
#include "tests/hostile/requests.h"

namespace gpuloom::testing {

using executor::TestingGraph;

bool Requests::AddNode(TestingGraph* graph, uint32_t kind) {
  const uint32_t kernel = kernels_.Used(&random_), event = events_.Used(&random_);
  const Part device = AnyDevicePart(4096), other = AnyDevicePart(4096);
  const uint64_t bytes = std::min(device.size_bytes, other.size_bytes);
  switch (kind) {
    case 0:
    case 1:
      if (kernel == 0) return false;
      graph->AddKernel(kernel, ParamsOf(kernel));
      return true;
    case 2:
      if (memory_.empty()) return false;
      graph->AddFill(device.begin, device.size_bytes / 4, 1, 0, 3);
      return true;
    case 3:
      if (memory_.empty()) return false;
      graph->AddCopy(device.begin, other.begin, bytes, 1, 1, bytes, 1);
      return true;
    case 4:
      graph->AddHostCall(random_.Next());
      return true;
    case 5:
      if (event == 0) return false;
      graph->AddEvent(
          random_.Chance(50) ? wire::GraphNodeKind::kEventRecord : wire::GraphNodeKind::kEventWait,
          event);
      return true;
    case 6:  // a wait for a word, or a write of one
      if (memory_.empty()) return false;
      graph->AddOperation({1 + random_.Below(2), 0, device.begin & ~uint64_t{7}, random_.Below(3)});
      return true;
    default:
      graph->AddEmpty();
      return true;
  }
}

std::vector<uint8_t> Requests::GraphDefinition(std::vector<uint32_t>* kinds) {
  TestingGraph graph;
  const auto add = [&] {
    const uint32_t kind = random_.Below(kNodes);
    kinds->push_back(AddNode(&graph, kind) ? kind : kNodes);
    if (kinds->back() == kNodes) graph.AddEmpty();
  };
  kinds->clear();
  const uint32_t nodes = 1 + random_.Below(8);
  for (uint32_t i = 0; i < nodes; ++i) add();
  for (uint32_t i = 1; i < nodes; ++i) {
    if (random_.Chance(70)) graph.AddEdge(random_.Below(i), i);
  }
  if (const uint32_t reservation = reservations_.Used(&random_);
      reservation != 0 && random_.Chance(50)) {
    graph.AddConditional(reservation, random_.Below(conditions_[reservation]), random_.Below(3),
                         {1});
    kinds->push_back(kNodes);
    add();
  }
  return graph.Block();
}

// In the ring, or in the arena, where it may change any time.
void Requests::StageBlock(std::vector<uint8_t> block, wire::HostPtr* where, uint64_t* size_bytes,
                          Draft* draft) {
  draft->has_grid = true;
  if (random_.Chance(70)) {
    draft->payload = std::move(block);
    return;
  }
  const uint64_t offset = kBlocksBegin + random_.Below(4) * kBlockRoom;
  *size_bytes = std::min<uint64_t>(block.size(), kBlockRoom);
  std::memcpy(arena_ + offset, block.data(), *size_bytes);
  *where = wire::HostPtr{host_begin_ + offset};
}

void Requests::FillGraphs() {
  On<wire::GraphInstantiate>([this](auto* request, Draft* draft) {
    const uint32_t graph = graphs_.New(&random_);
    if (graph == 0 || !keeps_addresses_) return false;
    request->graph = wire::GraphId{graph};
    request->flags = random_.Below(2);
    StageBlock(GraphDefinition(&graph_nodes_[graph]), &request->definition,
               &request->definition_bytes, draft);
    return Expect(&graphs_, graph, draft);
  });
  On<wire::GraphUpdate>([this](auto* request, Draft* draft) {
    const uint32_t graph = graphs_.Used(&random_);
    if (graph == 0) return false;
    const std::vector<uint32_t>& kinds = graph_nodes_[graph];
    const uint32_t index = random_.Below(static_cast<uint32_t>(kinds.size()));
    TestingGraph change;
    if (kinds[index] == kNodes || !AddNode(&change, kinds[index])) return false;
    change.Rename(0, index);
    request->graph = wire::GraphId{graph};
    StageBlock(change.Block(), &request->update, &request->update_bytes, draft);
    return true;
  });
  const auto with_stream = [this](auto* request, Draft*) {
    *request = {wire::GraphId{graphs_.Used(&random_)}, AnyStream()};
    return request->graph != wire::GraphId{0};
  };
  On<wire::GraphUpload>(with_stream);
  On<wire::GraphLaunch>(with_stream);
  On<wire::GraphDestroy>([this](auto* request, Draft*) {
    const uint32_t graph = graphs_.Used(&random_);
    graphs_.Drop(graph);
    request->graph = wire::GraphId{graph};
    return graph != 0;
  });
  On<wire::ConditionCreate>([this](auto* request, Draft* draft) {
    uint32_t reservation = reservations_.Used(&random_);
    const bool fresh = reservation == 0 || random_.Chance(30);
    if (fresh) reservation = reservations_.New(&random_);
    if (reservation == 0) return false;
    // No condition that holds: a loop would never end.
    *request = {wire::ReservationId{reservation}, 0, random_.Below(2), 0};
    draft->spoilable_bytes = sizeof(request->reservation);
    if (fresh) reservations_.Add(reservation, false);
    draft->learn = [this, reservation, fresh](const wire::ReplySlot& answer) {
      if (fresh) conditions_[reservation] = 0;
      if (answer.result == 0) ++conditions_[reservation];
      if (fresh) reservations_.Answer(reservation, answer.result == 0);
    };
    return true;
  });
  On<wire::ConditionsDrop>([this](auto* request, Draft*) {
    const uint32_t reservation = reservations_.Used(&random_);
    reservations_.Drop(reservation);
    request->reservation = wire::ReservationId{reservation};
    return reservation != 0;
  });
}

}  // namespace gpuloom::testing
