// SPDX-License-Identifier: Apache-2.0
// gpuloom-wrong-calls [--libcuda=PATH] [--area=NAME]: makes wrong calls of all areas of the driver
// API and prints for each "area: what<TAB>CUDA_ERROR_…". See wrong_calls.h.
//
// The process that prints makes no CUDA call itself; it starts one of itself for each area. Needs
// nothing but libc, so it can be carried to another machine.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {
namespace {

Driver driver;

constexpr Area kAreas[] = {
    {"before init", Start::kNothing, false, WrongBeforeInit},
    {"devices", Start::kInit, false, WrongDevices},
    {"without context", Start::kInit, false, WrongWithoutContext},
    {"contexts", Start::kContext, false, WrongContexts},
    {"contexts apart", Start::kContext, true, WrongContextsApart},
    {"memory", Start::kContext, false, WrongMemory},
    {"copies", Start::kContext, false, WrongCopies},
    {"fills", Start::kContext, false, WrongFills},
    {"host memory", Start::kContext, false, WrongHostMemory},
    {"managed memory", Start::kContext, false, WrongManagedMemory},
    {"pointers", Start::kContext, false, WrongPointers},
    {"virtual memory", Start::kContext, false, WrongVirtualMemory},
    {"pools", Start::kContext, false, WrongPools},
    {"shared pools", Start::kContext, false, WrongSharedPools},
    {"sharing", Start::kContext, false, WrongSharing},
    {"modules", Start::kContext, false, WrongModules},
    {"images", Start::kContext, true, WrongImages},
    {"libraries", Start::kContext, false, WrongLibraries},
    {"functions", Start::kContext, false, WrongFunctions},
    {"launches", Start::kContext, false, WrongLaunches},
    {"launches apart", Start::kContext, true, WrongLaunchesApart},
    {"occupancy", Start::kContext, false, WrongOccupancy},
    {"streams", Start::kContext, false, WrongStreams},
    {"events", Start::kContext, false, WrongEvents},
    {"stream memory", Start::kContext, false, WrongStreamMemory},
    {"captures", Start::kContext, false, WrongCaptures},
    {"in capture", Start::kContext, false, WrongInCapture},
    {"capture joins", Start::kContext, false, WrongCaptureJoins},
    {"graphs", Start::kContext, false, WrongGraphs},
    {"graph nodes", Start::kContext, false, WrongGraphNodes},
    {"graph execs", Start::kContext, false, WrongGraphExecs},
    {"conditional nodes", Start::kContext, false, WrongConditionals},
    {"arrays", Start::kContext, false, WrongArrays},
    {"rectangles", Start::kContext, false, WrongRectangles},
    {"textures", Start::kContext, false, WrongTextures},
    {"references", Start::kContext, false, WrongReferences},
    {"resources", Start::kContext, false, WrongResources},
    {"green contexts", Start::kContext, false, WrongGreenContexts},
    {"green contexts destroyed", Start::kContext, true, WrongGreenContextsDestroyed},
    {"destroyed", Start::kContext, true, WrongDestroyed},
};

// What a child process writes: "+area: what\t" before a case, "CODE\n" behind it, and "=COUNT\n" at
// the end of the area.
void Write(const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t more = write(STDOUT_FILENO, text.data() + written, text.size() - written);
    if (more < 0) _exit(3);
    written += static_cast<size_t>(more);
  }
}

std::string Name(CUresult result) {
  const char* name = nullptr;
  if (driver.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) {
    return "CUresult " + std::to_string(static_cast<int>(result));
  }
  return name;
}

int RunArea(const Area& area, int first, int count) {
  Calls calls(area.name, first, count);
  Place at;
  bool ready = true;
  if (area.start != Start::kNothing) {
    ready = calls.Has("cuInit", driver.cuInit(0)) &&
            calls.Has("cuDeviceGet", driver.cuDeviceGet(&at.device, 0));
  }
  if (ready && area.start == Start::kContext) {
    ready = calls.Has("cuDevicePrimaryCtxRetain",
                      driver.cuDevicePrimaryCtxRetain(&at.context, at.device)) &&
            calls.Has("cuCtxSetCurrent", driver.cuCtxSetCurrent(at.context));
  }
  if (ready) area.body(calls, at);
  Write("=" + std::to_string(calls.count()) + "\n");
  _exit(0);  // what the wrong calls left behind is not to be judged at exit
}

