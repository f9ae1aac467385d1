// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/session.h"

#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/device/partitions.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/process/log.h"
#include "agent/executor/session/scheduler_link.h"
#include "agent/executor/session/session_parts.h"
#include "agent/executor/session/slice.h"
#include "agent/executor/session/time_sharing.h"
#include "proto/channel/socket.h"
#include "proto/wire/backlog.h"

namespace gpuloom::executor {
namespace {

// How many commands are read from one ring before the next ring is served.
constexpr int kReadAtATime = 256;
// The clock is checked after commands of this weight: reading it costs as much as a quarter of
// reading a launch.
constexpr int kWeightAtATime = 16;
// With so much queued, the ring itself is the queue: it is not read until some of it has been
// submitted.
constexpr size_t kMaxWaitingCommands = 64u << 10;
constexpr size_t kMaxWaitingBytes = 64u << 20;

// What a tenant's library has sent at most (proto/wire/backlog.h) is read. No command takes much more memory than it
// counts for there, but a few kinds that name very many objects.
static_assert(wire::kBacklogBytesOfCommand >=
              sizeof(StreamCommand) + sizeof(Chunk) + sizeof(ChunkNode) + 4 * sizeof(Dependency));
static_assert(2 * wire::kMostBacklogBytes <= kMaxWaitingBytes &&
              2 * (wire::kMostBacklogBytes / wire::kBacklogBytesOfCommand) <= kMaxWaitingCommands);

// Launches are many and cheap; a caller that waits for an answer waits anyway.
int WeightOf(const wire::Record& record) {
  if (record.opcode == wire::kOpcode<wire::Launch>) return 1;
  return record.reply_slot == wire::kNoReply ? 4 : kWeightAtATime;
}

std::string LabelOf(const control::AddSession& order) {
  return {order.label, strnlen(order.label, sizeof(order.label) - 1)};
}

}  // namespace

// The set of streams is made last and destroyed first: the port and the parts have references to it
// from the start, but use them only later.
Session::Session(const Services& services, const control::AddSession& order, SharedRegion commands,
                 SharedRegion completions, channel::UniqueFd doorbell)
    : SessionPort(services, order, services.tenants->Find(LabelOf(order)), std::move(commands),
                  std::move(completions), &stream_set_),
      doorbell_(std::move(doorbell)),
      parts_(std::make_unique<Parts>(static_cast<SessionPort*>(this))),
      stream_set_(&parts_->submission, &held_, services.room, &tenant_->hardware_queues) {
  // Request 0: nobody waits to hear that it is held.
  if (order.held != 0) Hold(control::HoldReason::kOperator, true, 0);
  FollowPartition();
}

// The command region is mapped read-only, so that no mistake of ours writes where the tenant
// writes. The arena is mapped at the tenant's address, because pointers in commands are the
// tenant's; whatever lies there already makes this fail.
std::unique_ptr<Session> Session::Make(const Services& services, const control::AddSession& order,
                                       channel::UniqueFd* fds, std::string* error) {
  using Access = SharedRegion::Access;
  const auto fail = [&](const char* what) {
    *error = std::string(what) + ": " + strerror(errno);
    return nullptr;
  };
  SharedRegion commands;
  SharedRegion completions;
  if (!commands.Map(fds[control::kSessionCommandFd].get(), sizeof(wire::CommandRegion),
                    Access::kReadOnly)) {
    return fail("mapping the command region");
  }
  if (!completions.Map(fds[control::kSessionCompletionFd].get(), sizeof(wire::CompletionRegion),
                       Access::kReadWrite)) {
    return fail("mapping the completion region");
  }
  // Before there is a session, because it is made for the multiprocessors that it may use, and directly before: what
  // begins here ends with the session.
  if (!services.partitions->Begin(order, error)) return nullptr;
  std::unique_ptr<Session> session(new Session(services, order, std::move(commands),
                                               std::move(completions),
                                               std::move(fds[control::kSessionDoorbellFd])));
  HostMemory& host = *session->host_;
  host.budget =
      std::make_shared<SessionBudget>(services.budget, services.budget->session_limit_bytes());
  // May run long after the session is gone, so it holds what outlives sessions: the scheduler keeps
  // the range until ArenaReturned.
  host.on_end = [memory = services.memory, scheduler = services.scheduler,
                 id = order.session_id](channel::Mapping mapping) {
    const auto mapped = std::make_shared<channel::Mapping>(std::move(mapping));
    memory->Post([mapped] { mapped->Unmap(); },
                 [scheduler, id] { scheduler->Send(control::ArenaReturned{id}); });
  };
  host.range = {order.host_range_begin, order.host_range_bytes};
  host.arena = std::move(fds[control::kSessionArenaFd]);
  if (!host.mapping.MapAt(order.host_range_begin, host.arena.get(), order.host_range_bytes,
                          channel::Mapping::Access::kReadWrite)) {
    return fail("mapping the arena at its address");
  }

  if (!session->parts_->device_memory.Reserve(error)) return nullptr;
  session->parts_->submission.BeginWords();
  session->streams_.Add(wire::kLegacyStream, true, 0, wire::Ticket{0});
  return session;
}

Session::~Session() {
  services_.sharing->End(&share_);
  services_.partitions->End(order_.allocation_id);
}

// Nothing of it is with a worker any more, so nothing can call back into it.
bool Session::HasLeft() const {
  return state_ == State::kEnded && memory_.Idle() && modules_.Idle() && parts_->links.Idle();
}

// The bounds for the memory and the time that a tenant's commands take here: while one of these is
// reached, the ring fills, and then the tenant waits.
bool Session::MayRead() const {
  return state_ == State::kServing && streams_.waiting_commands() < kMaxWaitingCommands &&
         streams_.waiting_bytes() < kMaxWaitingBytes && chores_.empty() &&
         parts_->submission.fences() < Submission::kMaxFences;
}

// Each record is a private copy by now (RingReader): what the handlers judge cannot change any
// more.
bool Session::Read(uint64_t now_ns, Slice* slice) {
  now_ns_ = now_ns;
  bool any = false;
  // A ring that is not read brings no further launches: open chunks need not wait for it.
  ring_empty_ = !MayRead();
  int weight = 0;
  for (int i = 0; i < kReadAtATime && MayRead(); ++i) {
    wire::Record record;
    const auto status = reader_.Next(&record);
    if (status == wire::RingReader::Status::kEmpty) {
      ring_empty_ = true;
      break;
    }
    any = true;
    if (status == wire::RingReader::Status::kRecord) {
      if (record.reply_slot == wire::kNoReply) {
        wire::Dispatch(*parts_, record);
      } else if (answering_.test(record.reply_slot)) {
        // This also bounds the work that a tenant can pile up on the workers.
        Refuse(wire::Fatal::kBadReplySlot);
      } else {
        answering_.set(record.reply_slot);
        wire::Dispatch(*parts_, record);
      }
    }
    // Set by the reader, or by the handler that has just refused (Refuse).
    if (reader_.fatal() != wire::Fatal::kNone) {
      End(reader_.fatal(), now_ns_);
      break;
    }
    // A thread waits for the previous pieces, so poll them before submitting the next.
    if (parts_->submission.TakeMarkedPiece()) break;
    if (status != wire::RingReader::Status::kRecord) continue;
    weight += WeightOf(record);
    if (weight < kWeightAtATime) continue;
    weight = 0;
    if (slice->Over()) break;
  }
  // Collected launches need not wait for more if the ring is empty.
  if (any) {
    if (thinks_since_ns_ != 0) think_times_.Note(static_cast<int64_t>(now_ns - thinks_since_ns_));
    thinks_since_ns_ = 0;
    last_read_ns_ = now_ns;
    streams_.Flush(ring_empty_);
  }
  return parts_->submission.AddMarks() || any;
}

// Before this session is served, its tenant's answers are taken, which open gates.
bool Session::SubmitWaiting(uint64_t now_ns, Slice* slice) {
  now_ns_ = now_ns;
  parts_->memory_operations.BeginRound();
  bool any = false;
  if (!parts_->host_functions.Poll(&any)) {
    // The tenant claims to have run more functions than it was asked to run.
    Refuse(wire::Fatal::kBadArgument);
    End(reader_.fatal(), now_ns_);
    return true;
  }
  any |= state_ == State::kServing && streams_.SubmitWaiting(slice);
  any |= !held_ && parts_->device_memory.SubmitClears();
  if (ring_empty_) streams_.Flush(true);
  if (held_) NoteHeld(now_ns);
  // Functions that have become due must run at once.
  any |= published_;
  return parts_->submission.AddMarks() || any;
}

// The room of the order decides what goes (Submission::MaySubmit); this only offers.
void Session::SubmitOrdered(Slice* slice) {
  if (state_ != State::kServing) return;
  if (!held_) parts_->device_memory.SubmitClears();
  // Waiting commands and open chunks alternate in going first.
  chunks_first_ = !chunks_first_;
  if (chunks_first_) streams_.Flush(true);
  streams_.SubmitWaiting(slice, /*one_each=*/true);
  if (!chunks_first_) streams_.Flush(true);
  parts_->submission.AddMarks();
}

std::array<arbiter::Work, arbiter::kEngines> Session::Ready() {
  if (state_ != State::kServing) return {};
  auto ready = parts_->submission.Ready();
  if (held_) return ready;
  const arbiter::Work to_clear = parts_->device_memory.ClearsReady();
  arbiter::Work& compute = ready[static_cast<size_t>(arbiter::Engine::kCompute)];
  compute.pieces += to_clear.pieces;
  compute.predicted_ns += to_clear.predicted_ns;
  return ready;
}

std::string Session::NameOf(CUkernel kernel) const { return parts_->kernels.NameOf(kernel); }

void Session::AddHeads(std::vector<HeadOfStream>* heads) const {
  parts_->submission.AddHeads(heads);
  parts_->device_memory.AddHead(heads);
}

// Returns false, with the announcement taken back, if something is there after all.
bool Session::AnnounceSleep() {
  // A tenant rings for its host functions even if we do not read its ring.
  if (parts_->host_functions.empty()) return !MayRead() || reader_.AnnounceSleep();
  reader_.Announce();
  if ((!MayRead() || !reader_.HasWork()) && !parts_->host_functions.Moved()) return true;
  reader_.Awake();
  return false;
}

void Session::EndFor(wire::Fatal reason) {
  Refuse(reason);
  End(reason, now_ns_);
}

void Session::OnDoorbell(uint64_t now_ns) {
  if (!channel::DrainDoorbell(doorbell_.get())) OnHangUp(now_ns);
}

// The tenant's process has ended, or has closed its socket. The descriptor is closed at once, or
// epoll would report it forever.
void Session::OnHangUp(uint64_t now_ns) {
  now_ns_ = now_ns;
  doorbell_.Reset();
  End(wire::Fatal::kNone, now_ns);
}

// The text before the fault: who sees the fault reads the text.
void Session::PublishFault(CUresult result, std::string_view text) {
  writer_.PublishFaultText(text);
  writer_.PublishFault(static_cast<uint32_t>(result));
  published_ = true;
  // Without asking whether the tenant sleeps: one of its threads may be about to.
  if (doorbell_.valid()) channel::RingDoorbell(doorbell_.get());
}

void Session::SendCounters() {
  if (!HasCounters()) return;
  progress_reported_ = Progress();
  services_.scheduler->Send(
      control::SessionCounters{id(), kernels_launched_, TimeUsed(), share_.counts});
}

// A sum will do to see a change: all of it only grows.
uint64_t Session::Progress() const {
  const control::WorkCounts& counts = share_.counts;
  uint64_t sum = kernels_launched_ + counts.batches + counts.copies_to_device +
                 counts.copies_from_device + counts.copies_on_device + counts.queue.sum_ns +
                 counts.completion.sum_ns + HeldNs(services_.sharing->now_ns());
  for (const uint64_t used_ns : share_.used_ns) sum += used_ns;
  return sum;
}

control::TimeUsage Session::TimeUsed() const {
  const arbiter::Waits waits = services_.sharing->waits(share_);
  return {share_.used_ns[0], share_.used_ns[1],  share_.used_ns[2],
          waits.queue_ns,    waits.throttled_ns, HeldNs(services_.sharing->now_ns())};
}

// Once a round, however much was published in it.
void Session::Notify() {
  if (!published_) return;
  published_ = false;
  if (doorbell_.valid() && writer_.TenantSleeps()) channel::RingDoorbell(doorbell_.get());
}

void Session::AfterEarlierWork(wire::Ticket ticket, std::function<void()> action) {
  parts_->submission.AfterEarlierWork(ticket, std::move(action));
}

bool Session::PollStreams() { return parts_->submission.PollStreams(); }

// A mark that the device reports by itself needs no haste of ours.
bool Session::HasPollWaiter() const {
  return std::any_of(streams_.active().begin(), streams_.active().end(), [](const Stream* stream) {
    return !stream->marks.empty() && !stream->marks.front().point->device_notifies;
  });
}

bool Session::OnlyAwaitsDevice() const {
  return state_ == State::kServing && writer_.TenantWaits() && !HasWaiting() && outstanding_ == 0 &&
         !WatchesWords() && !HasText();
}

bool Session::Thinks() const {
  return state_ == State::kServing && ring_empty_ && !HasWaiting() && outstanding_ == 0 &&
         !OccupiesDevice();
}

int64_t Session::UntilExpectedNs(uint64_t now_ns) const {
  if (thinks_since_ns_ == 0 || state_ != State::kServing) return -1;
  return think_times_.UntilExpectedNs(static_cast<int64_t>(now_ns - thinks_since_ns_));
}

bool Session::Poll(uint64_t now_ns, Slice* slice) {
  now_ns_ = now_ns;
  bool any = chores_.Run(slice);
  any |= PollStreams();
  any |= parts_->submission.PollText();
  parts_->graphs.MakeWaitingGraphs();
  // At the end, runs them all at once when none of the session's work is left: then also checks
  // words, whose waits are in no queue any more.
  if (state_ != State::kEnding || (streams_.Idle() && outstanding_ == 0))
    any |= parts_->submission.RunFences(slice);
  any |= parts_->events.AnswerEventWaits();
  SendHeld();
  FollowPartition();
  if (state_ == State::kEnding || state_ == State::kReturning) any |= ContinueEnding();
  if (thinks_since_ns_ == 0 && last_read_ns_ != 0 && Thinks()) thinks_since_ns_ = now_ns;
  return any;
}

void Session::GiveBackOld(uint64_t now_ns) { parts_->device_memory.GiveBackOld(now_ns); }
bool Session::HasKept() const { return parts_->device_memory.HasKept(); }
void Session::Reclaim(uint64_t reclaim_id) { parts_->device_memory.Reclaim(reclaim_id); }
bool Session::HasText() const { return parts_->submission.HasText(); }
bool Session::WatchesWords() const { return parts_->memory_operations.watching_words(); }
bool Session::WordsOverdue() const { return parts_->memory_operations.words_overdue(); }

void Session::LogBegin() const {
  LogFor(&tenant_->lines, LogLevel::kInfo, "session %llu (%s) begins",
         static_cast<unsigned long long>(id()), label());
}

}  // namespace gpuloom::executor
