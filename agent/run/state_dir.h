// SPDX-License-Identifier: Apache-2.0
// Where the schedulers that `gpuloom run` starts keep lock, socket and log: one folder per user and
// GPU, that nobody else may enter.
#pragma once

#include <string>

namespace gpuloom::run {

// Where gpuloom-scheduler@<device>.service has its scheduler, for all commands that root runs.
inline constexpr char kServiceStateDir[] = "/run/gpuloom";

// `service`/<device>, if a scheduler's control socket is there that this user may use. Else
// $XDG_RUNTIME_DIR/gpuloom/<device>, or /tmp/gpuloom-<uid>/<device>.
std::string DefaultStateDir(const std::string& device,
                            const std::string& service = kServiceStateDir);

// Makes the folder (0700, with its parents) and makes *path absolute. False with a message, also
// when it belongs to somebody else: sockets there could lead anywhere.
[[nodiscard]] bool MakeStateDir(std::string* path, std::string* error);

}  // namespace gpuloom::run
