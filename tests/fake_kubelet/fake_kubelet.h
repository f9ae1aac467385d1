// SPDX-License-Identifier: Apache-2.0
// A kubelet as device plugins see one: Registration and PodResources on real gRPC sockets, and the
// calls a kubelet makes to a plugin, with its habits: Allocate without a word about the pod,
// PreStartContainer before every start and tried again, devices of init containers passed on to app
// containers, init containers left out of the list, every file of the plugin directory removed at
// start, pods and their devices remembered over a restart. A pod that it does not admit has failed for good: with the reason
// and in the words of a kubelet of 1.34, as its owner reads them in the cluster.
//
// It takes registrations of its own resource and of that one's shapes ("gpuloom.io/gpu-x4"). Of plugins that register the same resource one after the other, the latest is called. What happens when the
// stream of an earlier one ends depends on the kubelet: see Takeover.
//
// Owned by a test or by fake-kubelet's main. Public functions may be called from any thread, one at
// a time per pod. Nothing sleeps longer than the timeouts given; refusals come back with the
// plugin's own words among the kubelet's, as a pod's events have them.
//
//   FakeKubelet kubelet(directory);
//   kubelet.Start();                                   // then start the agent
//   kubelet.WaitForDevices(resource, 10, seconds(5));
//   auto pod = kubelet.Admit({"team-a", "p", {{.name = "main", .slots = 2}}});
//   auto container = kubelet.PrepareStart("team-a", "p", "main");
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace grpc {
class ServerContext;
}

namespace gpuloom {

struct FakeMount {
  std::string container_path;
  std::string host_path;
  bool read_only = false;
};

struct FakeContainerSpec {
  std::string name = "main";
  int slots = 0;
  bool is_init = false;
  std::string resource = {};  // what it asks so many of; empty: the kubelet's own resource
};

struct FakePodSpec {
  std::string pod_namespace;
  std::string name;
  std::vector<FakeContainerSpec> containers;  // init containers first
};

// A container with what Allocate gave for it.
struct FakeContainer {
  std::string name;
  bool is_init = false;
  std::string resource;
  std::set<std::string> device_ids;
  std::map<std::string, std::string> envs;
  std::vector<FakeMount> mounts;
  std::vector<std::string> devices;  // "host's path container's path permissions"

  // The host's path behind a path of the container; empty when it lies in no mount.
  std::string HostPath(const std::string& container_path) const;
};

struct FakePod {
  std::string pod_namespace;
  std::string name;
  std::vector<FakeContainer> containers;
};

// What the cluster knows of a pod.
struct FakePodStatus {
  std::string phase;    // "Running", or "Failed"
  std::string reason;   // of a failure
  std::string message;  // the same
};

class FakeKubelet {
 public:
  // How a kubelet keeps its connections to plugins of one resource, by release.
  enum class Takeover {
    // Until 1.24: a registration counts at once, nobody is asked for options, and the end of a stream
    // concerns its own endpoint only.
    kByEndpoint,
    // 1.25 to 1.35: one connection by the resource's name, the latest. When any stream ends, that one
    // is closed and the resource is unhealthy, whoever's stream it was. A registration that fails
    // leaves none.
    kByName,
    // From 1.36 on: connections by their sockets; registering a socket again changes nothing.
    kBySocket,
  };
  struct Habits {
    Takeover takeover = Takeover::kByName;
    bool answers = true;             // false: every call hangs until the caller gives up
    bool follows_preference = true;  // false: takes devices of one GPU after the other
    int pre_start_tries = 3;         // how often a refused start is tried again
    std::chrono::milliseconds retry_pause{200};
    std::chrono::milliseconds call_timeout{30000};
  };

  // Sockets are made in <directory>/device-plugins/ and <directory>/pod-resources/.
  explicit FakeKubelet(std::string directory, std::string resource_name = "gpuloom.io/gpu");
  FakeKubelet(std::string directory, std::string resource_name, Habits habits);
  ~FakeKubelet();

