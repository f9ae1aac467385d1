// SPDX-License-Identifier: Apache-2.0
// The kubelet's sockets, and who offers devices to it.
#include "agent/run/doctor/doctor.h"
#include "agent/run/doctor/look.h"

namespace gpuloom::run {
namespace {

Finding Socket(const std::string& root, const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  switch (LookAtSocket(root + folder, name)) {
    case SocketState::kListening:
      return {"kubelet", Verdict::kOk, path + " answers", ""};
    case SocketState::kClosed:
      return {"kubelet", Verdict::kError, path + ": this user may not connect", "run as root"};
    case SocketState::kMissing:
      return {"kubelet", Verdict::kError, path + ": not there",
              "start the kubelet; if its folder is another: --kubelet-dir, and value kubeletDir"};
    case SocketState::kDead:
      break;
  }
  return {"kubelet", Verdict::kError, path + ": nobody listens",
          "start the kubelet: systemctl status kubelet"};
}

// Plugins have their sockets in the kubelet's folder, by names of their own choice; sockets that
// nobody listens at were left behind.
Findings Plugins(const std::string& root, const std::string& folder) {
  size_t serving = 0;
  bool is_closed = false;
  Findings findings;
  for (const std::string& name : NamesIn(root + folder)) {
    const bool is_ours = name.starts_with("gpuloom-") && name.ends_with(".sock");
    const bool is_nvidias = name.starts_with("nvidia") && name.ends_with(".sock");
    if (!is_ours && !is_nvidias) continue;
    const SocketState state = LookAtSocket(root + folder, name);
    // Then nothing is known of it, and Socket has said so.
    is_closed |= state == SocketState::kClosed;
    if (state != SocketState::kListening) continue;
    if (is_ours) {
      ++serving;
    } else {
      findings.push_back(
          {"device plugin", Verdict::kError,
           "NVIDIA's device plugin serves here, too (" + name + "): both hand out the same GPUs",
           "keep it off this node"});
    }
  }
  if (serving > 0) {
    findings.push_back({"device plugin", Verdict::kOk, "gpuloom's agent serves the kubelet", ""});
  } else if (!is_closed) {
    findings.push_back({"device plugin", Verdict::kError,
                        "no agent of gpuloom serves the kubelet: the node offers no slots",
                        "kubectl describe and kubectl logs of the node's gpuloom-agent pod; if "
                        "there is none, the node's "
                        "labels: docs/installation.md"});
  }
  return findings;
}

}  // namespace

Findings CheckKubelet(const DoctorCommand& command) {
  const std::string plugins = command.kubelet_dir + "/device-plugins";
  if (!Exists(command.root + command.kubelet_dir)) {
    return {{"kubelet", Verdict::kOk,
             "none on this machine (" + command.kubelet_dir + "): gpuloom run needs none", ""}};
  }
  Findings findings = {
      // The socket at which plugins register, and the one at which the agent asks which pod has which device.
      Socket(command.root, plugins, "kubelet.sock"),
      Socket(command.root, command.kubelet_dir + "/pod-resources", "kubelet.sock")};
  for (Finding& finding : Plugins(command.root, plugins)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace gpuloom::run
