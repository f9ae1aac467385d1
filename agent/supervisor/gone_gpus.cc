// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/gone_gpus.h"

#include <spdlog/spdlog.h>

#include <filesystem>

#include "agent/node/gpu_standing.h"
#include "agent/node/list_folder.h"
#include "agent/supervisor/scheduler_process.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

fs::path Aside(const std::string& state_directory) { return state_directory + "/gone-gpus"; }

}  // namespace

std::vector<std::string> SetAsideGoneGpus(const std::string& state_directory,
                                          const std::set<std::string>& kept) {
  std::vector<std::string> gone;
  std::error_code error;
  std::vector<fs::path> folders;
  for (const fs::path& entry : ListFolder(state_directory + "/gpus", &error)) {
    std::error_code unknown;
    if (fs::is_directory(entry, unknown)) folders.push_back(entry);
  }
  for (const fs::path& folder : folders) {
    const std::string uuid = folder.filename();
    if (kept.contains(uuid) || IsSchedulerLockHeld(folder)) continue;
    const fs::path aside = Aside(state_directory) / uuid;
    fs::create_directories(aside.parent_path(), error);
    // Of an earlier time.
    if (!error) fs::remove_all(aside, error);
    if (!error) fs::rename(folder, aside, error);
    if (error) {
      spdlog::warn("state: {} of a GPU that is gone cannot be moved to {}: {}", folder.string(),
                   aside.string(), error.message());
      continue;
    }
    gone.push_back(uuid);
  }
  return gone;
}

void TakeBackGpu(const std::string& state_directory, const std::string& gpu_uuid) {
  std::error_code error;
  const fs::path folder = FolderOfGpu(state_directory, gpu_uuid);
  if (fs::exists(folder, error)) return;
  fs::create_directories(folder.parent_path(), error);
  fs::rename(Aside(state_directory) / gpu_uuid, folder, error);  // mostly there is none
}

}  // namespace gpuloom
