// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/loop.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "agent/executor/launch/launches.h"
#include "agent/executor/process/environment.h"
#include "agent/executor/process/log.h"
#include "agent/executor/session/session.h"
#include "agent/executor/session/slice.h"
#include "agent/node/clock.h"
#include "proto/control/version.h"

namespace gpuloom::executor {
namespace {

// Keys for epoll's data; sessions have their ids, which count from 1.
constexpr uint64_t kControlKey = UINT64_MAX;
constexpr uint64_t kWakeKey = UINT64_MAX - 1;
constexpr uint64_t kAwakeKey = UINT64_MAX - 2;  // all that is looked at while awake, too

constexpr uint64_t kShortestWaitNs = 30'000;  // of which most is slept through
constexpr unsigned kManyProcessors = 8;
// How long the ring thread serves one session before the next, in each of reading, submitting and
// polling: a round with many busy sessions takes some milliseconds, and every session gets at least
// a few commands (docs/design/ring-thread.md).
constexpr uint64_t kRoundNs = 2'000'000;
constexpr uint64_t kLongestSliceNs = 200'000;
// How many messages of the scheduler are handled before the sessions are served again.
constexpr int kMessagesAtATime = 64;
constexpr int kEventsAtATime = 64;
constexpr uint64_t kEventsEveryNs = 50'000;  // while busy: control socket, hang-ups
constexpr uint64_t kAnswersEveryNs =
    5'000;  // with a question to the scheduler open, or a turn awaited
// For tests, which look for no CUPTI.
const TraceMeans kNoMeans;

// Loading is slow and holds locks of the driver's: few threads; some may wait for the linker.
// Memory calls are short, but for pinning and clearing gigabytes: a tenant has half of each.
constexpr int kModuleThreads = 4;
constexpr int kMemoryThreads = 4;

// Two serve most programs, and each keeps a processor busy while several tenants work; the others are for programs that
// never repeat themselves, and sleep otherwise (docs/design/batching.md).
int SubmitThreads() {
  const unsigned processors = std::thread::hardware_concurrency();
  return processors >= 8 ? 4 : processors >= 4 ? 2 : 0;
}

// Even a watch for no events reports hang-ups.
bool Watch(int epoll, int operation, int fd, uint32_t events, uint64_t key) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = key;
  return epoll_ctl(epoll, operation, fd, &event) == 0;
}

int Wait(int epoll, epoll_event* events, int capacity, int64_t timeout_ns) {
  if (timeout_ns <= 0) return epoll_wait(epoll, events, capacity, timeout_ns < 0 ? -1 : 0);
  const timespec timeout = {timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  const int n = epoll_pwait2(epoll, events, capacity, &timeout, nullptr);
  if (n >= 0 || errno != ENOSYS) return n;
  // Kernels before 5.11 know milliseconds only.
  return epoll_wait(epoll, events, capacity, static_cast<int>((timeout_ns + 999'999) / 1'000'000));
}

}  // namespace

Loop::Loop(Device* device, channel::UniqueFd control, DriverOutput* output, bool batches,
           int submit_threads, uint64_t memory_limit_bytes, bool shares, const TraceMeans* means)
    : device_(device),
      output_(output),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      sleeping_epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      scheduler_(std::move(control)),
      internal_(device),
      spin_ns_(std::thread::hardware_concurrency() >= kManyProcessors ? kSpinNs : kShortSpinNs),
      device_waits_(static_cast<int64_t>(kShortestWaitNs), kWakeNs),
      modules_(device, kModuleThreads, wake_.get()),
      memory_(device, kMemoryThreads, wake_.get()),
      quiet_work_(device, 1, wake_.get()),
      quiet_(&quiet_work_),
      // The modules' workers may be compiling.
      upkeep_(device, &memory_, &quiet_),
      partitions_(device, &quiet_, &scheduler_),
      chains_(device, &modules_, &quiet_, &graphs_),
      submitters_(device, &chains_,
                  !batches             ? 0
                  : submit_threads < 0 ? SubmitThreads()
                                       : submit_threads),
      room_(HardwareQueueCount()),
      sharing_(shares),
      turns_(&sharing_, &scheduler_),
      tracer_(device, means != nullptr ? means : &kNoMeans, wake_.get(),
              {[this] { ReportCounters(); },
               [this](uint64_t trace_id, control::TraceStep step) {
                 scheduler_.Send(control::TraceProgress{trace_id, static_cast<uint32_t>(step), 0});
               }}),
      long_kernels_(
          device, &scheduler_,
          [this](uint64_t session_id, std::string_view text) { EndForKernel(session_id, text); }),
      batches_(batches),
      printer_(device, &memory_, output),
      budget_(std::make_shared<DomainBudget>(memory_limit_bytes)),
      context_memory_(device->ResidentThreads()),
      libraries_(budget_) {
  sharing_.SetTracer(&tracer_);
}

// Threads end before what they use, and before the sessions whose work they have: then nothing runs
// that could call back. Quiet is closed last, because dropping one piece of work may retire
// another.
Loop::~Loop() {
  submitters_.Stop();
  modules_.Stop();
  quiet_work_.Stop();
  memory_.Stop();
  quiet_.Close();
}

// epoll_ is itself watched by sleeping_epoll_: who sleeps on the doorbells wakes for everything
// else, too.
bool Loop::Start(std::string* error) {
  if (!epoll_.valid() || !sleeping_epoll_.valid() || !wake_.valid() ||
      !Watch(sleeping_epoll_.get(), EPOLL_CTL_ADD, epoll_.get(), EPOLLIN, kAwakeKey) ||
      !Watch(epoll_.get(), EPOLL_CTL_ADD, scheduler_.fd(), EPOLLIN, kControlKey) ||
      !Watch(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), EPOLLIN, kWakeKey)) {
    *error = std::string("setting up the event loop: ") + strerror(errno);
  } else if (internal_.Start(
                 [this](CUstream stream) {
                   tracer_.OnStreamAcquired(stream, {wire::kTraceOfExecutor, 0, 0});
                 },
                 error)) {
    staging_.Start(device_);
    partitions_.Start();
    Log(LogLevel::kDebug, "start: staging memory is pinned");
    return true;
  }
  // The context exists, so this is no matter of confinement: driver_failed stays 0, and the
  // scheduler starts no lenient executor because of it.
  control::ExecutorReady refusal = {};
  control::SetText(refusal.message, error->c_str());
  scheduler_.Send(refusal);
  return false;
}

// One round after the other: serve, tell the tenants, then see whether to spin, to poll events, or
// to sleep. Time is read once a round; what lasts longer looks at the clock itself (Slice).
Loop::Outcome Loop::Run() {
  control::ExecutorReady ready = {};
  ready.ok = 1;
  ready.stream_priority_least = device_->priority_least();
  ready.stream_priority_greatest = device_->priority_greatest();
  control::SetText(ready.version, kVersion);
  control::SetText(ready.cupti, tracer_.cupti().c_str());
  ready.has_cupti = tracer_.has_cupti() ? 1 : 0;
  scheduler_.Send(ready);
  uint64_t last_work_ns = NowNs();
  uint64_t last_events_ns = last_work_ns;
  uint64_t awaited_since_ns = 0;
  uint64_t awaited_ns = 0;  // for how long, as of the last round in which the wait went on
  for (;;) {
    const uint64_t now_ns = NowNs();
    const bool worked = Serve(now_ns);
    // Before tenants are notified: nothing that this round has seen may be taken for a success.
    if (device_->lost() != CUDA_SUCCESS) {
      ReportFault();
      return Outcome::kDeviceLost;
    }
    for (const auto& session : sessions_) session->Notify();
    // Behind Notify, so that the program has its text.
    if (ends_for_kernel_) return Outcome::kDeviceLost;
    DropEnded();
    if (scheduler_.closed()) {
      LogPredictions();
      return Outcome::kSchedulerGone;
    }
    if (worked) last_work_ns = now_ns;
    const uint64_t since_ns = AwaitedSinceNs();
    if (since_ns != awaited_since_ns) {
      if (awaited_since_ns != 0) {
        device_waits_.Note(static_cast<int64_t>(awaited_ns),
                           static_cast<int64_t>(now_ns - awaited_since_ns));
      }
      awaited_since_ns = since_ns;
    }
    awaited_ns = since_ns == 0 ? 0 : now_ns - since_ns;
    if (now_ns - last_counters_ns_ >= kCountersEveryNs) SendCounters(now_ns);

    const uint64_t idle_ns = now_ns - last_work_ns;
    // Held-back commands are submitted in the next round, so there must be one.
    const bool released = !quiet_.Idle() && TickQuiet(now_ns, idle_ns);
    // Whatever it was may let go what waits.
    if (worked || released) {
      for (const auto& session : sessions_) session->CheckAgain();
    }
    int64_t sleep_ns = 0;
    if (!worked && !released && (idle_ns >= spin_ns_ || awaited_ns >= kShortestWaitNs)) {
      sleep_ns = SleepNs(idle_ns, awaited_ns);
    }
    if (sleep_ns == 0) {
      // A tenant may be waiting for what comes next over this socket.
      const bool expects = scheduler_.waits() || turns_.waits();
      if (now_ns - last_events_ns >= (expects ? kAnswersEveryNs : kEventsEveryNs)) {
        HandleEvents(0, now_ns);
        last_events_ns = now_ns;
      } else if (idle_ns >= spin_ns_) {
        // Awake because of work at the device: with few processors tenants need this one.
        sched_yield();
      } else if (!worked && Spin()) {
        last_work_ns = now_ns;
      }
      continue;
    }
    // Announce, look once more, sleep: a tenant that writes a command sees the announcement and
    // rings, or its command is seen here.
    if (AnnounceSleep()) {
      HandleEvents(sleep_ns, now_ns);
      Awake();
    }
    last_events_ns = now_ns;
  }
}

// A full round. Results come first, because tenants wait for them and they may let commands go;
// then all sessions are read and submit before any is polled, so that the device has work while
// completions are handled. The order of Update, reading, GiveOrders, polling and Settle is
// TimeSharing's (time_sharing.h).
bool Loop::Serve(uint64_t now_ns) {
  bool worked = false;
  for (WorkPool* pool : {&modules_, &quiet_work_, &memory_}) {
    Slice slice(kLongestSliceNs);
    worked |= pool->RunFinished(&slice);
  }
  worked |= internal_.Poll();
  worked |= tracer_.Poll();
  submitters_.TakeDone(&done_jobs_);
  for (SubmitJobPtr& job : done_jobs_) {
    Launches* const launches = job->launches;
    launches->OnSubmitted(std::move(job));
  }
  worked |= !done_jobs_.empty();
  done_jobs_.clear();
  int at_work = 0;
  for (const auto& session : sessions_) at_work += session->AtWork(now_ns);
  several_at_work_ = at_work > 1;
  room_.SetSharers(static_cast<uint32_t>(at_work));
  const uint64_t slice_ns =
      std::clamp(kRoundNs / std::max(at_work, 1), kShortestSliceNs, kLongestSliceNs);
  sharing_.Update(sessions_, now_ns);
  // A session that has sent nothing for a millisecond may still have work at the device.
  several_at_work_ |= sharing_.several();
  for (const auto& session : sessions_) {
    sharing_.BeforeRead(session.get(), now_ns);
    Slice reading(slice_ns);
    worked |= session->Read(now_ns, &reading);
    Slice submitting(slice_ns);
    worked |= session->SubmitWaiting(now_ns, &submitting);
  }
  worked |= sharing_.GiveOrders(sessions_, slice_ns);
  for (const auto& session : sessions_) {
    Slice slice(slice_ns);
    worked |= session->Poll(now_ns, &slice);
  }
  sharing_.Settle(sessions_);
  turns_.Look(sessions_, now_ns);
  long_kernels_.Look(sessions_, now_ns);
  upkeep_.Look(now_ns);
  return worked;
}

void Loop::ReportCounters() {
  sharing_.Settle(sessions_);
  for (const auto& session : sessions_) session->SendCounters();
}

// Everything that is due about once a second.
void Loop::SendCounters(uint64_t now_ns) {
  last_counters_ns_ = now_ns;
  for (const auto& session : sessions_) {
    session->SendCounters();
    session->GiveBackOld(now_ns);
  }
  turns_.SendUsage();
  modules_.Tick(now_ns);
  memory_.Tick(now_ns);
  LogDriverErrors();
  libraries_.Tick(now_ns);
  const Chains::Counts chunks = chains_.counts();
  // An idle executor logs nothing.
  if (chunks.all() == chunks_reported_) return;
  chunks_reported_ = chunks.all();
  Log(LogLevel::kDebug, "launches so far: %s; %zu chains, %zu singles", chunks.Text().c_str(),
      chains_.size(), chains_.singles());
}

// The benchmarks in tests/bench read these lines.
void Loop::LogPredictions() const {
  if (const Chains::Counts chunks = chains_.counts(); chunks.all() != 0) {
    Log(LogLevel::kInfo, "launches in all: %s", chunks.Text().c_str());
  }
  if (const uint64_t trip_ns = sharing_.round_trip().ns(); trip_ns != 0) {
    Log(LogLevel::kInfo,
        "launches on an idle device took %.1f µs more than their work, which is not charged",
        static_cast<double>(trip_ns) / 1e3);
  }
  const arbiter::LaunchPredictor::Errors& errors = sharing_.predictor().errors();
  const uint64_t count = errors.alone_count();
  if (count == 0) return;
  Log(LogLevel::kInfo,
      "%llu predictions of what ran alone then were wrong by %u %% at the median and by %u %% for "
      "nine of ten",
      static_cast<unsigned long long>(count), errors.AlonePercent(0.5), errors.AlonePercent(0.9));
}

// A session's destructor ends its share of time and multiprocessors.
void Loop::DropEnded() {
  std::erase_if(sessions_,
                [](const std::unique_ptr<Session>& session) { return session->HasLeft(); });
}

// Quiet knows no sessions: it gets a list of parties in the sessions' order, and marks which are
// held.
bool Loop::TickQuiet(uint64_t now_ns, uint64_t idle_ns) {
  parties_.clear();
  for (const auto& session : sessions_) parties_.push_back(session->Party());
  quiet_.Tick(now_ns, parties_, !internal_.Idle(), idle_ns);
  bool released = false;
  for (size_t i = 0; i < sessions_.size(); ++i) {
    released |= sessions_[i]->SetHeld(parties_[i].held);
  }
  return released;
}

void Loop::HandleEvents(int64_t timeout_ns, uint64_t now_ns) {
  // Writable is watched for only while something is queued: a socket almost always is.
  if (scheduler_.WantsToWrite() != watching_write_) {
    watching_write_ = scheduler_.WantsToWrite();
    Watch(epoll_.get(), EPOLL_CTL_MOD, scheduler_.fd(),
          watching_write_ ? EPOLLIN | EPOLLOUT : EPOLLIN, kControlKey);
  }
  if (timeout_ns != 0) SleepOnDoorbells(timeout_ns, now_ns);
  epoll_event events[kEventsAtATime];
  // After a sleep, too: what woke it is handled here, doorbells excepted.
  const int n = Wait(epoll_.get(), events, kEventsAtATime, 0);
  for (int i = 0; i < n; ++i) {
    const uint64_t key = events[i].data.u64;
    if (key == kWakeKey) {
      uint64_t count;
      // Serve finds what has finished; here the eventfd only has to become unreadable again.
      [[maybe_unused]] const ssize_t size = read(wake_.get(), &count, sizeof(count));
    } else if (key == kControlKey) {
      scheduler_.Flush();
      control::Incoming in;
      bool is_order = false;
      for (int j = 0; j < kMessagesAtATime && scheduler_.Receive(&in, &is_order); ++j) {
        if (is_order) OnOrder(&in, now_ns);
      }
    } else if (Session* session = FindSession(key)) {
      session->OnHangUp(now_ns);
    }
  }
}

void Loop::SleepOnDoorbells(int64_t timeout_ns, uint64_t now_ns) {
  epoll_event events[kEventsAtATime];
  const int n = Wait(sleeping_epoll_.get(), events, kEventsAtATime, timeout_ns);
  for (int i = 0; i < n; ++i) {
    // kAwakeKey is no session's: HandleEvents looks at the other epoll next.
    if (Session* session = FindSession(events[i].data.u64)) session->OnDoorbell(now_ns);
  }
}

// Removed by closing: when the last descriptor of the socket is closed, the kernel takes it out of
// both.
bool Loop::WatchDoorbell(const Session& session) {
  return Watch(epoll_.get(), EPOLL_CTL_ADD, session.doorbell(), 0, session.id()) &&
         Watch(sleeping_epoll_.get(), EPOLL_CTL_ADD, session.doorbell(), EPOLLIN, session.id());
}

Session* Loop::FindSession(uint64_t id) const {
  for (const auto& session : sessions_) {
    if (session->id() == id) return session.get();
  }
  return nullptr;
}

}  // namespace gpuloom::executor
