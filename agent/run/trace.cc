// SPDX-License-Identifier: Apache-2.0
// Five steps: find the schedulers, make all of them begin, wait, make all of them end, write the file. A failure for
// one GPU is reported and does not affect the others. What executors have written is untrusted and read only through
// trace::Part.
#include "agent/run/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "agent/answer/table.h"
#include "agent/node/clock.h"
#include "agent/node/one_line.h"
#include "agent/run/scheduler_search.h"
#include "agent/run/trace_file.h"
#include "proto/channel/unique_fd.h"
#include "proto/control/client.h"
#include "proto/trace/output_file.h"

namespace gpuloom::run {
namespace {

// Longer than a scheduler waits for its executors.
constexpr std::chrono::seconds kAnswerWithin{20};
// How much longer than requested recording may last, while other schedulers begin and this one ends.
constexpr uint32_t kMarginMs = 30'000;

template <size_t N>
std::string Text(const char (&field)[N]) {
  return OneLine({field, control::TextLength(field)}, kLongestNameBytes);
}

std::string Fixed(double number) {
  char text[64];
  snprintf(text, sizeof(text), "%.3f", number);
  return text;
}

std::string Seconds(uint64_t ns) { return Fixed(static_cast<double>(ns) / 1e9) + "s"; }

class Tracing {
 public:
  explicit Tracing(const TraceCommand& command) : command_(command) {}

  Answer Run() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals, signal);
    // Blocked from the start, so that a signal that comes while files are opened ends the trace
    // early and not the program.
    sigset_t before;
    sigprocmask(SIG_BLOCK, &signals, &before);
    const channel::UniqueFd signal_fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    Answer answer = Trace(signal_fd.get());
    // What ended it has been heard.
    for (signalfd_siginfo heard; read(signal_fd.get(), &heard, sizeof(heard)) > 0;) {
    }
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return answer;
  }

 private:
  Answer Trace(int signal_fd) {
    if (!Find()) return std::move(outcome_);
    // Before anybody records for nothing.
    trace::OutputFile output;
    if (!output.Open(command_.file)) {
      Fail(command_.file + " cannot be written: " + strerror(errno));
      return std::move(outcome_);
    }
    if (!Begin()) return std::move(outcome_);
    Wait(signal_fd);
    End();
    if (gpus_.empty()) {
      Fail("no trace was had");
      return std::move(outcome_);
    }
    const std::vector<trace::PartSum> sums = SumUp(gpus_);
    if (!WriteTraceFile(gpus_, sums, output.file()) || !output.Finish()) {
      Fail(command_.file + " cannot be written whole: " + strerror(errno));
      return std::move(outcome_);
    }
    SayWhatIsMissing();
    outcome_.text = Summary(sums);
    return std::move(outcome_);
  }

  // A scheduler that takes part.
  struct Asked {
    std::string folder;
    std::string name;
    control::Client client;
    uint64_t begin_ns = 0;
  };

  // Nothing is written. Always false, so that a step can return it.
  bool Fail(const std::string& trouble) {
    outcome_.exit_status = 1;
    outcome_.trouble += "gpuloom: " + trouble + "\n";
    return false;
  }
  // Something is missing from what is written.
  void Miss(const std::string& trouble) {
    if (outcome_.exit_status == 0) outcome_.exit_status = 3;
    outcome_.trouble += "gpuloom: " + trouble + "\n";
  }

