// SPDX-License-Identifier: Apache-2.0
// gpuloom-valid-sequences: makes long sequences of valid calls of the driver API on several threads,
// at random by a seed or in order, and checks that every call succeeds and all memory holds what it
// must. Knows nothing of gpuloom: runs on any libcuda, and needs nothing but libc beside it.
//
// A run is a row of episodes, each with a seed of its own. In an episode every thread has objects of
// its own and takes its steps in rounds; between rounds threads hand objects to each other. The
// steps of an episode depend on its seed, the number of threads and the options alone.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include "tests/sequences/world.h"

namespace gpuloom::sequences {
namespace {

Driver driver;

constexpr char kUsage[] =
    "usage: gpuloom-valid-sequences [options]\n"
    "  --libcuda PATH     the driver to use (default: libcuda.so.1)\n"
    "  --seed N           of the first episode; the others' follow (default: by the clock)\n"
    "  --seconds S        no new episode after this time (default: 20)\n"
    "  --episodes N       at most so many episodes\n"
    "  --threads T        that work at a time (default: 4)\n"
    "  --processes P      that do so at a time, each with other seeds (default: 1)\n"
    "  --ordered          every kind of step in turn; --random: at random; default: in turns\n"
    "  --rounds N         of an episode (default: 4)\n"
    "  --steps N          of a thread in a round (default: 60)\n"
    "  --only A,B         steps whose names begin so, e.g. memory,stream.make\n"
    "  --without A,B      steps that are left out\n"
    "  --patience S       a step that takes longer is a failure (default: 120)\n"
    "  --check            look at all memory behind every step: finds the step, hides what needs "
    "haste\n"
    "  --list             print the names of the steps\n";

struct Options {
  std::string library = "libcuda.so.1";
  uint64_t seed = 0;
  uint32_t seconds = 20;
  uint32_t episodes = UINT32_MAX;
  uint32_t threads = 4;
  uint32_t processes = 1;
  uint32_t rounds = 4;
  uint32_t steps = 60;
  uint32_t patience = 120;
  bool ordered = false;
  bool random = false;
  bool check = false;
  std::vector<std::string> only;
  std::vector<std::string> without;
  std::vector<std::string> peer;  // of this program's own
};

bool BeginsWithOneOf(const char* name, const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes) {
    if (std::strncmp(name, prefix.c_str(), prefix.size()) == 0) return true;
  }
  return false;
}

std::vector<Step> ChosenSteps(const Options& options) {
  std::vector<Step> chosen;
  for (const Step& step : AllSteps()) {
    if (!options.only.empty() && !BeginsWithOneOf(step.name, options.only)) continue;
    if (!BeginsWithOneOf(step.name, options.without)) chosen.push_back(step);
  }
  return chosen;
}

// All threads of an episode wait here for each other, again and again.
class Meeting {
 public:
  explicit Meeting(uint32_t threads) : threads_(threads) {}
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t turn = turn_;
    if (++waiting_ == threads_) {
      waiting_ = 0;
      ++turn_;
      all_.notify_all();
      return;
    }
    all_.wait(lock, [&] { return turn_ != turn; });
  }

 private:
  const uint32_t threads_;
  std::mutex mutex_;
  std::condition_variable all_;
  uint32_t waiting_ = 0;
  uint64_t turn_ = 0;
};

class Episode {
 public:
  Episode(const Options& options, const std::vector<Step>& steps, uint64_t seed, Shared* shared)
      : options_(options),
        steps_(steps),
        seed_(seed),
        ordered_(options.ordered || (!options.random && seed % 4 == 3)),
        shared_(shared),
        meeting_(options.threads),
        parcels_(options.threads) {
    for (const Step& step : steps) weight_ += step.weight;
  }

