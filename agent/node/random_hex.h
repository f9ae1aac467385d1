// SPDX-License-Identifier: Apache-2.0
// Unique names that nobody can guess, for folders and sockets. Safe from any thread.
#pragma once

#include <cstddef>
#include <string>

namespace gpuloom {

// Fresh random bits in hexadecimal, two digits for each byte. At most 256 bytes. Never fails.
std::string RandomHex(size_t bytes);

}  // namespace gpuloom
