// Starts a program that is to outlive whoever starts it, as a scheduler is: for the agent's supervisor
// and for `gpuloom run`. Safe from any thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpuloom {

// arguments[0], in a session of its own (a Ctrl-C for us is not one for the tenants), with no signal
// blocked or handled and no descriptor but /dev/null and its log, to which stdout and stderr are
// appended. `environment` ends with nullptr. An errno, 0 when it has been started.
[[nodiscard]] int StartDetached(const std::vector<std::string>& arguments, char* const* environment,
                                const std::string& log_path, pid_t* pid);

}  // namespace gpuloom
