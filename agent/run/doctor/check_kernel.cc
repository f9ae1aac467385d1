// SPDX-License-Identifier: Apache-2.0
// The kernel features that the confinement of executors needs (docs/design/taken-over-executor.md). Without them
// executors run less confined, which the scheduler logs.
#include "agent/run/doctor/doctor.h"
#include "agent/run/doctor/look.h"
#include "proto/wire/regions.h"

namespace gpuloom::run {
namespace {

constexpr char kConsequence[] =
    "gpuloom works; a taken-over executor reaches more: docs/design/taken-over-executor.md";

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

Finding Landlock(int version) {
  if (version > 0) return {"landlock", Verdict::kOk, "version " + std::to_string(version), ""};
  return {"landlock", Verdict::kWarning,
          "this kernel has no Landlock, or it is not switched on: executors reach all files that "
          "their users may",
          "Linux 5.13 or later with landlock among the kernel's lsm= parameter. Without it " +
              std::string(kConsequence)};
}

// Checks the filter of system calls, and the reports about refused calls.
Finding SystemCalls(const std::string& root) {
  const std::string actions = ReadText(root + "/proc/sys/kernel/seccomp/actions_avail");
  if (actions.find("errno") == actions.npos) {
    return {"seccomp", Verdict::kError,
            "this kernel cannot filter system calls, and no executor starts without that",
            "a kernel with CONFIG_SECCOMP_FILTER"};
  }
  if (actions.find("user_notif") == actions.npos) {
    return {"seccomp", Verdict::kWarning,
            "system calls are filtered, but refused ones are not told in the scheduler's log",
            "Linux 5.0 or later"};
  }
  return {"seccomp", Verdict::kOk, "filters system calls and tells of those that are refused", ""};
}

// Three switches: the kernel's own limit, Debian's, and Ubuntu's. A file that is missing switches
// nothing off.
Finding UserNamespaces(const std::string& root) {
  if (FirstLine(ReadText(root + "/proc/sys/user/max_user_namespaces")) == "0" ||
      FirstLine(ReadText(root + "/proc/sys/kernel/unprivileged_userns_clone")) == "0" ||
      FirstLine(ReadText(root + "/proc/sys/kernel/apparmor_restrict_unprivileged_userns")) == "1") {
    return {"namespaces", Verdict::kWarning,
            "user namespaces are switched off: executors keep the node's network unless each is a "
            "user of its own",
            "value executorUsers auto, the default; or switch them on by sysctl. " +
                std::string(kConsequence)};
  }
  return {"namespaces", Verdict::kOk, "executors can have a network and IPC of their own", ""};
}

}  // namespace

Findings CheckKernel(const DoctorCommand& command) {
  const std::string release = FirstLine(ReadText(command.root + "/proc/sys/kernel/osrelease"));
  Finding kernel = {"kernel", Verdict::kOk,
                    release.empty() ? "of an unknown release" : "Linux " + release, ""};
  // As kernels for arm64 may have.
  if (command.page_bytes() != wire::kPageBytes) {
    kernel.verdict = Verdict::kError;
    kernel.found += ", with pages of " + std::to_string(command.page_bytes() >> 10) +
                    " KiB: no scheduler starts there";
    kernel.remedy = "a kernel with pages of 4 KiB";
  }
  Findings findings = {kernel};
  // The running kernel's, also below another root: there is only one.
  findings.push_back(Landlock(command.landlock_version()));
  findings.push_back(SystemCalls(command.root));
  findings.push_back(UserNamespaces(command.root));
  return findings;
}

}  // namespace gpuloom::run
