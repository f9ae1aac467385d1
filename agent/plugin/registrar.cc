#include "agent/plugin/registrar.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include "agent/cat.h"
#include "proto/kubelet/deviceplugin/v1beta1/api.grpc.pb.h"

namespace gpuloom {
namespace {

constexpr char kApiVersion[] = "v1beta1";
constexpr char kKubeletSocket[] = "/kubelet.sock";

}  // namespace

void Registrar::Tick() {
  const std::string own_path = options_.kubelet_directory + "/" + options_.socket_name;
  const std::string kubelet_path = options_.kubelet_directory + kKubeletSocket;
  const std::optional<FileId> own = Look(own_path);
  if (!own.has_value() || own != own_socket_) {
    if (clock_->Now() < next_try_) return;
    if (own_socket_.has_value()) spdlog::info("plugin: {} was removed; serving it anew", own_path);
    registered_with_.reset();
    if (absl::Status status = server_->Start(own_path); !status.ok()) {
      own_socket_.reset();
      next_try_ = clock_->Now() + kRetryPause;
      Say(std::string(status.message()));
      return;
    }
    own_socket_ = Look(own_path);
  }
  // Before Register is called: a kubelet that restarts meanwhile is a new one.
  const std::optional<FileId> kubelet = Look(kubelet_path);
  if (!kubelet.has_value()) {
    registered_with_.reset();
    Say(Cat("kubelet: no ", kubelet_path, "; waiting for the kubelet to start"));
    return;
  }
  if (registered_with_ == kubelet) {
    if (server_->watchers() > 0) {
      is_watched_ = true;
    } else if (is_watched_) {
      // The stream ended, so the kubelet no longer counts our devices, though its socket is the
      // same.
      is_watched_ = false;
      registered_at_ = clock_->Now();
    } else if (clock_->Now() - registered_at_ >= kWatchTimeout) {
      Say(Cat("kubelet: ", kubelet_path,
              " took our registration but does not watch the devices; registering again"));
      registered_with_.reset();
    }
    return;
  }
  if (clock_->Now() < next_try_) return;
  if (absl::Status status = Register(); !status.ok()) {
    next_try_ = clock_->Now() + kRetryPause;
    Say(std::string(status.message()));
    return;
  }
  registered_with_ = kubelet;
  registered_at_ = clock_->Now();
  is_watched_ = false;
  last_trouble_.clear();
  spdlog::info("plugin: registered {} with {}", options_.resource_name, kubelet_path);
  options_.on_registered();
}

std::optional<Registrar::FileId> Registrar::Look(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return std::nullopt;
  return FileId{info.st_dev, info.st_ino,
                int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec};
}

absl::Status Registrar::Register() {
  const std::string path = options_.kubelet_directory + kKubeletSocket;
  grpc::ChannelArguments arguments;
  // Nothing shared between tries: the back-off after one dead kubelet must not delay the next one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = v1beta1::Registration::NewStub(
      grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments));
  v1beta1::RegisterRequest request;
  request.set_version(kApiVersion);
  request.set_endpoint(options_.socket_name);
  request.set_resource_name(options_.resource_name);
  request.mutable_options()->set_pre_start_required(true);
  request.mutable_options()->set_get_preferred_allocation_available(true);
  grpc::ClientContext context;
  context.set_deadline(clock_->Now() + kRegisterTimeout);
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

void Registrar::Say(const std::string& trouble) {
  if (trouble == last_trouble_) return;
  last_trouble_ = trouble;
  spdlog::warn("{}", trouble);
}

}  // namespace gpuloom
