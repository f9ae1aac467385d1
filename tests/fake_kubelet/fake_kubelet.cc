// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_kubelet/fake_kubelet.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/kubelet/deviceplugin/v1beta1/api.grpc.pb.h"
#include "proto/kubelet/podresources/v1/api.grpc.pb.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using Millis = std::chrono::milliseconds;

constexpr Millis kPoll{20};
constexpr Millis kDialTimeout{10000};

// By gRPC's numbers, as Go writes them.
constexpr const char* kCodes[] = {
    "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
    "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
    "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
    "DataLoss", "Unauthenticated"};

// In the words of a kubelet, which names some of its calls and Allocate not.
absl::Status FromGrpc(const char* what_failed, const grpc::Status& status) {
  const auto code = static_cast<size_t>(status.error_code());
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(what_failed, "rpc error: code = ",
                                   code < std::size(kCodes) ? kCodes[code] : "Unknown",
                                   " desc = ", status.error_message()));
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& path) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments);
}

void SetDeadline(grpc::ClientContext* context, Millis timeout) {
  context->set_deadline(std::chrono::system_clock::now() + timeout);
}

}  // namespace

std::string FakeContainer::HostPath(const std::string& container_path) const {
  for (const FakeMount& mount : mounts) {
    if (mount.container_path == container_path) return mount.host_path;
  }
  return {};
}

// One registered plugin: its socket, and a thread that reads its ListAndWatch stream until one side
// ends it.
struct FakeKubelet::Plugin {
  Plugin(FakeKubelet* of, const std::string& name, const std::string& path)
      : kubelet(of),
        resource(name),
        socket(path),
        channel(MakeChannel(path)),
        stub(v1beta1::DevicePlugin::NewStub(channel)) {}
  ~Plugin() {
    context.TryCancel();
    if (watch.joinable()) watch.join();
  }

  void StartWatch() {
    watch = std::thread([this] {
      const auto stream = stub->ListAndWatch(&context, v1beta1::Empty());
      v1beta1::ListAndWatchResponse response;
      while (stream->Read(&response)) {
        std::set<std::string> healthy;
        for (const v1beta1::Device& device : response.devices()) {
          if (device.health() == "Healthy") healthy.insert(device.id());
        }
        kubelet->OnDevices(resource, std::move(healthy));
      }
      (void)stream->Finish();
      kubelet->OnStreamEnd(this);
    });
  }

  FakeKubelet* const kubelet;
  const std::string resource;
  const std::string socket;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<v1beta1::DevicePlugin::Stub> stub;
  grpc::ClientContext context;
  std::thread watch;
};

class FakeKubelet::Registration : public v1beta1::Registration::Service {
 public:
  explicit Registration(FakeKubelet* kubelet) : kubelet_(kubelet) {}

  grpc::Status Register(grpc::ServerContext* context, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    if (!kubelet_->ServersAnswer(context)) return grpc::Status::CANCELLED;
    if (request->version() != "v1beta1") {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                          "requested API version is not supported by kubelet");
    }
    if (request->resource_name() != kubelet_->resource_name_ &&
        !request->resource_name().starts_with(kubelet_->resource_name_ + "-x")) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                          "another resource: " + request->resource_name());
    }
    const std::string trouble = kubelet_->Connect(
        request->resource_name(), kubelet_->plugin_directory() + "/" + request->endpoint());
    return trouble.empty() ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNKNOWN, trouble);
  }

 private:
  FakeKubelet* const kubelet_;
};

std::string FakeKubelet::Connect(const std::string& resource, const std::string& socket) {
  const auto plugin = std::make_shared<Plugin>(this, resource, socket);
  std::string key;
  bool asks_for_options = false;
  {
    const std::lock_guard lock(mutex_);
    asks_for_options = habits_.takeover != Takeover::kByEndpoint;
    key = habits_.takeover == Takeover::kByName ? resource : socket;
    if (habits_.takeover == Takeover::kBySocket && clients_.contains(key)) return {};
    clients_[key] = plugin.get();
  }
  const auto give_up = [&](const std::string& why) {
    const std::lock_guard lock(mutex_);
    clients_.erase(key);
    return why;
  };
  if (!plugin->channel->WaitForConnected(std::chrono::system_clock::now() + kDialTimeout)) {
    return give_up("failed to dial device plugin");
  }
  if (asks_for_options) {
    grpc::ClientContext context;
    SetDeadline(&context, kDialTimeout);
    v1beta1::DevicePluginOptions options;
    const grpc::Status status =
        plugin->stub->GetDevicePluginOptions(&context, v1beta1::Empty(), &options);
    if (!status.ok()) {
      return give_up("failed to get device plugin options: " + status.error_message());
    }
  }
  const std::lock_guard lock(mutex_);
  plugins_.push_back(plugin);
  resources_[resource].endpoint = plugin;
  resources_[resource].is_endpoint_stopped = false;
  ++registrations_;
  plugin->StartWatch();
  return {};
}

