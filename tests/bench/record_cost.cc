// gpuloom-record-cost: for every command, the most time that one record of it costs the executor's ring thread,
// as a table. The real session, dispatcher and workers on the software GPU, and a tenant that has made much:
// thousands of streams, events, kernels, allocations and pinned pages. Each command is sent in its costliest
// valid form, where there is one here, and with every byte of its request and of its longest payload 0xff.
//
//   stretch   the longest time without a look at the other sessions: what a neighbour may have to wait for
//   in all    of the ring thread until nothing of the record is left to do, a session's end included where
//             the record ends it
//
// Times are the thread's own processor time, so a busy machine changes them little. Software streams are locks and
// threads of this process; a GPU's driver takes other times (docs/design/ring-thread.md).
//
//   gpuloom-record-cost [--limit MILLISECONDS]   exit status 1 when some stretch is longer
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "agent/executor/context_memory.h"
#include "agent/executor/device.h"
#include "agent/executor/driver_room.h"
#include "agent/executor/graph.h"
#include "agent/executor/host_budget.h"
#include "agent/executor/internal_stream.h"
#include "agent/executor/library_cache.h"
#include "agent/executor/log.h"
#include "agent/executor/physical_memory.h"
#include "agent/executor/printer.h"
#include "agent/executor/quiet.h"
#include "agent/executor/scheduler_link.h"
#include "agent/executor/session.h"
#include "agent/executor/spare_greens.h"
#include "agent/executor/staging.h"
#include "agent/executor/stand_in.h"
#include "agent/executor/tenant.h"
#include "agent/executor/testing_graph.h"
#include "agent/executor/work_pool.h"
#include "proto/channel/socket.h"
#include "proto/wire/completion_reader.h"
#include "proto/wire/ring_writer.h"

namespace gpuloom::executor {
namespace {

constexpr uint64_t kDeviceBegin = 0x5000'0000'0000;
constexpr uint64_t kDeviceBytes = uint64_t{4} << 30;
constexpr uint64_t kHostBegin = 0x5670'0000'0000;
constexpr uint64_t kHostBytes = uint64_t{256} << 20;
constexpr uint64_t kPinned = kHostBegin + (uint64_t{64} << 20);  // pages side by side
constexpr uint32_t kPages = 4096;
constexpr uint32_t kStreams = 4000;
constexpr uint32_t kEvents = 50'000;
constexpr uint32_t kKernels = 50'000;
constexpr uint32_t kSlices = 8000;
constexpr uint32_t kGraphNodes = 20'000;

constexpr std::string_view kProgram =
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 "
    "n) "
    "{ ret; }\n";

void Check(bool ok, int line = __builtin_LINE()) {
  if (ok) return;
  fprintf(stderr, "gpuloom-record-cost: record_cost.cc:%d does not hold\n", line);
  exit(2);
}

uint64_t ProcessorNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

struct Cost {
  uint64_t stretch_ns = 0;
  uint64_t all_ns = 0;
};

// Grants everything, from the software GPU's own memory.
class Granting {
 public:
  Granting(const Driver& cuda, channel::UniqueFd socket)
      : cuda_(cuda), connection_(std::move(socket)) {}

