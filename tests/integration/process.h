// SPDX-License-Identifier: Apache-2.0
// Child processes of a test: started, listened to, killed, and never left behind.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace gpuloom::testing {

using Milliseconds = std::chrono::milliseconds;

// Long enough for the slowest sanitizer build on a busy machine; a test that waits for something
// that happens never waits this long.
inline constexpr Milliseconds kPatience{60'000};

// One child with its standard input and output as pipes; stderr is the test's own. Used from one
// thread. The destructor kills what still runs.
class Process {
 public:
  Process() = default;
  // `environment` entries (NAME=value) are added to the test's own environment. Aborts the test
  // when the program cannot be started.
  Process(std::vector<std::string> arguments, const std::vector<std::string>& environment = {});
  Process(Process&& other) noexcept { *this = std::move(other); }
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;

  // One line on the child's standard input.
  void WriteLine(const std::string& line) const;
  void CloseInput();

  // Reads standard output until a line begins with `prefix`; that line, or nullopt when the output
  // ended or the time is up. Lines before it are skipped (output() has them).
  std::optional<std::string> ReadLine(const std::string& prefix, Milliseconds patience = kPatience);

  // The wait status once the child has ended, reading its output meanwhile; nullopt when the time
  // is up.
  std::optional<int> Wait(Milliseconds patience = kPatience);
  // The same as a shell says it: exit status, or 128 + signal; -1 when it did not end.
  int ExitStatus(Milliseconds patience = kPatience);

  // Everything read so far.
  const std::string& output() const { return output_; }

 private:
  // Waits for output or the deadline; false when there was neither output nor a chance of any.
  bool ReadMore(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  int input_ = -1;
  int output_fd_ = -1;
  std::string output_;
  size_t searched_ = 0;
  std::optional<int> status_;
};

// Living (not zombie) children of `parent`, by /proc.
std::vector<pid_t> ChildrenOf(pid_t parent);
// The words of a process's command line.
std::vector<std::string> CommandLineOf(pid_t pid);
size_t DescriptorCount(pid_t pid);
size_t ThreadCount(pid_t pid);
// What it has for itself (RssAnon), without files and shared memory; 0 when it is gone.
uint64_t PrivateBytes(pid_t pid);
// One line of /proc/PID/status, without its name: "2\t2\t2\t2" of "Gid"; "" when there is none.
std::string StatusOf(pid_t pid, const std::string& name);
// Its effective user.
uint32_t UserOf(pid_t pid);

// From now on this process inherits orphaned descendants, so that none can hide.
void InheritOrphans();
// True when this process has no children left; waits for them, at most `patience`.
bool NoChildrenLeft(Milliseconds patience);

// Calls `holds` until it is true; false when the time is up.
template <typename Predicate>
bool Eventually(Predicate holds, Milliseconds patience = kPatience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (holds()) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(Milliseconds(5));
  }
}

}  // namespace gpuloom::testing
