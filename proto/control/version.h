// The release this binary was built from: "0.1.0 (1a2b3c4d5e6f)", with "+dirty" behind the hash
// when the tree had changes that were not committed; without git what GPULOOM_COMMIT said, or
// "commit unknown". Written anew by every build (version.cmake).
#pragma once

namespace gpuloom {

extern const char* const kVersion;

}  // namespace gpuloom
