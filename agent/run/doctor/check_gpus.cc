// SPDX-License-Identifier: Apache-2.0
// The driver, its libraries and the GPUs' device nodes.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "agent/node/library_folder.h"
#include "agent/node/pci.h"
#include "agent/run/doctor/doctor.h"
#include "agent/run/doctor/look.h"

namespace gpuloom::run {
namespace {

// The driver of CUDA 13.0, with which gpuloom is tested.
constexpr int kTestedDriver = 580;

constexpr const char* kLibraryFolders[] = {"/usr/lib/" GPULOOM_LIBRARY_FOLDER,
                                           "/usr/lib64",
                                           "/usr/lib",
                                           "/lib/" GPULOOM_LIBRARY_FOLDER,
                                           "/usr/local/nvidia/lib64",
                                           "/run/nvidia/driver/usr/lib/" GPULOOM_LIBRARY_FOLDER};

// Not by dlopen: the doctor may look at another root.
Finding Libraries(const std::string& root) {
  std::string missing;
  for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    bool is_there = false;
    for (const char* folder : kLibraryFolders) is_there |= Exists(root + folder + "/" + name);
    if (!is_there) missing += (missing.empty() ? "" : " and ") + std::string(name);
  }
  if (missing.empty()) return {"driver libraries", Verdict::kOk, "libcuda and NVML are there", ""};
  return {"driver libraries", Verdict::kError,
          missing + " is in none of the usual folders, though the driver is loaded",
          "in a pod: its runtime class must be NVIDIA's (value runtimeClassName), and the driver "
          "older than the pod: delete "
          "the pod; on a machine: install the driver's libraries, too"};
}

// The nodes that NVIDIA's libraries open: one for each GPU, nvidiactl and nvidia-uvm.
Findings Devices(const std::string& root) {
  size_t gpus = 0;
  std::string missing, closed;
  const auto look = [&](const std::string& name) {
    const std::string path = root + "/dev/" + name;
    if (!Exists(path)) {
      missing += (missing.empty() ? "" : ", ") + ("/dev/" + name);
    } else if (access(path.c_str(), R_OK | W_OK) != 0) {
      closed += (closed.empty() ? "" : ", ") + ("/dev/" + name);
    }
  };
  look("nvidiactl");
  look("nvidia-uvm");
  for (const std::string& name : NamesIn(root + "/dev")) {
    // nvidia0, nvidia1 …, but not nvidia-uvm or nvidiactl.
    if (name.starts_with("nvidia") && name.find_first_not_of("0123456789", 6) == name.npos &&
        name.size() > 6) {
      look(name);
      ++gpus;
    }
  }
  if (gpus == 0) missing += (missing.empty() ? "" : ", ") + std::string("/dev/nvidia0");
  if (!missing.empty()) {
    return {{"GPU devices", Verdict::kError, missing + ": not there",
             "in a pod: its runtime class must be NVIDIA's; on a machine: nvidia-modprobe -u -c=0, "
             "or run nvidia-smi once "
             "as root"}};
  }
  if (!closed.empty()) {
    return {{"GPU devices", Verdict::kError, closed + ": this user may not open them",
             "run as root, or join the group that owns them"}};
  }
  Findings findings = {{"GPU devices", Verdict::kOk, std::to_string(gpus) + " GPUs", ""}};
  // A GPU that MIG has divided has a folder gi<n> there for each GPU instance.
  const std::string capabilities = root + "/proc/driver/nvidia/capabilities";
  for (const std::string& gpu : NamesIn(capabilities)) {
    std::string mig = capabilities;
    mig.append("/").append(gpu).append("/mig");
    for (const std::string& part : NamesIn(mig)) {
      if (!part.starts_with("gi")) continue;
      findings.push_back(
          {"GPU devices", Verdict::kError, gpu + " is in MIG mode, which gpuloom does not share",
           "nvidia-smi -i " + gpu.substr(std::min<size_t>(3, gpu.size())) + " -mig 0"});
      break;
    }
  }
  return findings;
}

}  // namespace

Findings CheckGpus(const DoctorCommand& command) {
  const std::string number = NvidiaDriver(command.root);
  // /proc/driver/nvidia is there while the kernel module is loaded.
  if (number.empty()) {
    if (!HasNvidiaGpuOnPci(command.root + kPciDevices)) {
      return {{"driver", Verdict::kWarning,
               "this machine has no NVIDIA GPU: only the software GPU can be used",
               "nothing, if that is what it is for; else keep gpuloom off such nodes by their "
               "labels: docs/installation.md"}};
    }
    const bool is_nouveau =
        ReadText(command.root + "/proc/modules").find("nouveau ") != std::string::npos;
    return {{"driver", Verdict::kError,
             is_nouveau ? "the GPU's driver is nouveau, which has no CUDA"
                        : "there is an NVIDIA GPU, but its driver is not loaded",
             is_nouveau
                 ? "install NVIDIA's driver, and keep nouveau from loading (modprobe.d: blacklist "
                   "nouveau)"
                 : "install NVIDIA's driver, or see why it does not load: dmesg, nvidia-smi"}};
  }
  Findings findings;
  if (atoi(number.c_str()) >= kTestedDriver) {
    findings.push_back({"driver", Verdict::kOk, "NVIDIA " + number, ""});
  } else {
    findings.push_back({"driver", Verdict::kWarning,
                        "NVIDIA " + number +
                            ": programs of CUDA 13 need 580 or later, with which gpuloom is tested",
                        "update the driver"});
  }
  findings.push_back(Libraries(command.root));
  for (Finding& finding : Devices(command.root)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace gpuloom::run
