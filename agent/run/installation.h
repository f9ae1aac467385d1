// SPDX-License-Identifier: Apache-2.0
// The files of our installation that `gpuloom run` needs (agent/node/layout.h says where they are). Plain value; safe
// from any thread.
#pragma once

#include <string>

#include "agent/run/tenant_folder.h"

namespace gpuloom::run {

struct Installation {
  std::string scheduler;
  TenantLibraries libraries;
  std::string softgpu;  // the file may be missing: only --softgpu needs it
};

// Finds the installation of the program <root>/bin/<name>. False with a message that names the missing file.
[[nodiscard]] bool FindInstallation(const std::string& program, Installation* installation,
                                    std::string* error);

}  // namespace gpuloom::run
