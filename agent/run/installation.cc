// SPDX-License-Identifier: Apache-2.0
#include "agent/run/installation.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent/node/layout.h"

namespace gpuloom::run {

bool FindInstallation(const std::string& program, Installation* installation, std::string* error) {
  const Layout layout = LayoutOf(program);
  *installation = Installation{
      layout.scheduler(), {layout.shim(), layout.nvml(), layout.trace()}, layout.softgpu()};
  for (const std::string& path : {installation->scheduler, installation->libraries.cuda,
                                  installation->libraries.nvml, installation->libraries.trace}) {
    // Before anything is started: the loader ignores a library of LD_PRELOAD that is missing, and
    // the command would run without gpuloom.
    if (access(path.c_str(), R_OK) != 0) {
      *error = path + " is missing: " + strerror(errno) + "; is the installation complete?";
      return false;
    }
  }
  return true;
}

}  // namespace gpuloom::run
