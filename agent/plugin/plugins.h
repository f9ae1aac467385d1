// SPDX-License-Identifier: Apache-2.0
// The agent's device plugins, one for each resource: single slots, and each shape. The kubelet knows a plugin by its
// resource, so each has its own socket, watch and registration. Owns none of what it is given. One thread, but for
// `watchers` and `counts`, which any may call.
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
    std::vector<int> shapes;    // beside them
    const DeviceBoard* board = nullptr;
    Allocator* allocator = nullptr;
    RefusedRequests* refusals = nullptr;
    // A kubelet was found (registrar.h). May be null.
    std::function<void(const std::string& id)> on_kubelet;
    Clock* clock = nullptr;
  };

  explicit Plugins(const Options& options);
  ~Plugins();

  // As a Registrar's, for each. The agent is ready, for Kubernetes' probes, once a kubelet has watched all of them.
  void Tick(bool may_register, bool has_predecessor);
  void RegisterAgain();
  void Stop();

  // Of the resource that fewest streams of kubelets watch.
  int watchers() const;
  // Of all together.
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
