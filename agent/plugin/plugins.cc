// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/plugins.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/identity/resource_name.h"
#include "agent/plugin/plugin_socket.h"

namespace gpuloom {

// A resource's server, the one that is only shown to kubelets (Registrar::RegisterRefusing), and who
// registers them. Declared in this order, because the registrar points to both.
struct Plugins::Plugin {
  Plugin(const Options& options, int shape)
      : server({options.board, options.allocator, options.refusals, shape}),
        refusing({options.board, options.allocator, options.refusals, shape,
                  PluginServer::Answers::kNoOptions}),
        registrar({options.kubelet_directory, MakePluginSocketName(),
                   ResourceNameOf(options.resource_name, shape),
                   // All see the same one.
                   shape == 1 ? options.on_kubelet : nullptr},
                  &server, &refusing, options.clock) {}

  PluginServer server;
  PluginServer refusing;
  Registrar registrar;
};

Plugins::Plugins(const Options& options) {
  plugins_.push_back(std::make_unique<Plugin>(options, 1));
  for (const int shape : options.shapes) {
    plugins_.push_back(std::make_unique<Plugin>(options, shape));
  }
}

Plugins::~Plugins() = default;

void Plugins::Tick(bool may_register, bool has_predecessor) {
  for (const auto& plugin : plugins_) plugin->registrar.Tick(may_register, has_predecessor);
  if (is_ready_) return;
  // All, because pods that ask for a resource that is not registered fail. Once ready it stays so:
  // a kubelet that restarts must not have Kubernetes think that the agent has failed.
  is_ready_ = std::ranges::all_of(
      plugins_, [](const auto& plugin) { return plugin->registrar.has_been_watched(); });
  if (!is_ready_) return;
  for (const auto& plugin : plugins_) plugin->server.SetReady();
  spdlog::info("agent: ready");
}

void Plugins::RegisterAgain() {
  for (const auto& plugin : plugins_) plugin->registrar.RegisterAgain();
}

void Plugins::Stop() {
  for (const auto& plugin : plugins_) {
    plugin->server.Stop();
    plugin->refusing.Stop();
  }
}

int Plugins::watchers() const {
  int fewest = plugins_.front()->server.watchers();
  for (const auto& plugin : plugins_) fewest = std::min(fewest, plugin->server.watchers());
  return fewest;
}

Plugins::Counts Plugins::counts() const {
  Counts all;
  for (const auto& plugin : plugins_) {
    const Registrar::Counts& counts = plugin->registrar.counts();
    all.registrations += counts.registrations;
    all.failed_registrations += counts.failed_registrations;
    all.ended_watches += counts.ended_watches;
  }
  return all;
}

}  // namespace gpuloom
