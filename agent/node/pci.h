// SPDX-License-Identifier: Apache-2.0
// Whether the hardware has an NVIDIA GPU, whatever drivers say: distinguishes a node that has none from one whose GPU
// cannot be used. Reads sysfs only; safe from any thread.
#pragma once

#include <string>

namespace gpuloom {

inline constexpr char kPciDevices[] = "/sys/bus/pci/devices";

// Whether there is a display or 3D controller of NVIDIA's. False where the directory cannot be read, as on machines
// without PCI.
bool HasNvidiaGpuOnPci(const std::string& pci_devices = kPciDevices);

}  // namespace gpuloom
