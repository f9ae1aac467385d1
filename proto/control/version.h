// SPDX-License-Identifier: Apache-2.0
// The release this binary was built from: "1.2.3 (1a2b3c4d5e6f)", with "+dirty" after the hash if
// the tree had uncommitted changes; without git, what GPULOOM_COMMIT said, or "commit unknown". The
// number is that of project() in CMakeLists.txt; every build rewrites the text (version.cmake).
#pragma once

#include <string>

#include "proto/control/protocol_version.h"
#include "proto/wire/version.h"

namespace gpuloom {

extern const char* const kVersion;

// What --version prints, to show which other releases `program` works with: "gpuloom 1.2.3
// (1a2b3c4d5e6f), wire 1.3, control 3.4".
inline std::string VersionLine(const std::string& program) {
  return program + " " + kVersion + ", wire " +
         control::VersionText(wire::kWireMajor, wire::kWireMinor) + ", control " +
         control::VersionText(control::kControlMajor, control::kControlMinor);
}

}  // namespace gpuloom