void FakeKubelet::OnDevices(const std::string& resource, std::set<std::string> healthy) {
  const std::lock_guard lock(mutex_);
  resources_[resource].healthy = std::move(healthy);
}

void FakeKubelet::OnStreamEnd(Plugin* plugin) {
  const std::lock_guard lock(mutex_);
  if (habits_.takeover == Takeover::kByName) {
    const auto current = clients_.find(plugin->resource);
    if (current == clients_.end()) return;
    current->second->context.TryCancel();
    clients_.erase(current);
  } else {
    clients_.erase(plugin->socket);
    if (resources_[plugin->resource].endpoint.get() != plugin) return;
  }
  resources_[plugin->resource].healthy.clear();
  resources_[plugin->resource].is_endpoint_stopped = true;
}

class FakeKubelet::PodResources : public v1::PodResourcesLister::Service {
 public:
  explicit PodResources(FakeKubelet* kubelet) : kubelet_(kubelet) {}

  grpc::Status List(grpc::ServerContext* context, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* response) override {
    if (!kubelet_->ServersAnswer(context)) return grpc::Status::CANCELLED;
    const std::lock_guard lock(kubelet_->mutex_);
    for (const auto& [key, pod] : kubelet_->pods_) {
      v1::PodResources* listed = response->add_pod_resources();
      listed->set_namespace_(pod.pod_namespace);
      listed->set_name(pod.name);
      for (const FakeContainer& container : pod.containers) {
        if (container.is_init) continue;
        v1::ContainerResources* resources = listed->add_containers();
        resources->set_name(container.name);
        // One entry per device, as a kubelet that splits by NUMA node may send it.
        for (const std::string& id : container.device_ids) {
          v1::ContainerDevices* devices = resources->add_devices();
          devices->set_resource_name(container.resource);
          devices->add_device_ids(id);
        }
      }
    }
    return grpc::Status::OK;
  }

 private:
  FakeKubelet* const kubelet_;
};

struct FakeKubelet::Servers {
  explicit Servers(FakeKubelet* kubelet) : registration(kubelet), pod_resources(kubelet) {}
  Registration registration;
  PodResources pod_resources;
  std::unique_ptr<grpc::Server> registration_server;
  std::unique_ptr<grpc::Server> pod_resources_server;
};

FakeKubelet::FakeKubelet(std::string directory, std::string resource_name)
    : FakeKubelet(std::move(directory), std::move(resource_name), Habits{}) {}

FakeKubelet::FakeKubelet(std::string directory, std::string resource_name, Habits habits)
    : directory_(std::move(directory)), resource_name_(std::move(resource_name)), habits_(habits) {}

FakeKubelet::~FakeKubelet() { Stop(); }

std::string FakeKubelet::plugin_directory() const { return directory_ + "/device-plugins"; }
std::string FakeKubelet::pod_resources_socket() const {
  return directory_ + "/pod-resources/kubelet.sock";
}

absl::Status FakeKubelet::Start() {
  Stop();
  std::error_code error;
  fs::remove_all(plugin_directory(), error);
  fs::create_directories(plugin_directory(), error);
  fs::create_directories(fs::path(pod_resources_socket()).parent_path(), error);
  if (error) return absl::InternalError(absl::StrCat(directory_, ": ", error.message()));
  auto servers = std::make_unique<Servers>(this);
  const auto serve = [](const std::string& path, grpc::Service* service) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
    builder.RegisterService(service);
    return builder.BuildAndStart();
  };
  servers->pod_resources_server = serve(pod_resources_socket(), &servers->pod_resources);
  servers->registration_server =
      serve(plugin_directory() + "/kubelet.sock", &servers->registration);
  if (servers->pod_resources_server == nullptr || servers->registration_server == nullptr) {
    return absl::InternalError(
        absl::StrCat("cannot listen below ", directory_, ": is the path too long?"));
  }
  servers_ = std::move(servers);
  return absl::OkStatus();
}