  void Run() {
    for (uint32_t i = 0; i < options_.threads; ++i) {
      worlds_.push_back(std::make_unique<World>(shared_, static_cast<int>(i)));
    }
    SetThisJournal(&worlds_[0]->journal());
    DO(cuDevicePrimaryCtxRetain, &shared_->primary, shared_->device);
    DO(cuCtxSetCurrent, shared_->primary);
    worlds_[0]->SeedStep(seed_);
    common_ = LoadModule(*worlds_[0], 1, false, 0);
    common_->shared = true;
    for (const char* name : {"add", "mix", "stamp", "copy", "bump", "reverse", "spin", "fetch",
                             "fetch_line", "store"}) {
      (void)common_->Function(name);
    }
    SetThisJournal(nullptr);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < options_.threads; ++i) {
      threads.emplace_back([this, i] { RunThread(i); });
    }
    for (std::thread& thread : threads) thread.join();
    SetThisJournal(&worlds_[0]->journal());
    End();
  }

 private:
  // How the context fares: 0, 1: it goes with what was left in it.
  uint32_t Ending() const { return static_cast<uint32_t>(seed_ % 5); }

  void RunThread(uint32_t index) {
    World& world = *worlds_[index];
    SetThisJournal(&world.journal());
    DO(cuCtxSetCurrent, shared_->primary);
    world.Begin(Random::Derive(seed_, index));
    world.modules.push_back(common_);
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      for (uint32_t i = 0; i < options_.steps; ++i) TakeStep(&world, round * options_.steps + i);
      parcels_[index] = world.Pack();
      world.journal().Pause();
      meeting_.Wait();
      world.Unpack(parcels_[(index + 1) % options_.threads]);
      meeting_.Wait();
    }
    world.End(Ending() > 1);
    world.journal().Pause();
  }

  void TakeStep(World* world, uint32_t number) {
    const uint64_t thread_seed = Random::Derive(seed_, static_cast<uint64_t>(world->index()));
    world->SeedStep(Random::Derive(thread_seed, 1000 + number));
    for (size_t tries = 0; tries < 20; ++tries) {
      const Step& step =
          ordered_
              ? steps_[(number + static_cast<uint32_t>(world->index()) + tries) % steps_.size()]
              : AnyStep(&world->random());
      world->journal().Begin(step.name);
      if (step.run(*world)) {
        if (options_.check) world->Settle();
        return;
      }
      world->journal().Undo();
    }
  }

  const Step& AnyStep(Random* random) const {
    uint32_t left = random->Below(weight_);
    for (const Step& step : steps_) {
      if (left < step.weight) return step;
      left -= step.weight;
    }
    return steps_.back();
  }

  void End() {
    DO(cuCtxSynchronize);
    if (Ending() > 1) {
      worlds_[0]->modules.push_back(common_);
      worlds_[0]->Unload(common_);
    } else {
      common_->gone = true;
    }
    DO(cuCtxSetCurrent, nullptr);
    if (Ending() == 0) {
      worlds_[0]->journal().Begin("reset");
      DO(cuDevicePrimaryCtxReset_v2, shared_->device);
    } else if (Ending() == 1) {
      worlds_[0]->journal().Begin("last release");
      unsigned flags = 0;
      int active = 1;
      while (active != 0) {
        DO(cuDevicePrimaryCtxRelease_v2, shared_->device);
        DO(cuDevicePrimaryCtxGetState, shared_->device, &flags, &active);
      }
    }
    worlds_.clear();
    std::lock_guard<std::mutex> lock(shared_->kept_mutex);
    shared_->kept.clear();
  }

  const Options& options_;
  const std::vector<Step>& steps_;
  const uint64_t seed_;
  const bool ordered_;
  Shared* const shared_;
  uint32_t weight_ = 0;
  Meeting meeting_;
  std::vector<Parcel> parcels_;
  std::vector<std::unique_ptr<World>> worlds_;
  ModuleRef common_;
};

std::string Replay(const Options& options, uint64_t seed) {
  std::string command = "gpuloom-valid-sequences --seed " + std::to_string(seed) +
                        " --episodes 1 --threads " + std::to_string(options.threads) +
                        " --rounds " + std::to_string(options.rounds) + " --steps " +
                        std::to_string(options.steps);
  if (options.ordered) command += " --ordered";
  if (options.random) command += " --random";
  const auto list = [&](const char* name, const std::vector<std::string>& prefixes) {
    for (size_t i = 0; i < prefixes.size(); ++i) {
      command += (i == 0 ? std::string(name) : std::string(",")) + prefixes[i];
    }
  };
  list(" --only ", options.only);
  list(" --without ", options.without);
  return command;
}