struct Child {
  std::string output;
  int status = 0;
};

Child RunChild(const std::string& library, const Area& area, int first, int count) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) _exit(3);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<std::string> words = {
      "gpuloom-wrong-calls", "--libcuda=" + library, std::string("--area=") + area.name,
      "--first=" + std::to_string(first), "--count=" + std::to_string(count)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  if (posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments.data(), environ) != 0) {
    std::perror("gpuloom-wrong-calls: cannot start itself");
    std::exit(1);
  }
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Child child;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;)
    child.output.append(buffer, got);
  close(ends[0]);
  waitpid(pid, &child.status, 0);
  return child;
}

// Prints the answers of one child and returns the number of the next case, or -1 behind the last.
int PrintAnswers(const Child& child, int first) {
  int next = first;
  size_t at = 0;
  while (at < child.output.size()) {
    const size_t end = child.output.find('\n', at);
    const std::string line = child.output.substr(at, end - at);
    if (line[0] == '=') return std::atoi(line.c_str() + 1) <= next ? -1 : next;
    ++next;
    std::printf("%s", line.c_str() + 1);
    if (end == std::string::npos) break;
    std::printf("\n");
    at = end + 1;
  }
  const bool hung = WIFSIGNALED(child.status) && WTERMSIG(child.status) == SIGALRM;
  const bool in_case = !child.output.empty() && child.output.back() != '\n';
  if (!in_case) {  // between two cases: nothing to blame, and nowhere to go on
    std::printf("(case %d)\t%s\n", next, hung ? "hung before it" : "crashed before it");
    return -1;
  }
  std::printf("%s\n", hung ? "hung" : "crashed");
  std::fflush(stdout);
  return next;
}

int RunAll(const std::string& library, const std::string& only) {
  bool found = false;
  for (const Area& area : kAreas) {
    if (!only.empty() && only != area.name) continue;
    found = true;
    for (int next = 0; next >= 0;) {
      next = PrintAnswers(RunChild(library, area, next, area.apart ? 1 : 1'000'000), next);
      std::fflush(stdout);
    }
  }
  if (!found) std::fprintf(stderr, "gpuloom-wrong-calls: no area %s\n", only.c_str());
  return found ? 0 : 2;
}

}  // namespace

const Driver& Cu() { return driver; }

bool Calls::Has(const char* what, CUresult result) {
  if (result == CUDA_SUCCESS) return true;
  (*this)(std::string("needs ") + what, [&] { return result; });
  return false;
}

bool Calls::Begin(const std::string& what) {
  const int index = next_++;
  if (index < first_ || index >= last_) return false;
  Write("+" + area_ + ": " + what + "\t");
  alarm(kLimitSeconds);
  return true;
}

void Calls::End(CUresult result) {
  alarm(kLimitSeconds);  // for what lies between two cases
  Write(Name(result) + "\n");
}

}  // namespace gpuloom::conformance

int main(int argc, char** argv) {
  using namespace gpuloom::conformance;
  std::string library = "libcuda.so.1", name;
  int first = 0, count = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string value = argument.substr(std::min(argument.find('=') + 1, argument.size()));
    if (argument.rfind("--libcuda=", 0) == 0) {
      library = value;
    } else if (argument.rfind("--area=", 0) == 0) {
      name = value;
    } else if (argument.rfind("--first=", 0) == 0) {
      first = std::atoi(value.c_str());
    } else if (argument.rfind("--count=", 0) == 0) {
      count = std::atoi(value.c_str());
    } else {
      std::fprintf(stderr, "usage: gpuloom-wrong-calls [--libcuda=PATH] [--area=NAME]\n");
      return 2;
    }
  }
  if (count == 0) return RunAll(library, name);
  std::string error;
  if (!gpuloom::Load(library.c_str(), &driver, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  for (const Area& area : kAreas) {
    if (name == area.name) return RunArea(area, first, count);
  }
  return 2;
}
