// SPDX-License-Identifier: Apache-2.0
// The process's session: attaching, writing commands, waiting for them, forking. One per process,
// never destroyed; calls from any thread, also after main has returned.
//
// States:  fresh --Attach--> attached --Initialize (cuInit)--> initialised
//          any attached state --fork, in the child--> forked: every call is refused there
//          (a child of a process that had only attached, or was about to, is fresh: CUDA was not in use yet)
//
// Every function that returns CUresult returns the code for the program's call.
//
//   CUresult r = session.PostOnStream<wire::Fill>(stream, 0, [&](auto& request, uint8_t*) {…});
//   if (r == CUDA_SUCCESS) r = session.WaitForStream(stream);
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "proto/channel/region.h"
#include "proto/channel/socket.h"
#include "proto/cuda/cuda_all.h"
#include "proto/cuda/return_if_error.h"
#include "proto/wire/command_list.h"
#include "proto/wire/ring_writer.h"
#include "proto/wire/session.h"
#include "shim/process/futex.h"
#include "shim/process/log.h"
#include "shim/session/backlog.h"
#include "shim/session/waiting.h"

namespace gpuloom {

// Settings from the environment, read when the session attaches.
struct Settings {
  bool runtime_handshake = true;  // GPULOOM_RUNTIME_HANDSHAKE is not "off"
  bool eager_modules = false;     // CUDA_MODULE_LOADING is "EAGER"
  bool device_visible = true;     // CUDA_VISIBLE_DEVICES is unset or begins with our device
  int copy_threads = -1;          // GPULOOM_COPY_THREADS; -1: as many as help
  bool managed_migrates = true;   // GPULOOM_MANAGED_MEMORY is not "host"
};

// Where the payload of a reply goes; it is cut if too long.
struct ReplyPayload {
  void* data;
  uint32_t capacity_bytes;
  uint32_t size_bytes;  // out
};

class Session {
 public:
  enum class State : uint32_t { kFresh, kAttached, kInitialized, kForked };

  // Connects, unless already done. The reason for a failure is logged once, and is also what the
  // next Initialize returns: a program that asks for the version and then initialises is refused
  // once.
  [[nodiscard]] CUresult Attach();
  // cuInit.
  [[nodiscard]] CUresult Initialize();

  State state() const { return state_.load(std::memory_order_acquire); }
  // Initialised and alive.
  [[nodiscard]] CUresult Check() {
    if (state() != State::kInitialized) [[unlikely]] {
      return CUDA_ERROR_NOT_INITIALIZED;
    }
    return waiting_.Health();
  }

  // Constant once attached.
  const wire::DeviceSnapshot& device() const { return device_; }
  const channel::Range& device_range() const { return device_range_; }
  const channel::Range& host_range() const { return host_range_; }
  uint64_t id() const { return id_; }  // never reused on this node
  // Whether the scheduler and its executor know the commands of this minor version of the wire.
  bool ServerKnows(uint16_t minor) const { return server_minor_ >= minor; }
  uint64_t pinned_limit_bytes() const { return pinned_limit_bytes_; }
  // Identifies this session to the scheduler later; empty if the scheduler is too old.
  const wire::SessionToken& token() const { return token_; }
  const Settings& settings() const { return settings_; }

  // Writes a command of `stream` without waiting for it. `write(Request&, uint8_t* payload)` runs
  // under the ring's lock and must fill all of the request; `ticket` may be null.
  template <wire::Command C, typename Write>
  [[nodiscard]] CUresult PostOnStream(wire::StreamId stream, uint32_t payload_bytes, Write&& write,
                                      wire::Ticket* ticket = nullptr, uint32_t held_bytes = 0) {
    return Submit<C>(payload_bytes, wire::kNoReply, static_cast<uint32_t>(stream), write, ticket,
                     held_bytes);
  }
  // The same for a command that belongs to no stream.
  template <wire::Command C>
  [[nodiscard]] CUresult Post(const typename C::Request& request) {
    return Submit<C>(
        0, wire::kNoReply, kNoStream, [&](typename C::Request& out, uint8_t*) { out = request; },
        nullptr);
  }

