// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/fault_watch.h"

#include <algorithm>

#include "agent/cat.h"

namespace gpuloom {
namespace {

// With NVML's own types and numbers.
constexpr unsigned long long kXidCriticalError = 0x8;
constexpr int kTimeout = 10;
constexpr int kGpuIsLost = 15;
struct EventData {
  NvmlDevice device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};
// nvmlMemory_t, of the first version.
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

// More at once is a flood; the rest comes with the next look.
// Looks come every second (gpu_health.h).
constexpr int kPollsPerOpening = 10;
constexpr int kMostEvents = 64;

// Those that nodes see most, in NVIDIA's words.
const char* MeaningOf(unsigned long long xid) {
  switch (xid) {
    case 48:
      return "double bit ECC error";
    case 61:
    case 62:
      return "internal micro-controller halt";
    case 63:
    case 64:
      return "row remapping";
    case 74:
      return "NVLink error";
    case 79:
      return "GPU has fallen off the bus";
    case 92:
      return "high single-bit ECC error rate";
    case 94:
    case 95:
      return "ECC error";
    case 119:
    case 120:
      return "GSP error";
    default:
      return "see NVIDIA's list of Xid errors";
  }
}

}  // namespace

bool IsOfAnApplication(uint64_t xid) {
  // Graphics engine exception, page fault, reset of a channel, its clean-up, video decoder, context switch timeout.
  for (const uint64_t harmless : {13, 31, 43, 45, 68, 109}) {
    if (xid == harmless) return true;
  }
  return false;
}

FaultWatch::~FaultWatch() { Close(); }

// Two sources: events, which come once and only while this client waits for them, and a question to
// each GPU, which any that has fallen off the bus fails to answer. The second also finds what
// happened before NVML was opened.
std::vector<GpuFault> FaultWatch::Look() {
  std::vector<GpuFault> faults;
  // Those that came since the last look, before a library is closed that has kept them.
  ReadEvents(&faults);
  ++looks_;
  // While GPUs are missing it is opened again only now and then: that wakes idle GPUs, and events in between are lost.
  if (nvml_ == nullptr || is_outdated_ || (!missing_.empty() && looks_ >= kPollsPerOpening)) {
    Close();
    Open();
    is_outdated_ = false;
  } else {
    for (const auto& [device, uuid] : devices_) {
      if (const std::string trouble = TroubleOf(*nvml_, device); !trouble.empty()) {
        faults.push_back({uuid, trouble});
      }
    }
  }
  // A GPU that was reset, or a driver that was loaded again, is known only to a library that is opened after that.
  is_outdated_ |= !faults.empty();
  faults.insert(faults.end(), missing_.begin(), missing_.end());
  return faults;
}

std::string FaultWatch::TroubleOf(const NvmlLibrary& nvml, NvmlDevice device) {
  Memory memory = {};
  const int code = nvml.Call("nvmlDeviceGetMemoryInfo", device, &memory);
  if (code == kNvmlSuccess || code == kNvmlFunctionNotFound) return "";
  return Cat("nvml: ", nvml.TextOf(code), "; see dmesg for Xid lines");
}

void FaultWatch::Open() {
  looks_ = 0;
  missing_.clear();
  auto nvml = std::make_unique<NvmlLibrary>(library_);
  if (!nvml->error().empty()) {
    for (const std::string& uuid : gpu_uuids_) missing_.push_back({uuid, "nvml: " + nvml->error()});
    return;
  }
  for (const std::string& uuid : gpu_uuids_) {
    NvmlDevice device = nullptr;
    const int code = nvml->Call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &device);
    if (code == kNvmlFunctionNotFound) continue;
    const std::string trouble =
        code == kNvmlSuccess ? TroubleOf(*nvml, device)
                             : Cat("nvml: ", nvml->TextOf(code), "; see dmesg for Xid lines");
    if (trouble.empty()) {
      devices_[device] = uuid;
    } else {
      missing_.push_back({uuid, trouble});
    }
  }
  // Only GPUs that can be used are registered: an event set with a lost one reports nothing but
  // that loss.
  if (nvml->Call("nvmlEventSetCreate", &events_) == kNvmlSuccess) {
    for (const auto& [device, uuid] : devices_) {
      // Some GPUs do not support events: their faults are found only by the queries of each Look.
      (void)nvml->Call("nvmlDeviceRegisterEvents", device, kXidCriticalError, events_);
    }
  } else {
    events_ = nullptr;
  }
  nvml_ = std::move(nvml);
}

void FaultWatch::Close() {
  // Before the library is closed; a driver that is gone may refuse it.
  if (events_ != nullptr) (void)nvml_->Call("nvmlEventSetFree", events_);
  events_ = nullptr;
  devices_.clear();
  nvml_.reset();
}

void FaultWatch::ReadEvents(std::vector<GpuFault>* faults) {
  if (events_ == nullptr) return;
  for (int i = 0; i < kMostEvents; ++i) {
    EventData event = {};
    // 0 ms: what there is, or kTimeout.
    const int code = nvml_->Call("nvmlEventSetWait_v2", events_, &event, 0u);
    if (code != kNvmlSuccess) {
      if (code == kTimeout || code == kNvmlFunctionNotFound) return;
      // The set is useless from now on. If a GPU is lost, the queries of each GPU find which one.
      is_outdated_ = true;
      if (code == kGpuIsLost) return;
      // Of all GPUs: the set cannot say of which.
      for (const auto& [device, uuid] : devices_) {
        faults->push_back({uuid, Cat("nvml: events: ", nvml_->TextOf(code))});
      }
      return;
    }
    // Events of GPUs that are not watched are ignored.
    const auto found = devices_.find(event.device);
    if (found == devices_.end() || event.type != kXidCriticalError ||
        IsOfAnApplication(event.data)) {
      continue;
    }
    faults->push_back({found->second, Cat("Xid ", event.data, " (", MeaningOf(event.data), ")"),
                       /*is_event=*/true});
  }
}

}  // namespace gpuloom
