// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/in_force/last_good_policy.h"

#include "agent/cat.h"
#include "agent/identity/state_file.h"
#include "agent/policy/kept_policy.h"

namespace gpuloom {
absl::Status KeepPolicy(const std::string& path, const std::string& text) {
  return WriteStateFile(path, SealPolicy(text));
}

absl::StatusOr<std::string> KeptPolicy(const std::string& path) {
  const absl::StatusOr<std::string> content = ReadStateFile(path);
  if (!content.ok()) return content;
  std::string text;
  int format = 0;
  switch (UnsealPolicy(*content, &text, &format)) {
    case Kept::kWhole:
      return text;
    case Kept::kNewer:
      return absl::FailedPreconditionError(
          Cat("state: ", path, " was written by a newer agent, in format ", format));
    case Kept::kDamaged:
      break;
  }
  return absl::DataLossError(Cat("state: ", path, " is damaged"));
}

}  // namespace gpuloom
