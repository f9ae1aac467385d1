// SPDX-License-Identifier: Apache-2.0
// The one folder an executor may write to: the driver's compiled code, its temporary files. Made by
// the executor as its own user, because who starts it may lack the right to give folders away; for
// the same reason removed, when the executor has ended, by a process of that user.
#pragma once

#include <string>

namespace gpuloom::executor {

// Points the driver and the C library at `folder`; with an empty one the driver keeps no compiled code.
void UseFolder(const std::string& folder);

// With everything in it, whatever somebody has put there: any depth, folders without permissions,
// links (which are not followed). False with a message.
[[nodiscard]] bool RemoveFolder(const std::string& folder, std::string* error);

}  // namespace gpuloom::executor
