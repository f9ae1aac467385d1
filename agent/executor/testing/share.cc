// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/testing/share.h"

#include <atomic>
#include <string>
#include <thread>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/state.h"

namespace gpuloom::executor {
namespace {

std::atomic<int64_t> g_fill_us{0};
std::atomic<unsigned> g_names{1};
std::atomic<const char*> g_name{"found"};
std::atomic<int> g_streams{0}, g_streams_destroyed{0}, g_events{0}, g_events_destroyed{0};

// What the table had.
Driver g_driver;

void TakeFillTime() {
  TestingTakeLong("fill");
  if (g_fill_us != 0) std::this_thread::sleep_for(std::chrono::microseconds(g_fill_us));
}

}  // namespace

void FillShareTable(Driver* d) {
  g_driver = *d;
  d->cuMemsetD8Async = [](CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    TakeFillTime();
    return g_driver.cuMemsetD8Async(to, value, count, stream);
  };
  d->cuLibraryGetKernelCount = [](unsigned* count, CUlibrary) {
    return *count = g_names, CUDA_SUCCESS;
  };
  d->cuKernelGetName = [](const char** name, CUkernel) { return *name = g_name, CUDA_SUCCESS; };
  d->cuStreamCreateWithPriority = [](CUstream* stream, unsigned flags, int priority) {
    ++g_streams;
    NotePriority(priority);
    return g_driver.cuStreamCreateWithPriority(stream, flags, priority);
  };
  d->cuStreamDestroy_v2 = [](CUstream stream) {
    ++g_streams_destroyed;
    return g_driver.cuStreamDestroy_v2(stream);
  };
  d->cuEventCreate = [](CUevent* event, unsigned flags) {
    ++g_events;
    return g_driver.cuEventCreate(event, flags);
  };
  d->cuEventDestroy_v2 = [](CUevent) { return ++g_events_destroyed, CUDA_SUCCESS; };
}

void ForgetShares() {
  g_fill_us = 0;
  g_names = 1;
  g_name = "found";
  g_streams = g_streams_destroyed = g_events = g_events_destroyed = 0;
}

void TestingDriver::SlowFills(std::chrono::microseconds each) { g_fill_us = each.count(); }

void TestingDriver::SetKernelNames(unsigned count, const char* each) {
  g_names = count;
  g_name = each;
}

TestingDriver::Made TestingDriver::made() {
  return {g_streams - g_streams_destroyed, g_events - g_events_destroyed};
}

}  // namespace gpuloom::executor
