// SPDX-License-Identifier: Apache-2.0
// A tenant's executable graph: its validated definition, and the driver's objects made from it.
// docs/design/running-graphs.md describes how graphs run.
//
// A GraphPlan is a definition or an update in private memory; the ring thread validates it, a worker
// reads it. A Graph is created by Graphs (graph.cc); the session's table and queued and running
// launches share it. Build and Apply run on a worker while nothing else uses the Graph; everything
// else is ring thread only, including the destructor: it leaves destroying the driver's objects to a
// worker, or, with conditional nodes, to a quiet moment (quiet.h), because that waits for the device.
//
// A Graph with host nodes is several of the driver's executable graphs (graph_sections.h), which
// the stream's command launches one after the other.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "agent/executor/graph/conditional.h"
#include "agent/executor/graph/graph_sections.h"
#include "agent/executor/session/host_budget.h"
#include "agent/executor/session/large_free.h"
#include "agent/executor/stream/point.h"
#include "agent/executor/stream/priority_band.h"
#include "proto/wire/graph_commands.h"
#include "proto/wire/graph_scopes.h"

namespace gpuloom::executor {

class Device;
class DeviceCharge;
class EventPromise;
class Quiet;
class WorkPool;
struct OperationsRun;

// Nodes of all graphs of a session, including destroyed graphs that still run. A node takes
// about 1 KiB of host memory in the driver.
inline constexpr uint64_t kMaxSessionGraphNodes = 1u << 19;
// Device memory, measured: per graph, and per node (docs/design/running-graphs.md).
inline constexpr uint64_t kGraphTakesOfDeviceBytes = 128u << 10;
inline constexpr uint64_t kGraphNodeTakesOfDeviceBytes = 2'360;  // and the parameters
inline constexpr uint64_t kGraphNodeTakesBytes = 1280;  // host memory, the driver's and ours
// What the driver keeps of nodes' bodies comes on top: once in its graph, and once in the executable graph.
inline constexpr uint64_t kGraphKeepsBodies = 2;
// Host memory that reading a definition takes besides it, in multiples of its size: functions and scopes by node, at
// least 16 bytes per node.
inline constexpr uint64_t kReadingGraphTakes = 2;
// Each costs the ring thread time when the graph is launched or updated, or when its session ends.
inline constexpr uint32_t kMaxGraphHostNodes = 1024;
inline constexpr uint32_t kMaxGraphRecords = 1024;
inline constexpr uint32_t kMaxGraphWaits = 1024;
inline constexpr uint32_t kMaxGraphMemoryNodes = 1024;
inline constexpr uint32_t kMaxGraphOperations = 16384;  // of those nodes
// Different libraries and arrays that one definition or update may name.
inline constexpr size_t kMaxGraphHolds = 4096;
// Graphs with at least this many nodes are uploaded by a worker when they are created: uploading
// takes about 0.9 µs a node, which the first launch would otherwise spend on the ring thread.
inline constexpr uint32_t kUploadNodes = 256;

// How many graphs and nodes, over all sessions, the driver has device memory for. While work runs,
// the driver can allocate more only by waiting for it, holding the context's lock; it reuses the
// memory of destroyed graphs (measured; docs/design/running-graphs.md). So a graph that exceeds the
// highest counts so far is created when nothing runs. Ring thread only; outlives every graph.
struct GraphRoom {
  uint64_t graphs = 0;  // branches of graphs (graph_width.h)
  uint64_t nodes = 0;
  // A fresh context has room for these: 4,000 nodes in one graph, or 33 graphs of one branch.
  uint64_t most_graphs = 16;
  uint64_t most_nodes = 1500;
  // Executable graphs with conditional nodes waiting to be destroyed.
  uint64_t retired = 0;
  // For uploads; created on first use, never given back.
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
  explicit GraphPlan(std::shared_ptr<SessionBudget> budget);
  GraphPlan(const GraphPlan&) = delete;
  GraphPlan& operator=(const GraphPlan&) = delete;
  ~GraphPlan();

