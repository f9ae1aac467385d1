// Raw ring bytes into the real reader, dispatcher and handlers, with a driver that does nothing. A
// tenant that has set up a stream, an event, memory, a kernel, graphs and conditional handles turns hostile: the input follows
// in its ring. Whatever it is, the session must end or go on, and give back all memory at its end.
#include <sys/socket.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/executor/context_memory.h"
#include "agent/executor/device.h"
#include "agent/executor/driver_room.h"
#include "agent/executor/graph.h"
#include "agent/executor/host_budget.h"
#include "agent/executor/internal_stream.h"
#include "agent/executor/library_cache.h"
#include "agent/executor/physical_memory.h"
#include "agent/executor/printer.h"
#include "agent/executor/quiet.h"
#include "agent/executor/scheduler_link.h"
#include "agent/executor/session.h"
#include "agent/executor/spare_greens.h"
#include "agent/executor/staging.h"
#include "agent/executor/stand_in.h"
#include "agent/executor/tenant.h"
#include "agent/executor/testing_driver.h"
#include "agent/executor/testing_graph.h"
#include "agent/executor/work_pool.h"
#include "proto/channel/socket.h"
#include "proto/wire/ring_writer.h"

namespace gpuloom::executor {
namespace {

constexpr uint64_t kDeviceBegin = 0x5000'0000'0000;
constexpr uint64_t kDeviceBytes = uint64_t{1} << 30;
// Where neither programs nor sanitizers put anything.
constexpr uint64_t kHostBegin = 0x5670'0000'0000;
constexpr uint64_t kHostBytes = 1u << 20;
constexpr char kImage[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 "
    "n) "
    "{ ret; }\n";

// With a texture reference, which is bound to memory.
constexpr char kReferring[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n.global .texref texture;\n.visible .entry "
    "k() { ret; }\n";

void Check(bool ok, int line = __builtin_LINE()) {
  if (ok) return;
  fprintf(stderr, "ring_fuzz.cc:%d: does not hold\n", line);
  abort();
}

// Grants everything at once.
class Scheduler {
 public:
  explicit Scheduler(channel::UniqueFd socket) : connection_(std::move(socket)) {}

  void Answer() {
    control::Incoming in;
    while (connection_.Receive(&in, 0, MSG_DONTWAIT)) {
      control::MemoryRequest request;
      control::MemoryCharge charge;
      control::MemoryReturn back;
      control::MemoryInfoRequest info;
      if (in.As(&request)) {
        const control::MemoryGranted granted{request.session_id, ++last_, request.size_bytes,
                                             CUDA_SUCCESS, 0};
        const int fds[] = {connection_.fd()};  // the driver does not look at it
        Check(connection_.Send(in.header.request, granted, fds, 1));
        ++in_use_;
      } else if (in.As(&charge)) {
        Check(connection_.Send(in.header.request,
                               control::MemoryGranted{charge.session_id, ++last_, charge.size_bytes,
                                                      CUDA_SUCCESS, 0}));
        ++in_use_;
      } else if (in.As(&back)) {
        --in_use_;
        if (in.header.request != 0) {
          Check(connection_.Send(in.header.request, control::Answer{1, 0, 0, {}, 0, 0, 0}));
        }
      } else if (in.As(&info)) {
        Check(connection_.Send(in.header.request, control::MemoryInfo{info.session_id, 0, 0}));
      }
    }
  }
  uint64_t in_use() const { return in_use_; }

 private:
  control::Connection connection_;
  uint64_t last_ = 0;
  uint64_t in_use_ = 0;
};

class Harness {
 public:
  Harness() {
    std::string error;
    Check(device_.Start("GPU-00000000-0000-0000-0000-000000000000", &error));
    Check(internal_.Start(&error));
    staging_.Start(&device_);
    channel::UniqueFd ours, theirs;
    Check(channel::MakePair(SOCK_SEQPACKET, &ours, &theirs));
    scheduler_ = std::make_unique<Scheduler>(std::move(ours));
    link_ = std::make_unique<SchedulerLink>(std::move(theirs));
  }
  ~Harness() {
    session_.reset();
    modules_.Stop();
    memory_.Stop();
    quiet_.Close();
  }

  void Run(const uint8_t* data, size_t size) {
    Begin();
    SetUp();
    auto* region = reinterpret_cast<wire::CommandRegion*>(commands_.data());
    const uint32_t begin = region->head.tail;
    for (size_t i = 0; i < size; ++i) region->ring[(begin + i) % wire::kRingBytes] = data[i];
    region->head.tail = begin + wire::RoundUpToRecord(static_cast<uint32_t>(size));
    Turn(4);
    session_->End(wire::Fatal::kNone, now_ns_);
    for (int i = 0; i < 100 && session_->state() != Session::State::kEnded; ++i) Turn(1);
    Check(session_->state() == Session::State::kEnded);
    // Arrays go when the device has been idle for a while.
    for (int i = 0; i < 100 && !quiet_.empty(); ++i) Turn(1);
    Turn(1);
    Check(scheduler_->in_use() == 0);
    session_.reset();
    Check(TestingDriver::live_graphs() == 0);
  }

 private:
  void Begin() {
    control::AddSession order{};
    order.session_id = ++sessions_;
    order.device_range_begin = kDeviceBegin;
    order.device_range_bytes = kDeviceBytes;
    order.device_own_bytes = kDeviceBytes / 2;
    order.host_range_begin = kHostBegin;
    order.host_range_bytes = kHostBytes;
    order.pinned_limit_bytes = kHostBytes / 2;
    order.drain_timeout_ms = 1000;
    channel::UniqueFd fds[control::kSessionFds];
    fds[control::kSessionCommandFd] =
        channel::MakeSealedMemory("commands", sizeof(wire::CommandRegion));
    fds[control::kSessionCompletionFd] =
        channel::MakeSealedMemory("completions", sizeof(wire::CompletionRegion));
    fds[control::kSessionArenaFd] = channel::MakeSealedMemory("arena", kHostBytes);
    Check(channel::MakePair(SOCK_STREAM, &doorbell_, &fds[control::kSessionDoorbellFd]));
    using Access = channel::Mapping::Access;
    Check(commands_.Map(fds[control::kSessionCommandFd].get(), sizeof(wire::CommandRegion),
                        Access::kReadWrite) &&
          completions_.Map(fds[control::kSessionCompletionFd].get(), sizeof(wire::CompletionRegion),
                           Access::kReadOnly));
    writer_ =
        wire::RingWriter(reinterpret_cast<wire::CommandRegion*>(commands_.data()),
                         reinterpret_cast<const wire::CompletionRegion*>(completions_.data()));
    const Place place{&device_,   &modules_, &memory_,   link_.get(), &quiet_,         &libraries_,
                      &internal_, &staging_, &graphs_,   &greens_,    &shared_,        &printer_,
                      &tenants_,  &room_,    &stand_in_, budget_,     &context_memory_};
    std::string error;
    // The arena of the session before goes with what was pinned in it.
    for (int i = 0; i < 100 && !quiet_.empty(); ++i) Turn(1);
    session_ = Session::Make(place, order, fds, &error);
    Check(session_ != nullptr);
  }

  template <wire::Command C>
  void Post(const typename C::Request& request, uint16_t slot = wire::kNoReply,
            std::span<const uint8_t> payload = {}) {
    uint8_t* tail = nullptr;
    auto* out = writer_.Reserve<C>(static_cast<uint32_t>(payload.size()), &tail, slot);
    *out = request;
    if (!payload.empty()) std::memcpy(tail, payload.data(), payload.size());
    writer_.Commit();
  }

  // Ids 1 of everything, memory at the range's begin, the arena's second page pinned.
  void SetUp() {
    auto* arena = reinterpret_cast<uint8_t*>(kHostBegin);
    std::memcpy(arena, kImage, sizeof(kImage) - 1);
    std::memset(arena + 4096, 1, 4096);
    const uint8_t name[] = {'k'};
    Post<wire::LibraryLoad>({wire::LibraryId{1}, 0, wire::HostPtr{kHostBegin}, sizeof(kImage) - 1},
                            0);
    Post<wire::StreamCreate>({wire::StreamId{1}, 0, 0}, 1);
    Post<wire::EventCreate>({wire::EventId{1}, 1});
    Post<wire::MemAlloc>({2u << 20}, 2);
    Post<wire::HostRegister>({wire::HostPtr{kHostBegin + 4096}, 4096}, 3);
    Turn(4);
    Post<wire::KernelGet>({wire::LibraryId{1}, wire::KernelId{1}}, 0, name);
    Turn(4);
    std::memcpy(arena, kReferring, sizeof(kReferring) - 1);
    Post<wire::LibraryLoad>(
        {wire::LibraryId{2}, 0, wire::HostPtr{kHostBegin}, sizeof(kReferring) - 1}, 0);
    Turn(4);
    const uint8_t texture[] = {'t', 'e', 'x', 't', 'u', 'r', 'e'};
    Post<wire::ReferenceGet>(
        {wire::LibraryId{2}, wire::ReferenceId{1}, wire::ReferenceKind::kTexture}, 0, texture);
    Post<wire::KernelGet>({wire::LibraryId{2}, wire::KernelId{2}}, 1, name);
    Turn(6);
    wire::ReferenceSet::Request bound{};
    bound.reference = wire::ReferenceId{1};
    bound.bound = 1;
    bound.look.resource = wire::ViewResource::kLinear;
    bound.look.address = kDeviceBegin;
    bound.look.size_bytes = 4096;
    bound.look.format = CU_AD_FORMAT_FLOAT;
    bound.look.channels = 1;
    Post<wire::ReferenceSet>(bound);
    TestingGraph graph;
    const uint8_t params[12] = {};
    graph.AddKernel(1, params);
    graph.AddFill(kDeviceBegin, 16, 1, 0);
    graph.AddEvent(wire::GraphNodeKind::kEventRecord, 1);
    graph.AddEdge(0, 1);
    graph.AddEdge(1, 2);
    Post<wire::GraphInstantiate>({wire::GraphId{1}, 0, wire::HostPtr{0}, 0}, 0, graph.Block());
    Turn(6);
    // Reservation 1 has a graph, reservation 2 none yet.
    for (const uint32_t reservation : {1, 2, 2}) {
      Post<wire::ConditionCreate>({wire::ReservationId{reservation}, 1, 1, 0}, 0);
      Turn(2);
    }
    TestingGraph loop;
    loop.AddKernel(1, params);
    loop.AddConditional(1, 0, CU_GRAPH_COND_TYPE_WHILE, {1});
    loop.AddEdge(0, 1);
    loop.AddKernel(1, params);
    Post<wire::GraphInstantiate>({wire::GraphId{2}, 0, wire::HostPtr{0}, 0}, 0, loop.Block());
    Turn(6);
    Check(session_->state() == Session::State::kServing);
  }

  // What the loop does, so many times.
  void Turn(int times) {
    for (int i = 0; i < times; ++i) {
      now_ns_ += 2'000'000;
      control::Incoming in;
      bool is_order = false;
      scheduler_->Answer();
      while (link_->Receive(&in, &is_order)) {
      }
      Slice slice(UINT64_MAX);
      modules_.RunFinished(&slice);
      memory_.RunFinished(&slice);
      internal_.Poll();
      if (session_ != nullptr) {
        session_->Read(0, &slice);
        session_->SubmitWaiting(0, &slice);
        session_->Poll(now_ns_, &slice);
        session_->Notify();
      }
      std::vector<Quiet::Party> parties;
      if (session_ != nullptr) parties.push_back(session_->Party());
      quiet_.Tick(now_ns_, parties, false, 2'000'000);
      if (session_ != nullptr) session_->SetHeld(parties[0].held);
    }
  }

  Device device_{TestingDriver::Reset()};
  InternalStream internal_{&device_};
  Staging staging_;
  SharedMemory shared_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<SchedulerLink> link_;
  WorkPool modules_{&device_, 0, -1};
  WorkPool memory_{&device_, 0, -1};
  Quiet quiet_{&modules_};
  const std::shared_ptr<DomainBudget> budget_ =
      std::make_shared<DomainBudget>(DomainBudget::kDefaultBytes);
  ContextMemory context_memory_{1000};
  LibraryCache libraries_{budget_};
  GraphRoom graphs_;
  SpareGreens greens_;
  Printer printer_{&device_, &memory_, nullptr};
  Tenants tenants_;
  DriverRoom room_;
  StandIn stand_in_{[] {}};
  uint64_t now_ns_ = 0;
  uint64_t sessions_ = 0;
  channel::Mapping commands_;
  channel::Mapping completions_;
  channel::UniqueFd doorbell_;
  wire::RingWriter writer_;
  std::unique_ptr<Session> session_;
};

}  // namespace
}  // namespace gpuloom::executor

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpuloom::executor;
  if (size > gpuloom::wire::kRingBytes / 2) return -1;
  SetLogLevel(LogLevel::kNone);
  TestingDriver::Reset();
  static auto* const kHarness = new Harness;
  kHarness->Run(data, size);
  (void)TestingDriver::TakeCalls();
  return 0;
}
