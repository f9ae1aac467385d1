// SPDX-License-Identifier: Apache-2.0
// gpuloom-random-hostility: random hostile tenants beside honest ones that check every result, against the
// real processes; on softgpu, or on a GPU with GPULOOM_TEST_DRIVER=libcuda.so.1 (stack.h).
//
//   this process ─┬─ gpuloom-scheduler ── executors of the domains "shared", "elsewhere" and "wild"
//                 ├─ honest tenants (gpuloom-tenant bystander): one in "shared", one in "elsewhere"
//                 └─ hostile tenants (this program, --tenant): some in "shared", one in "wild", each
//                    followed by another when it has ended
//
// Now and then the hostile ones are ended, and everything they had must be back: their usage to the byte; and
// what executor and scheduler hold must not grow from the first such look to the last.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "agent/executor/process/sanitized.h"
#include "tests/hostile/random_tenant.h"
#include "tests/integration/stack.h"

namespace gpuloom::testing {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr char kUsage[] =
    "usage: gpuloom-random-hostility [options]\n"
    "  --seconds S     how long (default: 20)\n"
    "  --seed N        of the first hostile tenant; the others' follow (default: by the clock)\n"
    "  --tenants N     hostile ones at a time beside the honest one of their trust domain "
    "(default: 3)\n"
    "  --only-seed     every hostile tenant has the first one's seed\n"
    "  --trace         with every command of theirs in the log: session, name, words of the "
    "request, bytes of "
    "payload\n"
    "  --without A,B   commands whose names begin so are not sent\n"
    "  --no-wild       no tenant in a domain of its own that faults and never ends\n"
    "  --log FILE      of the scheduler and the executors (default: in the current directory; kept "
    "when\n"
    "                  something fails)\n"
    "GPULOOM_PACK and GPULOOM_TEST_DRIVER: as for the tests (docs/contributing.md)\n";

struct Options {
  uint64_t seed = 0;
  uint32_t seconds = 20;
  uint32_t tenants = 3;
  bool only_seed = false;
  bool trace = false;
  bool wild = true;
  std::string without;
  std::string log = "random_hostility.log";
};

// A look at a process. An image that is being copied may have 64 MiB; AddressSanitizer keeps 256 MiB of what is freed, and
// its shadow.
struct Footprint {
  pid_t pid = -1;
  uint64_t bytes = 0;
  size_t descriptors = 0;
  size_t threads = 0;
};
constexpr uint64_t kMayGrowBytes = (executor::kSanitized ? 768 : 256) * kMiB;
constexpr size_t kMayGrowCount = 32;  // pools of threads and descriptors are not always as full

Footprint Measure(pid_t pid) {
  return {pid, PrivateBytes(pid), DescriptorCount(pid), ThreadCount(pid)};
}

std::string Text(const Footprint& look) {
  char text[128];
  std::snprintf(text, sizeof(text), "%.1f MiB, %zu descriptors, %zu threads",
                static_cast<double>(look.bytes) / kMiB, look.descriptors, look.threads);
  return text;
}

class Honest {
 public:
  Honest(const char* where, Process process) : where_(where), process_(std::move(process)) {}
  ~Honest() { Stop(); }

  bool Start() {
    if (!process_.ReadLine("ready")) return Fail();
    thread_ = std::thread([this] {
      while (!stop_ && Round()) {
      }
    });
    return true;
  }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    process_.CloseInput();
  }
  bool failed() const { return failed_; }

  // After Stop.
  std::string Report() const {
    std::string text = "honest tenant " + std::string(where_) + ": " + std::to_string(rounds_) +
                       " rounds, every result right, worst step " + worst_;
    return failed_ ? "honest tenant " + std::string(where_) + " after " + std::to_string(rounds_) +
                         " rounds: " + failure_
                   : text;
  }

 private:
  bool Round() {
    process_.WriteLine("go");
    const std::optional<std::string> line = process_.ReadLine("slowest ");
    if (!line) return Fail();
    const double milliseconds = std::atof(line->c_str() + std::strlen("slowest "));
    if (milliseconds > worst_milliseconds_) {
      worst_milliseconds_ = milliseconds;
      worst_ = line->substr(std::strlen("slowest ")) + ", after " +
               std::to_string(
                   std::chrono::duration_cast<seconds>(steady_clock::now() - begin_).count()) +
               " s";
    }
    ++rounds_;
    return true;
  }
  bool Fail() {
    const std::string& said = process_.output();
    const size_t last = said.rfind('\n', said.size() < 2 ? 0 : said.size() - 2);
    failure_ = "it said \"" + said.substr(last == std::string::npos ? 0 : last + 1) + "\"";
    failed_ = true;
    return false;
  }