  HostCharge charge;
  bool is_paid = false;
  std::shared_ptr<DeviceCharge> device_charge;  // of a definition: for the graph made from it
  std::unique_ptr<EventPromise> events;         // of a definition: for its records
  uint64_t kept_bytes = 0;                      // KeptBytes of its entries
  uint64_t param_bytes = 0;                     // ParamBytes of its entries
  std::vector<uint8_t> block;
  wire::GraphReader reader;
  wire::GraphScopes scopes;  // of a definition
  bool well_formed = false;
  // By entry of the block; `libraries` keeps kernels loaded and arrays alive.
  struct Callee {
    CUkernel kernel = nullptr;
    CUfunction function = nullptr;
  };
  std::vector<Callee> callees;
  struct Arrays {
    uint32_t entry;
    CUarray to = nullptr;
    CUarray from = nullptr;
  };
  std::vector<Arrays> arrays;  // of copies with arrays, by entry
  std::vector<std::shared_ptr<const void>> libraries;
  std::unordered_set<const void*> held;  // the same, for lookup
  // Entries not handled by the driver alone, and how many of each kind.
  std::vector<uint32_t> special;
  uint64_t branches = 0;  // BranchesOf, of a definition
  uint32_t heads = 0;     // HeadsOf, of a definition
  bool disables = false;  // an update that switches nodes off
  uint32_t records = 0;
  uint32_t waits = 0;
  uint32_t host_nodes = 0;
  uint32_t memory_nodes = 0;
  uint32_t waiting_nodes = 0;    // of the memory nodes, the host's
  uint32_t operations = 0;       // of the memory nodes
  ReservationRef reservation;    // of a definition with conditional nodes
  std::vector<bool> conditions;  // which of its handles have a node
  uint32_t judged = 0;           // number of entries validated so far
  uint32_t kernels = 0;
  GraphSections sections;        // of a definition
  bool prints = false;           // some kernel may print
  PriorityBand band;             // of its session, when it was sent
  CUcontext context = nullptr;   // the same, of a definition: where its kernels run
  bool node_priorities = false;  // its nodes' priorities count, not their stream's
  CUresult result = CUDA_SUCCESS;
  uint32_t failed_node = wire::kNoGraphNode;

  void Fail(CUresult failure, uint32_t node) {
    result = failure;
    failed_node = node;
  }
  // Returns false if the plan names too many.
  [[nodiscard]] bool Hold(const std::shared_ptr<const void>& thing) {
    if (!libraries.empty() && libraries.back() == thing) return true;
    if (!held.insert(thing.get()).second) return true;
    libraries.push_back(thing);
    return libraries.size() <= kMaxGraphHolds;
  }
  // Returns false if there are too many of this kind.
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

// A CUDA event recorded by nodes, shared with the points that refer to it.
struct GraphRecordEvent {
  explicit GraphRecordEvent(Device* owner) : device(owner) {}
  GraphRecordEvent(const GraphRecordEvent&) = delete;
  GraphRecordEvent& operator=(const GraphRecordEvent&) = delete;
  ~GraphRecordEvent();
  Device* const device;
  CUevent event = nullptr;
};

class Graph {
 public:
  // `session_nodes` counts the nodes of the session's graphs; `budget` is charged for their memory.
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

