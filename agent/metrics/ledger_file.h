// SPDX-License-Identifier: Apache-2.0
// The ledger in the agent's state (agent/identity/kept_text.h), as JSON: whole, with what schedulers reported last,
// so that what they have counted since is added once, however an agent ended. Functions of the file, called from one
// thread at a time.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/metrics/ledger.h"

namespace gpuloom {

std::string FormatLedger(const Ledger& ledger);
// DataLoss: the text is no ledger, or one of another format.
absl::StatusOr<Ledger> ParseLedger(const std::string& text);

// Empty when nothing was ever kept. A file that is damaged, or that another release wrote, is set aside as PATH.bad;
// `complaint` then says so, and the ledger starts anew.
Ledger LoadLedger(const std::string& path, std::string* complaint);

}  // namespace gpuloom