  void Answer() {
    control::Incoming in;
    while (connection_.Receive(&in, 0, MSG_DONTWAIT)) {
      control::MemoryRequest request;
      control::MemoryCharge charge;
      control::MemoryReturn back;
      control::MemoryInfoRequest info;
      if (in.As(&request)) {
        CUmemAllocationProp properties = {};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CUmemGenericAllocationHandle handle = 0;
        int fd = -1;
        Check(cuda_.cuMemCreate(&handle, request.size_bytes, &properties, 0) == CUDA_SUCCESS);
        Check(cuda_.cuMemExportToShareableHandle(
                  &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
        cuda_.cuMemRelease(handle);
        const channel::UniqueFd owned(fd);
        Check(connection_.Send(in.header.request,
                               control::MemoryGranted{request.session_id, ++last_,
                                                      request.size_bytes, CUDA_SUCCESS, 0},
                               &fd, 1));
      } else if (in.As(&charge)) {
        Check(connection_.Send(in.header.request,
                               control::MemoryGranted{charge.session_id, ++last_, charge.size_bytes,
                                                      CUDA_SUCCESS, 0}));
      } else if (in.As(&back)) {
        if (in.header.request != 0) {
          Check(connection_.Send(in.header.request, control::Answer{1, 0, 0, {}}));
        }
      } else if (in.As(&info)) {
        Check(connection_.Send(in.header.request, control::MemoryInfo{info.session_id, 0, 0}));
      }
    }
  }

 private:
  const Driver& cuda_;
  control::Connection connection_;
  uint64_t last_ = 0;
};

// The parts of a loop, whose rounds are made by hand and timed part by part.
class Executor {
 public:
  Executor(const Driver& driver, const std::string& uuid) : device_(driver) {
    std::string error;
    Check(device_.Start(uuid, &error));
    Check(internal_.Start(&error));
    staging_.Start(&device_);
    channel::UniqueFd ours, theirs;
    Check(channel::MakePair(SOCK_SEQPACKET, &ours, &theirs));
    granting_ = std::make_unique<Granting>(device_.cuda(), std::move(ours));
    link_ = std::make_unique<SchedulerLink>(std::move(theirs));
  }
  ~Executor() {
    EndSession();
    modules_.Stop();
    quiet_work_.Stop();
    memory_.Stop();
    quiet_.Close();
  }

  void BeginSession() {
    EndSession();
    control::AddSession order{};
    order.session_id = ++sessions_;
    order.device_range_begin = kDeviceBegin;
    order.device_range_bytes = kDeviceBytes;
    order.device_own_bytes = kDeviceBytes / 2;
    order.host_range_begin = kHostBegin;
    order.host_range_bytes = kHostBytes;
    order.pinned_limit_bytes = kHostBytes;
    order.drain_timeout_ms = 60'000;
    control::SetText(order.label, "bench/record-cost/main");
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
    reader_ = wire::CompletionReader(
        reinterpret_cast<const wire::CompletionRegion*>(completions_.data()));
    std::fill(std::begin(asked_), std::end(asked_), wire::Ticket{0});
    const Place place{&device_,   &modules_, &memory_,   link_.get(), &quiet_,  &libraries_,
                      &internal_, &staging_, &graphs_,   &greens_,    &shared_, &printer_,
                      &tenants_,  &room_,    &stand_in_, budget_,     &context_};
    std::string error;
    session_ = Session::Make(place, order, fds, &error);
    Check(session_ != nullptr);
  }

  Cost EndSession() {
    Cost cost;
    if (session_ == nullptr) return cost;
    Part(&cost, [&] {
      session_->End(wire::Fatal::kNone, NowNs());
      return true;
    });
    while (!session_->Gone()) Round(&cost);
    Part(&cost, [&] {
      session_.reset();
      return true;
    });
    while (!quiet_.empty() || quiet_.Running()) Round(nullptr);
    Settle();  // the arena goes
    commands_.Unmap();
    completions_.Unmap();
    return cost;
  }

  template <wire::Command C>
  void Post(const typename C::Request& request, std::span<const uint8_t> payload = {}) {
    uint8_t* tail = nullptr;
    uint16_t slot = wire::kNoReply;
    if (C::kReply) {
      slot = static_cast<uint16_t>(++slot_ % wire::kReplySlots);
      while (serving() && asked_[slot] != wire::Ticket{0} &&
             reader_.FindReply(slot, asked_[slot]) == nullptr) {
        Round(nullptr);
      }
    }
    typename C::Request* out = nullptr;
    while ((out = writer_.Reserve<C>(static_cast<uint32_t>(payload.size()), &tail, slot)) ==
           nullptr) {
      Check(serving());
      Round(nullptr);
    }
    if constexpr (!std::is_empty_v<typename C::Request>) *out = request;
    if (!payload.empty()) std::memcpy(tail, payload.data(), payload.size());
    const wire::Ticket ticket = writer_.Commit();
    if (C::kReply) asked_[slot] = ticket;
  }

  // Until all is answered, and nothing has happened for a while.
  Cost Settle() {
    Cost cost;
    uint64_t idle_since_ns = NowNs();
    while (Waits() || NowNs() - idle_since_ns < kSettledNs) {
      if (Round(&cost)) idle_since_ns = NowNs();
    }
    return cost;
  }

  wire::Fatal fatal() const { return reader_.fatal(); }
  bool serving() const { return session_->state() == Session::State::kServing; }

 private:
  // What a worker may take before it says anything.
  static constexpr uint64_t kSettledNs = 4'000'000;
  static constexpr uint64_t kSliceNs = 200'000;

  // For an answer.
  bool Waits() const {
    if (session_ == nullptr || !serving()) return false;
    for (uint16_t slot = 0; slot < wire::kReplySlots; ++slot) {
      if (asked_[slot] != wire::Ticket{0} && reader_.FindReply(slot, asked_[slot]) == nullptr) {
        return true;
      }
    }
    return false;
  }

  template <typename F>
  bool Part(Cost* cost, F part) {
    const uint64_t begin_ns = ProcessorNs();
    const bool worked = part();
    const uint64_t took_ns = ProcessorNs() - begin_ns;
    if (cost != nullptr && worked) {
      cost->stretch_ns = std::max(cost->stretch_ns, took_ns);
      cost->all_ns += took_ns;
    }
    return worked;
  }

  bool Round(Cost* cost) {
    granting_->Answer();
    bool worked = false;
    control::Incoming in;
    bool is_order = false;
    while (Part(cost, [&] { return link_->Receive(&in, &is_order); })) worked = true;
    for (WorkPool* pool : {&modules_, &quiet_work_, &memory_}) {
      worked |= Part(cost, [&] {
        Slice slice(kSliceNs);
        return pool->RunFinished(&slice);
      });
    }
    worked |= Part(cost, [&] { return internal_.Poll(); });
    if (session_ == nullptr) return worked | Quieten(cost);
    worked |= Part(cost, [&] {
      Slice slice(kSliceNs);
      return session_->Read(NowNs(), &slice);
    });
    worked |= Part(cost, [&] {
      Slice slice(kSliceNs);
      return session_->SubmitWaiting(NowNs(), &slice);
    });
    worked |= Part(cost, [&] {
      Slice slice(kSliceNs);
      return session_->Poll(NowNs(), &slice);
    });
    session_->Notify();
    return worked | Quieten(cost);
  }

  bool Quieten(Cost* cost) {
    return Part(cost, [&] {
      std::vector<Quiet::Party> parties;
      if (session_ != nullptr) parties.push_back(session_->Party());
      const bool begun = quiet_.Tick(NowNs(), parties, !internal_.Idle(), 2'000'000);
      if (session_ != nullptr) session_->SetHeld(parties[0].held);
      return begun;
    });
  }

  Device device_;
  InternalStream internal_{&device_};
  Staging staging_;
  SharedMemory shared_;
  Tenants tenants_;
  std::unique_ptr<Granting> granting_;
  std::unique_ptr<SchedulerLink> link_;
  const channel::UniqueFd wake_{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  WorkPool modules_{&device_, 2, wake_.get()};
  WorkPool memory_{&device_, 1, wake_.get()};
  WorkPool quiet_work_{&device_, 1, wake_.get()};
  Quiet quiet_{&quiet_work_};
  DriverRoom room_;
  StandIn stand_in_{[] {}};
  const std::shared_ptr<DomainBudget> budget_ =
      std::make_shared<DomainBudget>(DomainBudget::kDefaultBytes);
  ContextMemory context_{device_.ResidentThreads()};
  LibraryCache libraries_{budget_};
  GraphRoom graphs_;
  SpareGreens greens_;
  Printer printer_{&device_, &memory_, nullptr};
  channel::Mapping commands_;
  channel::Mapping completions_;
  channel::UniqueFd doorbell_;
  wire::RingWriter writer_;
  wire::CompletionReader reader_;
  wire::Ticket asked_[wire::kReplySlots] = {};
  uint32_t slot_ = 0;
  uint64_t sessions_ = 0;
  std::unique_ptr<Session> session_;
};

// What a tenant may have made, and the costliest record of each command to it.
class Forms {
 public:
  explicit Forms(Executor* executor) : executor_(executor) {
    using namespace wire;  // NOLINT: nothing else is spoken of here
    const uint8_t params[12] = {};
    params_.assign(params, params + sizeof(params));
    const auto graph = [this](uint32_t nodes) {
      TestingGraph made;
      for (uint32_t i = 0; i < nodes; ++i) made.AddKernel(1, params_);
      for (uint32_t i = 1; i < nodes; ++i) made.AddEdge(i - 1, i);
      return made.Block();
    };
    large_graph_ = graph(kGraphNodes);
    small_graph_ = graph(64);
    Add<LibraryLoad>([=, this] {
      Arena(48u << 20);
      Post<LibraryLoad>({LibraryId{77}, 0, HostPtr{kHostBegin}, 48u << 20});
    });
    Add<LibraryUnload>([=, this] { Post<LibraryUnload>({LibraryId{1}}); });
    Add<LibraryKernels>([=, this] { Post<LibraryKernels>({LibraryId{1}, 0}); });
    Add<KernelGet>([=, this] {
      Post<KernelGet>({LibraryId{1}, KernelId{kKernels + 9}},
                      Bytes(std::string(kMaxNameBytes, 'k')));
    });
    Add<GlobalGet>(
        [=, this] { Post<GlobalGet>({LibraryId{1}}, Bytes(std::string(kMaxNameBytes, 'g'))); });
    Add<MemAlloc>([=, this] { Post<MemAlloc>({1000}); });
    Add<MemFree>([=, this] { Post<MemFree>({DevicePtr{kDeviceBegin}}); });
    Add<MemFreeLater>([=, this] { Post<MemFreeLater>({DevicePtr{kDeviceBegin}}); });
    Add<MemInfo>([=, this] { Post<MemInfo>({}); });
    Add<HostRegister>([=, this] {
      std::memset(reinterpret_cast<void*>(kHostBegin), 1, 32u << 20);
      Post<HostRegister>({HostPtr{kHostBegin}, 32u << 20});
    });
    Add<HostUnregister>([=, this] { Post<HostUnregister>({HostPtr{kPinned}, kPageBytes}); });
    Add<Copy>([=, this] {
      Post<Copy>({kLegacyStream, CopyKind::kHostToHost, kPinned + kPageBytes, kPinned + kPageBytes,
                  (kPages - 1) * kPageBytes});
    });
    Add<CopyInline>([=, this] {
      Post<CopyInline>({kLegacyStream, 0, DevicePtr{large_}},
                       std::vector<uint8_t>(kMaxInlineCopyBytes));
    });
    Add<Fill>([=, this] { Post<Fill>({kLegacyStream, 1, 0, 0, large_, 1u << 20}); });
    Add<Launch>([=, this] {
      Post<Launch>({kLegacyStream, KernelId{1}, {1, 1, 1}, {1, 1, 1}, 0, 0}, params_);
    });
    Add<StreamCreate>([=, this] { Post<StreamCreate>({StreamId{kStreams + 5}, 0, 0}); });
    // Behind every blocking stream.
    Add<StreamMark>([=, this] {
      for (uint32_t id = 1; id < kStreams; ++id) Post<StreamMark>({StreamId{id}});
      Post<StreamMark>({kLegacyStream});
    });
    Add<StreamDestroy>([=, this] { Post<StreamDestroy>({StreamId{7}}); });
    Add<EventCreate>([=, this] { Post<EventCreate>({EventId{kEvents + 9}, 1}); });
    Add<EventDestroy>([=, this] { Post<EventDestroy>({EventId{5}}); });
    Add<EventRecord>([=, this] { Post<EventRecord>({EventId{5}, kLegacyStream}); });
    Add<StreamWaitEvent>([=, this] { Post<StreamWaitEvent>({kLegacyStream, EventId{5}}); });
    Add<EventElapsed>([=, this] { Post<EventElapsed>({EventId{5}, EventId{6}}); });
    Add<EventShare>([=, this] { Post<EventShare>({EventId{kEvents}}); });
    Add<EventDone>([=, this] { Post<EventDone>({EventId{5}, 1}); });
    Add<GraphInstantiate>([=, this] {
      std::memcpy(reinterpret_cast<void*>(kHostBegin), large_graph_.data(), large_graph_.size());
      Post<GraphInstantiate>({GraphId{77}, 0, HostPtr{kHostBegin}, large_graph_.size()});
    });
    Add<GraphUpdate>([=, this] {
      TestingGraph update;
      for (uint32_t i = 0; i < 16; ++i) update.AddKernel(1, params_);
      Post<GraphUpdate>({GraphId{1}, 0, HostPtr{0}, 0}, update.Block());
    });
    Add<GraphLaunch>([=, this] { Post<GraphLaunch>({GraphId{1}, kLegacyStream}); });
    Add<GraphUpload>([=, this] { Post<GraphUpload>({GraphId{1}, kLegacyStream}); });
    Add<GraphDestroy>([=, this] { Post<GraphDestroy>({GraphId{2}}); });
    Add<AddressSpace>([=, this] { Post<AddressSpace>({}); });
    Add<HostFunction>([=, this] { Post<HostFunction>({1, kLegacyStream, 0}); });
    Add<ArrayCreate>([=, this] {
      Post<ArrayCreate>({ArrayId{1}, 0, 1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0, 0});
    });
  }

  bool Has(std::string_view command) const { return forms_.count(command) != 0; }
  void Send(std::string_view command) const { forms_.at(command)(); }
  // What the other forms need.
  static bool TakesAway(std::string_view command) {
    return command == wire::LibraryUnload::kName || command == wire::HostFunction::kName;
  }

  void SetUp() {
    using namespace wire;  // NOLINT
    std::memcpy(reinterpret_cast<void*>(kHostBegin), kProgram.data(), kProgram.size());
    Post<LibraryLoad>({LibraryId{1}, 0, HostPtr{kHostBegin}, kProgram.size()});
    executor_->Settle();
    for (uint32_t id = 1; id <= kKernels; ++id)
      Post<KernelGet>({LibraryId{1}, KernelId{id}}, Bytes("k"));
    for (uint32_t id = 1; id < kStreams; ++id) Post<StreamCreate>({StreamId{id}, 0, 0});
    for (uint32_t id = 1; id <= kEvents; ++id) Post<EventCreate>({EventId{id}, 1});
    for (uint32_t id = 5; id <= 6; ++id) Post<EventRecord>({EventId{id}, kLegacyStream});
    for (uint32_t id = 100; id < 20'100; ++id) Post<EventShare>({EventId{id}});
    for (uint32_t i = 0; i < kSlices; ++i) Post<MemAlloc>({600});
    // Holes everywhere: the slices lie one after the other.
    for (uint32_t i = 1; i < kSlices; i += 2)
      Post<MemFreeLater>({DevicePtr{kDeviceBegin + i * 1024}});
    executor_->Settle();
    Post<MemAlloc>({64u << 20});
    executor_->Settle();
    large_ = kDeviceBegin + (uint64_t{2} << 20) * ((kSlices * 1024 + (2u << 20) - 1) >> 21);
    std::memset(reinterpret_cast<void*>(kPinned), 1, kPages * kPageBytes);
    for (uint32_t i = 0; i < kPages; ++i)
      Post<HostRegister>({HostPtr{kPinned + i * kPageBytes}, kPageBytes});
    Post<GraphInstantiate>({GraphId{1}, 0, HostPtr{0}, 0}, small_graph_);
    executor_->Settle();
    Check(executor_->serving());
    std::memcpy(reinterpret_cast<void*>(kHostBegin), large_graph_.data(), large_graph_.size());
    Post<GraphInstantiate>({GraphId{2}, 0, HostPtr{kHostBegin}, large_graph_.size()});
    executor_->Settle();
    Check(executor_->serving());
  }

 private:
  template <wire::Command C>
  void Add(std::function<void()> form) {
    forms_.emplace(C::kName, std::move(form));
  }
  template <wire::Command C>
  void Post(const typename C::Request& request, std::span<const uint8_t> payload = {}) {
    executor_->Post<C>(request, payload);
  }
  static std::vector<uint8_t> Bytes(std::string_view text) { return {text.begin(), text.end()}; }
  static void Arena(uint64_t bytes) { std::memset(reinterpret_cast<void*>(kHostBegin), 7, bytes); }

  Executor* const executor_;
  std::map<std::string_view, std::function<void()>> forms_;
  std::vector<uint8_t> params_;
  std::vector<uint8_t> large_graph_;
  std::vector<uint8_t> small_graph_;
  uint64_t large_ = 0;  // an allocation of its own
};

template <wire::Command C>
void PostGarbage(Executor* executor) {
  typename C::Request request;
  std::memset(static_cast<void*>(&request), 0xff, sizeof(request));
  executor->Post<C>(request, std::vector<uint8_t>(wire::MaxPayloadBytes<C>(), 0xff));
}

template <wire::Command... Cs>
std::vector<void (*)(Executor*)> GarbageOf(wire::CommandList<Cs...>) {
  return {&PostGarbage<Cs>...};
}

void Print(const Cost& cost) {
  printf(" %9.3f %9.3f", static_cast<double>(cost.stretch_ns) / 1e6,
         static_cast<double>(cost.all_ns) / 1e6);
}

int Main(double limit_ms) {
  Driver driver;
  std::string error;
  Check(Load(GPULOOM_SOFTGPU_LIBRARY, &driver, &error));
  Check(driver.cuInit(0) == CUDA_SUCCESS);
  CUuuid bytes;
  Check(driver.cuDeviceGetUuid_v2(&bytes, 0) == CUDA_SUCCESS);
  std::string uuid = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(bytes.bytes[i]));
    uuid += hex;
    if (i == 3 || i == 5 || i == 7 || i == 9) uuid += '-';
  }
  SetLogLevel(LogLevel::kNone);
  Executor executor(driver, uuid);
  Forms forms(&executor);
  const auto garbage = GarbageOf(wire::AllCommands{});
  std::vector<Cost> costs;
  for (const auto& send : garbage) {
    executor.BeginSession();
    send(&executor);
    costs.push_back(executor.Settle());
  }
  Cost worst;
  printf("%-24s %19s   %19s\n%-24s %9s %9s   %9s %9s\n", "", "costliest valid, ms", "garbage, ms",
         "command", "stretch", "in all", "stretch", "in all");
  executor.BeginSession();
  forms.SetUp();
  for (size_t opcode = 0; opcode < wire::kCommands.size(); ++opcode) {
    const std::string_view name = wire::kCommands[opcode].name;
    printf("%-24.*s", static_cast<int>(name.size()), name.data());
    if (forms.Has(name)) {
      forms.Send(name);
      const Cost cost = executor.Settle();
      worst.stretch_ns = std::max(worst.stretch_ns, cost.stretch_ns);
      Print(cost);
    } else {
      printf(" %9s %9s", "-", "-");
    }
    printf("  ");
    worst.stretch_ns = std::max(worst.stretch_ns, costs[opcode].stretch_ns);
    Print(costs[opcode]);
    if (forms.Has(name) && !executor.serving()) {
      printf("  the valid form was refused: %s", wire::FatalText(executor.fatal()).data());
    }
    printf("\n");
    fflush(stdout);
    if (!executor.serving() || forms.TakesAway(name)) {
      executor.BeginSession();
      forms.SetUp();
    }
  }
  const Cost end = executor.EndSession();
  worst.stretch_ns = std::max(worst.stretch_ns, end.stretch_ns);
  printf("%-24s", "the session's end");
  Print(end);
  printf("\n");
  const double worst_ms = static_cast<double>(worst.stretch_ns) / 1e6;
  printf("longest stretch %.3f ms\n", worst_ms);
  return limit_ms > 0 && worst_ms > limit_ms ? 1 : 0;
}

}  // namespace
}  // namespace gpuloom::executor

int main(int argc, char** argv) {
  const bool limited = argc == 3 && strcmp(argv[1], "--limit") == 0;
  if (argc != 1 && !limited) {
    fprintf(stderr, "usage: gpuloom-record-cost [--limit MILLISECONDS]\n");
    return 2;
  }
  const int status = gpuloom::executor::Main(limited ? atof(argv[2]) : 0);
  fflush(stdout);
  // Without destructors: the software GPU's threads are its own.
  _exit(status);
}