  // Does what a worker may not: reserves room among the session's nodes.
  [[nodiscard]] CUresult Prepare(const GraphPlan& plan);
  // What an update adds to what its nodes have been paid for so far. A node that gets smaller again stays paid for.
  struct Growth {
    uint64_t kept_bytes = 0;
    uint64_t param_bytes = 0;
    uint64_t charge_bytes = 0;  // what has to be charged to the device for it
  };
  Growth GrowthOf(const GraphPlan& plan) const;
  // Before the update is made. Returns false if the session has no host memory left for it.
  [[nodiscard]] bool Grow(const GraphPlan& plan, const Growth& growth,
                          std::shared_ptr<DeviceCharge> charge);
  // Worker. Creates the driver's graph and executable graph; the result is in plan->result.
  void Build(GraphPlan* plan);
  // Worker, or the ring thread for a few entries. Sets new parameters.
  void Apply(GraphPlan* plan);
  // Worker, while no update is under way. From the next launch on its kernels run in `context`, and in `band` if its
  // nodes' priorities count; launches that are at CUDA go on as they are. Graphs with conditional nodes cannot move
  // (docs/design/sm-partitions.md). After a failure the graph is as it was.
  CUresult MoveTo(CUcontext context, const PriorityBand& band);
  // Where its kernels run, and in which band. They change only while `moving`.
  CUcontext context() const { return context_; }
  bool IsIn(const PriorityBand& band) const { return !node_priorities_ || band_ == band; }
  // Returns true if Apply will process the whole graph, however small the update is.
  bool ChangesAttributes(const GraphPlan& plan) const;
  // After Apply: takes over those parts of an update that the driver does not handle.
  void AdoptUpdate(const GraphPlan& plan);

  uint64_t branches() const { return counted_branches_; }
  // In how many hardware queues a launch waits at the device.
  uint32_t queues() const { return heads_; }
  uint32_t sections() const { return static_cast<uint32_t>(sections_.size()); }
  bool HasExec(uint32_t section) const { return sections_[section].graph != nullptr; }
  // Null if the section has no device nodes. It changes only while `moving`.
  CUgraphExec exec(uint32_t section) const { return sections_[section].exec; }
  // What the host does after a section; exactly one of these. Host nodes do not depend on each other.
  struct HostNode {
    uint64_t token = 0;  // of the tenant's function
    std::optional<wire::GraphCopy> copy;
    // At least one of them is a wait.
    std::shared_ptr<const std::vector<wire::GraphMemoryOperation>> operations;
    bool disabled = false;
  };
  const std::vector<HostNode>& HostNodesBehind(uint32_t section) const {
    return sections_[section].host_nodes;
  }
  // Returns true if a launch may block until the tenant writes a value and only the driver may still refuse the update.
  // The update may then be answered before it is applied.
  bool IsSureOf(const GraphPlan& plan) const;
  // Null if there are no conditional nodes.
  Reservation* reservation() const { return reservation_.get(); }
  uint32_t nodes() const { return static_cast<uint32_t>(nodes_.size()); }
  uint32_t kernels() const { return kernels_; }
  bool prints() const { return prints_; }
  // Returns true if Build has uploaded it: no separate upload is needed.
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

  // ---- the order of launches and updates, maintained by Graphs
  struct Update {
    wire::Ticket ticket;
    PlanRef plan;
    std::function<void()> answer;
    uint32_t launches_before = 0;  // queued since the previous update, not submitted yet
    bool judged = false;
    bool running = false;
    bool answered = false;
  };
  std::deque<Update> updates;
  uint32_t answered_updates = 0;  // how many of `updates` are answered
  uint32_t launches_queued = 0;   // after the last update
  uint32_t in_flight = 0;         // launches at CUDA, with some or all of their sections
  wire::StreamId launched_in{};   // the last launch, queued or not; ticket 0: there was none
  wire::Ticket launched{};
  bool moving = false;                  // MoveTo is under way
  CUresult move_result = CUDA_SUCCESS;  // of the last MoveTo
  CUcontext moved_to = nullptr;         // its destination
  PriorityBand moved_into;              // the same
  // Sectioned launches whose last section is not at CUDA yet, by ticket. Only the first may begin.
  std::deque<uint64_t> cut_launches;

  // A launch was queued, or submitted.
  void OnQueued() { ++launches_queued; }
  void OnSubmitted() { --(updates.empty() ? launches_queued : updates.front().launches_before); }
  bool MayLaunch(wire::Ticket ticket) const {
    return updates.empty() || ticket < updates.front().ticket;
  }

