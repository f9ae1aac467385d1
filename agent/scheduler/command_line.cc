// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/command_line.h"

#include <stdlib.h>

#include <CLI/CLI.hpp>

#include "agent/node/command_mistake.h"
#include "agent/node/duration.h"
#include "agent/node/process.h"
#include "agent/node/size.h"
#include "agent/scheduler/log.h"
#include "proto/control/version.h"

namespace gpuloom::scheduler {
namespace {

// Most programs load with a quarter of this.
constexpr uint64_t kLeastExecutorMemoryBytes = uint64_t{256} << 20;

// With more new domains at a time, executors would wait for one another in the driver.
constexpr uint32_t kMostSpareExecutors = 8;

// The folder this program lies in, with a slash at the end.
std::string OwnFolder() {
  const std::string self = OwnProgram();
  return self.substr(0, self.rfind('/') + 1);
}

}  // namespace

std::optional<CommandLine> ParseCommandLine(int argc, char** argv, int* exit_status) {
  CommandLine line;
  Options& options = line.options;
  options.cuda_library = "libcuda.so.1";
  options.executor_path = OwnFolder() + "gpuloom-executor";
  line.executor_users = "auto";
  // Where any program puts its temporary files.
  if (const char* folder = getenv("TMPDIR"); folder != nullptr && folder[0] == '/') {
    options.executor_folders = folder;
  }
  std::string level = "info", format = "text";
  bool show_version = false;

  CLI::App app(
      "gpuloom-scheduler: shares one GPU between tenants. One runs per GPU; the node agent "
      "or `gpuloom run` starts it.");
  app.failure_message([](const CLI::App* parsed, const CLI::Error& mistake) {
    return CommandMistake("gpuloom-scheduler", *parsed, mistake);
  });
  app.add_option("--gpu", line.gpu, "the GPU: its number, or its UUID (GPU-…)");
  app.add_option("--state-dir", options.state_dir,
                 "folder for the lock file and control.sock; made when it is missing");
  app.add_option("--cuda-library", options.cuda_library, "the driver library")
      ->capture_default_str();
  app.add_option("--executor", options.executor_path, "the executor program")
      ->capture_default_str();
  // Durations have one form in all of gpuloom's programs: "60s", "250ms", "2m".
  const auto add_duration = [&app](const char* name, std::chrono::milliseconds* value,
                                   const char* help) {
    app.add_option_function<std::string>(
        name,
        [name, value](const std::string& text) {
          const auto parsed = ParseDuration(text);
          if (!parsed) {
            throw CLI::ValidationError(name, "'" + text + "' is no time: write 60s, 250ms or 2m");
          }
          *value = *parsed;
        },
        help);
  };
  app.add_option(
         "--executor-users", line.executor_users,
         "the users that executors run as, one each: FIRST-LAST; auto: 2000000000 and up, or "
         "none where this process is not root; none: this process's own")
      ->capture_default_str();
  add_duration("--idle-timeout", &options.idle_timeout,
               "how long an executor stays after its last session (60s)");
  add_duration(
      "--drain-timeout", &options.drain_timeout,
      "how long an ended session's work may still run before its domain's executor is ended (10s)");
  app.add_option_function<std::string>(
      "--executor-memory",
      [&options](const std::string& text) {
        std::string error;
        const std::optional<uint64_t> size_bytes = ParseSize(text, &error);
        if (!size_bytes) throw CLI::ValidationError("--executor-memory", error);
        if (*size_bytes < kLeastExecutorMemoryBytes) {
          throw CLI::ValidationError("--executor-memory",
                                     "at least " + FormatSize(kLeastExecutorMemoryBytes));
        }
        options.executor_memory_bytes = *size_bytes;
      },
      "memory of the node that an executor may spend on its tenants' images, links and graphs, one "
      "process a quarter of it at most; like 16GiB, the default");
  app.add_option(
         "--spare-executors", options.spare_executors,
         "executors that are started before a trust domain needs them, and take about 580 MiB of "
         "the device each")
      ->check(CLI::Range(0U, kMostSpareExecutors))
      ->capture_default_str();
  app.add_flag("--exit-when-unused", options.exit_when_unused,
               "end when no allocation and no control connection is left");
  app.add_option("--log-level", level,
                 "debug, info, warning or error; SIGUSR1 logs everything, SIGHUP again this")
      ->capture_default_str();
  app.add_option("--log-format", format, "text, or json: an object a line")->capture_default_str();
  app.add_flag("--version", show_version, "print the version and exit");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& mistake) {
    // 0 for --help, 2 for a mistake, whatever number CLI11 has for it.
    *exit_status = app.exit(mistake) == 0 ? 0 : 2;
    return std::nullopt;
  }
  if (show_version) {
    printf("%s\n", VersionLine("gpuloom-scheduler").c_str());
    *exit_status = 0;
    return std::nullopt;
  }
  *exit_status = 2;
  // Not `required()`: --version must work without them.
  if (line.gpu.empty() || options.state_dir.empty()) {
    fprintf(stderr, "gpuloom-scheduler: --gpu and --state-dir are needed; see --help\n");
    return std::nullopt;
  }
  const std::optional<LogLevel> log_level = ParseLogLevel(level);
  if (!log_level) {
    fprintf(stderr, "gpuloom-scheduler: --log-level %s: debug, info, warning or error\n",
            level.c_str());
    return std::nullopt;
  }
  const std::optional<LogFormat> log_format = ParseLogFormat(format);
  if (!log_format) {
    fprintf(stderr, "gpuloom-scheduler: --log-format %s: text or json\n", format.c_str());
    return std::nullopt;
  }
  SetLogLevel(*log_level);
  SetLogFormat(*log_format);
  // Executors get the level on their command line, and a signal when it changes.
  options.executor_log_level = level;
  return line;
}

}  // namespace gpuloom::scheduler
