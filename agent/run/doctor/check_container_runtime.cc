// SPDX-License-Identifier: Apache-2.0
// NVIDIA's container runtime, and the runtime that starts it.
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/node/runtime_check.h"
#include "agent/run/doctor/doctor.h"
#include "agent/run/doctor/look.h"

namespace gpuloom::run {
namespace {

// The path at which the chart mounts the node's configuration into the agent's pod, and its path on the node.
constexpr const char* kConfigs[] = {"/etc/gpuloom-node/nvidia-container-runtime/config.toml",
                                    "/etc/nvidia-container-runtime/config.toml"};

// The first is containerd's own; distributions of Kubernetes that bring a containerd keep it elsewhere.
constexpr const char* kContainerdConfigs[] = {
    "/etc/containerd/config.toml", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/var/snap/microk8s/current/args/containerd.toml", "/etc/k0s/containerd.toml"};
// Patterns may match anything.
constexpr size_t kMostConfigs = 100;

// What a configuration of containerd imports: paths, with wildcards. The key stands above all
// tables; the list may have several lines.
std::vector<std::string> ImportsOf(std::string_view text) {
  constexpr std::string_view kKey = "imports";
  for (size_t at = 0; at < text.size();) {
    at = std::min(text.find_first_not_of(" \t\r\n", at), text.size());
    if (text.substr(at).starts_with("[")) break;
    const size_t value = text.find_first_not_of(" \t", at + kKey.size());
    if (text.substr(at).starts_with(kKey) && value < text.size() && text[value] == '=') {
      const std::string_view list = text.substr(value, text.find(']', value) - value);
      std::vector<std::string> imports;
      for (size_t begin = list.find_first_of("\"'"); begin < list.size();) {
        const size_t end = list.find(list[begin], begin + 1);
        if (end == list.npos) break;
        imports.emplace_back(list.substr(begin + 1, end - begin - 1));
        begin = list.find_first_of("\"'", end + 1);
      }
      return imports;
    }
    at = text.find('\n', at);
  }
  return {};
}

// Adds a file below `root` and what it imports, each once.
void AddContainerdConfig(const std::string& root, const std::string& path,
                         std::set<std::string>* read, std::string* text) {
  if (read->size() >= kMostConfigs || !read->insert(path).second) return;
  const std::string own = ReadText(root + path);
  *text += own;
  for (const std::string& import : ImportsOf(own)) {
    // A relative path is relative to the folder of the file; an absolute one replaces it.
    const std::string pattern =
        root + (std::filesystem::path(path).parent_path() / import).string();
    glob_t found = {};
    if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
      for (size_t i = 0; i < found.gl_pathc; ++i) {
        AddContainerdConfig(root, found.gl_pathv[i] + root.size(), read, text);
      }
    }
    globfree(&found);
  }
}

// The whole configuration of the runtime that starts containers, whichever it is.
std::string RuntimesText(const std::string& root) {
  std::string text =
      ReadText(root + "/etc/docker/daemon.json") + ReadText(root + "/etc/crio/crio.conf");
  std::set<std::string> read;
  for (const char* config : kContainerdConfigs) AddContainerdConfig(root, config, &read, &text);
  const std::string folder = "/etc/crio/crio.conf.d";
  for (const std::string& name : NamesIn(root + folder)) {
    std::string path = root;
    text += ReadText(path.append(folder).append("/").append(name));
  }
  return text;
}

// In the words of containerd, Docker and CRI-O. The files are not parsed: a word in a comment leads
// to a warning at worst.
bool IsNvidiaDefault(const std::string& text) {
  for (const char* key : {"default_runtime_name = \"nvidia", "default-runtime\": \"nvidia",
                          "default_runtime = \"nvidia"}) {
    if (text.find(key) != text.npos) return true;
  }
  return false;
}

Finding Config(const DoctorCommand& command) {
  for (const char* config : kConfigs) {
    switch (ReadRuntimeConfig(command.root + config)) {
      case RuntimeConfig::kMissing:
        continue;
      case RuntimeConfig::kForbids:
        return {"container runtime", Verdict::kOk,
                std::string(config) + " lets no unprivileged pod take GPUs by itself", ""};
      case RuntimeConfig::kAllows:
        return {"container runtime", Verdict::kWarning,
                std::string(config) +
                    " lets any pod ask for GPUs by NVIDIA_VISIBLE_DEVICES, around gpuloom",
                std::string("set ") + kRuntimeKey +
                    " = false in it on the node and restart the container runtime: "
                    "docs/installation.md"};
    }
  }
  const bool has_gpu = Exists(command.root + "/proc/driver/nvidia/version");
  const bool has_kubelet = Exists(command.root + command.kubelet_dir);
  // Only where pods could take GPUs at all.
  if (has_gpu && has_kubelet) {
    return {
        "container runtime", Verdict::kWarning,
        "the configuration of NVIDIA's container runtime is not found, so nothing shows that pods "
        "cannot take GPUs by "
        "themselves",
        "install NVIDIA's container toolkit; if it lies elsewhere: value nvidiaRuntimeConfigDir"};
  }
  return {"container runtime", Verdict::kOk, "NVIDIA's is not installed, and nothing here needs it",
          ""};
}

}  // namespace

Findings CheckContainerRuntime(const DoctorCommand& command) {
  Findings findings = {Config(command)};
  const std::string runtimes = RuntimesText(command.root);
  if (IsNvidiaDefault(runtimes)) {
    findings.push_back(
        {"container runtime", Verdict::kWarning,
         "NVIDIA's runtime is the default: every pod passes through it",
         "make another one the default; gpuloom's own pods name NVIDIA's as their runtime class"});
  } else if (!runtimes.empty() && Exists(command.root + "/proc/driver/nvidia/version") &&
             runtimes.find("nvidia") == runtimes.npos) {
    findings.push_back({"container runtime", Verdict::kError,
                        "the container runtime's configuration has no runtime nvidia, which "
                        "gpuloom's own pods use",
                        "nvidia-ctk runtime configure, then restart the container runtime"});
  }
  return findings;
}

}  // namespace gpuloom::run
