// SPDX-License-Identifier: Apache-2.0
#include "agent/log_lines.h"

#include <grpc/support/log.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>
#include <string.h>

#include <memory>
#include <string>

#include "agent/node/line_budget.h"
#include "agent/node/log.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

// spdlog has more levels than the node's log: trace is debug, critical is error.
LogLevel LevelOf(spdlog::level::level_enum level) {
  if (level <= spdlog::level::debug) return LogLevel::kDebug;
  if (level == spdlog::level::info) return LogLevel::kInfo;
  if (level == spdlog::level::warn) return LogLevel::kWarning;
  return LogLevel::kError;
}

// Needs no lock: a line is one write.
class NodeLog : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    const LogLevel level = LevelOf(message.level);
    // The node's level decides, which a signal may change at any time; spdlog lets everything
    // through.
    if (IsLogged(level)) WriteLogLine(kAgentProgram, level, text);
  }
  void flush() override {}
  // A line's form is the node's (agent/node/log_line.h), whatever is asked of spdlog.
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}
};

// gRPC tries again every second or two, for as long as a path is missing or a peer behaves wrongly.
constexpr uint32_t kGrpcLinesAtOnce = 16;
constexpr std::chrono::nanoseconds kGrpcRefill = std::chrono::minutes(1);

LogLevel LevelOf(gpr_log_severity severity) {
  if (severity == GPR_LOG_SEVERITY_DEBUG) return LogLevel::kDebug;
  if (severity == GPR_LOG_SEVERITY_INFO) return LogLevel::kInfo;
  return LogLevel::kError;
}

// Any of gRPC's threads. What it lets through at all, GRPC_VERBOSITY says: errors, where that is not set.
void WriteGrpcLine(gpr_log_func_args* args) {
  static Mutex mutex;
  static LineBudget budget(kGrpcLinesAtOnce, kGrpcRefill);
  const LogLevel level = LevelOf(args->severity);
  {
    const MutexLock lock(mutex);
    if (!TakeLogLine(&budget, kAgentProgram, level)) return;
  }
  const char* const slash = strrchr(args->file, '/');
  const std::string where = slash == nullptr ? args->file : slash + 1;
  WriteLogLine(kAgentProgram, level,
               "gRPC: " + where + ":" + std::to_string(args->line) + ": " + args->message);
}

}  // namespace

void LogThroughNode() {
  gpr_set_log_function(WriteGrpcLine);
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("", std::make_shared<NodeLog>()));
  spdlog::set_level(spdlog::level::debug);
}

}  // namespace gpuloom
