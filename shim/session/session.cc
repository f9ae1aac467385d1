// SPDX-License-Identifier: Apache-2.0
#include "shim/session/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/resource.h>

#include <algorithm>
#include <new>
#include <utility>

#include "proto/cuda/return_if_error.h"
#include "shim/session/door.h"

namespace gpuloom {

constinit Session session;

namespace {

// Starting an executor takes about a second; after this time the program gets an error with a reason.
constexpr time_t kWelcomeTimeoutSeconds = 120;
// Several times the size of today's message, for fields that later versions append.
constexpr size_t kMaxWelcomeBytes = 16 << 10;
static_assert(sizeof(wire::Welcome) * 4 <= kMaxWelcomeBytes);

// Settings are words, in any case; a variable that is not set is none of them.
bool SameText(const char* a, const char* b) { return a != nullptr && strcasecmp(a, b) == 0; }

// A program may name a device by the beginning of its UUID. "GPU-" alone would name every device.
bool BeginsUuid(const char* text, size_t length, const uint8_t (&uuid)[16]) {
  char full[kUuidTextBytes];
  WriteUuid(uuid, full);
  return length > 4 && length <= strlen(full) && strncasecmp(text, full, length) == 0;
}

Settings ReadSettings(const wire::DeviceSnapshot& device) {
  Settings settings;
  settings.runtime_handshake = !SameText(getenv("GPULOOM_RUNTIME_HANDSHAKE"), "off");
  settings.eager_modules = SameText(getenv("CUDA_MODULE_LOADING"), "EAGER");
  settings.managed_migrates = !SameText(getenv("GPULOOM_MANAGED_MEMORY"), "host");
  if (const char* threads = getenv("GPULOOM_COPY_THREADS"); threads != nullptr) {
    settings.copy_threads = atoi(threads);
  }
  // Only the first entry can name our device: there is one, and CUDA ignores all entries from the
  // first invalid one on.
  if (const char* visible = getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr) {
    const size_t first = strcspn(visible, ",");
    settings.device_visible =
        (first == 1 && visible[0] == '0') || BeginsUuid(visible, first, device.uuid);
  }
  return settings;
}

// A tenant that connects while its domain's executor is dying is turned away; the scheduler starts
// another executor for the next one.
constexpr int kAttachTries = 3;

}  // namespace

// The states are checked twice: outside the lock for the many calls that find the session there,
// and inside it because another thread may have attached meanwhile. kForked never ends, so it needs
// no second look.
CUresult Session::Attach() {
  const State state = this->state();
  if (state == State::kAttached || state == State::kInitialized) return CUDA_SUCCESS;
  if (state == State::kForked) return CUDA_ERROR_NOT_INITIALIZED;
  Holding holding(&attach_lock_);
  if (this->state() != State::kFresh) return CUDA_SUCCESS;
  // Before the first try, which a fork of another thread may fall into.
  if (!fork_handled_) {
    if (pthread_atfork(nullptr, nullptr, &Session::OnForkedChild) != 0) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fork_handled_ = true;
  }
  CUresult result = CUDA_SUCCESS;
  for (int left = kAttachTries; left > 0; --left) {
    bool try_again = left > 1;
    result = AttachLocked(&try_again);
    if (!try_again) break;
  }
  if (result == CUDA_SUCCESS) state_.store(State::kAttached, std::memory_order_release);
  pending_error_.store(result);
  return result;
}

CUresult Session::Initialize() {
  // What an earlier Attach failed with, for which nobody has been told yet. Taking it makes a later
  // cuInit try again.
  CUDA_RETURN_IF_ERROR(pending_error_.exchange(CUDA_SUCCESS));
  if (const CUresult result = Attach(); result != CUDA_SUCCESS) {
    pending_error_.store(CUDA_SUCCESS);
    return result;
  }
  if (!settings_.device_visible) return CUDA_ERROR_NO_DEVICE;
  State attached = State::kAttached;
  state_.compare_exchange_strong(attached, State::kInitialized);
  return waiting_.Health();
}

// One attempt. A child that is forked meanwhile closes its copy of the connection, which would keep
// this process's session alive: so `connection_` is set from here on, and cleared before the close.
CUresult Session::AttachLocked(bool* try_again) {
  ReadLogLevel();
  char path[kDoorPathBytes];
  channel::UniqueFd connection = ConnectToScheduler(&failures_, kWelcomeTimeoutSeconds, path);
  if (!connection.valid()) {
    *try_again = false;
    return CUDA_ERROR_NO_DEVICE;
  }
  connection_ = connection.get();
  const CUresult result = Introduce(connection.get(), path, try_again);
  if (result == CUDA_SUCCESS) {
    connection.Release();
  } else {
    connection_ = -1;
  }
  return result;
}

// Says hello and judges the answer. The session is as before until Accept.
CUresult Session::Introduce(int connection, const char* path, bool* try_again) {
  const bool may_try_again = std::exchange(*try_again, false);
  const wire::Hello hello = MakeHello(wire::kHelloMagic);
  // A newer server's Welcome may be longer: what it appended is not for us. An older one's lacks
  // what has been appended since, which is zero then.
  alignas(wire::Welcome) uint8_t answer[kMaxWelcomeBytes];
  channel::UniqueFd fds[channel::kMaxFds];
  size_t fd_count = 0;
  ptrdiff_t size = -1;
  if (channel::SendMessage(connection, &hello, sizeof(hello))) {
    size = channel::ReceiveMessage(connection, answer, sizeof(answer), fds, channel::kMaxFds,
                                   &fd_count);
  }
  if (size < 0) {
    failures_.Add("the scheduler behind %s did not answer (%s)", path, strerror(errno));
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  wire::Welcome welcome = {};
  if (static_cast<size_t>(size) >= wire::kShortestWelcomeBytes) {
    memcpy(&welcome, answer, std::min(static_cast<size_t>(size), sizeof(welcome)));
  }
  if (welcome.magic != wire::kHelloMagic) {
    failures_.Add("what answers at %s is no gpuloom scheduler of wire version %d.%d", path,
                  wire::kWireMajor, wire::kWireMinor);
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  }
  welcome.message[sizeof(welcome.message) - 1] = '\0';
  switch (welcome.admission) {
    case wire::Admission::kAccepted:
      break;
    case wire::Admission::kRefused:
      failures_.Add("the scheduler refused this process: %s", welcome.message);
      return CUDA_ERROR_NOT_PERMITTED;
    case wire::Admission::kWrongVersion:
      failures_.Add("versions do not match: %s", welcome.message);
      return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    // Also what a newer scheduler may say and this library does not know.
    case wire::Admission::kDeviceLost:
    default:
      if (may_try_again) {
        *try_again = true;
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
      }
      failures_.Add("the executor could not be started: %s", welcome.message);
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  if (fd_count < wire::kWelcomeFds) {
    failures_.Add("the scheduler sent %zu descriptors instead of %d", fd_count,
                  static_cast<int>(wire::kWelcomeFds));
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  }
  return Accept(connection, welcome, fds);
}

// Maps what the scheduler has handed over and notes it. Everything that may fail for lack of
// address space comes first, so that a refused process is left as it was. The descriptors of the
// regions are closed by their owner: the mappings hold the memory.
CUresult Session::Accept(int connection, const wire::Welcome& welcome, channel::UniqueFd* fds) {
  channel::Mapping commands, completions, device_range, arena;
  if (!commands.Map(fds[wire::kCommandRegionFd].get(), sizeof(wire::CommandRegion),
                    channel::Mapping::Access::kReadWrite) ||
      !completions.Map(fds[wire::kCompletionRegionFd].get(), sizeof(wire::CompletionRegion),
                       channel::Mapping::Access::kReadOnly)) {
    failures_.Add("cannot map the session's rings (%s)", strerror(errno));
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  // Where the address space is limited (ulimit -v) it is all for the program: the device's
  // addresses are used without being held, and nothing of the process' own comes to lie there
  // unless it names such an address itself. So, too, where it locks all its memory and may not lock
  // so much.
  rlimit limit = {};
  const bool is_limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const bool held =
      is_limited ||
      device_range.ReserveAt(welcome.device_range_begin, welcome.device_range_bytes) ||
      errno == EAGAIN;
  if (!held || !arena.MapAt(welcome.host_range_begin, fds[wire::kArenaFd].get(),
                            welcome.host_range_bytes, channel::Mapping::Access::kReadWrite)) {
    failures_.Add(
        "cannot reserve the session's addresses %#llx + %llu MiB, %#llx + %llu MiB (%s);"
        " is the address space limited (ulimit -v)?",
        static_cast<unsigned long long>(welcome.device_range_begin),
        static_cast<unsigned long long>(welcome.device_range_bytes >> 20),
        static_cast<unsigned long long>(welcome.host_range_begin),
        static_cast<unsigned long long>(welcome.host_range_bytes >> 20), strerror(errno));
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  auto* command_region = reinterpret_cast<wire::CommandRegion*>(commands.data());
  const auto* completion_region =
      reinterpret_cast<const wire::CompletionRegion*>(completions.data());
  device_ = welcome.device;
  // Programs get these as C strings.
  device_.name[sizeof(device_.name) - 1] = '\0';
  device_.pci_bus_id[sizeof(device_.pci_bus_id) - 1] = '\0';
  device_range_ = {welcome.device_range_begin, welcome.device_range_bytes};
  host_range_ = {welcome.host_range_begin, welcome.host_range_bytes};
  pinned_limit_bytes_ = welcome.pinned_limit_bytes;
  id_ = welcome.session_id;
  token_ = welcome.token;
  server_minor_ = welcome.minor;
  settings_ = ReadSettings(device_);
  connection_ = connection;
  doorbell_ = fds[wire::kDoorbellFd].Release();
  {
    Holding holding(&ring_lock_);
    ring_ = wire::RingWriter(command_region, completion_region);
  }
  waiting_.Start(command_region, completion_region, doorbell_, connection_);
  // The mappings live as long as the process: calls may come after every destructor has run.
  for (channel::Mapping* mapping : {&commands, &completions, &device_range, &arena}) {
    // A child would share the rings and the arena with its parent, and with them the parent's
    // identity.
    mapping->DontFork();
    if (void* forever = malloc(sizeof(channel::Mapping)); forever != nullptr) {
      ::new (forever) channel::Mapping(std::move(*mapping));
    } else {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  Log(LogLevel::kInfo, "session %llu on %s, %llu MiB",
      static_cast<unsigned long long>(welcome.session_id), device_.name,
      static_cast<unsigned long long>(device_.total_memory_bytes >> 20));
  return CUDA_SUCCESS;
}

// In the child, which has only the thread that forked: locks that other threads held stay held, so
// this takes none.
void Session::OnForkedChild() {
  const State state = session.state();
  if (state == State::kForked) return;
  for (int* fd : {&session.connection_, &session.doorbell_}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
  session.token_ = {};  // the parent's
  // The mappings did not come along.
  if (state == State::kInitialized) {
    session.state_.store(State::kForked, std::memory_order_release);
    return;
  }
  // Nothing of CUDA was in use before cuInit: start over, also where another thread was attaching.
  ::new (&session.attach_lock_) Lock;
  ::new (&session.ring_lock_) Lock;
  session.state_.store(State::kFresh, std::memory_order_release);
}

bool Session::CheckBacklog(uint32_t stream) {
  return backlog_.Check(stream, waiting_.completions(), last_tickets_,
                        stream_bound_.load(std::memory_order_relaxed));
}

// Neither this nor WaitForAll is a snapshot: what other threads queue meanwhile on streams that
// have been passed is not seen. The caller's own earlier work is.
bool Session::Idle() const {
  const uint32_t bound = stream_bound_.load(std::memory_order_acquire);
  for (uint32_t stream = 0; stream < bound; ++stream) {
    if (!Done(wire::StreamId{stream}, LastTicket(wire::StreamId{stream}))) return false;
  }
  return true;
}

CUresult Session::WaitForAll() {
  const uint32_t bound = stream_bound_.load(std::memory_order_acquire);
  for (uint32_t stream = 0; stream < bound; ++stream) {
    const uint64_t ticket = last_tickets_[stream].load(std::memory_order_acquire);
    if (ticket == 0) continue;
    CUDA_RETURN_IF_ERROR(WaitFor(wire::StreamId{stream}, wire::Ticket{ticket}));
  }
  return CUDA_SUCCESS;
}

CUresult Session::WaitForHostFunction(uint32_t n, uint64_t* id) {
  const CUresult result = waiting_.Wait({Awaited::Kind::kHostFunction, n, wire::Ticket{0}});
  if (result == CUDA_SUCCESS) *id = waiting_.completions().HostFunction(n);
  return result;
}

// Past the ring and its lock: a full ring may be waiting for just these functions.
void Session::HostFunctionsDone(uint32_t count) {
  OutOfBandWriter().PublishHostFunctionsDone(count);
  if (OutOfBandWriter().ExecutorSleeps()) channel::RingDoorbell(doorbell_);
}

// Through the program's stdout, whose buffer keeps the order with the program's own text, as
// NVIDIA's driver does.
void Session::WritePrintedText(uint64_t announced_bytes) {
  const wire::CompletionReader& completions = waiting_.completions();
  Holding holding(&text_lock_);
  uint64_t read = text_bytes_read_.load(std::memory_order_relaxed);
  for (uint32_t turn = 0; static_cast<int64_t>(announced_bytes - read) > 0;) {
    const size_t at = read % wire::kTextBytes;
    size_t bytes = completions.text_written() - read;
    if (bytes > wire::kTextBytes - at) bytes = wire::kTextBytes - at;
    if (bytes == 0) {
      // The executor puts more on the board when it sees that there is room.
      if (waiting_.WaitForRoom(turn++) != CUDA_SUCCESS) return;
      continue;
    }
    turn = 0;
    fwrite(completions.text() + at, 1, bytes, stdout);
    read += bytes;
    text_bytes_read_.store(read, std::memory_order_release);
    OutOfBandWriter().PublishTextRead(read);
    if (OutOfBandWriter().ExecutorSleeps()) channel::RingDoorbell(doorbell_);
  }
}

CUresult Session::TakeAsyncError() {
  const wire::CompletionReader& completions = waiting_.completions();
  const uint64_t announced = completions.text_announced();
  if (announced != text_bytes_read_.load(std::memory_order_acquire)) [[unlikely]] {
    WritePrintedText(announced);
  }
  const uint32_t count = completions.async_error_count();
  if (count == async_errors_seen_.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  // Several threads may synchronize at once; one of them gets the error.
  if (async_errors_seen_.exchange(count) == count) return CUDA_SUCCESS;
  return static_cast<CUresult>(completions.async_error_code());
}

// Sleeps while all 64 slots are taken. `given` is read before the lock is, so that a slot which is
// given back between the look and the sleep ends the sleep at once.
uint16_t Session::TakeReplySlot() {
  bool waited = false;
  for (;;) {
    const uint32_t given = slots_given_.load(std::memory_order_acquire);
    {
      Holding holding(&slots_lock_);
      if (waited) --slot_waiters_;
      if (slots_taken_ != UINT64_MAX) {
        const int slot = __builtin_ctzll(~slots_taken_);
        slots_taken_ |= uint64_t{1} << slot;
        return static_cast<uint16_t>(slot);
      }
      ++slot_waiters_;
      waited = true;
    }
    FutexWait(&slots_given_, given);
  }
}

void Session::GiveReplySlot(uint16_t slot) {
  bool wanted;
  {
    Holding holding(&slots_lock_);
    slots_taken_ &= ~(uint64_t{1} << slot);
    wanted = slot_waiters_ != 0;
  }
  slots_given_.fetch_add(1, std::memory_order_acq_rel);
  if (wanted) FutexWake(&slots_given_, 1);
}

}  // namespace gpuloom