  // The same for a command that has only a payload.
  template <wire::Command C>
  [[nodiscard]] CUresult PostPayload(const void* payload, uint32_t payload_bytes) {
    static_assert(wire::kWireSize<typename C::Request> == 0);
    return Submit<C>(
        payload_bytes, wire::kNoReply, kNoStream,
        [&](typename C::Request&, uint8_t* out) { memcpy(out, payload, payload_bytes); }, nullptr);
  }

  // Writes a command and waits for its reply. The result is the executor's, or why there is none;
  // `reply` is filled only with CUDA_SUCCESS, `reply_payload` also with the executor's errors.
  template <wire::Command C>
  [[nodiscard]] CUresult Call(const typename C::Request& request, typename C::Reply* reply,
                              const void* payload = nullptr, uint32_t payload_bytes = 0,
                              ReplyPayload* reply_payload = nullptr) {
    static_assert(C::kReply);
    const uint16_t slot = TakeReplySlot();
    wire::Ticket ticket{0};
    CUresult result = Submit<C>(
        payload_bytes, slot, kNoStream,
        [&](typename C::Request& out, uint8_t* out_payload) {
          if constexpr (wire::kWireSize<typename C::Request> != 0) out = request;
          if (payload_bytes != 0) memcpy(out_payload, payload, payload_bytes);
        },
        &ticket);
    if (result == CUDA_SUCCESS) {
      result = waiting_.Wait({Awaited::Kind::kReply, slot, ticket});
    }
    if (result == CUDA_SUCCESS) {
      const wire::ReplySlot& answer = *waiting_.completions().FindReply(slot, ticket);
      result = static_cast<CUresult>(answer.result);
      if constexpr (wire::kWireSize<typename C::Reply> != 0) {
        if (result == CUDA_SUCCESS) memcpy(reply, answer.reply, sizeof(*reply));
      } else {
        (void)reply;
      }
      if (reply_payload != nullptr) CopyPayload(answer, reply_payload);
    }
    GiveReplySlot(slot);
    return result;
  }

  // The newest ticket of a stream; zero if nothing was ever queued.
  wire::Ticket LastTicket(wire::StreamId stream) const {
    return wire::Ticket{
        last_tickets_[static_cast<uint32_t>(stream)].load(std::memory_order_acquire)};
  }
  bool Done(wire::StreamId stream, wire::Ticket ticket) const {
    return waiting_.completions().Done(stream, ticket);
  }
  // Waits until everything queued on the stream before this call is done.
  [[nodiscard]] CUresult WaitForStream(wire::StreamId stream) {
    return WaitFor(stream, LastTicket(stream));
  }
  [[nodiscard]] CUresult WaitFor(wire::StreamId stream, wire::Ticket ticket) {
    return waiting_.Wait({Awaited::Kind::kStream, static_cast<uint32_t>(stream), ticket});
  }
  // Everything queued so far on any stream is done.
  [[nodiscard]] bool Idle() const;
  // Waits until the executor wants the n-th of all host functions run, counted from 0; returns its
  // id.
  [[nodiscard]] CUresult WaitForHostFunction(uint32_t n, uint64_t* id);
  // Publishes how many host functions have returned in total. Called by one thread.
  void HostFunctionsDone(uint32_t count);
  // Waits until everything queued so far on any stream, destroyed ones included, is done.
  [[nodiscard]] CUresult WaitForAll();

  void SetWaitSchedule(unsigned schedule) { waiting_.set_schedule(schedule); }

  // Called where CUDA's calls synchronise: writes what kernels have printed, and returns the error
  // of a fire-and-forget command, once.
  [[nodiscard]] CUresult TakeAsyncError();
  [[nodiscard]] CUresult HealthOfPoller() { return waiting_.HealthOfPoller(); }

 private:
  static constexpr uint32_t kNoStream = UINT32_MAX;