  const char* where_;
  Process process_;
  std::thread thread_;
  std::atomic<bool> stop_{false}, failed_{false};
  uint64_t rounds_ = 0;
  const steady_clock::time_point begin_ = steady_clock::now();
  double worst_milliseconds_ = 0;
  std::string worst_, failure_;
};

// What the hostile tenants say of their sessions.
struct Tally {
  uint64_t processes = 0, sessions = 0, refused = 0, commands = 0;
  std::map<uint32_t, uint64_t> ends;
  std::array<uint64_t, wire::kCommands.size()> succeeded{};
  std::array<uint32_t, wire::kCommands.size()> refusal{};  // a CUresult

  void Add(const std::string& output) {
    ++processes;
    for (size_t begin = 0, end; (end = output.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      std::istringstream words(output.substr(begin, end - begin));
      std::string kind, entry;
      uint64_t count = 0;
      uint32_t fatal = 0;
      words >> kind >> count >> fatal;
      refused += kind == "refused";
      if (kind != "session") continue;
      ++sessions;
      commands += count;
      ++ends[fatal];
      while (words >> entry) {
        size_t opcode = 0;
        unsigned times = 0, result = 0;
        if (std::sscanf(entry.c_str(), "%zu:%u:%u", &opcode, &times, &result) != 3 ||
            opcode >= succeeded.size()) {
          continue;
        }
        succeeded[opcode] += times;
        if (result != 0) refusal[opcode] = result;
      }
    }
  }
  void Print() const {
    std::printf("hostile: %llu processes, %llu sessions told of, %llu not let in, %llu commands\n",
                static_cast<unsigned long long>(processes),
                static_cast<unsigned long long>(sessions), static_cast<unsigned long long>(refused),
                static_cast<unsigned long long>(commands));
    for (const auto& [fatal, times] : ends) {
      std::printf("  %8llu ended: %s\n", static_cast<unsigned long long>(times),
                  std::string(wire::FatalText(static_cast<wire::Fatal>(fatal))).c_str());
    }
    std::string never;
    for (size_t i = 0; i < succeeded.size(); ++i) {
      if (succeeded[i] != 0) continue;
      never += " " + std::string(wire::kCommands[i].name) + " (" + std::to_string(refusal[i]) + ")";
    }
    std::printf("  commands that never succeeded:%s\n", never.empty() ? " none" : never.c_str());
  }
};

// Hostile tenants of one allocation, one after the other.
class Hostile {
 public:
  Hostile(const Allocation& allocation, RandomTenant::Habits habits)
      : allocation_(allocation), habits_(std::move(habits)) {}

  // Starts one with this seed when none runs. True when it did.
  bool Follow(uint64_t seed, Tally* tally) {
    if (process_.pid() > 0 && !process_.Wait(Milliseconds(1))) return false;
    End(tally);
    seed_ = seed;
    process_ = Process({"/proc/self/exe", "--tenant", allocation_.directory, std::to_string(seed),
                        habits_.wild ? "wild" : "tame", habits_.trace ? "trace" : "silent",
                        habits_.without});
    return true;
  }
  void End(Tally* tally) {
    if (process_.pid() <= 0) return;
    process_.Signal(SIGKILL);
    (void)process_.Wait();
    tally->Add(process_.output());
    process_ = Process();
  }
  const Allocation& allocation() const { return allocation_; }
  uint64_t seed() const { return seed_; }

 private:
  Allocation allocation_;
  RandomTenant::Habits habits_;
  uint64_t seed_ = 0;
  Process process_;
};

class Run {
 public:
  explicit Run(const Options& options) : options_(options), next_seed_(options.seed) {}

  // Whether all is well.
  bool Go();

 private:
  void Fail(const std::string& what);
  // Lets them work until then.
  void Work(steady_clock::time_point until);
  // Ends them and looks at what is left.
  void Look();

