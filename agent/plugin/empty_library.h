// SPDX-License-Identifier: Apache-2.0
// An empty shared library for 32-bit programs (i386). Containers preload the shim, which is for 64-bit programs:
// without a library that fits, the loader of each 32-bit program would print a complaint at its start. Pure; safe
// from any thread.
#pragma once

#include <string>

namespace gpuloom {

// The file's content. It never changes, because running containers have the file mounted.
std::string EmptyLibrary32();

}  // namespace gpuloom
