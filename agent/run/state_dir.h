// SPDX-License-Identifier: Apache-2.0
// Where the schedulers that `gpuloom run` starts keep lock, socket and log: one folder per user and
// GPU, that nobody else may enter.
#pragma once

#include <string>

namespace gpuloom::run {

// $XDG_RUNTIME_DIR/gpuloom/<device>, or /tmp/gpuloom-<uid>/<device>.
std::string DefaultStateDir(const std::string& device);

// Makes the folder (0700, with its parents) and makes *path absolute. False with a message, also
// when it belongs to somebody else: sockets there could lead anywhere.
[[nodiscard]] bool MakeStateDir(std::string* path, std::string* error);

}  // namespace gpuloom::run
