// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/registrar.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include "agent/cat.h"
#include "agent/plugin/plugin_socket.h"
#include "proto/kubelet/deviceplugin/v1beta1/api.grpc.pb.h"

namespace gpuloom {
namespace {

constexpr char kApiVersion[] = "v1beta1";
constexpr char kKubeletSocket[] = "/kubelet.sock";

}  // namespace

// Checks our socket, the kubelet's and its watch, in this order: each check may find that the registration is no longer
// valid. Then registers if needed. registered_with_ identifies the kubelet's socket that accepted the registration.
void Registrar::Tick(bool may_register, bool has_predecessor) {
  if (!Serve()) return;
  // Before Register is called, so that a kubelet which restarts meanwhile counts as a new one.
  CheckKubelet();
  if (!kubelet_.has_value()) return;
  // RegisterRefusing, called while the other agent was still serving, has replaced the kubelet's
  // connection to this agent. Without a new registration the kubelet would not notice its end.
  if (had_predecessor_ && !has_predecessor) {
    spdlog::info("plugin: the agent before this one has ended; registering again");
    registered_with_.reset();
  }
  had_predecessor_ = has_predecessor;
  if (registered_with_ == kubelet_) CheckWatch(has_predecessor);
  if (registered_with_ == kubelet_) return;
  if (!may_register || clock_->Now() < next_try_) return;
  next_try_ = clock_->Now() + kRetryPause;
  if (absl::Status status = Register(options_.socket_name); !status.ok()) {
    ++counts_.failed_registrations;
    LogTrouble(std::string(status.message()));
    return;
  }
  ++counts_.registrations;
  registered_with_ = kubelet_;
  registered_at_ = clock_->Now();
  is_watched_ = false;
  // A registration opens a connection by the resource's name again.
  has_registered_refusing_ = false;
  last_trouble_.clear();
  spdlog::info("plugin: registered {} with {}", options_.resource_name,
               options_.kubelet_directory + kKubeletSocket);
}

bool Registrar::Serve() {
  const std::string own_path = options_.kubelet_directory + "/" + options_.socket_name;
  const std::optional<FileId> own = FindSocket(own_path);
  if (own.has_value() && own == own_socket_) return true;
  if (clock_->Now() < next_serve_) return false;
  // A starting kubelet removes it: it empties its directory before it makes its own socket.
  if (own_socket_.has_value()) spdlog::info("plugin: {} was removed; serving it anew", own_path);
  registered_with_.reset();
  RemoveDeadPluginSockets(options_.kubelet_directory);
  if (absl::Status status = server_->Start(own_path); !status.ok()) {
    own_socket_.reset();
    next_serve_ = clock_->Now() + kRetryPause;
    LogTrouble(std::string(status.message()));
    return false;
  }
  own_socket_ = FindSocket(own_path);
  return true;
}

void Registrar::CheckKubelet() {
  const std::string path = options_.kubelet_directory + kKubeletSocket;
  const std::optional<FileId> found = FindSocket(path);
  if (!found.has_value()) {
    registered_with_.reset();
    LogTrouble(Cat("kubelet: no ", path, "; waiting for the kubelet to start"));
  } else if (found != kubelet_) {
    if (options_.on_kubelet) {
      options_.on_kubelet(Cat(found->device, ":", found->inode, ":", found->changed_ns));
    }
    next_try_ = clock_->Now();
  }
  kubelet_ = found;
}

void Registrar::CheckWatch(bool has_predecessor) {
  if (server_->watchers() > 0) {
    is_watched_ = true;
    has_been_watched_ = true;
    // Only once the kubelet watches the real registration: after one that fails it keeps calling
    // the plugin that was registered last, which must be this agent.
    if (has_predecessor && !has_registered_refusing_) RegisterRefusing();
  } else if (is_watched_) {
    // Its socket is unchanged, but it no longer counts our devices, and refuses pods.
    spdlog::warn("kubelet: {} has ended its watch of the devices; registering again",
                 options_.kubelet_directory + kKubeletSocket);
    ++counts_.ended_watches;
    registered_with_.reset();
  } else if (clock_->Now() - registered_at_ >= kWatchTimeout) {
    LogTrouble(Cat("kubelet: ", options_.kubelet_directory, kKubeletSocket,
                   " took our registration but does not watch the devices; registering again"));
    ++counts_.ended_watches;
    registered_with_.reset();
  }
}

// Kubelets 1.25 to 1.35 know one connection by the resource's name, the latest, and when the stream
// of any earlier one ends, they close that one and with it the registration that counts. After a
// registration that fails they know none, so the old agent's end closes nothing, while they still
// call the plugin registered before. Other kubelets are not harmed: from 1.36 on they know
// connections by their sockets; until 1.24 they do not ask for options and accept this server,
// which serves as well.
void Registrar::RegisterRefusing() {
  has_registered_refusing_ = true;
  const std::string stem = options_.socket_name.substr(0, options_.socket_name.rfind('.'));
  const std::string name = stem + "-refused.sock";
  if (absl::Status status = refusing_->Start(options_.kubelet_directory + "/" + name);
      !status.ok()) {
    LogTrouble(std::string(status.message()));
    return;
  }
  // If registration succeeded, the kubelet may call this server from now on.
  if (!Register(name).ok()) refusing_->Stop();
}

std::optional<Registrar::FileId> Registrar::FindSocket(const std::string& path) {
  struct stat info = {};
  // The change time tells a new file apart that was given the inode of the old one.
  if (stat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return std::nullopt;
  return FileId{info.st_dev, info.st_ino,
                int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec};
}

absl::Status Registrar::Register(const std::string& socket_name) {
  const std::string path = options_.kubelet_directory + kKubeletSocket;
  grpc::ChannelArguments arguments;
  // Nothing shared between tries: the back-off after one dead kubelet must not delay the next one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = v1beta1::Registration::NewStub(
      grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments));
  v1beta1::RegisterRequest request;
  request.set_version(kApiVersion);
  request.set_endpoint(socket_name);
  request.set_resource_name(options_.resource_name);
  // Kubelets until 1.24 take the options from here and do not ask for them.
  request.mutable_options()->set_pre_start_required(true);
  request.mutable_options()->set_get_preferred_allocation_available(true);
  grpc::ClientContext context;
  context.set_deadline(gpr_time_from_millis(kRegisterTimeout.count(), GPR_TIMESPAN));
  v1beta1::Empty empty;
  const grpc::Status status = stub->Register(&context, request, &empty);
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(Cat("kubelet: ", path, " did not answer Register within ",
                                      kRegisterTimeout.count(),
                                      " ms; see the kubelet's log on the node; trying again"));
  }
  return absl::UnavailableError(
      Cat("kubelet: ", path, ": Register: ", status.error_message(), "; trying again"));
}

void Registrar::LogTrouble(const std::string& trouble) {
  if (trouble == last_trouble_) return;
  last_trouble_ = trouble;
  spdlog::warn("{}", trouble);
}

}  // namespace gpuloom