int Run(const Options& options) {
  const std::vector<Step> steps = ChosenSteps(options);
  if (steps.empty()) {
    std::fprintf(stderr, "gpuloom-valid-sequences: no step is left: see --list\n");
    return 2;
  }
  std::string error;
  if (!Load(options.library.c_str(), &driver, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  SetReplay(Replay(options, options.seed));
  if (!options.peer.empty()) return RunPeer(options.peer);
  Shared shared;
  shared.library = options.library;
  shared.threads = static_cast<int>(options.threads);
  DO(cuInit, 0);
  DO(cuDeviceGet, &shared.device, 0);
  DO(cuDevicePrimaryCtxRetain, &shared.primary, shared.device);
  DO(cuCtxSetCurrent, shared.primary);
  DO(cuCtxGetStreamPriorityRange, &shared.priority_least, &shared.priority_greatest);
  CUdevResource all = {};
  shared.has_green = driver.cuGreenCtxCreate != nullptr &&
                     driver.cuDeviceGetDevResource(shared.device, &all, CU_DEV_RESOURCE_TYPE_SM) !=
                         CUDA_ERROR_NOT_SUPPORTED;
  CUevent event = nullptr;
  const CUresult made =
      driver.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  shared.has_interprocess = made != CUDA_ERROR_NOT_SUPPORTED;
  if (shared.has_interprocess) {
    Judge("cuEventCreate", made);
    DO(cuEventDestroy_v2, event);
  }
  DO(cuCtxSetCurrent, nullptr);
  DO(cuDevicePrimaryCtxRelease_v2, shared.device);
  WatchForStandstill(std::chrono::seconds(options.patience));
  const auto begin = std::chrono::steady_clock::now();
  uint32_t count = 0;
  for (; count < options.episodes; ++count) {
    if (std::chrono::steady_clock::now() - begin >= std::chrono::seconds(options.seconds)) break;
    SetReplay(Replay(options, options.seed + count));
    Episode(options, steps, options.seed + count, &shared).Run();
  }
  std::printf(
      "gpuloom-valid-sequences: %u episodes from seed %llu on %u threads: every call "
      "succeeded, all memory was right\n",
      count, static_cast<unsigned long long>(options.seed), options.threads);
  return 0;
}

int RunProcesses(const Options& options, const std::vector<std::string>& arguments) {
  std::vector<pid_t> children;
  for (uint32_t i = 0; i < options.processes; ++i) {
    std::vector<std::string> words = arguments;
    // Later ones count.
    words.insert(words.end(), {"--processes", "1", "--seed",
                               std::to_string(options.seed + uint64_t{i} * 1'000'000)});
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    pid_t child = 0;
    if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ) != 0) {
      std::perror("gpuloom-valid-sequences: cannot start itself");
      return 2;
    }
    children.push_back(child);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      continue;
    }
    ++failed;
    if (WIFSIGNALED(status)) {
      std::fprintf(stderr, "gpuloom-valid-sequences: process %d ended by signal %d\n", child,
                   WTERMSIG(status));
    }
  }
  return failed == 0 ? 0 : 1;
}

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end != begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool ReadNumber(const std::string& text, uint64_t most, uint64_t* number) {
  char* end = nullptr;
  *number = std::strtoull(text.c_str(), &end, 10);
  return !text.empty() && text[0] != '-' && *end == '\0' && *number <= most;
}

// False when it cannot be read.
bool Read(const std::vector<std::string>& arguments, Options* options, bool* list) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    std::string name = arguments[i], value;
    const auto one_of = [&](const char* wanted) { return name == wanted; };
    if (one_of("--ordered")) {
      options->ordered = true;
      continue;
    }
    if (one_of("--random")) {
      options->random = true;
      continue;
    }
    if (one_of("--check")) {
      options->check = true;
      continue;
    }
    if (one_of("--list")) {
      *list = true;
      continue;
    }
    if (const size_t at = name.find('='); at != std::string::npos) {
      value = name.substr(at + 1);
      name.resize(at);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    }
    uint64_t number = 0;
    bool good = true;
    const auto read = [&](uint32_t* out, uint64_t least) {
      good = ReadNumber(value, 1'000'000'000, &number) && number >= least;
      *out = static_cast<uint32_t>(number);
    };
    if (one_of("--libcuda")) {
      options->library = value;
    } else if (one_of("--seed")) {
      good = ReadNumber(value, UINT64_MAX, &options->seed);
    } else if (one_of("--seconds")) {
      read(&options->seconds, 0);
    } else if (one_of("--episodes")) {
      read(&options->episodes, 1);
      options->seconds = 1'000'000'000;
    } else if (one_of("--threads")) {
      read(&options->threads, 1);
    } else if (one_of("--processes")) {
      read(&options->processes, 1);
    } else if (one_of("--rounds")) {
      read(&options->rounds, 1);
    } else if (one_of("--steps")) {
      read(&options->steps, 1);
    } else if (one_of("--patience")) {
      read(&options->patience, 1);
    } else if (one_of("--only")) {
      options->only = SplitList(value);
    } else if (one_of("--peer")) {
      options->peer = SplitList(value);
    } else if (one_of("--without")) {
      options->without = SplitList(value);
    } else {
      good = false;
    }
    if (!good) {
      std::fprintf(stderr, "gpuloom-valid-sequences: what is %s %s?\n", name.c_str(),
                   value.c_str());
      return false;
    }
  }
  return true;
}

}  // namespace

const Driver& Cu() { return driver; }

const std::vector<Step>& AllSteps() {
  static const std::vector<Step> kSteps = [] {
    std::vector<Step> all;
    for (const auto& some : {MemorySteps(), StreamSteps(), WorkSteps(), ModuleSteps(), GraphSteps(),
                             ArraySteps(), ContextSteps(), ProcessSteps()}) {
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }();
  return kSteps;
}

int Main(const std::vector<std::string>& arguments) {
  Options options;
  options.seed = static_cast<uint64_t>(std::time(nullptr)) * 1000;
  bool list = false;
  if (!Read(arguments, &options, &list)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  if (list) {
    for (const Step& step : ChosenSteps(options)) std::printf("%s\n", step.name);
    return 0;
  }
  if (!options.peer.empty()) return Run(options);
  std::printf("gpuloom-valid-sequences: seed %llu\n",
              static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
  return options.processes > 1 ? RunProcesses(options, arguments) : Run(options);
}

}  // namespace gpuloom::sequences

int main(int argc, char** argv) {
  return gpuloom::sequences::Main(std::vector<std::string>(argv, argv + argc));
}
