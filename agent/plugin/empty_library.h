// SPDX-License-Identifier: Apache-2.0
// A shared library of 32-bit programs (i386) with nothing in it. The loader of such a program, made
// to preload what is mounted for it, takes this one and says nothing; the shim is for 64-bit ones,
// and each program would begin with a complaint about it.
#pragma once

#include <string>

namespace gpuloom {

// The file's content. It never changes, because containers that run have it mounted.
std::string EmptyLibrary32();

}  // namespace gpuloom
