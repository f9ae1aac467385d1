// SPDX-License-Identifier: Apache-2.0
#include "agent/node/boot.h"

#include <time.h>

#include <fstream>

namespace gpuloom {

std::string BootId() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  return boot_id;
}

std::chrono::milliseconds SinceBoot() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace gpuloom