  template <wire::Command C, typename Write>
  CUresult Submit(uint32_t payload_bytes, uint16_t slot, uint32_t stream, Write&& write,
                  wire::Ticket* ticket_out, uint32_t held_bytes = 0) {
    ring_lock_.Acquire();
    uint8_t* payload = nullptr;
    typename C::Request* request = nullptr;
    for (uint32_t turn = 0;
         !MaySend(stream) || (request = ring_.Reserve<C>(payload_bytes, &payload, slot)) == nullptr;
         ++turn) {
      const uint32_t this_turn = backlog_.is_large() ? Waiting::kLongTurn : turn;
      ring_lock_.Release();
      CUDA_RETURN_IF_ERROR(waiting_.WaitForRoom(this_turn));
      ring_lock_.Acquire();
    }
    write(*request, payload);
    const wire::Ticket ticket = ring_.Commit();
    if (stream != kNoStream) {
      backlog_.Count(stream, wire::kWireSize<typename C::Request> + payload_bytes + held_bytes);
      last_tickets_[stream].store(static_cast<uint64_t>(ticket), std::memory_order_release);
      if (stream >= stream_bound_.load(std::memory_order_relaxed)) {
        stream_bound_.store(stream + 1, std::memory_order_release);
      }
    }
    const bool sleeps = ring_.ExecutorSleeps();
    ring_lock_.Release();
    if (sleeps) channel::RingDoorbell(doorbell_);
    if (ticket_out != nullptr) *ticket_out = ticket;
    return CUDA_SUCCESS;
  }

  bool MaySend(uint32_t stream) GPULOOM_REQUIRES(ring_lock_) {
    return stream == kNoStream || backlog_.MaySend() || CheckBacklog(stream);
  }
  // session.cc
  bool CheckBacklog(uint32_t stream) GPULOOM_REQUIRES(ring_lock_);
  void WritePrintedText(uint64_t announced_bytes) GPULOOM_EXCLUDES(text_lock_);
  static void CopyPayload(const wire::ReplySlot& answer, ReplyPayload* out) {
    uint32_t size = answer.payload_bytes;
    if (size > wire::kReplyPayloadBytes) size = wire::kReplyPayloadBytes;
    if (size > out->capacity_bytes) size = out->capacity_bytes;
    memcpy(out->data, answer.payload, size);
    out->size_bytes = size;
  }

  // Not analysed: what is published beside the records needs no lock (ring_writer.h).
  wire::RingWriter& OutOfBandWriter() GPULOOM_NO_THREAD_SAFETY_ANALYSIS { return ring_; }

  uint16_t TakeReplySlot();
  void GiveReplySlot(uint16_t slot);

  // *try_again: on entry, whether another try will follow; on return, whether one is worth it.
  CUresult AttachLocked(bool* try_again) GPULOOM_REQUIRES(attach_lock_);
  CUresult Introduce(int connection, const char* path, bool* try_again)
      GPULOOM_REQUIRES(attach_lock_);
  CUresult Accept(int connection, const wire::Welcome& welcome, channel::UniqueFd* fds)
      GPULOOM_REQUIRES(attach_lock_);
  // Not analysed: the child has only this thread, and makes the locks anew.
  static void OnForkedChild() GPULOOM_NO_THREAD_SAFETY_ANALYSIS;

  std::atomic<State> state_{State::kFresh};
  Lock attach_lock_;
  bool fork_handled_ GPULOOM_GUARDED_BY(attach_lock_) = false;
  FailureLog failures_{LogLevel::kError, "no GPU"};
  std::atomic<CUresult> pending_error_{CUDA_SUCCESS};
  Settings settings_;
  wire::DeviceSnapshot device_ = {};
  channel::Range device_range_;
  channel::Range host_range_;
  uint64_t pinned_limit_bytes_ = 0;
  uint64_t id_ = 0;
  wire::SessionToken token_ = {};
  uint16_t server_minor_ = 0;
  int connection_ = -1;
  int doorbell_ = -1;

  Waiting waiting_;
  Lock ring_lock_;
  wire::RingWriter ring_ GPULOOM_GUARDED_BY(ring_lock_);
  Backlog backlog_ GPULOOM_GUARDED_BY(ring_lock_);
  std::atomic<uint64_t> last_tickets_[wire::kMaxStreams] = {};
  std::atomic<uint32_t> stream_bound_{0};  // streams from here on were never used
  std::atomic<uint32_t> async_errors_seen_{0};
  Lock text_lock_;
  std::atomic<uint64_t> text_bytes_read_{0};  // written under text_lock_

  Lock slots_lock_;
  uint64_t slots_taken_ GPULOOM_GUARDED_BY(slots_lock_) = 0;
  uint32_t slot_waiters_ GPULOOM_GUARDED_BY(slots_lock_) = 0;
  std::atomic<uint32_t> slots_given_{0};
  static_assert(wire::kReplySlots == 64);
};

extern Session session;

}  // namespace gpuloom
