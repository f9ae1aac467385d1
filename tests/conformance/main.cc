// gpuloom-conformance [--libcuda=PATH] [gtest flags]: what a libcuda must do, whichever it is.
//
// PATH may be anything dlopen takes; default libcuda.so.1, which is the shim's name too. Needs
// nothing but libc, so it can be carried to another machine.
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

Driver driver;
std::string library = "libcuda.so.1";

}  // namespace

const Driver& Cu() { return driver; }

int RunChild(const std::string& name) {
  std::string library_flag = "--libcuda=" + library;
  std::string child_flag = "--child=" + name;
  char self[] = "/proc/self/exe";
  char* arguments[] = {self, library_flag.data(), child_flag.data(), nullptr};
  std::fflush(nullptr);
  pid_t child;
  if (posix_spawn(&child, self, nullptr, nullptr, arguments, environ) != 0) return -1;
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace gpuloom::conformance

int main(int argc, char** argv) {
  using gpuloom::conformance::driver;
  using gpuloom::conformance::library;
  testing::InitGoogleTest(&argc, argv);
  std::string child;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--libcuda=", 0) == 0) {
      library = argument.substr(std::strlen("--libcuda="));
    } else if (argument.rfind("--child=", 0) == 0) {
      child = argument.substr(std::strlen("--child="));
    } else {
      std::fprintf(stderr, "gpuloom-conformance: unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  std::string error;
  if (!gpuloom::Load(library.c_str(), &driver, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  if (!child.empty()) return gpuloom::conformance::RunChildBody(child);
  return RUN_ALL_TESTS();
}