  // Removes everything from the plugin directory, as a kubelet does, and listens.
  absl::Status Start();
  // Hangs up on everybody and removes its sockets; pods stay.
  void Stop();
  void SetAnswers(bool answers);

  const std::string& resource_name() const { return resource_name_; }
  std::string plugin_directory() const;
  std::string pod_resources_socket() const;

  // Until this many healthy devices are known, from a plugin that registered since the last Start.
  absl::Status WaitForDevices(size_t count, std::chrono::milliseconds timeout);
  // Of a resource; empty: its own.
  size_t healthy_devices(const std::string& resource = {}) const;
  std::set<std::string> healthy_ids(const std::string& resource = {}) const;
  // Of them, those that no pod has: what the cluster's scheduler may count on.
  size_t free_devices(const std::string& resource = {}) const;
  // Until there are so many, or the time is up.
  void WaitForFreeDevices(const std::string& resource, size_t count,
                          std::chrono::milliseconds timeout) const;
  int registrations() const;

  // Pod admission: preference and Allocate for each container in turn. On a refusal the pod holds
  // nothing and has failed; its message comes back.
  absl::StatusOr<FakePod> Admit(const FakePodSpec& spec);
  // The same with devices that the test chooses, one list per container.
  absl::StatusOr<FakePod> AdmitWithDevices(const FakePodSpec& spec,
                                           const std::vector<std::set<std::string>>& devices);

  // PreStartContainer, tried again as the kubelet does; then what the container is to run with.
  absl::StatusOr<FakeContainer> PrepareStart(const std::string& pod_namespace,
                                             const std::string& pod, const std::string& container);
  // The pod is deleted: its devices are free, without a word to the plugin.
  void RemovePod(const std::string& pod_namespace, const std::string& pod);
  // Of one that came to this node and was not deleted.
  std::optional<FakePodStatus> StatusOf(const std::string& pod_namespace,
                                        const std::string& pod) const;

 private:
  class Registration;
  class PodResources;
  struct Plugin;  // one registration: the watch on its devices
  struct Servers;

  // What is known of one resource.
  struct Resource {
    std::shared_ptr<Plugin> endpoint;  // called; null: none has registered
    bool is_endpoint_stopped = false;
    std::set<std::string> healthy;  // as last told by anybody
  };

  // "" is its own one's.
  std::string NameOf(const std::string& resource) const;
  std::set<std::string> FreeLocked(const std::string& resource) const;
  // Of the plugin that a pod's admission is to ask, or why the pod is refused for good.
  absl::StatusOr<std::shared_ptr<Plugin>> PluginForAdmission(const std::string& resource) const;
  absl::StatusOr<std::set<std::string>> ChooseDevices(Plugin* plugin, int count,
                                                      const std::set<std::string>& reusable);
  absl::Status AllocateOne(Plugin* plugin, FakeContainer* container);
  // The pod has failed for good. Returns what is said of it.
  absl::Status Reject(const FakePodSpec& spec, const absl::Status& why);
  // "" or why the registration failed.
  std::string Connect(const std::string& resource, const std::string& socket);
  void OnDevices(const std::string& resource, std::set<std::string> healthy);
  // The stream of this one has ended.
  void OnStreamEnd(Plugin* plugin);
  // True when the call is to be answered; false after its caller gave up on a silent kubelet.
  bool ServersAnswer(grpc::ServerContext* context);

  const std::string directory_;
  const std::string resource_name_;
  std::mutex admission_mutex_;  // a kubelet admits one pod at a time; before mutex_
  mutable std::mutex mutex_;
  Habits habits_;
  std::map<std::pair<std::string, std::string>, FakePod> pods_;  // by namespace and name
  std::map<std::pair<std::string, std::string>, FakePodStatus> failed_;
  std::vector<std::shared_ptr<Plugin>> plugins_;  // all since Start: their threads end with it
  // Connections whose end is heard of: by the resource's name, or by their sockets.
  std::map<std::string, Plugin*> clients_;
  std::map<std::string, Resource> resources_;
  int registrations_ = 0;
  std::unique_ptr<Servers> servers_;
};

}  // namespace gpuloom
