// SPDX-License-Identifier: Apache-2.0
// The files of ours that `gpuloom run` needs, all of which must be there (agent/node/layout.h says where).
#pragma once

#include <string>

#include "agent/run/tenant_folder.h"

namespace gpuloom::run {

struct Installation {
  std::string scheduler;
  TenantLibraries libraries;
  std::string softgpu;  // may be missing: only who asks for it needs it
};

// Of the program <root>/bin/<name>. False with a message that names the file that is missing.
[[nodiscard]] bool FindInstallation(const std::string& program, Installation* installation,
                                    std::string* error);

}  // namespace gpuloom::run
