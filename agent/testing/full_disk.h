// SPDX-License-Identifier: Apache-2.0
// A disk on which nothing can be written, for tests.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace gpuloom {

// While it lives every write of the process to a file fails, even root's, as on a full disk: for tests without other
// threads that write.
class FullDisk {
 public:
  FullDisk() {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none = {0, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

}  // namespace gpuloom
