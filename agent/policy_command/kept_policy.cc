// SPDX-License-Identifier: Apache-2.0
#include "agent/policy_command/kept_policy.h"

#include <sys/stat.h>

#include <ctime>

#include "agent/node/agent_lock.h"
#include "agent/node/sealed_text.h"
#include "agent/policy/policy_file.h"

namespace gpuloom {
namespace {

// When the file was written, as RFC 3339 has it; empty if it is not there.
std::string TimeOf(const std::string& path) {
  struct stat status = {};
  struct tm utc = {};
  char text[sizeof("2026-11-25T03:16:10Z")];
  if (stat(path.c_str(), &status) != 0 || gmtime_r(&status.st_mtime, &utc) == nullptr ||
      strftime(text, sizeof(text), "%FT%TZ", &utc) == 0) {
    return {};
  }
  return text;
}

}  // namespace

std::string LackOfAgent(const std::string& state_dir) {
  if (!LacksAgent(state_dir)) return {};
  return "no agent is in charge in " + state_dir +
         ": no policy is applied to new pods and no changed file is taken until one is; start the "
         "node's gpuloom-agent pod";
}

KeptPolicy ReadKeptPolicy(const std::string& state_dir) {
  // The path is set in any case: messages name it.
  KeptPolicy kept{state_dir + "/" + kKeptPolicyName, {}, {}, {}};
  std::string error;
  const std::optional<std::string> content = ReadPolicyFile(kept.path, PolicySource::kKept, &error);
  // The commonest reasons, because a missing file alone says little.
  if (!content) {
    kept.trouble = error +
                   ". The agent keeps there what is in force; nothing, if it runs without --policy "
                   "or has never "
                   "been given a good one. Name its state folder with --state-dir";
    return kept;
  }
  std::string text;
  int format = 0;
  switch (UnsealText(*content, &text, &format)) {
    case Seal::kWhole:
      kept.text = text;
      // The agent writes the file when it takes a policy over, so its time is the policy's.
      kept.since = TimeOf(kept.path);
      break;
    case Seal::kNewer:
      kept.trouble =
          kept.path +
          " was written by an agent of a later release: ask the gpuloom beside that agent";
      break;
    case Seal::kDamaged:
      kept.trouble = kept.path +
                     " is damaged: the agent will not use it at its next start; it writes it anew "
                     "once the policy file is right";
  }
  return kept;
}

}  // namespace gpuloom