void FakeKubelet::Stop() {
  if (servers_ == nullptr) return;
  const auto now = std::chrono::system_clock::now();
  servers_->registration_server->Shutdown(now);
  servers_->pod_resources_server->Shutdown(now);
  // Their threads end without the lock.
  std::vector<std::shared_ptr<Plugin>> old;
  {
    const std::lock_guard lock(mutex_);
    old = std::exchange(plugins_, {});
    for (auto& [name, resource] : resources_) resource.endpoint.reset();
    clients_.clear();
  }
  old.clear();
  {
    const std::lock_guard lock(mutex_);
    resources_.clear();
  }
  servers_.reset();
}

void FakeKubelet::SetAnswers(bool answers) {
  const std::lock_guard lock(mutex_);
  habits_.answers = answers;
}

bool FakeKubelet::ServersAnswer(grpc::ServerContext* context) {
  const auto answers = [this] {
    const std::lock_guard lock(mutex_);
    return habits_.answers;
  };
  while (!answers()) {
    if (context->IsCancelled()) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

std::string FakeKubelet::NameOf(const std::string& resource) const {
  return resource.empty() ? resource_name_ : resource;
}

absl::StatusOr<std::shared_ptr<FakeKubelet::Plugin>> FakeKubelet::PluginForAdmission(
    const std::string& resource) const {
  const std::lock_guard lock(mutex_);
  const auto known = resources_.find(resource);
  if (known == resources_.end() || known->second.endpoint == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot allocate unregistered device ", resource));
  }
  if (known->second.healthy.empty()) {
    return absl::UnavailableError(
        absl::StrCat("no healthy devices present; cannot allocate unhealthy devices ", resource));
  }
  if (known->second.is_endpoint_stopped) {
    return absl::UnavailableError(
        absl::StrCat("endpoint ", known->second.endpoint->socket, " has been stopped"));
  }
  return known->second.endpoint;
}

size_t FakeKubelet::healthy_devices(const std::string& resource) const {
  return healthy_ids(resource).size();
}

std::set<std::string> FakeKubelet::healthy_ids(const std::string& resource) const {
  const std::lock_guard lock(mutex_);
  const auto known = resources_.find(NameOf(resource));
  return known == resources_.end() ? std::set<std::string>() : known->second.healthy;
}

size_t FakeKubelet::free_devices(const std::string& resource) const {
  const std::lock_guard lock(mutex_);
  return FreeLocked(NameOf(resource)).size();
}

void FakeKubelet::WaitForFreeDevices(const std::string& resource, size_t count,
                                     Millis timeout) const {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (free_devices(resource) < count && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kPoll);
  }
}

std::set<std::string> FakeKubelet::FreeLocked(const std::string& resource) const {
  const auto known = resources_.find(resource);
  if (known == resources_.end()) return {};
  std::set<std::string> free = known->second.healthy;
  for (const auto& [key, pod] : pods_) {
    for (const FakeContainer& container : pod.containers) {
      for (const std::string& id : container.device_ids) free.erase(id);
    }
  }
  return free;
}

int FakeKubelet::registrations() const {
  const std::lock_guard lock(mutex_);
  return registrations_;
}

absl::Status FakeKubelet::WaitForDevices(size_t count, Millis timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const size_t now = healthy_devices();
    if (now >= count) return absl::OkStatus();
    if (std::chrono::steady_clock::now() >= end) {
      return absl::DeadlineExceededError(
          absl::StrCat(now, " healthy devices of ", resource_name_, " after ", timeout.count(),
                       " ms, not ", count, ", and ", registrations(), " registrations"));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

absl::StatusOr<std::set<std::string>> FakeKubelet::ChooseDevices(
    Plugin* plugin, int count, const std::set<std::string>& reusable) {
  const size_t wanted = static_cast<size_t>(count);
  std::set<std::string> chosen;
  // What the pod's init containers had comes first.
  for (const std::string& id : reusable) {
    if (chosen.size() == wanted) return chosen;
    chosen.insert(id);
  }
  if (chosen.size() == wanted) return chosen;
  std::set<std::string> free;
  bool follows_preference = true;
  Millis timeout{};
  {
    const std::lock_guard lock(mutex_);
    free = FreeLocked(plugin->resource);
    follows_preference = habits_.follows_preference;
    timeout = habits_.call_timeout;
  }
  for (const std::string& id : chosen) free.erase(id);
  if (free.size() + chosen.size() < wanted) {
    return absl::ResourceExhaustedError(absl::StrCat("requested number of devices unavailable for ",
                                                     plugin->resource, ". Requested: ", count,
                                                     ", Available: ", free.size()));
  }
  // Of who takes all that are left, nobody is asked which.
  if (follows_preference && free.size() + chosen.size() > wanted) {
    v1beta1::PreferredAllocationRequest request;
    auto* container = request.add_container_requests();
    for (const std::string& id : free) container->add_available_deviceids(id);
    for (const std::string& id : chosen) {
      container->add_available_deviceids(id);
      container->add_must_include_deviceids(id);
    }
    container->set_allocation_size(count);
    grpc::ClientContext context;
    SetDeadline(&context, timeout);
    v1beta1::PreferredAllocationResponse response;
    const grpc::Status status = plugin->stub->GetPreferredAllocation(&context, request, &response);
    if (!status.ok())
      return FromGrpc("device plugin GetPreferredAllocation rpc failed with err: ", status);
    for (const std::string& id : response.container_responses(0).deviceids()) {
      if (chosen.size() < wanted && free.contains(id)) chosen.insert(id);
    }
  }
  // The rest, or everything when the preference is ignored: one of each GPU in turn.
  std::map<std::string, std::vector<std::string>> by_gpu;
  for (const std::string& id : free) by_gpu[id.substr(0, id.find("::"))].push_back(id);
  for (size_t round = 0; chosen.size() < wanted; ++round) {
    for (const auto& [gpu, ids] : by_gpu) {
      if (chosen.size() < wanted && round < ids.size()) chosen.insert(ids[round]);
    }
  }
  return chosen;
}

absl::Status FakeKubelet::AllocateOne(Plugin* plugin, FakeContainer* container) {
  v1beta1::AllocateRequest request;
  auto* asked = request.add_container_requests();
  for (const std::string& id : container->device_ids) asked->add_devices_ids(id);
  grpc::ClientContext context;
  {
    const std::lock_guard lock(mutex_);
    SetDeadline(&context, habits_.call_timeout);
  }
  v1beta1::AllocateResponse response;
  const grpc::Status status = plugin->stub->Allocate(&context, request, &response);
  if (!status.ok()) return FromGrpc("", status);
  if (response.container_responses_size() != 1)
    return absl::InternalError("Allocate: not one answer");
  const auto& answer = response.container_responses(0);
  container->envs = {answer.envs().begin(), answer.envs().end()};
  for (const v1beta1::DeviceSpec& device : answer.devices()) {
    container->devices.push_back(device.host_path() + " " + device.container_path() + " " +
                                 device.permissions());
  }
  for (const v1beta1::Mount& mount : answer.mounts()) {
    container->mounts.push_back({mount.container_path(), mount.host_path(), mount.read_only()});
  }
  return absl::OkStatus();
}

absl::StatusOr<FakePod> FakeKubelet::Admit(const FakePodSpec& spec) {
  return AdmitWithDevices(spec, {});
}

absl::StatusOr<FakePod> FakeKubelet::AdmitWithDevices(
    const FakePodSpec& spec, const std::vector<std::set<std::string>>& devices) {
  const std::lock_guard admission(admission_mutex_);
  FakePod pod{spec.pod_namespace, spec.name, {}};
  const std::pair key(spec.pod_namespace, spec.name);
  std::map<std::string, std::set<std::string>> reusable_of;
  for (size_t i = 0; i < spec.containers.size(); ++i) {
    FakeContainer container;
    container.name = spec.containers[i].name;
    container.is_init = spec.containers[i].is_init;
    container.resource = NameOf(spec.containers[i].resource);
    std::set<std::string>& reusable = reusable_of[container.resource];
    if (spec.containers[i].slots > 0) {
      const absl::StatusOr<std::shared_ptr<Plugin>> plugin = PluginForAdmission(container.resource);
      absl::Status status = plugin.status();
      if (status.ok()) {
        absl::StatusOr<std::set<std::string>> chosen =
            i < devices.size() ? devices[i]
                               : ChooseDevices(plugin->get(), spec.containers[i].slots, reusable);
        status = chosen.status();
        if (status.ok()) {
          container.device_ids = *std::move(chosen);
          status = AllocateOne(plugin->get(), &container);
        }
      }
      if (!status.ok()) {
        return Reject(spec, status);
      }
    }
    for (const std::string& id : container.device_ids) {
      if (container.is_init) {
        reusable.insert(id);
      } else {
        reusable.erase(id);
      }
    }
    pod.containers.push_back(std::move(container));
    const std::lock_guard lock(mutex_);
    pods_[key] = pod;
    failed_.erase(key);
  }
  return pod;
}

absl::Status FakeKubelet::Reject(const FakePodSpec& spec, const absl::Status& why) {
  const FakePodStatus failed = {"Failed", "UnexpectedAdmissionError",
                                absl::StrCat("Pod was rejected: Allocate failed due to ",
                                             why.message(), ", which is unexpected")};
  const std::lock_guard lock(mutex_);
  pods_.erase({spec.pod_namespace, spec.name});
  failed_[{spec.pod_namespace, spec.name}] = failed;
  return absl::Status(why.code(), failed.message);
}

absl::StatusOr<FakeContainer> FakeKubelet::PrepareStart(const std::string& pod_namespace,
                                                        const std::string& pod,
                                                        const std::string& container) {
  FakeContainer found;
  Habits habits;
  {
    const std::lock_guard lock(mutex_);
    habits = habits_;
    const auto known = pods_.find({pod_namespace, pod});
    if (known == pods_.end())
      return absl::NotFoundError(absl::StrCat("no pod ", pod_namespace, "/", pod));
    const auto& containers = known->second.containers;
    const auto it = std::find_if(containers.begin(), containers.end(),
                                 [&](const auto& c) { return c.name == container; });
    if (it == containers.end())
      return absl::NotFoundError(absl::StrCat("no container ", container));
    found = *it;
  }
  if (found.device_ids.empty()) return found;
  v1beta1::PreStartContainerRequest request;
  for (const std::string& id : found.device_ids) request.add_devices_ids(id);
  for (int attempt = 1;; ++attempt) {
    absl::Status status = absl::UnavailableError("no plugin is registered");
    std::shared_ptr<Plugin> plugin;
    {
      const std::lock_guard lock(mutex_);
      const auto known = resources_.find(found.resource);
      if (known != resources_.end() && !known->second.is_endpoint_stopped) {
        plugin = known->second.endpoint;
      }
    }
    if (plugin != nullptr) {
      grpc::ClientContext context;
      SetDeadline(&context, habits.call_timeout);
      v1beta1::PreStartContainerResponse response;
      const grpc::Status answer = plugin->stub->PreStartContainer(&context, request, &response);
      if (answer.ok()) return found;
      status = FromGrpc("device plugin PreStartContainer rpc failed with err: ", answer);
    }
    if (attempt >= habits.pre_start_tries) return status;
    std::this_thread::sleep_for(habits.retry_pause);
  }
}

void FakeKubelet::RemovePod(const std::string& pod_namespace, const std::string& pod) {
  const std::lock_guard lock(mutex_);
  pods_.erase({pod_namespace, pod});
  failed_.erase({pod_namespace, pod});
}

std::optional<FakePodStatus> FakeKubelet::StatusOf(const std::string& pod_namespace,
                                                   const std::string& pod) const {
  const std::lock_guard lock(mutex_);
  if (pods_.contains({pod_namespace, pod})) return FakePodStatus{"Running", "", ""};
  const auto failed = failed_.find({pod_namespace, pod});
  if (failed == failed_.end()) return std::nullopt;
  return failed->second;
}

}  // namespace gpuloom
