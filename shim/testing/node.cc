// SPDX-License-Identifier: Apache-2.0
#include "shim/testing/node.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <type_traits>

#include "proto/channel/socket.h"
#include "proto/cuda/cuda_all.h"
#include "proto/cuda/image_hash.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

// Addresses where nothing lies and nothing will: well below where this process maps its memory, and
// others for every node. (Sanitizers leave no other part of the address space to programs, and
// ThreadSanitizer half a TiB of it: where it ends, an address is taken for 0.)
uint64_t FindFreeAddresses(uint64_t size_bytes) {
  constexpr uint64_t kDistanceBytes = uint64_t{100} << 30;
  // Once: the next place for a mapping goes up and down, and what was given out stays taken.
  static const uint64_t base = [] {
    void* place = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(place, 4096);
    return (reinterpret_cast<uint64_t>(place) & ~((uint64_t{1} << 30) - 1)) - kDistanceBytes;
  }();
  static std::atomic<uint64_t> used_bytes{0};
  return base - used_bytes.fetch_add(size_bytes);
}

template <typename T, typename... Ts>
constexpr bool IsOneOf = (std::is_same_v<T, Ts> || ...);

template <typename Condition>
void Await(Condition condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

void TestingNode::TakeOtherAddresses() {
  const uint64_t addresses = FindFreeAddresses(kDeviceBytes + kHostBytes);
  const MutexLock lock(mutex_);
  welcome_.device_range_begin = addresses;
  welcome_.host_range_begin = addresses + kDeviceBytes;
}

class TestingNode::Ring {
 public:
  explicit Ring(const wire::Welcome& welcome)
      : welcome_(welcome),
        commands_fd_(channel::MakeSealedMemory("commands", sizeof(wire::CommandRegion))),
        completions_fd_(channel::MakeSealedMemory("completions", sizeof(wire::CompletionRegion))),
        arena_fd_(channel::MakeSealedMemory("arena", kHostBytes)) {
    using Access = channel::Mapping::Access;
    if (!commands_map_.Map(commands_fd_.get(), sizeof(wire::CommandRegion), Access::kReadOnly) ||
        !completions_map_.Map(completions_fd_.get(), sizeof(wire::CompletionRegion),
                              Access::kReadWrite) ||
        !arena_map_.Map(arena_fd_.get(), kHostBytes, Access::kReadWrite) ||
        !channel::MakePair(SOCK_STREAM, &doorbell_, &tenant_doorbell_)) {
      abort();
    }
    commands_ = reinterpret_cast<const wire::CommandRegion*>(commands_map_.data());
    completions_ = reinterpret_cast<wire::CompletionRegion*>(completions_map_.data());
    reader_ = std::make_unique<wire::RingReader>(commands_, &completions_->head);
    writer_ = std::make_unique<wire::CompletionWriter>(completions_, commands_);
    next_address_ = welcome.device_range_begin;
    thread_ = std::thread([this] {
      Read();
      ended_ = true;
    });
  }
  ~Ring() {
    stop_ = true;
    HangUp();
    thread_.join();
  }

  bool SendWelcome(int connection, size_t welcome_bytes) {
    const channel::UniqueFd read_only = channel::ReopenReadOnly(completions_fd_.get());
    const int fds[wire::kWelcomeFds] = {commands_fd_.get(), read_only.get(), arena_fd_.get(),
                                        tenant_doorbell_.get()};
    std::vector<uint8_t> message(welcome_bytes, 0xaa);
    std::memcpy(message.data(), &welcome_, std::min(welcome_bytes, sizeof(welcome_)));
    const bool sent =
        channel::SendMessage(connection, message.data(), message.size(), fds, wire::kWelcomeFds);
    tenant_doorbell_.Reset();
    return sent;
  }

  void HangUp() { shutdown(doorbell_.get(), SHUT_RDWR); }

  std::vector<Seen> seen() {
    const MutexLock lock(mutex_);
    return seen_;
  }
  std::vector<std::vector<uint8_t>> images() {
    const MutexLock lock(mutex_);
    return images_;
  }
  // Once it stands still, awake, or reads again.
  void set_paused(bool paused) {
    paused_ = paused;
    Await([&] { return ended_ || stands_ == paused; });
  }
  void set_held(bool held) {
    const MutexLock lock(mutex_);
    held_ = held;
    if (held) return;
    for (const auto& [stream, ticket] : held_back_) writer_->PublishCompleted(stream, ticket);
    held_back_.clear();
    for (const wire::Record& record : unmaps_) Reply<wire::MemUnmap>(record, CUDA_SUCCESS, {});
    unmaps_.clear();
    Wake();
  }
  bool tenant_sleeps() const { return writer_->TenantSleeps(); }
  // Whether the tenant waits for room, or will after another launch or two: a launch takes a
  // hundred bytes.
  bool is_full() const {
    auto& tail = const_cast<uint32_t&>(commands_->head.tail);
    auto& head = completions_->head.head;
    const uint32_t used_bytes = std::atomic_ref<uint32_t>(tail).load(std::memory_order_acquire) -
                                std::atomic_ref<uint32_t>(head).load(std::memory_order_acquire);
    return wire::kRingBytes - used_bytes < 512;
  }
  void PublishFault(uint32_t code) {
    writer_->PublishFault(code);
    Wake();
  }
  void PublishAsyncError(uint32_t code) { writer_->PublishAsyncError(code); }
  void PublishEventsDone() {
    const MutexLock lock(mutex_);
    events_done_ = true;
    for (const wire::Record& record : event_waits_) {
      Reply<wire::EventDone>(record, CUDA_SUCCESS, {});
    }
    Wake();
  }
  void PublishFatal(wire::Fatal fatal) {
    std::atomic_ref<uint32_t>(completions_->head.fatal).store(static_cast<uint32_t>(fatal));
    Wake();
  }
  void AnswerLoadWith(uint32_t result, std::string log, uint32_t managed_bytes) {
    const MutexLock lock(mutex_);
    load_result_ = result;
    load_log_ = std::move(log);
    managed_bytes_ = managed_bytes;
  }

  // Handlers; the mutex is held.
  void On(wire::Tag<wire::LibraryLoad>, const wire::LibraryLoad::Request& r,
          const wire::Record& record) {
    const uint8_t* image = Host(static_cast<uint64_t>(r.image));
    images_.emplace_back(image, image + r.image_bytes);
    known_.push_back(HashImage(image, r.image_bytes));
    Reply<wire::LibraryLoad>(
        record, load_result_, {3, managed_bytes_},
        {reinterpret_cast<const uint8_t*>(load_log_.data()), load_log_.size()});
  }
  void On(wire::Tag<wire::LibraryCompile>, const wire::LibraryCompile::Request& r,
          const wire::Record& record) {
    const uint8_t* image = Host(static_cast<uint64_t>(r.image));
    images_.emplace_back(image, image + r.image_bytes);
    wire::LibraryCompile::Reply reply = {};
    reply.result = load_result_;
    reply.kernel_count = 3;
    // It says nothing but errors.
    reply.report.error_bytes =
        static_cast<uint32_t>(std::min<size_t>(load_log_.size(), r.error_capacity_bytes));
    std::memcpy(Host(static_cast<uint64_t>(r.texts)) + r.info_capacity_bytes, load_log_.data(),
                reply.report.error_bytes);
    Reply<wire::LibraryCompile>(record, CUDA_SUCCESS, reply);
  }
  void On(wire::Tag<wire::LibrarySizeKnown>, const wire::LibrarySizeKnown::Request& r,
          const wire::Record& record) {
    const bool known = std::any_of(images_.begin(), images_.end(), [&r](const auto& image) {
      return image.size() == r.image_bytes;
    });
    Reply<wire::LibrarySizeKnown>(record, CUDA_SUCCESS, {known ? 1u : 0u, 0});
  }
  void On(wire::Tag<wire::LibraryLoadByHash>, const wire::LibraryLoadByHash::Request& r,
          const wire::Record& record) {
    const ImageHash hash = {{r.hash[0], r.hash[1], r.hash[2], r.hash[3]}};
    const bool known = std::find(known_.begin(), known_.end(), hash) != known_.end();
    Reply<wire::LibraryLoadByHash>(record, CUDA_SUCCESS, {known ? 3u : 0u, known ? 1u : 0u});
  }
  void On(wire::Tag<wire::ManagedSpace>, const wire::ManagedSpace::Request&,
          const wire::Record& record) {
    Reply<wire::ManagedSpace>(record, 0,
                              {welcome_.host_range_begin + kHostBytes / 4 * 3, kHostBytes / 4});
  }
  void On(wire::Tag<wire::ManagedGet>, const wire::ManagedGet::Request&,
          const wire::Record& record) {
    Reply<wire::ManagedGet>(record, CUDA_ERROR_NOT_FOUND, {});
  }
  void On(wire::Tag<wire::LibraryUnload>, const wire::LibraryUnload::Request&,
          const wire::Record& record) {
    Reply<wire::LibraryUnload>(record, 0, {});
  }
  void On(wire::Tag<wire::KernelGet>, const wire::KernelGet::Request&, const wire::Record& record) {
    const std::string name(record.payload.begin(), record.payload.end());
    wire::KernelGet::Reply reply = {};
    reply.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 512;
    reply.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 48 << 10;
    reply.attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE] = wire::kNoAttribute;
    std::vector<wire::KernelParam> params;
    if (name == "missing") return Reply<wire::KernelGet>(record, CUDA_ERROR_NOT_FOUND, reply);
    if (name == "int_pointer_struct") params = {{0, 4}, {8, 8}, {16, 12}};
    if (name == "two_pointers_two_ints") params = {{0, 8}, {8, 8}, {16, 4}, {20, 4}};
    if (name.starts_with("system_atomics")) reply.system_atomics = 1;
    for (uint32_t i = 0; name == "many" && i < 600; ++i) params.push_back({i * 4, 4});
    reply.param_count = static_cast<uint32_t>(params.size());
    reply.param_bytes = params.empty() ? 0 : params.back().offset_bytes + params.back().size_bytes;
    Reply<wire::KernelGet>(record, 0, reply,
                           {reinterpret_cast<const uint8_t*>(params.data()),
                            params.size() * sizeof(wire::KernelParam)});
  }
  void On(wire::Tag<wire::KernelParams>, const wire::KernelParams::Request& r,
          const wire::Record& record) {
    std::vector<wire::KernelParam> params;
    for (uint32_t i = r.first; i < 600; ++i) params.push_back({i * 4, 4});
    Reply<wire::KernelParams>(record, 0, {},
                              {reinterpret_cast<const uint8_t*>(params.data()),
                               params.size() * sizeof(wire::KernelParam)});
  }
  void On(wire::Tag<wire::LibraryKernels>, const wire::LibraryKernels::Request& r,
          const wire::Record& record) {
    // More than one answer holds.
    std::string names = "int_pointer_struct" + std::string(1, '\0');
    names += std::string(5000, 'x') + std::string(1, '\0');
    Reply<wire::LibraryKernels>(record, 0, {2, static_cast<uint32_t>(names.size())},
                                {reinterpret_cast<const uint8_t*>(names.data()) + r.offset_bytes,
                                 std::min<size_t>(names.size() - r.offset_bytes, 4096)});
  }
  void On(wire::Tag<wire::OccupancyClusters>, const wire::OccupancyClusters::Request&,
          const wire::Record& record) {
    Reply<wire::OccupancyClusters>(record, 0, {4});
  }
  void On(wire::Tag<wire::ContextSetLimit>, const wire::ContextSetLimit::Request& r,
          const wire::Record& record) {
    Reply<wire::ContextSetLimit>(record, r.value > 1u << 20 ? CUDA_ERROR_OUT_OF_MEMORY : 0, {});
  }
  void On(wire::Tag<wire::ReferenceGet>, const wire::ReferenceGet::Request&,
          const wire::Record& record) {
    wire::ReferenceGet::Reply reply = {};
    reply.format = CU_AD_FORMAT_FLOAT;
    reply.channels = 1;
    Reply<wire::ReferenceGet>(record, CUDA_SUCCESS, reply);
  }
  void On(wire::Tag<wire::PartGet>, const wire::PartGet::Request&, const wire::Record& record) {
    Reply<wire::PartGet>(record, CUDA_SUCCESS, {{132, 8, 8, 0}});
  }
  void On(wire::Tag<wire::PartSplit>, const wire::PartSplit::Request&, const wire::Record& record) {
    Reply<wire::PartSplit>(record, CUDA_SUCCESS, {1, 0, {16, 0, 0, 0}, {116, 0, 0, 0}});
  }
  void On(wire::Tag<wire::GreenCreate>, const wire::GreenCreate::Request&,
          const wire::Record& record) {
    Reply<wire::GreenCreate>(record, CUDA_SUCCESS, {{16, 8, 8, 0}});
  }
  void On(wire::Tag<wire::ArrayCreate>, const wire::ArrayCreate::Request& r,
          const wire::Record& record) {
    Reply<wire::ArrayCreate>(record, CUDA_SUCCESS, {r.levels, 0});
  }
  void On(wire::Tag<wire::TextureCreate>, const wire::TextureCreate::Request&,
          const wire::Record& record) {
    Reply<wire::TextureCreate>(record, CUDA_SUCCESS, {++last_view_});
  }
  void On(wire::Tag<wire::SurfaceCreate>, const wire::SurfaceCreate::Request&,
          const wire::Record& record) {
    Reply<wire::SurfaceCreate>(record, CUDA_SUCCESS, {++last_view_});
  }
  // Succeed, and have nothing to say.
  template <wire::Command C>
  static constexpr bool kSucceeds =
      IsOneOf<C, wire::ArrayDestroy, wire::EventOpen, wire::GreenStreamCreate, wire::HostRegister,
              wire::GraphInstantiate, wire::GraphUpdate, wire::HostUnregister, wire::LibraryPlace,
              wire::LibraryPlaceApart, wire::LinkCreate, wire::LinkDestroy, wire::ManagedMap,
              wire::ManagedUnmap, wire::MemMap, wire::MemSetAccess, wire::PhysicalCreate,
              wire::PhysicalRelease, wire::StreamCreate, wire::SurfaceDestroy,
              wire::TextureDestroy>;
  // Other commands are not served here: their tests run on the executor.
  template <wire::Command C>
  void On(wire::Tag<C>, const typename C::Request& r, const wire::Record& record) {
    if constexpr (C::kReply) {
      Reply<C>(record, kSucceeds<C> ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED, {});
    } else if constexpr (requires { r.stream; }) {
      Complete(r.stream, record);
    }
  }
  void On(wire::Tag<wire::GlobalGet>, const wire::GlobalGet::Request&, const wire::Record& record) {
    memory_[kGlobalAddress].resize(64);
    Reply<wire::GlobalGet>(record, 0, {wire::DevicePtr{kGlobalAddress}, 64});
  }
  void On(wire::Tag<wire::KernelSetAttribute>, const wire::KernelSetAttribute::Request& r,
          const wire::Record& record) {
    wire::KernelSetAttribute::Reply reply = {};
    reply.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 512;
    reply.attributes[r.attribute] = r.value;
    Reply<wire::KernelSetAttribute>(record, 0, reply);
  }
  void On(wire::Tag<wire::OccupancyBlocks>, const wire::OccupancyBlocks::Request& r,
          const wire::Record& record) {
    Reply<wire::OccupancyBlocks>(record, 0, {1024 / r.block_threads});
  }
  void On(wire::Tag<wire::OccupancySharedMemory>, const wire::OccupancySharedMemory::Request&,
          const wire::Record& record) {
    Reply<wire::OccupancySharedMemory>(record, 0, {4096});
  }
  void On(wire::Tag<wire::MemAlloc>, const wire::MemAlloc::Request& r, const wire::Record& record) {
    if (r.size_bytes > kDeviceBytes) {
      return Reply<wire::MemAlloc>(record, CUDA_ERROR_OUT_OF_MEMORY, {});
    }
    const uint64_t address = next_address_;
    next_address_ += (r.size_bytes + 511) & ~uint64_t{511};
    memory_[address].resize(r.size_bytes);
    Reply<wire::MemAlloc>(record, 0, {wire::DevicePtr{address}});
  }
  void On(wire::Tag<wire::MemFree>, const wire::MemFree::Request& r, const wire::Record& record) {
    memory_.erase(static_cast<uint64_t>(r.address));
    Reply<wire::MemFree>(record, 0, {});
  }
  // The upper half of the range is for mappings, which are only noted.
  void On(wire::Tag<wire::AddressSpace>, const wire::AddressSpace::Request&,
          const wire::Record& record) {
    Reply<wire::AddressSpace>(record, 0,
                              {welcome_.device_range_begin + kDeviceBytes / 2, kDeviceBytes / 2});
  }
  void On(wire::Tag<wire::PhysicalImport>, const wire::PhysicalImport::Request&,
          const wire::Record& record) {
    Reply<wire::PhysicalImport>(record, 0, {kImportedBytes});
  }
  // Behind all earlier work.
  void On(wire::Tag<wire::MemUnmap>, const wire::MemUnmap::Request&, const wire::Record& record) {
    if (held_) return unmaps_.push_back(record);
    Reply<wire::MemUnmap>(record, CUDA_SUCCESS, {});
  }
  void On(wire::Tag<wire::MemInfo>, const wire::MemInfo::Request&, const wire::Record& record) {
    Reply<wire::MemInfo>(record, 0, {uint64_t{5} << 30, uint64_t{6} << 30});
  }
  void On(wire::Tag<wire::Copy>, const wire::Copy::Request& r, const wire::Record& record) {
    std::memmove(Any(r.destination), Any(r.source), r.size_bytes);
    Complete(r.stream, record);
  }
  void On(wire::Tag<wire::CopyInline>, const wire::CopyInline::Request& r,
          const wire::Record& record) {
    std::memcpy(Any(static_cast<uint64_t>(r.destination)), record.payload.data(),
                record.payload.size());
    Complete(r.stream, record);
  }
  void On(wire::Tag<wire::Fill>, const wire::Fill::Request& r, const wire::Record& record) {
    for (uint64_t i = 0; i < r.count; ++i) {
      std::memcpy(Any(r.destination) + i * r.element_bytes, &r.value, r.element_bytes);
    }
    Complete(r.stream, record);
  }
  void On(wire::Tag<wire::EventCreate>, const wire::EventCreate::Request&, const wire::Record&) {}
  void On(wire::Tag<wire::EventDestroy>, const wire::EventDestroy::Request&, const wire::Record&) {}
  void On(wire::Tag<wire::EventElapsed>, const wire::EventElapsed::Request&,
          const wire::Record& record) {
    constexpr uint32_t kOneAndAHalf = 0x3fc00000;
    Reply<wire::EventElapsed>(record, 0, {kOneAndAHalf});
  }
  void On(wire::Tag<wire::EventDone>, const wire::EventDone::Request& r,
          const wire::Record& record) {
    if (events_done_) return Reply<wire::EventDone>(record, CUDA_SUCCESS, {});
    if (r.wait == 0) return Reply<wire::EventDone>(record, CUDA_ERROR_NOT_READY, {});
    event_waits_.push_back(record);
  }
  void On(wire::Tag<wire::HostFunction>, const wire::HostFunction::Request& r,
          const wire::Record& record) {
    writer_->PublishHostFunction(r.id);
    due_.push_back({r.stream, record.ticket});
  }

 private:
  static constexpr uint64_t kGlobalAddress = 0x7000'0000'0100;

  void Read() {
    wire::Record record;
    while (!stop_) {
      stands_ = paused_.load();
      if (stands_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      FinishHostFunctions();
      const wire::RingReader::Status status = reader_->Next(&record);
      if (status == wire::RingReader::Status::kFatal) {
        Wake();
        return;
      }
      if (status == wire::RingReader::Status::kRecord) {
        const MutexLock lock(mutex_);
        const wire::CommandInfo& info = wire::kCommands[record.opcode];
        seen_.push_back({info.name,
                         record.ticket,
                         {record.request, record.request + info.request_bytes},
                         {record.payload.begin(), record.payload.end()}});
        wire::Dispatch(*this, record);
        Wake();
        continue;
      }
      if (!reader_->AnnounceSleep()) continue;
      FinishHostFunctions();
      pollfd doorbell = {doorbell_.get(), POLLIN, 0};
      poll(&doorbell, 1, 1);  // paused_ rings no bell
      reader_->Awake();
      if (!channel::DrainDoorbell(doorbell_.get())) return;
    }
  }

  void FinishHostFunctions() {
    const MutexLock lock(mutex_);
    for (; host_functions_done_ != writer_->HostFunctionsDoneUntrusted(); ++host_functions_done_) {
      const auto [stream, ticket] = due_[host_functions_done_];
      writer_->PublishCompleted(stream, ticket);
      Wake();
    }
  }
  void Wake() {
    if (writer_->TenantSleeps()) channel::RingDoorbell(doorbell_.get());
  }
  void Complete(wire::StreamId stream, const wire::Record& record) {
    if (held_) {
      held_back_[stream] = record.ticket;
    } else {
      writer_->PublishCompleted(stream, record.ticket);
    }
  }
  template <wire::Command C>
  void Reply(const wire::Record& record, uint32_t result, const typename C::Reply& reply,
             std::span<const uint8_t> payload = {}) {
    writer_->PublishReply<C>(record.reply_slot, record.ticket, result, reply, payload);
  }
  uint8_t* Host(uint64_t address) {
    return arena_map_.data() + (address - welcome_.host_range_begin);
  }
  uint8_t* Any(uint64_t address) {
    if (address - welcome_.host_range_begin < kHostBytes) return Host(address);
    auto it = memory_.upper_bound(address);
    --it;
    return it->second.data() + (address - it->first);
  }

  const wire::Welcome welcome_;
  channel::UniqueFd commands_fd_, completions_fd_, arena_fd_, doorbell_, tenant_doorbell_;
  channel::Mapping commands_map_, completions_map_, arena_map_;
  const wire::CommandRegion* commands_;
  wire::CompletionRegion* completions_;
  std::unique_ptr<wire::RingReader> reader_;
  std::unique_ptr<wire::CompletionWriter> writer_;

  Mutex mutex_;
  std::vector<Seen> seen_;
  std::vector<std::vector<uint8_t>> images_;
  std::vector<ImageHash> known_;
  std::map<uint64_t, std::vector<uint8_t>> memory_;
  uint64_t next_address_;
  uint64_t last_view_ = 0;
  bool events_done_ = false;
  std::vector<wire::Record> event_waits_;
  std::vector<wire::Record> unmaps_;
  bool held_ = false;
  std::map<wire::StreamId, wire::Ticket> held_back_;
  std::vector<std::pair<wire::StreamId, wire::Ticket>> due_;  // host functions, all that ever were
  uint32_t host_functions_done_ = 0;
  uint32_t load_result_ = 0, managed_bytes_ = 0;
  std::string load_log_;

  std::atomic<bool> stop_{false};
  std::atomic<bool> paused_{false}, stands_{false}, ended_{false};
  std::thread thread_;
};

TestingNode::TestingNode() {
  char directory[] = "/tmp/gpuloom-shim-XXXXXX";
  if (mkdtemp(directory) == nullptr) abort();
  directory_ = directory;
  listener_ = channel::ListenAt((directory_ + "/" + wire::kSocketName).c_str());
  if (!listener_.valid() || !channel::MakePair(SOCK_STREAM, &stop_read_, &stop_write_)) abort();
  setenv(wire::kSocketDirVariable, directory_.c_str(), 1);

  welcome_.magic = wire::kHelloMagic;
  welcome_.major = wire::kWireMajor;
  welcome_.minor = wire::kWireMinor;
  welcome_.admission = wire::Admission::kAccepted;
  welcome_.session_id = 7;
  welcome_.device_range_bytes = kDeviceBytes;
  welcome_.host_range_bytes = kHostBytes;
  TakeOtherAddresses();
  welcome_.pinned_limit_bytes = uint64_t{64} << 20;
  wire::DeviceSnapshot& device = welcome_.device;
  device.driver_version = 13000;
  device.pci_domain = 0;
  device.pci_bus = 0x1b;
  device.pci_device = 2;
  strcpy(device.pci_bus_id, "0000:1B:02.0");
  strcpy(device.name, "testing node");
  for (int i = 0; i < 16; ++i) device.uuid[i] = static_cast<uint8_t>(i + 1);
  device.total_memory_bytes = uint64_t{6} << 30;
  device.stream_priority_greatest = -5;
  for (int32_t& attribute : device.attributes) attribute = wire::kNoAttribute;
  const auto set = [&](CUdevice_attribute attribute, int32_t value) {
    device.attributes[attribute] = value;
  };
  for (int i = 0; i < 3; ++i) {
    device.attributes[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i] = i == 2 ? 64 : 1024;
    device.attributes[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i] = i == 0 ? INT32_MAX : 65535;
  }
  set(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024);
  set(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32);
  set(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048);
  set(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4);
  set(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9);
  set(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  thread_ = std::thread([this] { Serve(); });
}

TestingNode::~TestingNode() {
  stop_write_.Reset();
  thread_.join();
  unlink((directory_ + "/" + wire::kSocketName).c_str());
  rmdir(directory_.c_str());
}

void TestingNode::Serve() {
  for (;;) {
    pollfd ready[2] = {{listener_.get(), POLLIN, 0}, {stop_read_.get(), POLLIN, 0}};
    poll(ready, 2, -1);
    if (ready[1].revents != 0) return;
    channel::UniqueFd tenant(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!tenant.valid()) continue;
    ++connections_;
    wire::Hello hello;
    if (channel::ReceiveMessage(tenant.get(), &hello, sizeof(hello)) != sizeof(hello)) continue;
    const MutexLock lock(mutex_);
    hello_ = hello;
    if (welcome_.admission == wire::Admission::kAccepted) {
      ring_ = std::make_unique<Ring>(welcome_);
      (void)ring_->SendWelcome(tenant.get(), welcome_bytes);
    } else {
      (void)channel::SendMessage(tenant.get(), &welcome_, sizeof(welcome_));
    }
    tenants_.push_back(std::move(tenant));
  }
}

std::vector<TestingNode::Seen> TestingNode::seen(std::string_view name) {
  const MutexLock lock(mutex_);
  std::vector<Seen> found;
  if (ring_ == nullptr) return found;
  for (const Seen& one : ring_->seen()) {
    if (name.empty() || one.name == name) found.push_back(one);
  }
  return found;
}
void TestingNode::WaitForCount(std::string_view name, size_t wanted) {
  Await([&] { return count(name) >= wanted; });
}
void TestingNode::PauseReading(bool pause) { ring_->set_paused(pause); }
void TestingNode::HoldCompletions(bool hold) { ring_->set_held(hold); }
void TestingNode::WaitForSleeper() {
  Await([&] { return ring_->tenant_sleeps(); });
}
void TestingNode::WaitForFullRing() {
  Await([&] { return ring_->is_full(); });
}
void TestingNode::PublishFault(uint32_t code) { ring_->PublishFault(code); }
void TestingNode::PublishAsyncError(uint32_t code) { ring_->PublishAsyncError(code); }
void TestingNode::PublishEventsDone() { ring_->PublishEventsDone(); }
void TestingNode::PublishFatal(wire::Fatal fatal) { ring_->PublishFatal(fatal); }
void TestingNode::HangUpDoorbell() { ring_->HangUp(); }
void TestingNode::HangUpConnection() {
  const MutexLock lock(mutex_);
  for (channel::UniqueFd& tenant : tenants_) shutdown(tenant.get(), SHUT_RDWR);
}
void TestingNode::AnswerLoadWith(uint32_t result, std::string log, uint32_t managed_bytes) {
  ring_->AnswerLoadWith(result, std::move(log), managed_bytes);
}
std::vector<std::vector<uint8_t>> TestingNode::images() { return ring_->images(); }

}  // namespace gpuloom
