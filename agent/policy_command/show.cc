// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <ctime>

#include "agent/node/sealed_text.h"
#include "agent/policy/policy_file.h"
#include "agent/policy/policy_parser.h"
#include "agent/policy_command/answers.h"

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

// The first line in which they differ, counted from 1; they do.
size_t FirstOtherLine(const std::string& one, const std::string& other) {
  const auto [end, unused] = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
  return 1 + static_cast<size_t>(std::count(one.begin(), end, '\n'));
}

struct InForce {
  std::string path;
  std::optional<std::string> text;
  std::string since;
  std::string trouble;  // why there is no text
};

InForce ReadKept(const std::string& state_dir) {
  InForce kept{state_dir + "/" + kKeptPolicyName, {}, {}, {}};
  std::string error;
  const std::optional<std::string> content = ReadPolicyFile(kept.path, PolicySource::kKept, &error);
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

struct FileNow {
  std::string state;    // in force, differs, wrong, unreadable
  std::string trouble;  // if it is not in force
};

FileNow JudgeFile(const std::string& path, const InForce& kept) {
  std::string error;
  const std::optional<std::string> text = ReadPolicyFile(path, PolicySource::kFile, &error);
  if (!text) return {"unreadable", error + ": name the agent's --policy"};
  if (kept.text && *text == *kept.text) return {"in force", ""};
  if (!ParsePolicy(path, *text, &error)) return {"wrong", error};
  if (!kept.text) return {"differs", path + " is a policy, and nothing shows that it is in force"};
  return {"differs",
          path + " differs from what is in force from line " +
              std::to_string(FirstOtherLine(*text, *kept.text)) +
              " on: if the agent has not taken it within seconds, it promises more than a GPU of "
              "this node has (gpuloom "
              "policy check --gpu, and the agent's log), or this is not the agent's file"};
}

}  // namespace

Answer Show(const PolicyCommand& command) {
  const InForce kept = ReadKept(command.state_dir);
  const FileNow file = JudgeFile(command.file, kept);
  Answer answer;
  for (const std::string& trouble : {kept.trouble, file.trouble}) {
    if (trouble.empty()) continue;
    answer.exit_status = kNotGood;
    answer.trouble += "gpuloom: " + trouble + "\n";
  }
  if (command.format != Format::kTable) {
    Json document = {{"kept", kept.path},
                     {"since", kept.since.empty() ? Json() : Json(kept.since)},
                     {"policy", kept.text ? Json(*kept.text) : Json()},
                     {"file", command.file},
                     {"file_state", file.state}};
    if (!kept.trouble.empty()) document["kept_trouble"] = kept.trouble;
    if (!file.trouble.empty()) document["file_trouble"] = file.trouble;
    answer.text = FormatDocument(document, command.format);
    return answer;
  }
  if (!kept.text) return answer;
  // Comments, so that what is printed is the policy.
  answer.text = "# in force since " + kept.since + ", as the agent keeps it: " + kept.path +
                "\n# " + command.file + ": " + file.state + "\n" + *kept.text;
  if (!answer.text.ends_with('\n')) answer.text += '\n';
  return answer;
}

}  // namespace gpuloom
