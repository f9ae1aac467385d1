// SPDX-License-Identifier: Apache-2.0
// The ledger as JSON in the agent's state (agent/identity/kept_text.h). It includes what schedulers reported last, so
// that what they have counted since is added exactly once, however an agent ended. FormatLedger and ParseLedger are
// pure; LoadLedger is called from one thread at a time for a path.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/metrics/ledger.h"

namespace gpuloom {

std::string FormatLedger(const Ledger& ledger);
// DataLoss: the text is not a ledger, or one of another format.
absl::StatusOr<Ledger> ParseLedger(const std::string& text);

// An empty ledger if none was ever kept. nullopt if one lies there that cannot be read now, and may be whole: it must not be
// written over. A file that is damaged, or that another release wrote, is set aside as PATH.bad (agent/node/set_aside.h), and the ledger starts
// empty. `complaint` says so in both cases. No time in it is after `now`: a ledger of before a reboot is of the future where
// the machine's date was wrong then or is lost now, and what was seen there would be kept until that has come.
std::optional<Ledger> LoadLedger(const std::string& path, Clock::Time now, std::string* complaint);

}  // namespace gpuloom
