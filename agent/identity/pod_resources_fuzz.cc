// SPDX-License-Identifier: Apache-2.0
// Parses bytes as a kubelet's PodResources answer. The result has unambiguous names and IDs of bounded size; and the
// owner that is found for devices is one of their holders, or none is found.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "agent/identity/pod_resources_answer.h"
#include "agent/identity/resolver.h"

namespace gpuloom {
namespace {

void Check(bool ok, int line = __builtin_LINE()) {
  if (ok) return;
  fprintf(stderr, "pod_resources_fuzz.cc:%d: does not hold\n", line);
  abort();
}

// Free of what stands between names in labels, paths and lines.
bool IsWord(const std::string& text, size_t most_bytes) {
  return !text.empty() && text.size() <= most_bytes &&
         std::none_of(text.begin(), text.end(), [](unsigned char c) {
           return c <= ' ' || c >= 0x7f || c == '/' || c == '\'' || c == '"';
         });
}

void Run(const uint8_t* data, size_t size) {
  v1::ListPodResourcesResponse answer;
  if (!answer.ParseFromArray(data, static_cast<int>(size))) return;
  const absl::StatusOr<std::vector<ContainerDevices>> held = ReadAnswer(answer, "gpuloom.io/gpu");
  if (!held.ok()) {
    Check(held.status().message().find('\n') == std::string::npos);
    Check(held.status().message().size() < 1024);
    return;
  }
  for (const ContainerDevices& container : *held) {
    const PodContainer& owner = container.owner;
    Check(IsWord(owner.pod_namespace, 253) && IsWord(owner.pod, 253) &&
          IsWord(owner.container, 253));
    Check(!container.device_ids.empty() && container.device_ids.size() <= 4096);
    for (const std::string& id : container.device_ids) Check(IsWord(id, 63));

    const auto found = MatchPod(*held, container.device_ids);
    const std::set<std::string> wanted(container.device_ids.begin(), container.device_ids.end());
    std::set<std::string> pods;  // that hold one of them
    for (const ContainerDevices& other : *held) {
      if (std::any_of(other.device_ids.begin(), other.device_ids.end(),
                      [&](const std::string& id) { return wanted.contains(id); })) {
        pods.insert(other.owner.pod_namespace + "/" + other.owner.pod);
      }
    }
    Check(found.ok() == (pods.size() == 1));
    if (!found.ok()) continue;
    Check(found->has_value() && (*found)->pod_namespace == owner.pod_namespace &&
          (*found)->pod == owner.pod && !(*found)->container.empty());
  }
}

}  // namespace
}  // namespace gpuloom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gpuloom::Run(data, size);
  return 0;
}
