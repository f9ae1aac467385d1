// SPDX-License-Identifier: Apache-2.0
// What a session gives to its parts (docs/design/executor-parts.md): who it is, how it answers and
// refuses, where slow work goes, what waits for earlier work. The session is one; a part has it by
// its base. Ring thread only.
#pragma once

#include <atomic>
#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "agent/executor/session/chores.h"
#include "agent/executor/session/services.h"
#include "agent/executor/session/tenant.h"
#include "agent/executor/session/work_pool.h"
#include "agent/node/shared_region.h"
#include "proto/control/messages.h"
#include "proto/cuda/cuda_all.h"
#include "proto/wire/completion_writer.h"
#include "proto/wire/dispatch.h"
#include "proto/wire/ring_reader.h"

namespace gpuloom::executor {

class DeviceCharge;
class StreamSet;
struct HostMemory;
struct Stream;

// Who waits for an answer.
struct Caller {
  uint16_t slot;
  wire::Ticket ticket;
};
// True from the session's end on: what it asked for is not wanted any more. For workers.
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
  // When the ring thread began with this session in this round.
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
  // There is something for the tenant to see.
  void Publish() { published_ = true; }
  // A command of the stream failed, to which nobody waits for an answer.
  void TellAsyncError(wire::StreamId stream, CUresult result);
  void CountKernels(uint64_t launched) { kernels_launched_ += launched; }

  // From a handler: the tenant broke the protocol, and the session ends when the handler returns.
  void Refuse(wire::Fatal reason) { (void)reader_.Fail(reason); }
  // Outside of a handler.
  virtual void EndFor(wire::Fatal reason) = 0;

  // When all work of older tickets is done; at once when it is.
  virtual void AfterEarlierWork(wire::Ticket ticket, std::function<void()> action) = 0;
  // Looks at what CUDA has done. True when something was.
  virtual bool PollStreams() = 0;
  Stream* FindStream(wire::StreamId id_untrusted);  // refuses when there is none

  // The part of the arena is registered.
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
  const std::shared_ptr<SharedRegion> completions_;  // the driver may hold it beyond us
  wire::RingReader reader_;
  wire::CompletionWriter writer_;
  std::bitset<wire::kReplySlots> answering_;  // slots whose question is not answered yet
  bool published_ = false;
  State state_ = State::kServing;
  uint64_t now_ns_ = 0;
  uint64_t kernels_launched_ = 0;
  // Questions to the scheduler, clears, quiet moments: what calls back into this and is soon done.
  uint32_t outstanding_ = 0;
  const std::shared_ptr<std::atomic<bool>> left_ = std::make_shared<std::atomic<bool>>(false);
  StreamSet& streams_;
  Chores chores_;
  std::shared_ptr<HostMemory> host_;
  Lane modules_;
  Lane memory_;

 private:
  friend class Part;
};

// A part of a session, which outlives it: the port, under the names that handlers use.
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
  // There are commands in the ring.
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
  // ChargeDevice for this session. `done` is called also when the session does not serve any more: it then lets go of
  // what it holds.
  void Charge(uint64_t bytes, std::function<void(CUresult, std::shared_ptr<DeviceCharge>)> done);
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
  Chores& chores_;
  Lane& modules_;
  Lane& memory_;
};

}  // namespace gpuloom::executor
