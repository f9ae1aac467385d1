// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/pod_resources.h"

#include <grpcpp/grpcpp.h>

#include "agent/cat.h"
#include "agent/identity/pod_resources_answer.h"
#include "agent/node/one_line.h"
#include "proto/kubelet/podresources/v1/api.grpc.pb.h"

namespace gpuloom {
namespace {

// The size the kubelet's own clients allow: a node full of pods exceeds gRPC's 4 MiB.
constexpr int kMaxReplyBytes = 16 << 20;
// How much of gRPC's error texts we repeat.
constexpr size_t kMaxQuotedBytes = 256;

// Safe from any thread because it has no state: each call has its own channel.
class PodResourcesClient : public PodResources {
 public:
  PodResourcesClient(const std::string& socket_path, const std::string& resource_name,
                     Clock::Duration timeout)
      : socket_path_(socket_path), resource_name_(resource_name), timeout_(timeout) {}

  absl::StatusOr<std::vector<ContainerDevices>> List() override {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMaxReplyBytes);
    // A channel per call, with nothing shared: a kubelet that was restarted is found at once,
    // instead of after the back-off of a connection that is remembered as broken.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = v1::PodResourcesLister::NewStub(grpc::CreateCustomChannel(
        "unix:" + socket_path_, grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    context.set_deadline(gpr_time_from_millis(timeout_.count(), GPR_TIMESPAN));
    v1::ListPodResourcesResponse response;
    const grpc::Status status = stub->List(&context, v1::ListPodResourcesRequest(), &response);
    if (!status.ok()) {
      return absl::UnavailableError(
          status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED
              ? Cat("kubelet: ", socket_path_, " did not answer PodResources List within ",
                    timeout_.count(), " ms; see the kubelet's log on the node")
              : Cat("kubelet: PodResources List at ", socket_path_, ": ",
                    OneLine(status.error_message(), kMaxQuotedBytes),
                    "; is the kubelet running, and its pod-resources directory mounted?"));
    }
    absl::StatusOr<std::vector<ContainerDevices>> found = ReadAnswer(response, resource_name_);
    // If one entry is implausible, the others are not trusted, either.
    if (!found.ok()) {
      return absl::UnavailableError(Cat("kubelet: PodResources List at ", socket_path_, " gives ",
                                        found.status().message(),
                                        ", which cannot be; its answer is not believed"));
    }
    return found;
  }

 private:
  const std::string socket_path_;
  const std::string resource_name_;
  const Clock::Duration timeout_;
};

}  // namespace

std::unique_ptr<PodResources> MakePodResourcesClient(const std::string& socket_path,
                                                     const std::string& resource_name,
                                                     Clock::Duration timeout) {
  return std::make_unique<PodResourcesClient>(socket_path, resource_name, timeout);
}

}  // namespace gpuloom
