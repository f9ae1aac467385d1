// SPDX-License-Identifier: Apache-2.0
// A tenant's executable graph: what has been judged of its definition, and the driver's objects made
// from it. docs/design/running-graphs.md says how graphs run.
//
// A GraphPlan is a definition or an update in private memory; the ring thread judges it, a worker
// reads it. A Graph is made by Graphs (graph.cc); the session's table, queued launches and running
// ones share it. Build and Apply run on a worker while nothing else uses the Graph; everything else
// is the ring thread's, its end too: the driver's objects are then destroyed on a worker, and in a
// quiet moment (quiet.h) when there are conditional nodes, because that waits for the device.
//
// A Graph with host nodes is several executable graphs of the driver's (graph_sections.h), which the
// stream's command hands over one after the other.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "agent/executor/device/device.h"
#include "agent/executor/device/device_charge.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/graph/conditional.h"
#include "agent/executor/graph/graph_sections.h"
#include "agent/executor/session/host_budget.h"
#include "agent/executor/session/large_free.h"
#include "agent/executor/session/work_pool.h"
#include "agent/executor/stream/point.h"
#include "proto/wire/graph_commands.h"
#include "proto/wire/graph_scopes.h"

namespace gpuloom::executor {

struct OperationsRun;

// Nodes of all graphs of a session, destroyed ones that still run included. A node costs the driver
// about 1 KiB of our memory.
inline constexpr uint64_t kMaxSessionGraphNodes = 1u << 19;
// Of the device's memory, measured: a graph, and each of its nodes (docs/design/running-graphs.md).
inline constexpr uint64_t kGraphTakesOfDeviceBytes = 128u << 10;
inline constexpr uint64_t kGraphNodeTakesOfDeviceBytes = 2'360;
inline constexpr uint64_t kGraphNodeTakesBytes = 1280;  // that and ours
// Beside a definition, in definitions: functions and scopes by node, which are at least 16 bytes each.
inline constexpr uint64_t kReadingGraphTakes = 2;
// Each costs the ring thread something when the graph is launched or updated, or when its session ends.
inline constexpr uint32_t kMaxGraphHostNodes = 1024;
inline constexpr uint32_t kMaxGraphRecords = 1024;
inline constexpr uint32_t kMaxGraphWaits = 1024;
inline constexpr uint32_t kMaxGraphMemoryNodes = 1024;
inline constexpr uint32_t kMaxGraphOperations = 16384;  // of those nodes
// Different libraries and arrays that one definition or update names.
inline constexpr size_t kMaxGraphHolds = 4096;
// From here on a worker uploads a graph when it is made: uploading takes about 0.9 µs a node, which
// the first launch would take on the ring thread.
inline constexpr uint32_t kUploadNodes = 256;

// How many graphs and nodes the driver has device memory for, in all sessions. While work runs it can
// make more room only by waiting for it, holding the context's lock; what destroyed graphs leave it
// uses again (measured; docs/design/running-graphs.md). So a graph that goes beyond the highest
// counts so far is made when nothing runs. Ring thread only; outlives every graph.
struct GraphRoom {
  uint64_t graphs = 0;
  uint64_t nodes = 0;
  // A fresh context has room for these: 2,000 nodes in one graph, or 34 graphs of 100.
  uint64_t most_graphs = 16;
  uint64_t most_nodes = 1500;
  // Executable graphs with conditional nodes that wait to be destroyed.
  uint64_t retired = 0;
  // For uploads; made when it is needed first, never given back.
  CUstream stream = nullptr;

  bool Fits(uint64_t more_graphs, uint64_t more_nodes) const {
    return graphs + more_graphs <= most_graphs && nodes + more_nodes <= most_nodes;
  }
  void OnMade() {
    most_graphs = most_graphs > graphs ? most_graphs : graphs;
    most_nodes = most_nodes > nodes ? most_nodes : nodes;
  }
};

struct GraphPlan {
  explicit GraphPlan(std::shared_ptr<SessionBudget> budget) : charge(std::move(budget)) {}
  GraphPlan(const GraphPlan&) = delete;
  GraphPlan& operator=(const GraphPlan&) = delete;
  ~GraphPlan() { FreeElsewhere(std::move(block)); }

