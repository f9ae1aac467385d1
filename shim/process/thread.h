// SPDX-License-Identifier: Apache-2.0
// Our threads in the program's process. They have the process's default stack size, never end before it unless their
// function returns, and leave the program's signals to the program's threads; only fault signals, which a thread
// raises itself, may reach its handlers here. A child of fork does not have them.
#pragma once

namespace gpuloom {

// `name`: at most 15 characters. False if the process cannot start a thread: it is not linked with the thread library
// (a separate one before glibc 2.34; logged as what `purpose` needs, unless that is null), or has too many.
[[nodiscard]] bool StartThread(const char* name, const char* purpose, void (*run)());

}  // namespace gpuloom