  const Options& options_;
  uint64_t next_seed_;
  bool failed_ = false;
  Stack stack_{Stack::Options{.drain_timeout = "10s", .idle_timeout = "2s", .tells_faults = true}};
  std::vector<Hostile> hostile_;
  std::vector<std::unique_ptr<Honest>> honest_;
  Tally tally_;
  struct Both {
    testing::Footprint executor, scheduler;
  };
  Both MeasureBoth() {
    return {Measure(stack_.ExecutorOf("shared")), Measure(stack_.scheduler().pid())};
  }
  // What has grown since the first look; empty: nothing.
  std::string Growth(const Both& now) const;
  std::vector<Both> looks_;
  steady_clock::time_point begin_;
};

void Run::Fail(const std::string& what) {
  std::printf("FAILED: %s\n", what.c_str());
  if (!failed_) {
    std::printf("  hostile tenants at that time had the seeds");
    for (const Hostile& hostile : hostile_) {
      std::printf(" %llu", static_cast<unsigned long long>(hostile.seed()));
    }
    std::printf("\n");
  }
  failed_ = true;
  std::fflush(stdout);
}

void Run::Work(steady_clock::time_point until) {
  while (!failed_ && steady_clock::now() < until) {
    for (Hostile& hostile : hostile_) {
      if (hostile.Follow(options_.only_seed ? options_.seed : next_seed_, &tally_)) ++next_seed_;
    }
    for (const auto& honest : honest_) {
      if (honest->failed()) Fail("an honest tenant has lost");
    }
    if (!failed_ && stack_.ExecutorOf("shared") != looks_[0].executor.pid) {
      Fail("the honest tenant's executor has ended");
    }
  }
}

void Run::Look() {
  for (Hostile& hostile : hostile_) hostile.End(&tally_);
  for (const Hostile& hostile : hostile_) {
    // What the driver keeps for them until its device is idle, or its context ends, stays charged.
    if (!Eventually([&] { return stack_.State(hostile.allocation()).sessions == 0; })) {
      Fail("allocation " + hostile.allocation().name + " still has sessions");
    }
  }
  looks_.push_back(MeasureBoth());
  std::printf("%6lld s: executor %s; scheduler %s\n",
              static_cast<long long>(
                  std::chrono::duration_cast<seconds>(steady_clock::now() - begin_).count()),
              Text(looks_.back().executor).c_str(), Text(looks_.back().scheduler).c_str());
  std::fflush(stdout);
}

std::string Run::Growth(const Both& now) const {
  for (const auto& [name, what] :
       {std::pair{"executor", &Both::executor}, {"scheduler", &Both::scheduler}}) {
    const testing::Footprint& first = looks_[1].*what;
    const testing::Footprint& last = now.*what;
    if (last.bytes > first.bytes + kMayGrowBytes ||
        last.descriptors > first.descriptors + kMayGrowCount ||
        last.threads > first.threads + kMayGrowCount) {
      return std::string(name) + " has grown from " + Text(first) + " to " + Text(last);
    }
  }
  return "";
}

bool Run::Go() {
  // Room for the limits that they raise first (tenant_main.cc): a hostile one that did would have used up its quota.
  constexpr uint64_t kQuotaBytes = 384 * kMiB;
  const Allocation near =
      stack_.Allocate({.pod = "honest", .domain = "shared", .quota_bytes = kQuotaBytes});
  const Allocation far =
      stack_.Allocate({.pod = "honest", .domain = "elsewhere", .quota_bytes = kQuotaBytes});
  for (uint32_t i = 0; i < options_.tenants; ++i) {
    hostile_.emplace_back(
        stack_.Allocate({.pod = "hostile", .domain = "shared"}),
        RandomTenant::Habits{.trace = options_.trace, .without = options_.without});
  }
  if (options_.wild) {
    hostile_.emplace_back(
        stack_.Allocate({.pod = "wild", .domain = "wild"}),
        RandomTenant::Habits{.wild = true, .trace = options_.trace, .without = options_.without});
  }
  honest_.push_back(
      std::make_unique<Honest>("beside them", stack_.Tenant(near, {"bystander", "limits"})));
  honest_.push_back(
      std::make_unique<Honest>("elsewhere", stack_.Tenant(far, {"bystander", "limits"})));
  for (const auto& honest : honest_) {
    if (!honest->Start()) {
      Fail(honest->Report());
      return false;
    }
  }
  begin_ = steady_clock::now();
  looks_.push_back(MeasureBoth());
  std::printf("before:   executor %s; scheduler %s\n", Text(looks_[0].executor).c_str(),
              Text(looks_[0].scheduler).c_str());
  // Pools and caches have filled at the first look, so there are two at least.
  const uint32_t periods = std::max(2u, options_.seconds / 60);
  for (uint32_t i = 1; i <= periods && !failed_; ++i) {
    Work(begin_ + seconds(options_.seconds) * i / periods);
    Look();
  }
  for (const auto& honest : honest_) {
    honest->Stop();
    std::printf("%s\n", honest->Report().c_str());
    if (honest->failed() && !failed_) Fail("an honest tenant has lost");
  }
  tally_.Print();
  // What waits for an idle device is let go of now that the honest ones have stopped.
  if (!failed_ && !Eventually([this] { return Growth(MeasureBoth()).empty(); })) {
    Fail(Growth(MeasureBoth()));
  }
  honest_.clear();
  // Nobody works any more: what waited for that is given back while the executors live.
  for (const Hostile& hostile : hostile_) {
    if (failed_ || stack_.BackToNothing(hostile.allocation(), Milliseconds(60'000))) continue;
    Fail("the executor of allocation " + hostile.allocation().name + " still holds " +
         std::to_string(stack_.State(hostile.allocation()).memory_used_bytes) +
         " bytes for sessions that have ended");
  }
  if (!failed_) {
    // The next one is served, where the hostile ones were.
    for (const Hostile& hostile : hostile_) {
      Process next = stack_.Tenant(hostile.allocation(), {"vadd"});
      if (const int status = next.ExitStatus(); status != 0) {
        Fail("the next tenant of " + hostile.allocation().name + " ended with " +
             std::to_string(status) + ": " + next.output());
      }
    }
  }
  // When the executors have ended, too, nobody is charged for anything.
  for (const Hostile& hostile : hostile_) {
    if (failed_ || stack_.BackToNothing(hostile.allocation(), Milliseconds(60'000))) continue;
    Fail("allocation " + hostile.allocation().name + " still has " +
         std::to_string(stack_.State(hostile.allocation()).memory_used_bytes) + " bytes");
  }
  if (!stack_.Ended() && !failed_) Fail("a process was left, or the scheduler did not end well");
  return !failed_;
}

// The lines that say more than that a session broke the protocol, the last ones.
void PrintLog(const std::string& path) {
  std::ifstream log(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(log, line);) {
    if (line.find("broke the protocol") == std::string::npos) lines.push_back(line);
  }
  for (size_t i = lines.size() < 60 ? 0 : lines.size() - 60; i < lines.size(); ++i) {
    std::printf("  | %s\n", lines[i].c_str());
  }
  std::printf("the whole log: %s\n", path.c_str());
}

int Main(const std::vector<std::string>& words) {
  if (words.size() == 7 && words[1] == "--tenant") {
    return RandomTenant(
               words[2], std::strtoull(words[3].c_str(), nullptr, 10),
               {.wild = words[4] == "wild", .trace = words[5] == "trace", .without = words[6]})
        .Run();
  }
  Options options;
  options.seed = static_cast<uint64_t>(std::time(nullptr)) * 100'000;
  for (size_t i = 1; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    const auto number = [&] { return std::strtoull(words[++i].c_str(), nullptr, 10); };
    if (words[i] == "--only-seed") {
      options.only_seed = true;
    } else if (words[i] == "--trace") {
      options.trace = true;
    } else if (words[i] == "--no-wild") {
      options.wild = false;
    } else if (words[i] == "--seconds" && has_value) {
      options.seconds = static_cast<uint32_t>(number());
    } else if (words[i] == "--seed" && has_value) {
      options.seed = number();
    } else if (words[i] == "--tenants" && has_value) {
      options.tenants = static_cast<uint32_t>(number());
    } else if (words[i] == "--without" && has_value) {
      options.without = words[++i];
    } else if (words[i] == "--log" && has_value) {
      options.log = words[++i];
    } else {
      std::fprintf(stderr, "gpuloom-random-hostility: what is %s?\n%s", words[i].c_str(), kUsage);
      return 2;
    }
  }
  const int log =
      open(options.log.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) {
    std::fprintf(stderr, "gpuloom-random-hostility: --log %s: %s\n", options.log.c_str(),
                 strerror(errno));
    return 2;
  }
  std::printf("gpuloom-random-hostility: seed %llu, %u s\n",
              static_cast<unsigned long long>(options.seed), options.seconds);
  std::fflush(stdout);
  dup2(log, STDERR_FILENO);  // of all children, too
  const bool well = Run(options).Go();
  if (!well) PrintLog(options.log);
  if (well) unlink(options.log.c_str());
  std::printf(well ? "well\n" : "NOT well: --seed %llu\n",
              static_cast<unsigned long long>(options.seed));
  return well ? 0 : 1;
}

}  // namespace
}  // namespace gpuloom::testing

int main(int argc, char** argv) {
  return gpuloom::testing::Main(std::vector<std::string>(argv, argv + argc));
}
