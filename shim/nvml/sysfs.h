// SPDX-License-Identifier: Apache-2.0
// What the kernel reports about the device, if the container shows it (/sys/bus/pci/devices). Needs
// an initialised library. Safe from any thread.
#pragma once

#include <cstddef>

namespace gpuloom::nvml {

// The file's text, NUL-terminated; false if the container does not show it.
[[nodiscard]] bool ReadSysfs(const char* file, char* text, size_t text_bytes);
// "0x10de".
[[nodiscard]] bool ReadSysfsHex(const char* file, unsigned* value);

}  // namespace gpuloom::nvml
