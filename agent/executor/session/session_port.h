// SPDX-License-Identifier: Apache-2.0
// What a session provides to its parts (docs/design/executor-parts.md): its identity, how to answer
// and refuse, where slow work goes, what waits for earlier work. The session derives from it; a
// part has a pointer to that base. Ring thread only.
#pragma once

#include <atomic>
#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "agent/executor/session/chores.h"
#include "agent/executor/session/lane.h"
#include "agent/executor/session/services.h"
#include "agent/executor/session/share.h"
#include "agent/executor/session/tenant.h"
#include "agent/node/shared_region.h"
#include "proto/control/messages.h"
#include "proto/cuda/cuda_all.h"
#include "proto/wire/completion_writer.h"
#include "proto/wire/dispatch.h"
#include "proto/wire/ring_reader.h"

namespace gpuloom::executor {

class DeviceCharge;
class StreamCharge;
class StreamSet;
struct HostMemory;
struct Partition;
struct PriorityBand;
struct Stream;

// Identifies the caller that waits for an answer.
struct Caller {
  uint16_t slot;
  wire::Ticket ticket;
};
// True once the session has ended: its results are no longer wanted. For workers.
using LeftFlag = std::shared_ptr<const std::atomic<bool>>;

class SessionPort {
 public:
  SessionPort(const SessionPort&) = delete;
  SessionPort& operator=(const SessionPort&) = delete;

  enum class State { kServing, kEnding, kReturning, kEnded, kStuck };

  uint64_t id() const { return order_.session_id; }
  const char* label() const { return order_.label; }
  // Identifies the session; never dereferenced.
  const void* owner() const { return this; }
  State state() const { return state_; }
  bool serving() const { return state_ == State::kServing; }
  // When the ring thread began with this session in the present round.
  uint64_t now_ns() const { return now_ns_; }

  static Caller CallerOf(const wire::Record& record) { return {record.reply_slot, record.ticket}; }
  template <typename C>
  void Reply(Caller caller, CUresult result, const typename C::Reply& reply = {},
             std::span<const uint8_t> payload = {}) {
    answering_.reset(caller.slot);
    if (result != CUDA_SUCCESS) LogRefusal(C::kName, result);
    writer_.PublishReply<C>(caller.slot, caller.ticket, static_cast<uint32_t>(result), reply,
                            payload);
    published_ = true;
  }
  // Call when there is something new for the tenant to see.
  void Publish() { published_ = true; }
  // Reports the failure of a stream command that no caller waits for.
  void ReportAsyncError(wire::StreamId stream, CUresult result);
  void CountKernels(uint64_t launched) { kernels_launched_ += launched; }

  // For handlers: the tenant violated the protocol, and the session ends when the handler returns.
  void Refuse(wire::Fatal reason) { (void)reader_.Fail(reason); }
  // Ends the session from outside a handler.
  virtual void EndFor(wire::Fatal reason) = 0;

  // Runs `action` when all work with older tickets is done; immediately if it is.
  virtual void AfterEarlierWork(wire::Ticket ticket, std::function<void()> action) = 0;
  // Polls CUDA for completed work. Returns true if there was any.
  virtual bool PollStreams() = 0;
  Stream* FindStream(wire::StreamId id_untrusted);  // refuses if there is none

  // The device's stream priorities that the session may use.
  PriorityBand Band() const;
  // The device's multiprocessors that it may use; nullptr: all. Changes only while nothing of it is
  // at the device.
  const Partition* partition() const { return partition_; }
  // Where its kernels run: the partition's context, or the primary one.
  CUcontext context() const;

  // Returns true if this part of the arena is registered.
  bool OwnsHost(uint64_t address_untrusted, uint64_t size_bytes_untrusted) const;

 protected:
  SessionPort(const Services& services, const control::AddSession& order, TenantRef tenant,
              SharedRegion commands, SharedRegion completions, StreamSet* streams);
  ~SessionPort() = default;

  void LogRefusal(std::string_view command, CUresult result) const;

