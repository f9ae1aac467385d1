// SPDX-License-Identifier: Apache-2.0
// The agent's device plugins, one for each resource: single slots, and each shape. The kubelet identifies a plugin by
// its resource, so each has its own socket, watch and registration. Owns the plugins, but nothing that it is given,
// all of which outlives it. One thread, except `watchers` and `counts`, which are safe from any.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/plugin/plugin_server.h"
#include "agent/plugin/registrar.h"

namespace gpuloom {

class Plugins {
 public:
  struct Options {
    std::string kubelet_directory;
    std::string resource_name;  // of single slots
    std::vector<int> shapes;    // offered besides single slots
    const DeviceBoard* board = nullptr;
    Allocator* allocator = nullptr;
    RefusedRequests* refusals = nullptr;
    // Called when a kubelet is found (registrar.h). May be null.
    std::function<void(const std::string& id)> on_kubelet;
    Clock* clock = nullptr;
  };

  explicit Plugins(const Options& options);
  ~Plugins();

  // Calls Tick of each plugin's Registrar. For Kubernetes' probes the agent is ready once a kubelet has watched all
  // plugins.
  void Tick(bool may_register, bool has_predecessor);
  void RegisterAgain();
  void Stop();

  // The number of streams of kubelets that watch the devices, for the resource that has the fewest.
  int watchers() const;
  // Sums over all plugins.
  struct Counts {
    uint64_t registrations = 0;
    uint64_t failed_registrations = 0;
    uint64_t ended_watches = 0;
  };
  Counts counts() const;

 private:
  struct Plugin;
  std::vector<std::unique_ptr<Plugin>> plugins_;
  bool is_ready_ = false;
};

}  // namespace gpuloom
