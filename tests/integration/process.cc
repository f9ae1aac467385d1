// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace gpuloom::testing {
namespace {

using SteadyClock = std::chrono::steady_clock;

[[noreturn]] void Die(const std::string& what, int error) {
  std::fprintf(stderr, "test harness: %s: %s\n", what.c_str(), strerror(error));
  std::abort();
}

// Parent and state of a process; nullopt when it is gone.
std::optional<std::pair<pid_t, char>> ParentAndState(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  char state = 0;
  pid_t parent = 0;
  rest >> state >> parent;
  return std::pair(parent, state);
}

size_t EntryCount(const std::string& folder) {
  std::error_code gone;
  const std::filesystem::directory_iterator entries(folder, gone);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

}  // namespace

Process::Process(std::vector<std::string> arguments, const std::vector<std::string>& environment) {
  int to_child[2], from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) Die("pipe", errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  std::vector<char*> argv, envp;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  for (const std::string& entry : environment) envp.push_back(const_cast<char*>(entry.data()));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, strcspn(*entry, "=") + 1);
    bool replaced = false;
    for (const std::string& added : environment) replaced |= added.rfind(name, 0) == 0;
    if (!replaced) envp.push_back(*entry);
  }
  envp.push_back(nullptr);
  // A child may have ended before it reads what WriteLine writes: the test says so, and does not end by the signal.
  // The child has the signal as any program has.
  static const auto kIgnored = signal(SIGPIPE, SIG_IGN);
  if (kIgnored == SIG_ERR) Die("signal", errno);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), envp.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(to_child[0]);
  close(from_child[1]);
  if (error != 0) Die("cannot start " + arguments[0], error);
  input_ = to_child[1];
  output_fd_ = from_child[0];
}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(input_, other.input_);
  std::swap(output_fd_, other.output_fd_);
  std::swap(output_, other.output_);
  std::swap(searched_, other.searched_);
  std::swap(status_, other.status_);
  return *this;
}

Process::~Process() {
  if (pid_ > 0 && !status_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (input_ >= 0) close(input_);
  if (output_fd_ >= 0) close(output_fd_);
}

void Process::Signal(int signal) const { kill(pid_, signal); }

void Process::WriteLine(const std::string& line) const {
  const std::string text = line + "\n";
  if (write(input_, text.data(), text.size()) < 0 && errno != EPIPE) Die("write to child", errno);
}

void Process::CloseInput() {
  if (input_ >= 0) close(input_);
  input_ = -1;
}

bool Process::ReadMore(SteadyClock::time_point deadline) {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - SteadyClock::now());
  if (left.count() <= 0 || output_fd_ < 0) return false;
  pollfd ready{output_fd_, POLLIN, 0};
  if (poll(&ready, 1, static_cast<int>(left.count())) <= 0) return false;
  char buffer[4096];
  const ssize_t size = read(output_fd_, buffer, sizeof(buffer));
  if (size <= 0) {
    close(output_fd_);
    output_fd_ = -1;
    return false;
  }
  output_.append(buffer, static_cast<size_t>(size));
  return true;
}

std::optional<std::string> Process::ReadLine(const std::string& prefix, Milliseconds patience) {
  const auto deadline = SteadyClock::now() + patience;
  for (;;) {
    for (size_t end; (end = output_.find('\n', searched_)) != std::string::npos;) {
      const std::string line = output_.substr(searched_, end - searched_);
      searched_ = end + 1;
      if (line.rfind(prefix, 0) == 0) return line;
    }
    if (!ReadMore(deadline)) return std::nullopt;
  }
}

std::optional<int> Process::Wait(Milliseconds patience) {
  const auto deadline = SteadyClock::now() + patience;
  while (!status_) {
    while (ReadMore(std::min(deadline, SteadyClock::now() + Milliseconds(5)))) {
    }
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = status;
      // What is still in the pipe; a grandchild may hold it open, so only what is there.
      while (ReadMore(SteadyClock::now() + Milliseconds(20))) {
      }
    } else if (SteadyClock::now() >= deadline) {
      break;
    } else if (output_fd_ < 0) {
      std::this_thread::sleep_for(Milliseconds(2));
    }
  }
  return status_;
}

int Process::ExitStatus(Milliseconds patience) {
  const std::optional<int> status = Wait(patience);
  if (!status) return -1;
  return WIFEXITED(*status) ? WEXITSTATUS(*status) : 128 + WTERMSIG(*status);
}

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    const auto found = ParentAndState(pid);
    if (found && found->first == parent && found->second != 'Z') children.push_back(pid);
  }
  return children;
}

std::vector<std::string> CommandLineOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

size_t DescriptorCount(pid_t pid) { return EntryCount("/proc/" + std::to_string(pid) + "/fd"); }

size_t ThreadCount(pid_t pid) { return EntryCount("/proc/" + std::to_string(pid) + "/task"); }

uint64_t PrivateBytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string name; file >> name;) {
    uint64_t kib = 0;
    if (name == "RssAnon:" && file >> kib) return kib << 10;
  }
  return 0;
}

std::string StatusOf(pid_t pid, const std::string& name) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":\t", 0) == 0) return line.substr(name.size() + 2);
  }
  return {};
}

uint32_t UserOf(pid_t pid) {
  uint32_t real = 0, effective = 0;
  std::istringstream(StatusOf(pid, "Uid")) >> real >> effective;
  return effective;
}

void InheritOrphans() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) Die("prctl", errno);
}

bool NoChildrenLeft(Milliseconds patience) {
  return Eventually(
      [] {
        while (waitpid(-1, nullptr, WNOHANG) > 0) {
        }
        return ChildrenOf(getpid()).empty();
      },
      patience);
}

}  // namespace gpuloom::testing