  const Services services_;
  control::AddSession order_;
  const TenantRef tenant_;
  SharedRegion commands_;
  const std::shared_ptr<SharedRegion> completions_;  // the driver may keep it after us
  wire::RingReader reader_;
  wire::CompletionWriter writer_;
  std::bitset<wire::kReplySlots> answering_;  // slots whose request is not answered yet
  bool published_ = false;
  State state_ = State::kServing;
  uint64_t now_ns_ = 0;
  uint64_t kernels_launched_ = 0;
  // Requests to the scheduler, clears, quiet moments: short work that calls back into this.
  uint32_t outstanding_ = 0;
  const std::shared_ptr<std::atomic<bool>> left_ = std::make_shared<std::atomic<bool>>(false);
  const Partition* partition_ = nullptr;
  StreamSet& streams_;
  Share share_;
  Chores chores_;
  std::shared_ptr<HostMemory> host_;
  Lane modules_;
  Lane memory_;

 private:
  friend class Part;
};

// Base of a session's parts; the session outlives them. Gives access to the port under the names
// that handlers use.
class Part {
 public:
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

 protected:
  explicit Part(SessionPort* port)
      : port_(port),
        services_(port->services_),
        order_(port->order_),
        tenant_(port->tenant_),
        left_(port->left_),
        host_(port->host_),
        outstanding_(port->outstanding_),
        streams_(port->streams_),
        share_(port->share_),
        chores_(port->chores_),
        modules_(port->modules_),
        memory_(port->memory_) {}
  ~Part() = default;

  uint64_t id() const { return port_->id(); }
  const char* label() const { return port_->label(); }
  const void* owner() const { return port_->owner(); }
  bool serving() const { return port_->serving(); }
  uint64_t now_ns() const { return port_->now_ns(); }
  bool ending() const { return port_->state() == SessionPort::State::kEnding; }
  wire::CompletionWriter* writer() const { return &port_->writer_; }
  const std::shared_ptr<SharedRegion>& completions() const { return port_->completions_; }
  // Returns true if there are commands in the ring.
  bool MoreToRead() const { return port_->reader_.HasWork(); }

  static Caller CallerOf(const wire::Record& record) { return SessionPort::CallerOf(record); }
  template <typename C>
  void Reply(Caller caller, CUresult result, const typename C::Reply& reply = {},
             std::span<const uint8_t> payload = {}) {
    port_->Reply<C>(caller, result, reply, payload);
  }
  void Refuse(wire::Fatal reason) { port_->Refuse(reason); }
  void EndFor(wire::Fatal reason) { port_->EndFor(reason); }
  void AfterEarlierWork(wire::Ticket ticket, std::function<void()> action) {
    port_->AfterEarlierWork(ticket, std::move(action));
  }
  Stream* FindStream(wire::StreamId id_untrusted) { return port_->FindStream(id_untrusted); }
  // ChargeDevice for this session. `done` is called even if the session does not serve any more: it
  // must then release what it holds.
  void Charge(uint64_t bytes, std::function<void(CUresult, std::shared_ptr<DeviceCharge>)> done);
  // For a stream that the tenant creates; its first ones get null. `done` is called while the session serves, within the
  // handler or later, as its last argument says.
  void ChargeStream(
      wire::StreamId stream,
      std::function<void(CUresult, std::shared_ptr<StreamCharge>, bool is_handler)> done);
  bool OwnsHost(uint64_t address_untrusted, uint64_t size_bytes_untrusted) const {
    return port_->OwnsHost(address_untrusted, size_bytes_untrusted);
  }

  SessionPort* const port_;
  const Services& services_;
  const control::AddSession& order_;
  const TenantRef& tenant_;
  const LeftFlag left_;
  const std::shared_ptr<HostMemory>& host_;
  uint32_t& outstanding_;
  StreamSet& streams_;
  Share& share_;
  Chores& chores_;
  Lane& modules_;
  Lane& memory_;
};

}  // namespace gpuloom::executor