 private:
  struct Node {
    CUgraphNode handle = nullptr;
    CUkernel kernel = nullptr;  // of a kernel node
    uint64_t attributes_hash = 0;
    uint32_t kept_bytes = 0;   // paid for
    uint32_t param_bytes = 0;  // the same
    int priority = 0;          // of a kernel node: as the program asked for it
    uint32_t place = 0;        // index in records, waits, or the section's host nodes
    uint32_t section = 0;
    bool on_host = false;
    wire::GraphNodeKind kind = wire::GraphNodeKind::kEmpty;
    bool disabled = false;
  };
  struct Section {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    std::vector<HostNode> host_nodes;
    bool has_nodes = false;
    bool is_reserved = false;  // `graph` belongs to the reservation
  };
  CUresult Lay(const GraphPlan& plan);
  void AddAll(GraphPlan* plan);
  CUresult AddNode(const GraphPlan& plan, uint32_t i, CUgraph graph);
  static void SetHostNode(const GraphPlan& plan, uint32_t entry, HostNode* host_node);
  // Returns true for nodes of the reservation's graph, which was built earlier.
  bool IsThere(uint32_t node) const;
  // Appends the driver's body graphs to `bodies`.
  CUresult AddConditional(const GraphPlan& plan, uint32_t i, CUgraph graph,
                          std::vector<CUgraph>* bodies);
  // Edges between sections are expressed by the order of the sections.
  CUresult AddEdges(const GraphPlan& plan, const std::vector<CUgraph>& bodies);
  // Instantiates the section's graph into it.
  CUresult Instantiate(Section* section);
  // Where nodes other than kernels run.
  CUcontext CopyContext() const;
  // For a reservation's graph that has its nodes already: sets the parameters of the plan.
  void Renew(GraphPlan* plan);
  CUresult RenewNode(const GraphPlan& plan, uint32_t i);
  CUresult SetAttributes(const GraphPlan& plan, uint32_t entry, Node* node) const;
  CUresult SetPriority(const Node& node, const PriorityBand& band) const;
  CUresult ApplyEntry(const GraphPlan& plan, uint32_t entry, bool* whole);

  Device* const device_;
  WorkPool* const pool_;
  Quiet* const quiet_;
  GraphRoom* const room_;
  const std::shared_ptr<uint64_t> session_nodes_;
  uint64_t counted_nodes_ = 0;
  uint64_t counted_branches_ = 0;
  uint32_t heads_ = 1;
  const std::shared_ptr<HostCharge> charge_;     // held until the driver's objects are destroyed
  std::shared_ptr<DeviceCharge> device_charge_;  // the same
  std::vector<std::shared_ptr<DeviceCharge>> growth_charges_;  // the same, of updates
  uint64_t spare_bytes_ = 0;                                   // charged by them and not needed yet
  CUcontext context_ = nullptr;
  bool node_priorities_ = false;
  PriorityBand band_;
  ReservationRef reservation_;  // null: this Graph owns the driver's graph
  std::vector<Section> sections_;
  uint32_t kernels_ = 0;
  bool prints_ = false;
  std::vector<Node> nodes_;
  std::vector<std::shared_ptr<const void>> libraries_;  // in order from Build on
  std::vector<Record> records_;
  std::vector<Wait> waits_;
  bool waits_for_values_ = false;
};
using GraphRef = std::shared_ptr<Graph>;

// Progress of a launch in sections.
struct SectionedLaunch {
  GraphRef graph;
  wire::Ticket ticket;
  wire::StreamId stream;
  uint32_t next = 0;  // section
  bool begun = false;
  bool is_counted = false;                                // a section was submitted
  uint32_t begun_nodes = 0;                               // host nodes before `next` that began
  uint32_t done_nodes = 0;                                // of those, how many are done
  std::vector<std::shared_ptr<OperationsRun>> runs = {};  // of those that wait for values
  size_t turn = 0;                                        // in `runs`: where polling continues

  void GoOn() {
    ++next;
    begun_nodes = done_nodes = 0;
  }
};

}  // namespace gpuloom::executor
