// SPDX-License-Identifier: Apache-2.0
// The definition of the whole command line with CLI11, from which help, completion and manual pages
// are made as well (command_list.h): descriptions, defaults and examples stand here and nowhere
// else. Each subcommand fills a struct of its own, shared with its callbacks, and hands it over
// only if it was named.
#include "agent/run/command_line.h"

#include <stdio.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <string_view>

#include "agent/answer/command_line.h"
#include "agent/node/command_mistake.h"
#include "agent/node/duration.h"
#include "agent/node/node_folders.h"
#include "agent/node/process.h"
#include "agent/node/size.h"
#include "agent/policy_command/command_line.h"
#include "agent/run/command_list.h"
#include "proto/control/version.h"

namespace gpuloom::run {
namespace {

// As in a policy: whole per cent, with the sign. Throws what CLI11 shows as a mistake.
uint32_t PercentOf(const char* option, const std::string& text) {
  uint32_t percent = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, percent);
  if (read.ec != std::errc() || std::string_view(read.ptr, end) != "%" || percent < 1 ||
      percent > 100) {
    throw CLI::ValidationError(option, "'" + text + "': write a share from 1% to 100%");
  }
  return percent;
}

// The same option of all commands that ask schedulers (SearchedFolders); that of `run` means
// another thing.
void AddStateDir(CLI::App* command, std::string* state_dir) {
  command->add_option(
      "--state-dir", *state_dir,
      "state folder of the node's agent, or of one scheduler (default: "
      "$GPULOOM_STATE_DIR, or /var/lib/gpuloom, and those of this user's gpuloom run)");
}

// Commands that differ in nothing but what they are about.
void AddStatus(CLI::App* app, const char* name, const char* what, StatusCommand::About about,
               std::optional<StatusCommand>* status) {
  CLI::App* added = app->add_subcommand(name, what);
  // Shared with the callbacks, which run during parsing, after this function has returned.
  auto command = std::make_shared<StatusCommand>();
  command->about = about;
  AddStateDir(added, &command->state_dir);
  AddOutputOption(added, [command](Format format) { command->format = format; });
  // Called only if this subcommand was named.
  added->callback([command, status] { *status = *command; });
}

void AddTop(CLI::App* app, std::optional<TopCommand>* top) {
  CLI::App* added = app->add_subcommand("top",
                                        "Shows, again and again, what this machine's GPUs and "
                                        "their tenants do: GPU time, memory, kernels, waiting.\n"
                                        "Example: gpuloom top --sort memory");
  auto command = std::make_shared<TopCommand>();
  AddStateDir(added, &command->state_dir);
  added->add_option_function<std::string>(
      "--interval",
      [command](const std::string& text) {
        const auto interval = ParseDuration(text);
        if (!interval || *interval < std::chrono::seconds(1) || *interval > std::chrono::hours(1)) {
          throw CLI::ValidationError("--interval",
                                     "'" + text +
                                         "': write a time from 1s, in which executors tell their "
                                         "figures, to 60m");
        }
        command->interval = *interval;
      },
      "time between two looks (2s)");
  // --once and -n say the same thing; both at once are a mistake.
  CLI::Option* times =
      added
          ->add_option("-n,--times", command->times,
                       "end after so many tables, printed one below the other (without end)")
          ->check(CLI::Range(1, 1'000'000));
  added
      ->add_flag_callback(
          "--once", [command] { command->times = 1; }, "the same as -n 1")
      ->excludes(times);
  added
      ->add_option_function<std::string>(
          "--sort",
          [command](const std::string& name) {
            for (size_t i = 0; i < std::size(kTopOrders); ++i) {
              // The check below lets no other name through.
              if (name == kTopOrders[i]) command->order = static_cast<TopOrder>(i);
            }
          },
          "which tenants come first, by what they had in the interval; its first letter is the key "
          "that does so (time)")
      ->check(
          CLI::IsMember(std::vector<std::string>(std::begin(kTopOrders), std::end(kTopOrders))));
  AddOutputOption(added, [command](Format format) { command->format = format; });
  added->callback([command, top] { *top = *command; });
}

void AddDoctor(CLI::App* app, std::optional<DoctorCommand>* doctor) {
  CLI::App* added = app->add_subcommand("doctor",
                                        "Looks at this node, and says of everything that gpuloom "
                                        "needs there whether it is so and what to do.\n"
                                        "Example: gpuloom doctor");
  auto command = std::make_shared<DoctorCommand>();
  // The doctor looks at what is installed with this program, wherever that is.
  command->program = OwnProgram();
  AddStateDir(added, &command->state_dir);
  command->kubelet_dir = KubeletDir();
  added->add_option("--kubelet-dir", command->kubelet_dir,
                    "the kubelet's folder ($GPULOOM_KUBELET_DIR, or /var/lib/kubelet)");
  added->add_option("--policy", command->policy_file, "the agent's policy file")
      ->capture_default_str();
  added->add_option(
      "--root", command->root,
      "look at the file system below this folder, such as a node's that is mounted there: /host");
  AddOutputOption(added, [command](Format format) { command->format = format; });
  added->callback([command, doctor] { *doctor = *command; });
}

// suspend and resume, which fill the same struct: only one of them can be named.
CLI::App* AddSuspend(CLI::App* app, bool suspends, SuspendCommand* command) {
  CLI::App* added = app->add_subcommand(
      suspends ? "suspend" : "resume",
      suspends ? "Stops a pod's work on this machine's GPUs until gpuloom resume, and waits until "
                 "nothing of it runs there.\n"
                 "Example: gpuloom suspend team-a/train-7"
               : "Lets a pod's work on this machine's GPUs go on.\n"
                 "Example: gpuloom resume team-a/train-7");
  added
      ->add_option_function<std::string>(
          "pod",
          [command](const std::string& text) {
            if (ParseTarget(text, command)) return;
            throw CLI::ValidationError(
                "pod", "'" + text + "': write NAMESPACE/POD or NAMESPACE/POD/CONTAINER");
          },
          "the pod, as NAMESPACE/POD; NAMESPACE/POD/CONTAINER for one container. The commands of "
          "gpuloom run are pods of the namespace local")
      ->required();
  AddStateDir(added, &command->state_dir);
  AddOutputOption(added, [command](Format format) { command->format = format; });
  // Resuming waits for nothing.
  if (!suspends) return added;
  added->add_option_function<std::string>(
      "--timeout",
      [command](const std::string& text) {
        const auto timeout = ParseDuration(text);
        if (!timeout) {
          throw CLI::ValidationError("--timeout", "'" + text + "' is no time: write 10s or 2m");
        }
        command->timeout = *timeout;
      },
      "how long to wait for what runs to end (10s)");
  return added;
}

void AddDrain(CLI::App* app, std::optional<DrainCommand>* drain) {
  CLI::App* added = app->add_subcommand(
      "drain",
      "Gives this machine's GPUs, or one of them, to nobody new; what runs goes on, and is "
      "listed.\n"
      "Example: gpuloom drain GPU-1a2b3c4d --reason 'new fans' --wait --timeout 120m");
  auto command = std::make_shared<DrainCommand>();
  added->add_option("gpu", command->gpu,
                    "the GPU as gpuloom gpus names it, or the first 12 letters of that (all)");
  CLI::Option* undo = added->add_flag("--undo", command->undo, "give them to everybody again");
  // A reason explains a drain; undoing one needs none.
  added->add_option("--reason", command->reason, "the reason that states, events and refusals show")
      ->excludes(undo);
  CLI::Option* wait =
      added->add_flag("--wait", command->wait, "wait until nobody is there any more");
  wait->excludes(undo);
  added
      ->add_option_function<std::string>(
          "--timeout",
          [command](const std::string& text) {
            const auto timeout = ParseDuration(text);
            if (!timeout) {
              throw CLI::ValidationError("--timeout",
                                         "'" + text + "' is no time: write 30s or 120m");
            }
            command->timeout = *timeout;
          },
          "how long to wait at most; the GPUs stay drained (without end)")
      ->needs(wait);
  AddStateDir(added, &command->state_dir);
  AddOutputOption(added, [command](Format format) { command->format = format; });
  added->callback([command, drain] { *drain = *command; });
}

CLI::App* AddTrace(CLI::App* app, TraceCommand* command) {
  CLI::App* added = app->add_subcommand(
      "trace",
      "Records for a while what this machine's GPUs do for all tenants, and writes it as a file "
      "for https://ui.perfetto.dev or chrome://tracing.\n"
      "Example: gpuloom trace --seconds 5 -o trace.json");
  // With the margin that trace.cc adds this stays below what a scheduler records at most.
  constexpr double kMostSeconds = 240;
  added
      ->add_option_function<std::string>(
          "--seconds",
          [command](const std::string& text) {
            double seconds = 0;
            const char* const end = text.data() + text.size();
            const auto read = std::from_chars(text.data(), end, seconds);
            // Written so that no number is none, either.
            if (read.ec != std::errc() || read.ptr != end ||
                !(seconds >= 0.001 && seconds <= kMostSeconds)) {
              throw CLI::ValidationError("--seconds", text + ": write seconds from 0.001 to 240");
            }
            command->time = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
          },
          "how long, at most 240; what has no more room is dropped and counted")
      ->type_name("S")
      ->required();
  added->add_option("-o,--output", command->file, "the file; - is the standard output")->required();
  AddStateDir(added, &command->state_dir);
  return added;
}

}  // namespace

