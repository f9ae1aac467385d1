// SPDX-License-Identifier: Apache-2.0
// gpuloom-conformance [--libcuda=PATH] [--apart] [gtest flags]: what a libcuda must do, whichever it
// is.
//
// --apart runs each test in a process of its own: slower, but what faults on a device hides nothing.
//
// PATH may be anything dlopen takes; default libcuda.so.1, which is the shim's name too. Needs
// nothing but libc, so it can be carried to another machine.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

Driver driver;
std::string library = "libcuda.so.1";

// This program on the same library. `out`: what becomes its standard output; negative: ours. -1 when it
// could not be started.
pid_t Start(std::vector<std::string> flags, int out = -1) {
  char self[] = "/proc/self/exe";
  flags.push_back("--libcuda=" + library);
  std::vector<char*> arguments = {self};
  for (std::string& flag : flags) arguments.push_back(flag.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (out >= 0) posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  std::fflush(nullptr);
  pid_t child = -1;
  if (posix_spawn(&child, self, &actions, nullptr, arguments.data(), environ) != 0) child = -1;
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

int End(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The names of the tests that the filter chooses, as gtest lists them: a line for each suite, and a line
// that is set in for each of its tests; remarks follow "  # ".
std::vector<std::string> ListTests() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t child =
      Start({"--gtest_list_tests", "--gtest_filter=" + GTEST_FLAG_GET(filter)}, ends[1]);
  close(ends[1]);
  std::string suite;
  std::vector<std::string> names;
  std::FILE* lines = fdopen(ends[0], "r");
  char line[4096];
  while (lines != nullptr && std::fgets(line, sizeof(line), lines) != nullptr) {
    std::string name(line, std::strcspn(line, "#\n"));
    name.erase(name.find_last_not_of(' ') + 1);
    const size_t begin = name.find_first_not_of(' ');
    if (begin == 0) suite = name;
    if (begin != 0 && begin != std::string::npos) names.push_back(suite + name.substr(begin));
  }
  if (lines != nullptr) std::fclose(lines);
  (void)End(child);
  return names;
}

size_t NumberIn(const char* variable, size_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoul(text, nullptr, 10);
}

int RunApart() {
  const size_t shards = std::max<size_t>(NumberIn("GTEST_TOTAL_SHARDS", 1), 1),
               shard = NumberIn("GTEST_SHARD_INDEX", 0);
  unsetenv("GTEST_TOTAL_SHARDS");
  unsetenv("GTEST_SHARD_INDEX");
  const std::vector<std::string> names = ListTests();
  std::vector<std::string> failed;
  size_t count = 0;
  for (size_t i = shard; i < names.size(); i += shards, ++count) {
    const int status = End(Start({"--gtest_brief=1", "--gtest_filter=" + names[i]}));
    std::printf("[%s] %s\n", status == 0 ? "       OK " : "  FAILED  ", names[i].c_str());
    if (status != 0) failed.push_back(names[i] + ", exit status " + std::to_string(status));
  }
  std::printf("[==========] %zu tests ran apart.\n[  PASSED  ] %zu tests.\n", count,
              count - failed.size());
  for (const std::string& name : failed) std::printf("[  FAILED  ] %s\n", name.c_str());
  return count == 0 || !failed.empty() ? 1 : 0;
}

}  // namespace

const Driver& Cu() { return driver; }

int RunChild(const std::string& name) { return End(Start({"--child=" + name})); }

}  // namespace gpuloom::conformance

int main(int argc, char** argv) {
  using gpuloom::conformance::driver;
  using gpuloom::conformance::library;
  testing::InitGoogleTest(&argc, argv);
  std::string child;
  bool apart = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--libcuda=", 0) == 0) {
      library = argument.substr(std::strlen("--libcuda="));
    } else if (argument.rfind("--child=", 0) == 0) {
      child = argument.substr(std::strlen("--child="));
    } else if (argument == "--apart") {
      apart = true;
    } else {
      std::fprintf(stderr, "gpuloom-conformance: unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  if (apart) return gpuloom::conformance::RunApart();
  std::string error;
  if (!gpuloom::Load(library.c_str(), &driver, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  if (!child.empty()) return gpuloom::conformance::RunChildBody(child);
  return RUN_ALL_TESTS();
}
