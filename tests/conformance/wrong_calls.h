// SPDX-License-Identifier: Apache-2.0
// Wrong calls, and the code that a libcuda answers each with: one list for NVIDIA's driver, the
// software one, and both through gpuloom. The answers of NVIDIA's driver are the measure
// (tests/golden); compare_wrong_calls.py holds the others against them.
//
// Cases stand in areas. Each area runs in a process of its own, in which the cases come in a fixed
// order; a case that ends its process is "crashed", one that takes longer than kLimitSeconds is
// "hung", and the area goes on behind it in a new process. So the output is complete whatever
// happens, and always in the same order. No case may leave a sticky error behind, and none may
// depend on what an earlier one returned.
#pragma once

#include <string>

#include "proto/cuda/driver.h"
#include "tests/conformance/kernels.h"

namespace gpuloom::conformance {

// The driver that the calls are made to, loaded by main before anything else.
const Driver& Cu();

// Makes the cases of one area that this process was asked for, and writes each one's answer.
class Calls {
 public:
  static constexpr unsigned kLimitSeconds = 20;

  // Cases first … first + count - 1, counted from 0, are made.
  Calls(std::string area, int first, int count)
      : area_(area), first_(first), last_(first + count) {}

  template <typename Call>
  void operator()(const std::string& what, Call call) {
    if (!Begin(what)) return;
    End(call());
  }

  // What the cases behind it need: false, and written down as a failure, when it did not succeed.
  [[nodiscard]] bool Has(const char* what, CUresult result);

  // Of the whole area, made or not.
  int count() const { return next_; }

 private:
  bool Begin(const std::string& what);
  void End(CUresult result);

  const std::string area_;
  const int first_, last_;
  int next_ = 0;
};

// Device 0 and its primary context, which main has made current.
struct Place {
  CUdevice device = 0;
  CUcontext context = nullptr;
};

enum class Start { kNothing, kInit, kContext };

struct Area {
  const char* name;
  Start start;  // what has been done before the first case
  bool apart;   // each case in a process of its own: it may break what others need
  void (*body)(Calls& c, const Place& at);
};

// The areas of each wrong_calls_*.cc.
void WrongBeforeInit(Calls& c, const Place& at);
void WrongDevices(Calls& c, const Place& at);
void WrongWithoutContext(Calls& c, const Place& at);
void WrongContexts(Calls& c, const Place& at);
void WrongContextsApart(Calls& c, const Place& at);
void WrongMemory(Calls& c, const Place& at);
void WrongCopies(Calls& c, const Place& at);
void WrongFills(Calls& c, const Place& at);
void WrongHostMemory(Calls& c, const Place& at);
void WrongManagedMemory(Calls& c, const Place& at);
void WrongPointers(Calls& c, const Place& at);
void WrongVirtualMemory(Calls& c, const Place& at);
void WrongPools(Calls& c, const Place& at);
void WrongSharedPools(Calls& c, const Place& at);
void WrongSharing(Calls& c, const Place& at);
void WrongModules(Calls& c, const Place& at);
void WrongImages(Calls& c, const Place& at);
void WrongLibraries(Calls& c, const Place& at);
void WrongFunctions(Calls& c, const Place& at);
void WrongLaunches(Calls& c, const Place& at);
void WrongLaunchesApart(Calls& c, const Place& at);
void WrongOccupancy(Calls& c, const Place& at);
void WrongStreams(Calls& c, const Place& at);
void WrongEvents(Calls& c, const Place& at);
void WrongStreamMemory(Calls& c, const Place& at);
void WrongCaptures(Calls& c, const Place& at);
void WrongInCapture(Calls& c, const Place& at);
void WrongCaptureJoins(Calls& c, const Place& at);
void WrongGraphs(Calls& c, const Place& at);
void WrongGraphNodes(Calls& c, const Place& at);
void WrongGraphExecs(Calls& c, const Place& at);
void WrongConditionals(Calls& c, const Place& at);
void WrongArrays(Calls& c, const Place& at);
void WrongRectangles(Calls& c, const Place& at);
void WrongTextures(Calls& c, const Place& at);
void WrongReferences(Calls& c, const Place& at);
void WrongResources(Calls& c, const Place& at);
void WrongGreenContexts(Calls& c, const Place& at);
void WrongGreenContextsDestroyed(Calls& c, const Place& at);
void WrongDestroyed(Calls& c, const Place& at);

}  // namespace gpuloom::conformance
