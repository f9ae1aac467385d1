// SPDX-License-Identifier: Apache-2.0
// Where the schedulers that `gpuloom run` starts keep lock, socket and log: one folder per user and GPU, which only
// that user can enter. Safe from any thread.
#pragma once

#include <string>

namespace gpuloom::run {

// The folder of the schedulers that gpuloom-scheduler@<device>.service starts, for all commands that root runs.
inline constexpr char kServiceStateDir[] = "/run/gpuloom";

// `service`/<device>, if it has a scheduler's control socket that this user may use; otherwise
// $XDG_RUNTIME_DIR/gpuloom/<device>, or /tmp/gpuloom-<uid>/<device>.
std::string DefaultStateDir(const std::string& device,
                            const std::string& service = kServiceStateDir);

// Makes the folder (0700, with its parents) and makes *path absolute. False with a message, also when it belongs to
// another user: sockets there could lead anywhere.
[[nodiscard]] bool MakeStateDir(std::string* path, std::string* error);

}  // namespace gpuloom::run
