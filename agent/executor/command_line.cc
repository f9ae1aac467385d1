// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/command_line.h"

#include <getopt.h>
#include <limits.h>

#include <charconv>
#include <cstdio>

#include "agent/node/size.h"

namespace gpuloom::executor {
namespace {

constexpr char kUsage[] =
    "usage: gpuloom-executor --gpu UUID --cuda-library PATH [--domain NAME]\n"
    "                        [--log-level error|warning|info|debug] [--user NUMBER]\n"
    "                        [--folder PATH]\n"
    "                        [--tell-refused-calls] [--lenient] [--memory-limit SIZE]\n"
    "                        [--control-version MAJOR.MINOR]\n"
    "       gpuloom-executor --remove PATH [--user NUMBER]\n"
    "       gpuloom-executor --version [--cuda-library PATH]\n"
    "Started by gpuloom-scheduler, which passes the control socket as descriptor 3.\n";

// A uid that a process can have: 0 is root's, and the highest number means "none".
bool ParseUser(const std::string& text, unsigned* user) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *user);
  return error == std::errc() && end == text.data() + text.size() && *user != 0 &&
         *user != UINT_MAX;
}

// 0 would refuse every image; it is refused like a number that cannot be read, whose reason
// ParseSize gives.
bool ParseMemoryLimit(const char* text, uint64_t* limit_bytes) {
  std::string error;
  const std::optional<uint64_t> size_bytes = ParseSize(text, &error);
  if (!size_bytes) fprintf(stderr, "gpuloom-executor: --memory-limit: %s\n", error.c_str());
  *limit_bytes = size_bytes.value_or(0);
  return *limit_bytes != 0;
}

// Prints nothing itself, but for what getopt_long and ParseMemoryLimit say: the usage follows in
// any case.
bool Parse(int argc, char** argv, CommandLine* line) {
  static constexpr option kOptions[] = {{"gpu", required_argument, nullptr, 'g'},
                                        {"cuda-library", required_argument, nullptr, 'c'},
                                        {"domain", required_argument, nullptr, 'd'},
                                        {"log-level", required_argument, nullptr, 'l'},
                                        {"user", required_argument, nullptr, 'u'},
                                        {"folder", required_argument, nullptr, 'f'},
                                        {"tell-refused-calls", no_argument, nullptr, 't'},
                                        {"lenient", no_argument, nullptr, 'e'},
                                        {"remove", required_argument, nullptr, 'r'},
                                        {"memory-limit", required_argument, nullptr, 'm'},
                                        {"control-version", required_argument, nullptr, 'v'},
                                        {"version", no_argument, nullptr, 'V'},
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
      case 'm':
        if (!ParseMemoryLimit(optarg, &line->memory_limit_bytes)) return false;
        break;
      case 'l':
        if (const auto level = ParseLogLevel(optarg); level.has_value()) {
          line->log_level = *level;
          break;
        }
        return false;
      case 'u':
        if (!ParseUser(optarg, &line->user)) return false;
        break;
      case 'f':
        line->folder = optarg;
        break;
      case 't':
        line->tells_refused_calls = true;
        break;
      case 'e':
        line->lenient = true;
        break;
      case 'r':
        line->folder_to_remove = optarg;
        break;
      case 'v':
        line->control_version = optarg;
        break;
      case 'V':
        line->shows_version = true;
        break;
      default:
        return false;
    }
  }
  if (optind != argc) return false;
  // A run needs a GPU and a driver; the two other uses need neither.
  return line->shows_version || !line->folder_to_remove.empty() ||
         (!line->gpu.empty() && !line->cuda_library.empty());
}

}  // namespace

std::optional<CommandLine> ParseCommandLine(int argc, char** argv) {
  CommandLine line;
  if (Parse(argc, argv, &line)) return line;
  fputs(kUsage, stderr);
  return std::nullopt;
}

}  // namespace gpuloom::executor
