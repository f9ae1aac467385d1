// SPDX-License-Identifier: Apache-2.0
// A fake driver for the executor's own tests and fuzzers: every function that the executor calls,
// without a GPU. Copies and fills do not touch memory; submitted work is recorded in a list; a
// stream's work completes at once, or, while the stream is held, not before it is released. One per
// process, safe from any thread.
#pragma once

#include <chrono>
#include <climits>
#include <string>
#include <string_view>
#include <vector>

#include "proto/cuda/driver.h"

namespace gpuloom::executor {

class TestingDriver {
 public:
  // Forgets everything earlier. The functions of the returned table share one state.
  static const Driver& Reset();

  // From now on new work in every stream stays incomplete until Release.
  static void Hold();
  static void Release();

  // Like a device fault: every later call returns this.
  static void Fail(CUresult result);
  // Like a failed assert: the first cuCtxSynchronize afterwards writes the text to the file.
  static void FailAssert(int errors_fd, const char* text);

  // From now on executable graphs cannot be changed or launched; plain launches work.
  static void RefuseGraphs(CUresult result);

  // From now on only PTX, and fatbins, are loaded, as by the software GPU's driver.
  static void RefuseCubins();

  // If true, launches wait in the driver for the device, as module loads do on real hardware.
  static void SetLoadsBlock(bool block);

  // Local memory per thread that every kernel needs.
  static void SetLocalBytes(int bytes);

  // From now on these slow calls, `most` of them at a time, do not return until ReleaseCalls: "link" (cuLinkComplete),
  // "look up" (cuLibraryGetKernel), "load cubin", "set" (cuKernelSetAttribute), "unmap" and "occupancy" (and "fill", of
  // bytes). Release and Reset release them too.
  static void HoldCalls(const char* what, int most = INT_MAX);
  static void ReleaseCalls();
  // How many are in the driver now.
  static int held_calls();

  // Each byte fill takes this long.
  static void SlowFills(std::chrono::microseconds each);
  // Every library has this many kernels, all of this name. By default one, called "found".
  static void SetKernelNames(unsigned count, const char* each);
  // Streams and events created and not destroyed.
  struct Made {
    int streams;
    int events;
  };
  static Made made();

  // Of the streams, launches and nodes since the last call.
  static std::vector<int> TakePriorities();

  // Graphs and executable graphs created and not destroyed.
  static int live_graphs();

  // The calls made, in order: "graph 1" (a graph launch), "update", "launch 1", "copy 2", "clear 1" (a fill
  // of memory without a wanted address), "record 3 1" (event, stream), "wait 2 3" (stream, event), "condition
  // 1 0" (a handle's default, and flags), "load", "load cubin", "refuse" (a cubin), "unload", "unmap", "unregister
  // 4096" (its address), "green stream 3 of 16" (of a green context of so many multiprocessors). Streams and events are numbered from 1 in order of creation.
  static std::vector<std::string> TakeCalls();
  // Returns true if a call that begins like this was made since they were last taken.
  static bool WasCalled(std::string_view begin);
  // Number of calls, while work was incomplete, that must not be made then.
  static int unquiet_calls();
  // Number of uses of a link state on another thread than the one that created it.
  static int foreign_link_calls();
};

}  // namespace gpuloom::executor
