// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/printing/driver_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "agent/executor/process/crash_report.h"
#include "agent/executor/process/log.h"
#include "agent/executor/process/sanitized.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {

// The descriptor keeps its number, so that everybody who has it, including the driver, writes into
// the file.
bool DriverOutput::Redirect(int standard, const char* name, File* file) {
  file->fd = channel::UniqueFd(memfd_create(name, MFD_CLOEXEC));
  // Every holder of the descriptor appends, also after we have freed what we have read.
  return file->fd.valid() && fcntl(file->fd.get(), F_SETFL, O_APPEND) == 0 &&
         dup2(file->fd.get(), standard) >= 0;
}

bool DriverOutput::Capture(std::string* error) {
  const MutexLock lock(mutex_);
  const auto fail = [&] {
    *error = std::string("capturing the driver's output: ") + strerror(errno);
    return false;
  };
  if (!Redirect(STDOUT_FILENO, "printed", &printed_)) return fail();
  // Sanitizers write to stderr and end the process.
  if (kSanitized) return true;
  // The log moves to another descriptor before the driver gets its number.
  const int log = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  if (log < 0) return fail();
  SetLogFd(log);
  if (!Redirect(STDERR_FILENO, "errors", &errors_)) return fail();
  setvbuf(stderr, nullptr, _IONBF, 0);
  ReportCrashes(log, errors_.fd.get());
  return true;
}

std::string DriverOutput::Take(File* file) {
  if (!file->fd.valid()) return {};
  // The driver writes through the C library's streams, which the process shares with it.
  fflush(file == &printed_ ? stdout : stderr);
  struct stat status;
  if (fstat(file->fd.get(), &status) != 0 || status.st_size <= file->taken_bytes) return {};
  std::string text(static_cast<size_t>(status.st_size - file->taken_bytes), '\0');
  const ssize_t bytes = pread(file->fd.get(), text.data(), text.size(), file->taken_bytes);
  text.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes));
  // The file only grows; we free the pages before what was taken.
  constexpr int64_t kPageBytes = 4096;
  const int64_t first = file->taken_bytes & ~(kPageBytes - 1);
  file->taken_bytes += static_cast<int64_t>(text.size());
  const int64_t end = file->taken_bytes & ~(kPageBytes - 1);
  if (end > first) {
    fallocate(file->fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, end - first);
  }
  return text;
}

}  // namespace gpuloom::executor