  bool Find() {
    const std::vector<std::string> places = SearchedFolders(command_.state_dir);
    std::string unseen;
    for (const std::string& folder : FindSchedulers(places, &unseen)) {
      Asked asked{folder, {}, {}};
      std::string error;
      control::GpuState gpu;
      std::vector<control::DomainState> domains;
      if (!asked.client.Connect(folder, kAnswerWithin, &error)) {
        // A socket that a scheduler of a `gpuloom run` has left behind has no tenants.
        if (asked.client.not_listening() && LacksScheduler(folder)) {
          Miss(NoSchedulerRuns(folder));
        } else if (asked.client.not_listening() && !IsOfAgent(folder)) {
          unseen += "; " + error;
        } else {
          Miss(error);
        }
      } else if (!asked.client.scheduler_speaks_3_4()) {
        Miss("the scheduler in " + folder +
             " is of an older release, which cannot trace: drain the node's GPU pods and delete "
             "its gpuloom-schedulers pod; without Kubernetes, end the commands that use it");
      } else if (!asked.client.DescribeGpu(&gpu, &domains, &error)) {
        Miss(error);
      } else {
        asked.name = Text(gpu.uuid);
        asked_.push_back(std::move(asked));
      }
    }
    if (!asked_.empty()) return true;
    return Fail(outcome_.trouble.empty() ? NoSchedulerFound(places, unseen)
                                         : "no GPU can be traced");
  }

  // All before any time is waited, one after the other: windows differ by what beginning takes,
  // which is why each has its own.
  bool Begin() {
    const auto limit_ms = static_cast<uint32_t>(std::min<uint64_t>(
        static_cast<uint64_t>(command_.time.count()) + kMarginMs, control::kMaxTraceMs));
    std::erase_if(asked_, [&](Asked& asked) {
      std::string error;
      // By the clock of the records, and before it is asked for: no record of this trace can be earlier.
      asked.begin_ns = NowNs();
      if (asked.client.BeginTrace(limit_ms, &error)) return false;
      Miss("the GPU " + asked.name + " is not traced: " + error);
      return true;
    });
    return !asked_.empty() || Fail("no GPU is traced");
  }

