// SPDX-License-Identifier: Apache-2.0
// This process's user, groups and capabilities. In the kernel these are per thread, so all
// functions must be called before there is a second thread. They return false with a message.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpuloom::executor {

// Returns the groups with access to those of NVIDIA's device nodes under `device_folder` ("/dev")
// that not every user may open. A process that switches users keeps these.
std::vector<gid_t> DeviceGroups(const std::string& device_folder);

// Switches permanently to `user`, the group of the same number, and the supplementary `groups`.
[[nodiscard]] bool BecomeUser(unsigned user, const std::vector<gid_t>& groups, std::string* error);

// Drops all capabilities for good. No other process of its user may inspect this one after that,
// and it ends with its parent, whatever it is doing.
[[nodiscard]] bool GiveUpPrivileges(std::string* error);

}  // namespace gpuloom::executor
