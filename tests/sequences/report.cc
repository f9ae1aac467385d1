// SPDX-License-Identifier: Apache-2.0
#include "tests/sequences/report.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace gpuloom::sequences {
namespace {

thread_local Journal* this_journal = nullptr;

struct Report {
  std::mutex mutex;
  std::vector<Journal*> journals;
  std::string replay;
};
Report& TheReport() {
  static auto* const kReport = new Report;  // threads may outlive main
  return *kReport;
}

constexpr size_t kLinesOfAReport = 60;

}  // namespace

Journal::Journal(int thread) : thread_(thread) {
  std::lock_guard<std::mutex> lock(TheReport().mutex);
  TheReport().journals.push_back(this);
}

Journal::~Journal() {
  if (this_journal == this) this_journal = nullptr;
  std::lock_guard<std::mutex> lock(TheReport().mutex);
  std::erase(TheReport().journals, this);
}

void Journal::Begin(const std::string& step) {
  std::lock_guard<std::mutex> lock(mutex_);
  lines_.push_back(step);
  pauses_ = false;
  begun_ = std::chrono::steady_clock::now();
}

void Journal::Undo() {
  std::lock_guard<std::mutex> lock(mutex_);
  lines_.pop_back();
}

void Journal::Pause() {
  std::lock_guard<std::mutex> lock(mutex_);
  pauses_ = true;
}

void Journal::Note(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  std::lock_guard<std::mutex> lock(mutex_);
  if (lines_.empty()) lines_.emplace_back("(before the first step)");
  lines_.back() += std::string("; ") + text;
}

void Journal::Print(size_t newest) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::fprintf(stderr, "thread %d, %zu steps, last call %s:\n", thread_, lines_.size(),
               call_.load());
  const size_t begin = lines_.size() > newest ? lines_.size() - newest : 0;
  for (size_t i = begin; i < lines_.size(); ++i) {
    std::fprintf(stderr, "  %d.%zu %s\n", thread_, i, lines_[i].c_str());
  }
}

std::string Journal::Standing(std::chrono::seconds so_long) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pauses_ || std::chrono::steady_clock::now() - begun_ <= so_long) return {};
  return "thread " + std::to_string(thread_) + " stands in " + call_.load() + " of " +
         (lines_.empty() ? std::string("its beginning") : lines_.back());
}

Journal* ThisJournal() { return this_journal; }
void SetThisJournal(Journal* journal) { this_journal = journal; }

void SetReplay(const std::string& command) {
  std::lock_guard<std::mutex> lock(TheReport().mutex);
  TheReport().replay = command;
}

void Fail(const std::string& what) {
  static std::mutex only_one;
  only_one.lock();  // for ever: one report is enough
  std::fflush(stdout);
  {
    std::lock_guard<std::mutex> lock(TheReport().mutex);
    for (const Journal* journal : TheReport().journals) {
      if (journal != this_journal) journal->Print(kLinesOfAReport);
    }
    if (this_journal != nullptr) this_journal->Print(kLinesOfAReport);
    std::fprintf(stderr, "gpuloom-valid-sequences: FAILED: %s\n", what.c_str());
    if (this_journal != nullptr) std::fprintf(stderr, "in thread %d\n", this_journal->thread());
    std::fprintf(stderr, "again: %s\n", TheReport().replay.c_str());
  }
  std::fflush(stderr);
  std::_Exit(1);
}

std::string NameOf(CUresult result) {
  const char* name = nullptr;
  if (Cu().cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return "CUresult " + std::to_string(static_cast<int>(result));
}

void Judge(const char* function, CUresult result) {
  if (result != CUDA_SUCCESS) Fail(std::string(function) + ": " + NameOf(result));
}

void WatchForStandstill(std::chrono::seconds patience) {
  std::thread([patience] {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      std::string standing;
      {
        std::lock_guard<std::mutex> lock(TheReport().mutex);
        for (const Journal* journal : TheReport().journals) {
          if (standing.empty()) standing = journal->Standing(patience);
        }
      }
      if (!standing.empty()) {
        Fail(standing + " for more than " + std::to_string(patience.count()) + " s");
      }
    }
  }).detach();
}

}  // namespace gpuloom::sequences
