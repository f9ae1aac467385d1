// SPDX-License-Identifier: Apache-2.0
// One service object outlives the gRPC servers that Start and Stop make, so that its counts go on
// when a socket is served anew. gRPC calls it on threads of its own, several at a time; a stream of
// ListAndWatch occupies one for as long as its kubelet watches.
#include "agent/plugin/plugin_server.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <sys/un.h>

#include <atomic>

#include "agent/cat.h"
#include "agent/log_lines.h"
#include "agent/node/clock.h"
#include "agent/node/line_budgets.h"
#include "agent/node/log.h"
#include "agent/plugin/probe.h"
#include "proto/kubelet/deviceplugin/v1beta1/api.grpc.pb.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

// How soon a stream notices that it is to end; a change of the list wakes it at once.
constexpr std::chrono::milliseconds kStreamPause{500};

// gRPC and absl number their codes alike. The kubelet shows the message in the pod's events.
grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

// The calls that may be refused.
constexpr char kPreferred[] = "GetPreferredAllocation";
constexpr char kAllocate[] = "Allocate";
constexpr char kPreStart[] = "PreStartContainer";

template <typename Strings>
std::vector<std::string> ToVector(const Strings& strings) {
  return std::vector<std::string>(strings.begin(), strings.end());
}

}  // namespace

class PluginServer::Service : public v1beta1::DevicePlugin::Service {
 public:
  explicit Service(const Options& options) : options_(options) {}

