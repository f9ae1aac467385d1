// SPDX-License-Identifier: Apache-2.0
// Keeps the plugin of one resource registered with the kubelet across restarts of either: a kubelet deletes every
// socket in its directory when it starts and makes kubelet.sock anew, so a change of either file means to register
// again. The files are polled, not watched: two stat calls a time cost nothing, and no change can be missed.
//
// While another agent, which this one replaces, still answers the kubelet (docs/design/agent-update.md), the real
// registration is followed by a second one that is refused; when the other agent has ended, this one registers once
// more.
//
// Owns neither the servers nor the clock, which outlive it. Used from one thread, except `counts`, which is safe from
// any. Tick blocks while a kubelet lets Register hang, for at most kRegisterTimeout per registration. Failures are
// logged, counted and tried again after kRetryPause.
#pragma once

#include <atomic>
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
    std::string socket_name;
    std::string resource_name;
    // Called when a kubelet is found: the first one, or one that has restarted. `id` distinguishes the starts.
    std::function<void(const std::string& id)> on_kubelet;  // may be null
  };

  // `server` is the plugin. `refusing` refuses requests for its options, so its registration fails: see RegisterRefusing.
  Registrar(Options options, PluginServer* server, PluginServer* refusing, Clock* clock)
      : options_(std::move(options)), server_(server), refusing_(refusing), clock_(clock) {}

  // Call it a few times a second. `may_register` false: serves, but does not register yet. `has_predecessor`: another
  // agent still answers the kubelet.
  void Tick(bool may_register, bool has_predecessor);
  // Call it if another agent may have registered in between.
  void RegisterAgain() { registered_with_.reset(); }
  bool is_registered() const { return registered_with_.has_value(); }
  // Whether a kubelet has watched the devices at least once.
  bool has_been_watched() const { return has_been_watched_; }

  // Since this object was made.
  struct Counts {
    std::atomic<uint64_t> registrations = 0;
    std::atomic<uint64_t> failed_registrations = 0;
    std::atomic<uint64_t> ended_watches = 0;  // or never begun
  };
  const Counts& counts() const { return counts_; }

 private:
  // Distinguishes one socket file from the next at the same path; inode numbers are reused.
  struct FileId {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t changed_ns = 0;
    bool operator==(const FileId&) const = default;
  };
  // nullopt if there is no socket at the path.
  static std::optional<FileId> FindSocket(const std::string& path);

  // Returns false, after logging it, while our own socket cannot be made.
  bool Serve();
  void CheckKubelet();
  // After a registration: is it in effect?
  void CheckWatch(bool has_predecessor);
  // Registers `refusing_` so that the kubelet forgets the connection of an agent that is about to end.
  void RegisterRefusing();
  absl::Status Register(const std::string& socket_name);
  void LogTrouble(const std::string& trouble);

  const Options options_;
  PluginServer* const server_;
  PluginServer* const refusing_;
  Clock* const clock_;
  std::optional<FileId> own_socket_;
  std::optional<FileId> kubelet_;
  std::optional<FileId> registered_with_;
  Clock::Time registered_at_;
  Clock::Time next_serve_;
  Clock::Time next_try_;
  bool is_watched_ = false;
  bool had_predecessor_ = false;
  bool has_registered_refusing_ = false;  // since the last registration
  bool has_been_watched_ = false;
  std::string last_trouble_;  // each trouble is logged once, until another comes or it ends
  Counts counts_;
};

}  // namespace gpuloom
