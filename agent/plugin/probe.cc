#include "agent/plugin/probe.h"

#include <grpcpp/grpcpp.h>

#include "agent/cat.h"
#include "proto/kubelet/deviceplugin/v1beta1/api.grpc.pb.h"

namespace gpuloom {

absl::Status Probe(const std::string& socket_path, ProbeKind kind, Clock* clock) {
  const auto stub = v1beta1::DevicePlugin::NewStub(
      grpc::CreateChannel("unix:" + socket_path, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(clock->Now() + std::chrono::seconds(3));
  v1beta1::DevicePluginOptions options;
  const grpc::Status status = stub->GetDevicePluginOptions(&context, v1beta1::Empty(), &options);
  if (status.ok()) {
    const auto& metadata = context.GetServerTrailingMetadata();
    const auto trouble = metadata.find(kTroubleMetadata);
    if (kind == ProbeKind::kLive || trouble == metadata.end()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        std::string(trouble->second.data(), trouble->second.size()));
  }
  return absl::UnavailableError(Cat("probe: ", socket_path, ": ", status.error_message()));
}

}  // namespace gpuloom