  // Until the time is over, a signal comes, or a scheduler is gone.
  void Wait(int signal_fd) const {
    std::vector<pollfd> polled = {{signal_fd, POLLIN, 0}};
    for (const Asked& asked : asked_) polled.push_back({asked.client.fd(), POLLIN, 0});
    const auto deadline = std::chrono::steady_clock::now() + command_.time;
    for (;;) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) return;
      const int ready = poll(polled.data(), polled.size(), static_cast<int>(left.count()));
      // A scheduler sends nothing unasked, so one that is readable is gone; End finds out which.
      if (ready > 0 || (ready < 0 && errno != EINTR)) return;
    }
  }

  void End() {
    for (Asked& asked : asked_) {
      std::string error;
      TracedGpu gpu{asked.name, {}, {}, {asked.begin_ns, 0}};
      if (!asked.client.EndTrace(&gpu.trace, &error)) {
        Miss("the trace of the GPU " + asked.name + " is lost: " + error);
        continue;
      }
      gpu.window.end_ns = NowNs();
      gpu.trace.lack = OneLine(gpu.trace.lack, kLongestNameBytes);
      gpus_.push_back(std::move(gpu));
    }
    for (TracedGpu& gpu : gpus_) {
      // Parts that cannot be read are left out of both lists, which stay in step.
      std::vector<control::Client::Part> opened;
      for (control::Client::Part& part : gpu.trace.parts) {
        trace::Part reader;
        if (!reader.Open(std::move(part.region), gpu.SessionsOf(part.part.executor_id),
                         gpu.window)) {
          Miss("the part of the domain " + Text(part.part.trust_domain) +
               " cannot be read: " + strerror(errno));
          continue;
        }
        gpu.parts.push_back(std::move(reader));
        opened.push_back(std::move(part));
      }
      gpu.trace.parts = std::move(opened);
    }
  }

  void SayWhatIsMissing() {
    for (const TracedGpu& gpu : gpus_) {
      if (!gpu.trace.lack.empty()) Miss("of the GPU " + gpu.name + " " + gpu.trace.lack);
      for (size_t i = 0; i < gpu.parts.size(); ++i) SayWhatIsMissing(gpu, i);
    }
  }

  // Counts are the executor's own word, `end` is the scheduler's.
  void SayWhatIsMissing(const TracedGpu& gpu, size_t index) {
    const trace::Part& part = gpu.parts[index];
    const control::TracePart& said = gpu.trace.parts[index].part;
    const std::string domain = "domain " + Text(said.trust_domain);
    switch (static_cast<control::TraceEnd>(said.end)) {
      case control::TraceEnd::kWhole:
        break;
      case control::TraceEnd::kLost:
        Miss("the executor of " + domain + " ended meanwhile: " + Text(said.message) +
             "; what it had written until then is there");
        break;
      case control::TraceEnd::kSilent:
        Miss("the executor of " + domain + " did not answer in time; what it had written is there");
        break;
    }
    if (part.source() == wire::TraceSource::kNone) {
      Miss("the executor of " + domain + " has recorded nothing");
    }
    if (part.dropped() != 0) {
      Miss(std::to_string(part.dropped()) + " records of " + domain + " had no room beside " +
           std::to_string(wire::kTraceRecords) + ": trace a shorter time");
    }
    if (part.lost() != 0) {
      Miss(std::to_string(part.lost()) + " records of " + domain + " were lost by CUPTI");
    }
  }

  std::string Summary(const std::vector<trace::PartSum>& sums) const {
    std::vector<std::vector<std::string>> rows = {
        {"GPU", "DOMAIN", "TENANT", "KERNELS", "COPIES", "COMPUTED", "CHARGED", "RECORDED-BY"}};
    auto sum = sums.begin();
    for (const TracedGpu& gpu : gpus_) {
      for (size_t i = 0; i < gpu.parts.size(); ++i, ++sum) {
        AddRows(gpu, i, *sum, &rows);
      }
    }
    return FormatTable(rows);
  }

  // Each session that the scheduler names has a row, also if nothing of it was recorded; what
  // nobody answers for has its own; the last row is all together. COMPUTED is from the records,
  // CHARGED from the scheduler's account: large differences show that records are missing.
  static void AddRows(const TracedGpu& gpu, size_t index, const trace::PartSum& sum,
                      std::vector<std::vector<std::string>>* rows) {
    const trace::Part& part = gpu.parts[index];
    const control::TracePart& said = gpu.trace.parts[index].part;
    const std::string domain = Text(said.trust_domain);
    const std::string source =
        part.source() == wire::TraceSource::kCupti ? "CUPTI" : "executor, begin estimated";
    const auto add = [&](const std::string& tenant, const trace::Sum& its,
                         const std::string& charged) {
      rows->push_back({gpu.name, domain, tenant, std::to_string(its.kernels),
                       std::to_string(its.copies), Seconds(its.compute_ns), charged, source});
    };
    trace::Sum all;
    // Not the sum of the sessions': they run side by side.
    all.compute_ns = sum.compute_ns;
    uint64_t charged_ns = 0;
    for (const control::TraceSession& session : gpu.trace.sessions) {
      if (session.executor_id != said.executor_id) continue;
      const auto its = sum.of_each.find(session.session_id);
      add(Text(session.pod_namespace) + "/" + Text(session.pod) + "/" + Text(session.container),
          its == sum.of_each.end() ? trace::Sum{} : its->second, Seconds(session.time.compute_ns));
      charged_ns += session.time.compute_ns;
    }
    for (const auto& [id, its] : sum.of_each) {
      all.kernels += its.kernels;
      all.copies += its.copies;
      if (id != 0 && id != wire::kTraceOfExecutor) continue;
      add(id == wire::kTraceOfExecutor ? "(gpuloom itself)" : "(unknown)", its, "-");
    }
    add("(all)", all, Seconds(charged_ns));
  }

  const TraceCommand& command_;
  Answer outcome_;
  std::vector<Asked> asked_;
  std::vector<TracedGpu> gpus_;
};

}  // namespace

Answer Trace(const TraceCommand& command) { return Tracing(command).Run(); }

}  // namespace gpuloom::run
