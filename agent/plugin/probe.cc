// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/probe.h"

#include <grpcpp/grpcpp.h>

#include "agent/cat.h"
#include "agent/clock.h"
#include "agent/plugin/plugin_server.h"
#include "agent/plugin/plugin_socket.h"
#include "proto/kubelet/deviceplugin/v1beta1/api.grpc.pb.h"

namespace gpuloom {
namespace {

// Less than the timeoutSeconds of the chart's probes, so that the reason is reported and not only a timeout.
constexpr Clock::Duration kTimeout = std::chrono::seconds(3);

absl::Status Ask(const std::string& socket_path, ProbeKind kind) {
  const auto stub = v1beta1::DevicePlugin::NewStub(
      grpc::CreateChannel("unix:" + socket_path, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(gpr_time_from_millis(kTimeout.count(), GPR_TIMESPAN));
  if (kind == ProbeKind::kReady) context.AddMetadata(PluginServer::kReadyKey, "?");
  v1beta1::DevicePluginOptions options;
  const grpc::Status status = stub->GetDevicePluginOptions(&context, v1beta1::Empty(), &options);
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto trouble = metadata.find(kTroubleMetadata);
  // Before the status: what must be mended may be the reason why it is not ready.
  if (kind == ProbeKind::kReady && trouble != metadata.end()) {
    return absl::FailedPreconditionError(
        std::string(trouble->second.data(), trouble->second.size()));
  }
  if (status.ok()) return absl::OkStatus();
  return absl::UnavailableError(Cat("probe: ", socket_path, ": ", status.error_message()));
}

}  // namespace

absl::Status Probe(const std::string& kubelet_directory, ProbeKind kind) {
  absl::Status answer = absl::UnavailableError(
      Cat("probe: no agent of this container serves in ", kubelet_directory));
  // An agent has a socket for each resource, and each speaks for the agent as a whole: one good
  // answer is enough.
  for (const std::string& path : ListPluginSockets(kubelet_directory)) {
    if (!IsServedNearby(path)) continue;
    absl::Status asked = Ask(path, kind);
    if (asked.ok()) return asked;
    // An answer that says what to correct takes precedence over sockets that refuse to serve: one
    // of them exists only to be refused (Registrar::RegisterRefusing).
    if (!absl::IsFailedPrecondition(answer)) answer = asked;
  }
  return answer;
}

}  // namespace gpuloom
