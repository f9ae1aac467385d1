// SPDX-License-Identifier: Apache-2.0
#include "agent/run/tenant_since.h"

#include <sys/stat.h>
#include <time.h>

#include <filesystem>

#include "agent/run/slot_records.h"

namespace gpuloom::run {
int64_t SinceOf(const std::string& folder, const std::string& allocation) {
  // The scheduler's text must not be used as a path.
  if (allocation.empty() || allocation.find('/') != allocation.npos || allocation == "..") return 0;
  namespace fs = std::filesystem;
  const fs::path state = fs::path(folder).parent_path().parent_path();
  const std::optional<SlotRecord> record = ReadSlotRecord(state, allocation);
  if (record && record->since_unix_s != 0) return record->since_unix_s;
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
