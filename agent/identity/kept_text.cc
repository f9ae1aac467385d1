// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/kept_text.h"

#include "agent/cat.h"
#include "agent/identity/state_file.h"
#include "agent/node/sealed_text.h"

namespace gpuloom {
absl::Status KeepText(const std::string& path, const std::string& text) {
  return WriteStateFile(path, SealText(text));
}

absl::StatusOr<std::string> KeptText(const std::string& path) {
  absl::StatusOr<std::string> content = ReadStateFile(path);
  if (!content.ok()) return content;
  std::string text;
  int format = 0;
  // The seal is the last line that kept_text.h speaks of (agent/node/sealed_text.h).
  switch (UnsealText(*content, &text, &format)) {
    case Seal::kWhole:
      return text;
    case Seal::kNewer:
      return absl::FailedPreconditionError(
          Cat("state: ", path, " was written by a newer agent, in format ", format));
    case Seal::kDamaged:
      break;
  }
  return absl::DataLossError(Cat("state: ", path, " is damaged"));
}

bool MayBeWhole(const absl::Status& failure) {
  return !failure.ok() && !absl::IsNotFound(failure) && !absl::IsDataLoss(failure) &&
         !absl::IsFailedPrecondition(failure);
}

}  // namespace gpuloom
