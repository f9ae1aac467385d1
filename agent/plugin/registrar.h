// Keeps the plugin registered with the kubelet, whoever restarts: a kubelet deletes every socket in
// its directory when it starts and makes kubelet.sock anew, so a change of either file means to
// begin again. Files are looked at, not watched: two stat calls per look cost nothing, and nothing
// can be missed.
//
// Used from one thread. Tick blocks for as long as a kubelet lets Register hang, at most
// kRegisterTimeout.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "agent/clock.h"
#include "agent/plugin/plugin_server.h"

namespace gpuloom {

class Registrar {
 public:
  static constexpr Clock::Duration kRegisterTimeout = std::chrono::seconds(5);
  static constexpr Clock::Duration kRetryPause = std::chrono::seconds(2);
  // The kubelet opens ListAndWatch right after Register; without it no pod can be placed here.
  static constexpr Clock::Duration kWatchTimeout = std::chrono::seconds(30);

  struct Options {
    std::string kubelet_directory;  // holds kubelet.sock; ours is made beside it
    std::string socket_name = "gpuloom.sock";
    std::string resource_name;
    std::function<void()> on_registered;
  };

  Registrar(Options options, PluginServer* server, Clock* clock)
      : options_(std::move(options)), server_(server), clock_(clock) {}

  void Tick();
  bool is_registered() const { return registered_with_.has_value(); }

 private:
  // What tells one socket file from the next at the same path; an inode number alone is used again.
  struct FileId {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t changed_ns = 0;
    bool operator==(const FileId&) const = default;
  };
  static std::optional<FileId> Look(const std::string& path);

  absl::Status Register();
  void Say(const std::string& trouble);

  const Options options_;
  PluginServer* const server_;
  Clock* const clock_;
  std::optional<FileId> own_socket_;
  std::optional<FileId> registered_with_;
  Clock::Time registered_at_;
  Clock::Time next_try_;
  bool is_watched_ = false;
  std::string last_trouble_;  // each trouble is said once, until another comes or it ends
};

}  // namespace gpuloom