  HostCharge charge;
  bool is_paid = false;
  DeviceChargeRef device_charge;  // of a definition: for the graph that is made of it
  std::vector<uint8_t> block;
  wire::GraphReader reader;
  wire::GraphScopes scopes;  // of a definition
  bool well_formed = false;
  // By entry of the block; `libraries` keeps functions loaded and arrays alive.
  std::vector<CUfunction> functions;
  struct Arrays {
    uint32_t entry;
    CUarray to = nullptr;
    CUarray from = nullptr;
  };
  std::vector<Arrays> arrays;  // of copies that have any, by entry
  std::vector<std::shared_ptr<const void>> libraries;
  std::unordered_set<const void*> held;  // the same, for finding
  // Entries that are not the driver's alone, and how many of each kind.
  std::vector<uint32_t> special;
  uint32_t records = 0;
  uint32_t waits = 0;
  uint32_t host_nodes = 0;
  uint32_t memory_nodes = 0;
  uint32_t waiting_nodes = 0;    // of the memory nodes, the host's
  uint32_t operations = 0;       // of the memory nodes
  ReservationRef reservation;    // of a definition with conditional nodes
  std::vector<bool> conditions;  // handles of it that have a node
  uint32_t judged = 0;           // so many entries
  uint32_t kernels = 0;
  GraphSections sections;  // of a definition
  bool prints = false;     // some kernel may
  CUresult result = CUDA_SUCCESS;
  uint32_t failed_node = wire::kNoGraphNode;

  void Fail(CUresult failure, uint32_t node) {
    result = failure;
    failed_node = node;
  }
  // False: it names too many.
  [[nodiscard]] bool Hold(const std::shared_ptr<const void>& thing) {
    if (!libraries.empty() && libraries.back() == thing) return true;
    if (!held.insert(thing.get()).second) return true;
    libraries.push_back(thing);
    return libraries.size() <= kMaxGraphHolds;
  }
  // False: there are too many of its kind.
  [[nodiscard]] bool Count(uint32_t entry) {
    using enum wire::GraphNodeKind;
    const wire::GraphNode node = reader.Node(entry);
    const wire::GraphNodeKind kind = node.kind;
    const bool on_host = RunsOnHost(reader, node);
    waiting_nodes += on_host && kind == kMemoryOperations;
    const bool few = kind == kEventRecord        ? ++records <= kMaxGraphRecords
                     : kind == kEventWait        ? ++waits <= kMaxGraphWaits
                     : kind == kMemoryOperations ? ++memory_nodes <= kMaxGraphMemoryNodes
                     : on_host                   ? ++host_nodes <= kMaxGraphHostNodes
                                                 : true;
    const bool is_special = kind == kEventRecord || kind == kEventWait || on_host ||
                            kind == kMemoryOperations || (kind == kCopy && node.body_bytes == 0);
    if (is_special && few) special.push_back(entry);
    return few;
  }
};
using PlanRef = std::shared_ptr<GraphPlan>;

// A CUDA event that nodes record, shared with the points that name it.
struct GraphRecordEvent {
  explicit GraphRecordEvent(Device* owner) : device(owner) {}
  GraphRecordEvent(const GraphRecordEvent&) = delete;
  GraphRecordEvent& operator=(const GraphRecordEvent&) = delete;
  ~GraphRecordEvent() {
    if (event != nullptr) device->GiveEvent(true, event);
  }
  Device* const device;
  CUevent event = nullptr;
};

class Graph {
 public:
  // `session_nodes` counts the nodes of the session's graphs, whose memory `budget` is charged.
  Graph(Device* device, WorkPool* pool, Quiet* quiet, GraphRoom* room,
        std::shared_ptr<uint64_t> session_nodes, std::shared_ptr<SessionBudget> budget)
      : device_(device),
        pool_(pool),
        quiet_(quiet),
        room_(room),
        session_nodes_(std::move(session_nodes)),
        charge_(std::make_shared<HostCharge>(std::move(budget))) {}
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Takes what a worker may not: room among the session's nodes.
  [[nodiscard]] CUresult Prepare(const GraphPlan& plan);
  // Worker. The driver's graph and its executable form; plan->result says what came of it.
  void Build(GraphPlan* plan, uint32_t flags);
  // Worker, or the ring thread for a few entries. New parameters.
  void Apply(GraphPlan* plan);
  // Then Apply does something with the whole graph, however small the update is.
  bool ChangesAttributes(const GraphPlan& plan) const;
  // After Apply: what of an update is not the driver's.
  void AdoptUpdate(const GraphPlan& plan);

  uint32_t sections() const { return static_cast<uint32_t>(sections_.size()); }
  // Null: nothing of it is for the device.
  CUgraphExec exec(uint32_t section) const { return sections_[section].exec; }
  // What the host does behind a section, one of these: none of it needs another.
  struct HostNode {
    uint64_t token = 0;  // of the tenant's function
    std::optional<wire::GraphCopy> copy;
    // With waits among them.
    std::shared_ptr<const std::vector<wire::GraphMemoryOperation>> operations;
    bool disabled = false;
  };
  const std::vector<HostNode>& HostNodesBehind(uint32_t section) const {
    return sections_[section].host_nodes;
  }
  // A launch may take until the tenant writes a value, and of the update only the driver may still refuse anything: it may
  // be answered before it is made.
  bool IsSureOf(const GraphPlan& plan) const;
  // Null: it has no conditional nodes.
  Reservation* reservation() const { return reservation_.get(); }
  uint32_t nodes() const { return static_cast<uint32_t>(nodes_.size()); }
  uint32_t kernels() const { return kernels_; }
  bool prints() const { return prints_; }
  // By Build: no upload of its own is needed.
  bool IsUploaded() const {
    return nodes() >= kUploadNodes || reservation_ != nullptr || sections() > 1;
  }
  wire::GraphNodeKind KindOf(uint32_t node) const { return nodes_[node].kind; }

