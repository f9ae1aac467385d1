// SPDX-License-Identifier: Apache-2.0
// gpuloom-trace: in a container, the trace of what this container's programs do on the GPU
// (docs/tracing.md).
//
// One thread, no session of its own, nothing of CUDA. Linked statically: it runs beside any C
// library, or none.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <string_view>

#include "proto/trace/output_file.h"
#include "shim/trace/own_trace.h"

namespace gpuloom {
namespace {

enum ExitStatus { kWritten = 0, kNotWritten = 1, kWrongUse = 2, kPartly = 3 };

constexpr char kUsage[] =
    "usage: gpuloom-trace --seconds S -o FILE\n"
    "\n"
    "Writes what this container's programs do on the GPU in the next S seconds (at most 60), as a\n"
    "file for Perfetto or chrome://tracing. The policy must allow it: trace: own.\n"
    "\n"
    "  --seconds S   how long; fractions are fine\n"
    "  -o FILE       the file, which only its owner may read; -: standard output\n";

int Report(ExitStatus status, const std::string& message) {
  fprintf(stderr, "gpuloom-trace: %s\n", message.c_str());
  return status;
}

int WrongUse(const std::string& message) {
  Report(kWrongUse, message);
  fputs(kUsage, stderr);
  return kWrongUse;
}

// Parses seconds; returns milliseconds, or 0 for a time that is not possible.
uint32_t ParseSeconds(const char* text) {
  char* end = nullptr;
  const double seconds = strtod(text, &end);
  if (end == text || *end != '\0' || !(seconds >= 0.001) ||
      !(seconds * 1000 <= wire::kMaxOwnTraceMs)) {
    return 0;
  }
  return static_cast<uint32_t>(seconds * 1000);
}

int Run(int argc, char** argv) {
  const char* seconds = nullptr;
  const char* path = nullptr;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--help" || option == "-h") {
      fputs(kUsage, stdout);
      return kWritten;
    }
    if (option != "--seconds" && option != "-o") return WrongUse("unknown: " + std::string(option));
    if (i + 1 == argc) return WrongUse(std::string(option) + " needs a value");
    (option == "-o" ? path : seconds) = argv[++i];
  }
  if (seconds == nullptr || path == nullptr) return WrongUse("--seconds and -o are needed");
  const uint32_t time_ms = ParseSeconds(seconds);
  if (time_ms == 0) return WrongUse("--seconds " + std::string(seconds) + ": from 0.001 to 60");

  // Before an executor records for nothing.
  trace::OutputFile output;
  if (!output.Open(path)) return Report(kNotWritten, std::string(path) + ": " + strerror(errno));
  OwnTrace own;
  std::string error;
  if (!AskForTrace(std::chrono::milliseconds(time_ms), &own, &error)) {
    return Report(kNotWritten, error);
  }
  std::string summary;
  if (!WriteOwnTrace(own, output.file(), &summary) || !output.Finish()) {
    return Report(kNotWritten, std::string(path) + " cannot be written whole: " + strerror(errno));
  }
  Report(kWritten, summary);
  const std::string lack = Lack(own);
  return lack.empty() ? kWritten : Report(kPartly, lack);
}

}  // namespace
}  // namespace gpuloom

int main(int argc, char** argv) { return gpuloom::Run(argc, argv); }