std::optional<CommandLine> ParseCommandLine(int argc, char** argv, int* exit_status) {
  CommandLine line;
  bool show_version = false;
  CLI::App app("gpuloom: CUDA programs of many tenants on one GPU.");
  app.add_flag("--version", show_version, "print the version and exit");
  app.require_subcommand(0, 1);
  // One sentence and where to read on, instead of the whole help.
  app.failure_message([](const CLI::App* parsed, const CLI::Error& mistake) {
    return CommandMistake("gpuloom", *parsed, mistake);
  });
  CLI::App* run = app.add_subcommand(
      "run",
      "Runs a command as a tenant of a GPU of this machine, without Kubernetes.\n"
      "Example: gpuloom run --gpu 0 --memory 8GiB -- python3 train.py");
  CLI::Option* gpu = run->add_option("--gpu", line.gpu, "the GPU: its number, or its UUID (GPU-…)")
                         ->capture_default_str();
  run->add_flag("--softgpu", line.softgpu, "use the software GPU: no NVIDIA driver is needed")
      ->excludes(gpu);
  run->add_option("--slots", line.slots,
                  "slots of the GPU, of 10; each has an equal part of its memory")
      ->capture_default_str()
      ->check(CLI::Range(1, kSlotsPerGpu));
  run->add_option_function<std::string>(
      "--memory",
      [&line](const std::string& text) {
        std::string error;
        const std::optional<uint64_t> size_bytes = ParseSize(text, &error);
        if (!size_bytes) throw CLI::ValidationError("--memory", error);
        // Less than a granule would be no memory at all.
        if (*size_bytes < kQuotaGranuleBytes) {
          throw CLI::ValidationError("--memory", "'" + text + "' is below the smallest quota, " +
                                                     FormatSize(kQuotaGranuleBytes));
        }
        line.memory_bytes = size_bytes;
      },
      "device memory that the command may use, instead of the slots' part: 512MiB, 8GiB");
  run->add_option(
         "--weight", line.weight,
         "its share of the GPU's time, relative to the weights of the other commands (100)")
      ->check(CLI::Range(1, 1000));
  run->add_option_function<std::string>(
      "--priority",
      [&line](const std::string& text) {
        constexpr const char* kNames[] = {"high", "normal", "low"};
        for (uint32_t i = 0; i < std::size(kNames); ++i) {
          // 0 is "not said".
          if (text == kNames[i]) line.priority = i + 1;
        }
        if (line.priority == 0) {
          throw CLI::ValidationError("--priority", "'" + text + "': write high, normal or low");
        }
      },
      "high goes before normal, which is the default, and normal before low");
  // 0 in the struct: not said.
  const auto add_percent = [run](const char* name, uint32_t* percent, const char* help) {
    run->add_option_function<std::string>(
        name, [name, percent](const std::string& text) { *percent = PercentOf(name, text); }, help);
  };
  add_percent(
      "--time-share-max", &line.time_percent,
      "the most of the GPU's time that it gets, even when nobody else wants it: 25% (100%)");
  add_percent(
      "--sm-percent", &line.sm_percent,
      "the most of the GPU's multiprocessors that its kernels run on, in whole groups of some "
      "8: 25% (100%)");
  add_percent("--sm-reserved", &line.sm_reserved,
              "multiprocessors on which nobody else in its domain runs: 25% (none)");
  run->add_option_function<std::string>(
      "--memory-wait",
      [&line](const std::string& text) {
        const auto wait = ParseDuration(text);
        if (!wait || *wait > std::chrono::hours(1)) {
          throw CLI::ValidationError("--memory-wait",
                                     "'" + text + "': write a time like 30s or 5m, at most 60m");
        }
        line.memory_wait = *wait;
      },
      "how long an allocation that the command may make waits while others use the GPU's memory "
      "(0s)");
  run->add_option_function<std::string>(
      "--trace",
      [&line](const std::string& text) {
        if (text != "none" && text != "own") {
          throw CLI::ValidationError("--trace", "'" + text + "': write none or own");
        }
        line.traces = text == "own";
      },
      "whether the command may trace what it does on the GPU, with gpuloom-trace: own (none)");
  run->add_option(
         "--domain", line.domain,
         "trust domain: commands of one domain share a CUDA context and run side by side; between "
         "domains memory and faults are isolated")
      ->capture_default_str()
      ->check([](const std::string& name) {
        return name.empty() || name.size() > 200
                   ? std::string("a name of 1 to 200 characters is needed")
                   : std::string();
      });
  run->add_option(
      "--state-dir", line.state_dir,
      "folder of the scheduler to use (default: $XDG_RUNTIME_DIR/gpuloom/<gpu>, or "
      "/tmp/gpuloom-<uid>/<gpu>; for root that of gpuloom-scheduler@.service, if it runs)");
  run->add_option("command", line.command, "the command and its arguments, behind --");
  // The command's own options are behind --, so that none of ours can be mistaken for one of its.
  run->prefix_command(false);
  run->positionals_at_end();
  PolicyCommand policy;
  const CLI::App* about_policy = AddPolicyCommand(&app, &policy);
  SuspendCommand suspend;
  const CLI::App* about_suspend = AddSuspend(&app, true, &suspend);
  const CLI::App* about_resume = AddSuspend(&app, false, &suspend);
  TraceCommand trace;
  const CLI::App* about_trace = AddTrace(&app, &trace);
  AddStatus(&app, "tenants",
            "Says who uses this machine's GPUs: memory, GPU time, what was refused, faults.\n"
            "Example: gpuloom tenants --state-dir /var/lib/gpuloom",
            StatusCommand::About::kTenants, &line.status);
  AddStatus(&app, "gpus",
            "Says what this machine's GPUs do: memory, how busy they are, trust domains.\n"
            "Example: gpuloom gpus -o json",
            StatusCommand::About::kGpus, &line.status);
  AddStatus(&app, "refusals",
            "Says what pods were refused on this machine, and why: slots, memory, processes that "
            "were not let in, unsupported functions; and what ended in a fault.\n"
            "Example: gpuloom refusals",
            StatusCommand::About::kRefusals, &line.status);
  AddTop(&app, &line.top);
  AddDoctor(&app, &line.doctor);
  AddDrain(&app, &line.drain);
  AddStatus(&app, "version",
            "Says of which release each part on this machine is: this program, the agent, the "
            "schedulers, executors, the libraries that containers have; and their drivers.\n"
            "Example: gpuloom version -o json",
            StatusCommand::About::kVersions, &line.status);
  std::string shell, man_folder;
  CLI::App* completion =
      app.add_subcommand("completion",
                         "Prints what completes gpuloom's commands and options in a shell.\n"
                         "Example: gpuloom completion bash > /etc/bash_completion.d/gpuloom");
  completion->add_option("shell", shell, "which shell's")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  CLI::App* man_pages = app.add_subcommand("man-pages", "Writes the manual pages, for the build.");
  man_pages->group("");  // hidden
  man_pages->add_option("folder", man_folder, "where to")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& mistake) {
    // --help arrives here as well, with a status of 0; every mistake is 2, whatever number CLI11
    // has for it.
    *exit_status = app.exit(mistake) == 0 ? 0 : 2;
    return std::nullopt;
  }
  if (show_version) {
    printf("%s\n", VersionLine("gpuloom").c_str());
    *exit_status = 0;
    return std::nullopt;
  }
  // From the definition as it stands here, so completion knows every option.
  if (*completion) {
    fputs(CompletionScript(ListCommands(app), shell).c_str(), stdout);
    *exit_status = kGood;
    return std::nullopt;
  }
  if (*man_pages) {
    std::string error;
    const bool written = WriteManPages(ListCommands(app), man_folder, &error);
    if (!written) fprintf(stderr, "gpuloom: %s\n", error.c_str());
    *exit_status = written ? kGood : kNotGood;
    return std::nullopt;
  }
  if (*about_policy) {
    line.policy = policy;
    return line;
  }
  if (about_suspend->parsed() || about_resume->parsed()) {
    suspend.suspend = about_suspend->parsed();
    line.suspend = suspend;
    return line;
  }
  if (about_trace->parsed()) line.trace = trace;
  if (line.status || line.top || line.doctor || line.trace || line.drain) return line;
  // No command at all: the help, but not as a success.
  if (!*run) {
    printf("%s", app.help().c_str());
    *exit_status = 2;
    return std::nullopt;
  }
  if (line.command.empty()) {
    fprintf(stderr,
            "gpuloom: no command given: gpuloom run [options] -- CMD…; see gpuloom run --help\n");
    *exit_status = 2;
    return std::nullopt;
  }
  return line;
}

}  // namespace gpuloom::run
