#include "agent/identity/pod_resources.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "agent/cat.h"
#include "agent/node/one_line.h"
#include "proto/kubelet/podresources/v1/api.grpc.pb.h"

namespace gpuloom {
namespace {

// The size the kubelet's own clients allow: a node full of pods exceeds gRPC's 4 MiB.
constexpr int kMaxReplyBytes = 16 << 20;
// Of what is repeated of an answer.
constexpr size_t kMaxQuotedBytes = 256;
// A cluster's names are shorter, and so are device IDs; no container has more devices.
constexpr size_t kMaxNameBytes = 253;
constexpr size_t kMaxDeviceIdBytes = 63;
constexpr size_t kMaxDevices = 4096;

// Names become trust domains and labels, in which slashes stand between them.
bool IsName(const std::string& text, size_t most_bytes, const char* also) {
  return !text.empty() && text.size() <= most_bytes &&
         std::all_of(text.begin(), text.end(), [also](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  (c != '\0' && std::strchr(also, c) != nullptr);
         });
}

// Empty, or what it says that no kubelet says.
std::string Implausible(const ContainerDevices& held) {
  const PodContainer& owner = held.owner;
  for (const std::string* name : {&owner.pod_namespace, &owner.pod, &owner.container}) {
    if (!IsName(*name, kMaxNameBytes, "-._")) return Cat("'", *name, "' as a name");
  }
  if (held.device_ids.size() > kMaxDevices)
    return Cat(held.device_ids.size(), " devices of one container");
  for (const std::string& id : held.device_ids) {
    if (!IsName(id, kMaxDeviceIdBytes, "-._:")) return Cat("'", id, "' as a device's ID");
  }
  return {};
}

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
    std::vector<ContainerDevices> found;
    for (const v1::PodResources& pod : response.pod_resources()) {
      for (const v1::ContainerResources& container : pod.containers()) {
        ContainerDevices held;
        held.owner = {pod.namespace_(), pod.name(), container.name()};
        for (const v1::ContainerDevices& devices : container.devices()) {
          if (devices.resource_name() != resource_name_) continue;
          held.device_ids.insert(held.device_ids.end(), devices.device_ids().begin(),
                                 devices.device_ids().end());
        }
        if (held.device_ids.empty()) continue;
        // Who lies once is not believed in the rest either.
        if (const std::string what = Implausible(held); !what.empty()) {
          return absl::UnavailableError(Cat("kubelet: PodResources List at ", socket_path_,
                                            " gives ", OneLine(what, kMaxQuotedBytes),
                                            ", which cannot be; its answer is not believed"));
        }
        found.push_back(std::move(held));
      }
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
