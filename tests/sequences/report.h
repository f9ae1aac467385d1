// SPDX-License-Identifier: Apache-2.0
// What a run says: each thread's steps, and the first thing that went wrong, which ends the process.
//
// A Journal is one thread's; as long as it lives, whoever reports reads it. Fail and Judge may be called from any
// thread; they do not return when something is wrong.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "proto/cuda/driver.h"

namespace gpuloom::sequences {

// Loaded by main before anything else.
const Driver& Cu();

// What each thread does, one line a step.
class Journal {
 public:
  explicit Journal(int thread);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  int thread() const { return thread_; }
  void Begin(const std::string& step);
  void Undo();   // it was not to be
  void Pause();  // nothing is to be done until the next Begin
  // Adds to the newest line.
  void Note(const char* format, ...) __attribute__((format(printf, 2, 3)));
  void Call(const char* function) { call_ = function; }

  void Print(size_t newest) const;
  // What has been going on for so long; empty when nothing has.
  std::string Standing(std::chrono::seconds so_long) const;

 private:
  const int thread_;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  bool pauses_ = false;
  std::atomic<const char*> call_{"nothing"};
};

// Which journal the calling thread writes; null outside of steps.
Journal* ThisJournal();
void SetThisJournal(Journal* journal);
// How the same is run again, for the report.
void SetReplay(const std::string& command);

// The process ends with exit status 1 and says what, the journals, and how to run it again.
[[noreturn]] void Fail(const std::string& what);
// A call that must succeed.
void Judge(const char* function, CUresult result);
std::string NameOf(CUresult result);

// Ends the process when a thread stands still.
void WatchForStandstill(std::chrono::seconds patience);

// DO(cuMemFree_v2, address): a call that must succeed.
#define DO(name, ...)                                                                 \
  do {                                                                                \
    if (auto* at = ::gpuloom::sequences::ThisJournal()) at->Call(#name);              \
    ::gpuloom::sequences::Judge(#name, ::gpuloom::sequences::Cu().name(__VA_ARGS__)); \
  } while (false)

}  // namespace gpuloom::sequences
