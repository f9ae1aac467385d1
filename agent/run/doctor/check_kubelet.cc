// SPDX-License-Identifier: Apache-2.0
// The kubelet's sockets, and who offers devices to it.
#include <string_view>

#include "agent/node/process.h"
#include "agent/node/program_output.h"
#include "agent/run/doctor/doctor.h"
#include "agent/run/doctor/look.h"

namespace gpuloom::run {
namespace {

// Of distributions of Kubernetes that have it elsewhere.
constexpr const char* kOtherFolders[] = {"/var/lib/k0s/kubelet",
                                         "/var/snap/microk8s/common/var/lib/kubelet"};

Finding Socket(const std::string& root, const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  switch (ProbeSocket(root + folder, name)) {
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

// What the agent itself says of its readiness: who listens may hang, be registered with nobody or have trouble.
Finding AskAgent(const DoctorCommand& command, const std::string& folder) {
  const std::string program = command.program.substr(0, command.program.rfind('/') + 1);
  const ProgramOutput output = RunForOutput(
      {program + "gpuloom-agent", "--probe-ready", "--kubelet-dir", command.root + folder});
  constexpr std::string_view kBegin = "gpuloom-agent: ";
  std::string said = output.said.substr(0, output.said.find_last_not_of('\n') + 1);
  if (said.starts_with(kBegin)) said.erase(0, kBegin.size());
  // Its probe asks the agent of its own container alone.
  const bool is_elsewhere = said.starts_with("probe: no agent of this container");
  if (!output.trouble.empty() || is_elsewhere) {
    return {"device plugin", Verdict::kOk,
            "gpuloom's agent serves the kubelet; whether it is ready can be asked in its own pod",
            ""};
  }
  const std::string remedy =
      "kubectl describe and kubectl logs of the node's gpuloom-agent pod; one that hangs is "
      "replaced when it is deleted, which ends no tenant";
  if (!output.wait_status) {
    return {"device plugin", Verdict::kError, "gpuloom's agent listens and does not answer",
            remedy};
  }
  if (ExitText(*output.wait_status) == kEndedWell) {
    return {"device plugin", Verdict::kOk, "gpuloom's agent serves the kubelet and is ready", ""};
  }
  return {"device plugin", Verdict::kError,
          "gpuloom's agent is not ready: " + (said.empty() ? ExitText(*output.wait_status) : said),
          remedy};
}

Findings Plugins(const DoctorCommand& command, const std::string& folder) {
  const std::string& root = command.root;
  size_t serving = 0;
  size_t dead = 0;
  bool is_closed = false;
  Findings findings;
  for (const std::string& name : NamesIn(root + folder)) {
    const bool is_ours = name.starts_with("gpuloom-") && name.ends_with(".sock");
    const bool is_nvidias = name.starts_with("nvidia") && name.ends_with(".sock");
    if (!is_ours && !is_nvidias) continue;
    const SocketState state = ProbeSocket(root + folder, name);
    // Then nothing is known of it, and Socket has said so.
    is_closed |= state == SocketState::kClosed;
    dead += is_ours && state == SocketState::kDead;
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
    findings.push_back(AskAgent(command, folder));
  } else if (!is_closed) {
    findings.push_back({"device plugin", Verdict::kError,
                        "no agent of gpuloom serves the kubelet: the node offers no slots",
                        "kubectl describe and kubectl logs of the node's gpuloom-agent pod; if "
                        "there is none, the node's "
                        "labels: docs/installation.md"});
  }
  if (dead > 0) {
    findings.push_back({"device plugin", Verdict::kWarning,
                        "left in " + folder + " by agents that did not end by themselves: " +
                            std::to_string(dead) + " sockets gpuloom-….sock",
                        "delete them, or leave them: the kubelet does when it starts"});
  }
  return findings;
}

}  // namespace

Findings CheckKubelet(const DoctorCommand& command) {
  const std::string plugins = command.kubelet_dir + "/device-plugins";
  if (!Exists(command.root + command.kubelet_dir)) {
    for (const std::string other : kOtherFolders) {
      if (!Exists(command.root + other)) continue;
      std::string remedy = "value kubeletDir: ";
      remedy.append(other).append("; this command: --kubelet-dir ").append(other);
      return {{"kubelet", Verdict::kError,
               "its folder is " + other + ", not " + command.kubelet_dir, remedy}};
    }
    return {{"kubelet", Verdict::kOk,
             "none on this machine (" + command.kubelet_dir + "): gpuloom run needs none", ""}};
  }
  Findings findings = {
      // The socket at which plugins register, and the one at which the agent asks which pod has which device.
      Socket(command.root, plugins, "kubelet.sock"),
      Socket(command.root, command.kubelet_dir + "/pod-resources", "kubelet.sock")};
  for (Finding& finding : Plugins(command, plugins)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace gpuloom::run
