// SPDX-License-Identifier: Apache-2.0
#include "agent/run/executor_program.h"

#include <algorithm>

#include "agent/node/layout.h"
#include "agent/node/one_line.h"
#include "agent/node/program_output.h"

namespace gpuloom::run {
namespace {

constexpr size_t kLongestLine = 500;

// What follows `begin` in the line that begins so.
std::string LineAfter(const std::string& said, const std::string& begin) {
  for (size_t at = 0; at < said.size();) {
    const size_t end = std::min(said.find('\n', at), said.size());
    const std::string line = said.substr(at, end - at);
    if (line.starts_with(begin)) return OneLine(line.substr(begin.size()), kLongestLine);
    at = end + 1;
  }
  return {};
}

}  // namespace

ExecutorProgram ReadExecutorVersion(const std::string& said) {
  ExecutorProgram its;
  its.version = LineAfter(said, "gpuloom-executor ");
  // The line goes on with the versions of the protocols.
  its.version = its.version.substr(0, its.version.find(", wire "));
  its.cupti = LineAfter(said, "CUPTI: ");
  its.why_no_cupti = LineAfter(said, "no CUPTI: ");
  if (its.version.empty()) its.trouble = "it does not say its version";
  return its;
}

ExecutorProgram AskExecutorProgram(const std::string& program) {
  const std::string path = LayoutOf(program).helpers + "/gpuloom-executor";
  const ProgramOutput output = RunForOutput({path, "--version"});
  if (!output.trouble.empty()) {
    ExecutorProgram its;
    its.trouble = output.trouble;
    return its;
  }
  ExecutorProgram its = ReadExecutorVersion(output.said);
  if (!its.trouble.empty()) its.trouble = path + ": " + its.trouble;
  return its;
}

}  // namespace gpuloom::run
