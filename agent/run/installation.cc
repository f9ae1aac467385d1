// SPDX-License-Identifier: Apache-2.0
#include "agent/run/installation.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

namespace gpuloom::run {

bool FindInstallation(const std::string& program, Installation* installation, std::string* error) {
  const std::string folder = program.substr(0, program.rfind('/'));
  const std::string root = folder.substr(0, folder.rfind('/'));
  *installation = Installation{folder + "/gpuloom-scheduler",
                               {root + "/lib/libgpuloom.so", root + "/lib/libgpuloom-nvml.so"},
                               root + "/lib/softgpu/libcuda.so.1"};
  for (const std::string& path :
       {installation->scheduler, installation->libraries.cuda, installation->libraries.nvml}) {
    if (access(path.c_str(), R_OK) != 0) {
      *error = path + " is missing: " + strerror(errno) + "; is the installation complete?";
      return false;
    }
  }
  return true;
}

}  // namespace gpuloom::run
