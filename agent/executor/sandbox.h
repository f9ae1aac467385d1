// What this process gives up, because tenants' kernels run in its address space and a hole in the
// driver would be a hole in us: capabilities, new privileges, and the system calls that an intruder
// would want and a CUDA process does not need. Called from main, by one thread each.
#pragma once

#include <string>

namespace gpuloom::executor {

// No capabilities, and none to be gained. Before the first thread is made: capabilities are a
// thread's own. False with a message.
[[nodiscard]] bool DropPrivileges(std::string* error);

// Refuses, with EPERM and in all threads, what is not needed after the driver has started: running
// programs, tracing, mounting, new namespaces, kernel modules and programs, network sockets,
// opening by handle. Memory, threads, files and devices stay, the driver needs them at any time.
// Does nothing in sanitizer builds, whose run-time libraries trace themselves. False with a
// message.
[[nodiscard]] bool RefuseSystemCalls(std::string* error);

}  // namespace gpuloom::executor
