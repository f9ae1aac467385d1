// SPDX-License-Identifier: Apache-2.0
#include "proto/trace/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpuloom::trace {

OutputFile::~OutputFile() {
  Close();
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

bool OutputFile::Open(const std::string& path) {
  if (path == "-") {
    file_ = stdout;
    return true;
  }
  path_ = path;
  int fd = -1;
  struct stat found = {};
  if (stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {
    fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    // Not in the place of a link, but where it leads.
    char real[PATH_MAX];
    if (realpath(path.c_str(), &real[0]) != nullptr) path_ = real;
    temporary_ = path_ + ".XXXXXX";
    fd = mkostemp(temporary_.data(), O_CLOEXEC);  // 0600
    if (fd < 0) temporary_.clear();
  }
  if (fd < 0) return false;
  file_ = fdopen(fd, "w");
  if (file_ != nullptr) return true;
  const int error = errno;
  close(fd);
  errno = error;
  return false;
}

bool OutputFile::Finish() {
  if (fflush(file_) != 0) return false;
  Close();
  if (temporary_.empty()) return true;
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return false;
  temporary_.clear();
  return true;
}

void OutputFile::Close() {
  if (file_ != nullptr && file_ != stdout) fclose(file_);
  file_ = nullptr;
}

}  // namespace gpuloom::trace
