// SPDX-License-Identifier: Apache-2.0
// The release this binary was built from: "1.2.3 (1a2b3c4d5e6f)", with "+dirty" behind the hash
// when the tree had changes that were not committed; without git what GPULOOM_COMMIT said, or
// "commit unknown". The number is that of project() in CMakeLists.txt; the text is written anew by
// every build (version.cmake).
#pragma once

#include <string>

#include "proto/control/protocol_version.h"
#include "proto/wire/version.h"

namespace gpuloom {

extern const char* const kVersion;

// What --version prints, so that one can tell which other releases `program` gets on with:
// "gpuloom 1.2.3 (1a2b3c4d5e6f), wire 1.3, control 3.1".
inline std::string VersionLine(const std::string& program) {
  return program + " " + kVersion + ", wire " +
         control::VersionText(wire::kWireMajor, wire::kWireMinor) + ", control " +
         control::VersionText(control::kControlMajor, control::kControlMinor);
}

}  // namespace gpuloom
