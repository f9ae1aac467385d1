// SPDX-License-Identifier: Apache-2.0
// The one folder that an executor may write to, for the driver's compilation cache and its
// temporary files. The executor creates it as its own user, because the parent may lack the right
// to change owners; for the same reason a process of that user removes it after the executor has
// ended. Called from main.
#pragma once

#include <string>

namespace gpuloom::executor {

// Points the driver and the C library at `folder`; if empty, the driver caches no compiled code.
void UseFolder(const std::string& folder);

// Removes it with everything in it, whatever was put there: any depth, folders without permissions,
// links (not followed). Returns false with a message.
[[nodiscard]] bool RemoveFolder(const std::string& folder, std::string* error);

}  // namespace gpuloom::executor
