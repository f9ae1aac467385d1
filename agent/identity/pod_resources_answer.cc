// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/pod_resources_answer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "agent/cat.h"
#include "agent/identity/resource_name.h"
#include "agent/node/one_line.h"

namespace gpuloom {
namespace {

// How much of an answer we repeat in messages.
constexpr size_t kMaxQuotedBytes = 256;
// Kubernetes allows no longer names, our device IDs are shorter, and no container has as many
// devices.
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

// What no real kubelet would say, or an empty text.
std::string Implausible(const ContainerDevices& held) {
  const PodContainer& owner = held.owner;
  for (const std::string* name : {&owner.pod_namespace, &owner.pod, &owner.container}) {
    if (!IsName(*name, kMaxNameBytes, "-._")) return Cat("'", *name, "' as a name");
  }
  for (const std::string& name : held.resources) {
    if (name.size() > kMaxNameBytes) return Cat("'", name, "' as a resource");
  }
  if (held.device_ids.size() > kMaxDevices)
    return Cat(held.device_ids.size(), " devices of one container");
  for (const std::string& id : held.device_ids) {
    if (!IsName(id, kMaxDeviceIdBytes, "-._:")) return Cat("'", id, "' as a device's ID");
  }
  return {};
}

}  // namespace

absl::StatusOr<std::vector<ContainerDevices>> ReadAnswer(
    const v1::ListPodResourcesResponse& answer_untrusted, const std::string& resource_name) {
  std::vector<ContainerDevices> found;
  for (const v1::PodResources& pod : answer_untrusted.pod_resources()) {
    for (const v1::ContainerResources& container : pod.containers()) {
      ContainerDevices held;
      // Containers without our devices are not judged: their names are used for nothing.
      held.owner = {pod.namespace_(), pod.name(), container.name()};
      for (const v1::ContainerDevices& devices : container.devices()) {
        if (!IsOurResource(devices.resource_name(), resource_name)) continue;
        if (devices.device_ids_size() > 0) held.resources.insert(devices.resource_name());
        held.device_ids.insert(held.device_ids.end(), devices.device_ids().begin(),
                               devices.device_ids().end());
      }
      if (held.device_ids.empty()) continue;
      if (const std::string what = Implausible(held); !what.empty()) {
        return absl::InvalidArgumentError(OneLine(what, kMaxQuotedBytes));
      }
      found.push_back(std::move(held));
    }
  }
  return found;
}

}  // namespace gpuloom
