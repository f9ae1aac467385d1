// SPDX-License-Identifier: Apache-2.0
// A driver for the executor's own tests and fuzzers: every function that the executor calls,
// without a GPU. Copies and fills do nothing to memory; what is submitted is written to a list;
// work of a stream is done at once, or, while the stream is held, not before it is released. One
// per process, safe from any thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "proto/cuda/driver.h"

namespace gpuloom::executor {

class TestingDriver {
 public:
  // Forgets everything earlier. The functions of the returned table use this one state.
  static const Driver& Reset();

  // From now on new work of every stream stays unfinished, until Release.
  static void Hold();
  static void Release();

  // Like a device fault: every later call answers this.
  static void Fail(CUresult result);

  // Executable graphs cannot be changed or launched from now on; plain launches can.
  static void RefuseGraphs(CUresult result);

  // Launches wait in the driver for the device, as module loads do on real hardware, when true.
  static void SetLoadsBlock(bool block);

  // What every kernel needs of local memory a thread.
  static void SetLocalBytes(int bytes);

  // A call that takes long: "link" (cuLinkComplete), "look up" (cuLibraryGetKernel), "unmap" and "occupancy" (and "fill", of bytes) do not
  // return from now on, until ReleaseCalls. Release and Reset do that too.
  static void HoldCalls(const char* what);
  static void ReleaseCalls();
  // So many are in the driver now.
  static int held_calls();

  // Each fill of bytes takes so long.
  static void SlowFills(std::chrono::microseconds each);
  // Every library has so many kernels, all of this name. One that is called "found" else.
  static void SetKernelNames(unsigned count, const char* each);
  // Streams and events that were made and not destroyed.
  struct Made {
    int streams;
    int events;
  };
  static Made made();

  // Graphs and executable graphs that were made and not destroyed.
  static int live_graphs();

  // What was called, in order: "graph 1" (a graph's launch), "update", "launch 1", "copy 2", "clear 1" (a fill of
  // memory without a wanted address), "record 3 1" (event, stream), "wait 2 3"
  // (stream, event), "condition 1 0" (a handle's default, and flags), "unload", "unmap", "unregister", "green stream 3 of 16" (of a green context of so many
  // multiprocessors). Streams and events are numbered from 1 as
  // they are made.
  static std::vector<std::string> TakeCalls();
  // Whether a call that begins so was made since they were last taken.
  static bool WasCalled(std::string_view begin);
  // How often something was called while work was unfinished that must not be then.
  static int unquiet_calls();
  // How often a linker's state was used on another thread than the one that made it.
  static int foreign_link_calls();
};

}  // namespace gpuloom::executor