  struct Record {
    uint32_t node;
    wire::EventId event;
    std::shared_ptr<GraphRecordEvent> cuda;
  };
  struct Wait {
    uint32_t node;
    wire::EventId event;
  };
  const std::vector<Record>& records() const { return records_; }
  const std::vector<Wait>& waits() const { return waits_; }

  // ---- the order of launches and updates, kept by Graphs
  struct Update {
    wire::Ticket ticket;
    PlanRef plan;
    std::function<void()> answer;
    uint32_t launches_before = 0;  // queued since the update before, not handed over yet
    bool judged = false;
    bool running = false;
    bool answered = false;
  };
  std::deque<Update> updates;
  uint32_t answered_updates = 0;  // of them
  uint32_t launches_queued = 0;   // behind the last update
  uint32_t in_flight = 0;         // launches at CUDA, with all of their sections or some
  // Launches in sections whose last one is not at CUDA, by their tickets. Only the first may begin.
  std::deque<uint64_t> cut_launches;

  // A launch was queued, or handed over.
  void OnQueued() { ++launches_queued; }
  void OnSubmitted() { --(updates.empty() ? launches_queued : updates.front().launches_before); }
  bool MayLaunch(wire::Ticket ticket) const {
    return updates.empty() || ticket < updates.front().ticket;
  }

 private:
  struct Node {
    CUgraphNode handle = nullptr;
    uint64_t attributes_hash = 0;
    uint32_t place = 0;  // among records, waits, or the section's nodes of the host's
    uint32_t section = 0;
    bool on_host = false;
    wire::GraphNodeKind kind = wire::GraphNodeKind::kEmpty;
    bool disabled = false;
  };
  CUresult Lay(const GraphPlan& plan);
  void AddAll(GraphPlan* plan);
  CUresult AddNode(const GraphPlan& plan, uint32_t i, CUgraph graph);
  static void SetHostNode(const GraphPlan& plan, uint32_t entry, HostNode* host_node);
  // Of the reservation's graph, which was built before.
  bool IsThere(uint32_t node) const;
  // Appends the driver's graphs of its bodies.
  CUresult AddConditional(const GraphPlan& plan, uint32_t i, CUgraph graph,
                          std::vector<CUgraph>* bodies);
  // Edges between sections are the order in which those go.
  CUresult AddEdges(const GraphPlan& plan, const std::vector<CUgraph>& bodies);
  CUresult Instantiate(uint32_t flags);
  // The reservation's graph has its nodes already: they get what the plan says.
  void Renew(GraphPlan* plan);
  CUresult RenewNode(const GraphPlan& plan, uint32_t i);
  CUresult SetAttributes(const GraphPlan& plan, uint32_t entry, CUgraphNode node) const;
  CUresult ApplyEntry(const GraphPlan& plan, uint32_t entry, bool* whole);

  Device* const device_;
  WorkPool* const pool_;
  Quiet* const quiet_;
  GraphRoom* const room_;
  const std::shared_ptr<uint64_t> session_nodes_;
  uint64_t counted_nodes_ = 0;
  uint64_t counted_graphs_ = 0;
  const std::shared_ptr<HostCharge> charge_;  // until the driver's objects are destroyed
  DeviceChargeRef device_charge_;             // the same
  ReservationRef reservation_;                // null: the graph is this one's own
  struct Section {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    std::vector<HostNode> host_nodes;
    bool has_nodes = false;
    bool is_reserved = false;  // `graph` is the reservation's
  };
  std::vector<Section> sections_;
  uint32_t kernels_ = 0;
  bool prints_ = false;
  std::vector<Node> nodes_;
  std::vector<std::shared_ptr<const void>> libraries_;
  std::vector<Record> records_;
  std::vector<Wait> waits_;
  bool waits_for_values_ = false;
};
using GraphRef = std::shared_ptr<Graph>;

// How far a launch in sections has come.
struct SectionedLaunch {
  GraphRef graph;
  wire::Ticket ticket;
  wire::StreamId stream;
  uint32_t next = 0;  // section
  bool begun = false;
  bool is_counted = false;                                // a section was handed over
  uint32_t begun_nodes = 0;                               // of the host's before `next`
  uint32_t done_nodes = 0;                                // of those
  std::vector<std::shared_ptr<OperationsRun>> runs = {};  // of those
  size_t turn = 0;                                        // in `runs`

  void GoOn() {
    ++next;
    begun_nodes = done_nodes = 0;
  }
};

}  // namespace gpuloom::executor
