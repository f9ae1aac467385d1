// SPDX-License-Identifier: Apache-2.0
#include "agent/log_lines.h"

#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "agent/node/log.h"

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

}  // namespace

void LogThroughNode() {
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("", std::make_shared<NodeLog>()));
  spdlog::set_level(spdlog::level::debug);
}

}  // namespace gpuloom
