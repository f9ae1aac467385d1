// SPDX-License-Identifier: Apache-2.0
// Names that nobody has and nobody can guess, for folders and sockets. Safe from any thread.
#pragma once

#include <cstddef>
#include <string>

namespace gpuloom {

// Fresh random bits in hex, two digits for each byte, of which there may be 256. Never fails.
std::string RandomHex(size_t bytes);

}  // namespace gpuloom
