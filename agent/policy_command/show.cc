// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <vector>

#include "agent/node/gpu_standing.h"
#include "agent/node/one_line.h"
#include "agent/policy/policy_file.h"
#include "agent/policy/policy_parser.h"
#include "agent/policy_command/answers.h"
#include "agent/policy_command/kept_policy.h"

namespace gpuloom {
namespace {

constexpr size_t kLongestName = 255;

// The first line in which they differ, counted from 1; they do.
size_t FirstOtherLine(const std::string& one, const std::string& other) {
  const auto [end, unused] = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
  return 1 + static_cast<size_t>(std::count(one.begin(), end, '\n'));
}

struct Impossible {
  std::string gpu;
  uint64_t rules = 0;
  std::vector<std::string> reasons;  // of the first of them
};

// The rules that GPUs cannot keep, as the agent reports them, by GPU.
std::vector<Impossible> ReadImpossible(const std::string& state_dir) {
  namespace fs = std::filesystem;
  std::vector<Impossible> all;
  std::error_code none;  // then no agent has served a GPU
  for (fs::directory_iterator it(FolderOfGpu(state_dir, ""), none), end; !none && it != end;
       it.increment(none)) {
    const std::optional<GpuStanding> standing = ReadStanding(it->path());
    if (!standing || standing->impossible_rules == 0) continue;
    all.push_back({OneLine(it->path().filename().string(), kLongestName),
                   standing->impossible_rules, standing->impossible});
  }
  std::ranges::sort(all, {}, &Impossible::gpu);
  return all;
}

// One for each, and how many there are besides.
std::vector<std::string> LinesOf(const Impossible& impossible) {
  std::vector<std::string> lines;
  for (const std::string& reason : impossible.reasons) {
    lines.push_back("impossible on " + impossible.gpu + ", which refuses its pods: " + reason);
  }
  if (impossible.rules > impossible.reasons.size()) {
    lines.push_back("impossible on " + impossible.gpu + ": " +
                    std::to_string(impossible.rules - impossible.reasons.size()) + " more rules");
  }
  return lines;
}

struct FileNow {
  std::string state;    // in force, or of no agent in charge: same; differs, wrong, unreadable
  std::string trouble;  // if it is not in force
};

FileNow JudgeFile(const std::string& path, const KeptPolicy& kept, bool lacks_agent) {
  std::string error;
  const std::optional<std::string> text = ReadPolicyFile(path, PolicySource::kFile, &error);
  if (!text) return {"unreadable", error};
  // Before it is compared: what an agent of a former release has kept may be refused as a file now.
  if (!ParsePolicy(path, *text, &error)) return {"wrong", error};
  if (kept.text && *text == *kept.text) return {lacks_agent ? "same" : "in force", ""};
  if (!kept.text) return {"differs", path + " is a policy, and nothing shows that it is in force"};
  const std::string from =
      " from line " + std::to_string(FirstOtherLine(*text, *kept.text)) + " on";
  if (lacks_agent) {
    return {"differs", path + " differs from what the last agent had in force" + from +
                           ": the next one takes it when it starts"};
  }
  return {"differs", path + " differs from what is in force" + from +
                         ": if the agent has not taken it within seconds, this is not the agent's "
                         "file"};
}

}  // namespace

Answer Show(const PolicyCommand& command) {
  const KeptPolicy kept = ReadKeptPolicy(command.state_dir);
  const std::string lack = LackOfAgent(command.state_dir);
  const FileNow file = JudgeFile(command.file, kept, !lack.empty());
  const std::vector<Impossible> impossible = ReadImpossible(command.state_dir);
  std::vector<std::string> troubles = {lack, kept.trouble, file.trouble};
  if (file.state == "unreadable") {
    troubles.back() += ": name the agent's policy file, gpuloom policy show FILE";
  }
  for (const Impossible& one : impossible) {
    for (std::string& line : LinesOf(one)) troubles.push_back(std::move(line));
  }
  Answer answer;
  for (const std::string& trouble : troubles) {
    if (trouble.empty()) continue;
    answer.exit_status = kNotGood;
    answer.trouble += "gpuloom: " + trouble + "\n";
  }
  if (command.format != Format::kTable) {
    Json document = {{"kept", kept.path},
                     {"since", kept.since.empty() ? Json() : Json(kept.since)},
                     {"policy", kept.text ? Json(*kept.text) : Json()},
                     {"file", command.file},
                     {"file_state", file.state},
                     {"impossible", Json::array()}};
    for (const Impossible& one : impossible) {
      document["impossible"].push_back(
          {{"gpu", one.gpu}, {"rules", one.rules}, {"reasons", one.reasons}});
    }
    if (!lack.empty()) document["agent_trouble"] = lack;
    if (!kept.trouble.empty()) document["kept_trouble"] = kept.trouble;
    if (!file.trouble.empty()) document["file_trouble"] = file.trouble;
    answer.text = FormatDocument(document, command.format);
    return answer;
  }
  if (!kept.text) return answer;
  // Comments, so that what is printed is the policy.
  answer.text =
      (lack.empty() ? "# in force since " + kept.since + ", as the agent keeps it: "
                    : "# no agent is in charge; the last one kept, since " + kept.since + ": ") +
      kept.path + "\n# " + command.file + ": " + file.state + "\n";
  for (const Impossible& one : impossible) {
    for (const std::string& line : LinesOf(one)) answer.text += "# " + line + "\n";
  }
  answer.text += *kept.text;
  if (!answer.text.ends_with('\n')) answer.text += '\n';
  return answer;
}

}  // namespace gpuloom
