// SPDX-License-Identifier: Apache-2.0
// The file that a trace is written to: only its owner may read it, whatever was there before, and what was there stays until the
// trace is whole. Used from one thread.
#pragma once

#include <stdio.h>

#include <string>

namespace gpuloom::trace {

class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  // Removes what is not finished.
  ~OutputFile();

  // "-" is standard output, and what is no regular file, such as a pipe, is written as it is. False with errno.
  [[nodiscard]] bool Open(const std::string& path);
  FILE* file() const { return file_; }
  // All is written: from now on it is at its path. False with errno.
  [[nodiscard]] bool Finish();

 private:
  void Close();

  FILE* file_ = nullptr;
  std::string path_;
  std::string temporary_;  // empty: what is written is at its path already
};

}  // namespace gpuloom::trace
