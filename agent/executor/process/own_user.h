// SPDX-License-Identifier: Apache-2.0
// Who this process is: its user, groups and capabilities. Capabilities and users are a thread's own
// in the kernel, so all this is called before there is a second thread. False with a message.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpuloom::executor {

// Of device nodes under `device_folder` ("/dev") that NVIDIA's driver has made and that not
// everybody may use: the groups that may. Whoever becomes another user keeps these.
std::vector<gid_t> DeviceGroups(const std::string& device_folder);

// Becomes `user` with the group of the same number and `groups` beside it, for good.
[[nodiscard]] bool BecomeUser(unsigned user, const std::vector<gid_t>& groups, std::string* error);

// No capabilities, and none to be gained; no other process of its user may look into this one; it
// ends with its parent, whatever runs in it.
[[nodiscard]] bool GiveUpPrivileges(std::string* error);

}  // namespace gpuloom::executor