  grpc::Status GetDevicePluginOptions(grpc::ServerContext* context, const v1beta1::Empty*,
                                      v1beta1::DevicePluginOptions* options) override {
    if (options_.answers == Answers::kNoOptions) {
      return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                          "gpuloom-agent is registered already, at another socket; this one is "
                          "refused on purpose while one agent replaces another");
    }
    // For our own probe; the kubelet ignores it.
    if (const std::string trouble = options_.board->Trouble(); !trouble.empty()) {
      context->AddTrailingMetadata(kTroubleMetadata, trouble.substr(0, kMaxTroubleBytes));
    }
    // Checked after the trouble is reported, so that a probe learns of that even before the registration.
    const bool is_asked_whether_ready =
        context->client_metadata().find(kReadyKey) != context->client_metadata().end();
    if (is_asked_whether_ready && !is_ready) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "not registered with the kubelet yet");
    }
    // Without it a kubelet never calls PreStartContainer, and no allocation is ever bound.
    options->set_pre_start_required(true);
    options->set_get_preferred_allocation_available(true);
    return grpc::Status::OK;
  }

  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty*,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override {
    ++watchers;
    // No board has this version, so the first list goes out at once.
    uint64_t version = 0;
    std::optional<std::vector<ShownDevice>> last;
    while (!context->IsCancelled() && !is_stopping) {
      // Wakes now and then, because neither a hang-up of the kubelet nor Stop notifies the board.
      if (!options_.board->WaitForChange(version, kStreamPause)) continue;
      std::vector<ShownDevice> devices = options_.board->Devices(options_.shape, &version);
      // It was another resource that has changed.
      if (last == devices) continue;
      v1beta1::ListAndWatchResponse response;
      for (const ShownDevice& shown : devices) {
        v1beta1::Device* device = response.add_devices();
        device->set_id(shown.id);
        device->set_health(shown.is_healthy ? "Healthy" : "Unhealthy");
        if (shown.numa_node >= 0) device->mutable_topology()->add_nodes()->set_id(shown.numa_node);
      }
      // False: the kubelet has hung up.
      if (!writer->Write(response)) break;
      last = std::move(devices);
    }
    --watchers;
    return grpc::Status::OK;
  }

  grpc::Status GetPreferredAllocation(grpc::ServerContext*,
                                      const v1beta1::PreferredAllocationRequest* request,
                                      v1beta1::PreferredAllocationResponse* response) override {
    options_.refusals->CountRequest(kPreferred);
    for (const auto& container : request->container_requests()) {
      const absl::StatusOr<std::vector<std::string>> chosen = options_.allocator->Prefer(
          ToVector(container.available_deviceids()), ToVector(container.must_include_deviceids()),
          container.allocation_size());
      if (!chosen.ok()) return Refuse(kPreferred, chosen.status());
      auto* answer = response->add_container_responses();
      for (const std::string& id : *chosen) answer->add_deviceids(id);
    }
    return grpc::Status::OK;
  }

  grpc::Status Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* response) override {
    options_.refusals->CountRequest(kAllocate);
    std::vector<ContainerSetup> setups;
    for (const auto& container : request->container_requests()) {
      absl::StatusOr<ContainerSetup> setup =
          options_.allocator->Allocate(ToVector(container.devices_ids()));
      if (!setup.ok()) {
        // The kubelet drops the whole answer, so nobody would ever mount what was given.
        for (const ContainerSetup& earlier : setups) options_.allocator->TakeBack(earlier);
        return Refuse(kAllocate, setup.status());
      }
      setups.push_back(*std::move(setup));
    }
    for (const ContainerSetup& setup : setups) {
      auto* answer = response->add_container_responses();
      for (const auto& [name, value] : setup.envs) (*answer->mutable_envs())[name] = value;
      for (const MountSetup& mount : setup.mounts) {
        auto* added = answer->add_mounts();
        added->set_container_path(mount.container_path);
        added->set_host_path(mount.host_path);
        added->set_read_only(true);
      }
      for (const std::string& device : setup.devices) {
        auto* added = answer->add_devices();
        added->set_container_path(device);
        added->set_host_path(device);
        // Permissions of the devices cgroup, without "m": the container cannot make a device node of its own.
        added->set_permissions("rw");
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status PreStartContainer(grpc::ServerContext*,
                                 const v1beta1::PreStartContainerRequest* request,
                                 v1beta1::PreStartContainerResponse*) override {
    options_.refusals->CountRequest(kPreStart);
    std::string pod_namespace;
    const absl::Status status =
        options_.allocator->PreStart(ToVector(request->devices_ids()), &pod_namespace);
    return status.ok() ? grpc::Status::OK : Refuse(kPreStart, status, pod_namespace);
  }

  std::atomic<int> watchers = 0;
  std::atomic<bool> is_stopping = false;
  std::atomic<bool> is_ready = false;

 private:
  // The namespace is empty where the kubelet's request does not say whose it is.
  grpc::Status Refuse(const char* call, const absl::Status& status,
                      const std::string& pod_namespace = "") {
    const std::string reason(status.message());
    // The message may name pods and rules; the log escapes it (log_lines.h).
    if (MayLog(pod_namespace)) spdlog::warn("{} refused: {}", call, reason);
    options_.refusals->Add(call, reason, pod_namespace);
    return ToGrpc(status);
  }

  // A controller whose pods are refused makes new ones as fast as the kubelet refuses them.
  // The others' refusals are logged all the same.
  bool MayLog(const std::string& pod_namespace) {
    const MutexLock lock(mutex_);
    return TakeLogLine(&refusal_lines_.Of(pod_namespace, NowNs()), kAgentProgram,
                       LogLevel::kWarning);
  }

  Mutex mutex_;
  LineBudgets refusal_lines_ GPULOOM_GUARDED_BY(mutex_);
  const Options options_;
};

struct PluginServer::Running {
  std::unique_ptr<grpc::Server> server;
};

PluginServer::PluginServer(const Options& options) : service_(std::make_unique<Service>(options)) {}

std::vector<std::string> PluginServer::RefusableCalls() {
  return {kPreferred, kAllocate, kPreStart};
}

PluginServer::~PluginServer() { Stop(); }

absl::Status PluginServer::Start(const std::string& socket_path) {
  Stop();
  // gRPC would say only that it cannot listen.
  if (socket_path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(
        Cat("plugin: ", socket_path, ": a socket's path may have at most ",
            sizeof(sockaddr_un::sun_path) - 1, " characters; choose a shorter directory"));
  }
  service_->is_stopping = false;
  grpc::ServerBuilder builder;
  int port = -1;
  builder.AddListeningPort("unix:" + socket_path, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service_.get());
  auto running = std::make_unique<Running>();
  running->server = builder.BuildAndStart();
  if (running->server == nullptr || port < 0) {
    return absl::UnavailableError(
        Cat("plugin: cannot listen on ", socket_path,
            "; does the directory exist, and may the agent write there?"));
  }
  running_ = std::move(running);
  return absl::OkStatus();
}

void PluginServer::Stop() {
  if (running_ == nullptr) return;
  service_->is_stopping = true;
  // Longer than a stream's pause; a PreStartContainer that still waits for its pod is cut off and
  // tried again.
  running_->server->Shutdown(gpr_time_from_millis((4 * kStreamPause).count(), GPR_TIMESPAN));
  running_.reset();
}

int PluginServer::watchers() const { return service_->watchers; }

void PluginServer::SetReady() { service_->is_ready = true; }

}  // namespace gpuloom
