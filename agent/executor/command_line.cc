#include "agent/executor/command_line.h"

#include <getopt.h>

#include <cstdio>

namespace gpuloom::executor {
namespace {

constexpr char kUsage[] =
    "usage: gpuloom-executor --gpu UUID --cuda-library PATH --domain NAME\n"
    "                        [--log-level error|info|debug]\n"
    "Started by gpuloom-scheduler, which passes the control socket as descriptor 3.\n";

bool Parse(int argc, char** argv, CommandLine* line) {
  static constexpr option kOptions[] = {{"gpu", required_argument, nullptr, 'g'},
                                        {"cuda-library", required_argument, nullptr, 'c'},
                                        {"domain", required_argument, nullptr, 'd'},
                                        {"log-level", required_argument, nullptr, 'l'},
                                        {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (c) {
      case 'g':
        line->gpu = optarg;
        break;
      case 'd':
        line->domain = optarg;
        break;
      case 'c':
        line->cuda_library = optarg;
        break;
      case 'l':
        if (const auto level = ParseLogLevel(optarg); level.has_value()) {
          line->log_level = *level;
          break;
        }
        return false;
      default:
        return false;
    }
  }
  return optind == argc && !line->gpu.empty() && !line->cuda_library.empty();
}

}  // namespace

std::optional<LogLevel> ParseLogLevel(const std::string& text) {
  if (text == "error") return LogLevel::kError;
  if (text == "info") return LogLevel::kInfo;
  if (text == "debug") return LogLevel::kDebug;
  return std::nullopt;
}

std::optional<CommandLine> ParseCommandLine(int argc, char** argv) {
  CommandLine line;
  if (Parse(argc, argv, &line)) return line;
  fputs(kUsage, stderr);
  return std::nullopt;
}

}  // namespace gpuloom::executor
