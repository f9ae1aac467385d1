// SPDX-License-Identifier: Apache-2.0
#include "agent/run/tenant_since.h"

#include <sys/stat.h>
#include <time.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace gpuloom::run {
namespace {

namespace fs = std::filesystem;

// Reads since when an allocation is bound from its record (agent/identity/allocation_record.h). Nothing else of the
// record is needed here, so it is not parsed.
int64_t BoundAt(const fs::path& record) {
  // A line of YAML, indented or not.
  constexpr std::string_view kKey = "boundAtMs: ";
  std::ifstream file(record);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(kKey);
    if (at == line.npos || line.find_first_not_of(' ') != at) continue;
    int64_t millis = 0;
    const char* const begin = line.data() + at + kKey.size();
    if (std::from_chars(begin, line.data() + line.size(), millis).ec != std::errc()) return 0;
    return millis / 1000;
  }
  return 0;
}

}  // namespace

int64_t SinceOf(const std::string& folder, const std::string& allocation) {
  // The scheduler's text must not be used as a path.
  if (allocation.empty() || allocation.find('/') != allocation.npos || allocation == "..") return 0;
  // An agent's scheduler has its folder at <state>/gpus/<uuid>.
  const fs::path state = fs::path(folder).parent_path().parent_path();
  if (const int64_t since = BoundAt(state / "records" / (allocation + ".yaml")); since != 0) {
    return since;
  }
  struct stat info = {};
  // The folder of a `gpuloom run` is made when its command begins.
  const fs::path own = fs::path(folder) / allocation;
  return stat(own.c_str(), &info) == 0 ? info.st_mtim.tv_sec : 0;
}

std::string TimeText(int64_t unix_s) {
  const time_t seconds = unix_s;
  tm parts = {};
  if (gmtime_r(&seconds, &parts) == nullptr) return "";
  char text[32] = {};
  (void)strftime(&text[0], sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

}  // namespace gpuloom::run
