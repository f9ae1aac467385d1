// SPDX-License-Identifier: Apache-2.0
#include "agent/run/doctor/doctor.h"

#include <linux/landlock.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "agent/node/one_line.h"

namespace gpuloom::run {
namespace {

constexpr const char* kVerdicts[] = {"ok", "warning", "error"};
constexpr size_t kLongestLine = 1000;

// The space that is left for users other than root.
std::optional<FileSystem> FileSystemOf(const std::string& path) {
  struct statvfs status = {};
  if (statvfs(path.c_str(), &status) != 0) return std::nullopt;
  return FileSystem{(status.f_flag & ST_NOEXEC) != 0, uint64_t{status.f_bavail} * status.f_frsize,
                    // File systems that make inodes as they need them, like btrfs, report 0.
                    status.f_files == 0 ? UINT64_MAX : uint64_t{status.f_favail}};
}

// Asks the running kernel; it creates nothing. 0 also where a seccomp filter refuses the call.
int LandlockVersion() {
  const auto version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version > 0 ? static_cast<int>(version) : 0;
}

uint64_t PageBytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

const char* NameOf(Verdict verdict) { return kVerdicts[static_cast<size_t>(verdict)]; }

// A line for each finding, and its remedy below it, behind an arrow.
std::string FormatFindings(const Findings& findings) {
  size_t longest = 0;
  for (const Finding& finding : findings) longest = std::max(longest, finding.check.size());
  std::string text;
  for (const Finding& finding : findings) {
    std::string begin = NameOf(finding.verdict);
    begin.resize(10, ' ');
    begin += finding.check + std::string(longest - finding.check.size() + 3, ' ');
    text += begin + finding.found + "\n";
    if (!finding.remedy.empty()) {
      text += std::string(begin.size() - 3, ' ') + "→  " + finding.remedy + "\n";
    }
  }
  return text;
}

}  // namespace

Answer Doctor(DoctorCommand command) {
  if (command.file_system == nullptr) command.file_system = FileSystemOf;
  if (command.landlock_version == nullptr) command.landlock_version = LandlockVersion;
  if (command.page_bytes == nullptr) command.page_bytes = PageBytes;
  Findings findings;
  // From the bottom up: a fault in a lower layer often causes those above.
  for (const auto check : {CheckKernel, CheckGpus, CheckContainerRuntime, CheckKubelet, CheckPolicy,
                           CheckState, CheckSchedulers}) {
    for (Finding& finding : check(command)) {
      // Names of files and what schedulers say.
      finding.found = OneLine(finding.found, kLongestLine);
      finding.remedy = OneLine(finding.remedy, kLongestLine);
      findings.push_back(std::move(finding));
    }
  }
  const auto count = [&](Verdict verdict) {
    return std::ranges::count(findings, verdict, &Finding::verdict);
  };
  const auto errors = count(Verdict::kError), warnings = count(Verdict::kWarning);
  Answer answer;
  answer.exit_status = errors == 0 ? kGood : kNotGood;
  if (command.format == Format::kTable) {
    answer.text = FormatFindings(findings) + "errors: " + std::to_string(errors) +
                  ", warnings: " + std::to_string(warnings) + "\n";
    return answer;
  }
  Json document = {{"errors", errors}, {"warnings", warnings}, {"findings", Json::array()}};
  for (const Finding& finding : findings) {
    document["findings"].push_back({{"check", finding.check},
                                    {"verdict", NameOf(finding.verdict)},
                                    {"found", finding.found},
                                    {"remedy", finding.remedy}});
  }
  answer.text = FormatDocument(document, command.format);
  return answer;
}

}  // namespace gpuloom::run
