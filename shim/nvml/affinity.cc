// SPDX-License-Identifier: Apache-2.0
// Which processors and memory lie next to the device, as the kernel says it in the container.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/channel/unique_fd.h"
#include "shim/nvml/node.h"
#include "shim/nvml/sysfs.h"

namespace gpuloom::nvml {

// Function 0 of the slot, which is a GPU's. A container need not show the device here at all.
bool ReadSysfs(const char* file, char* text, size_t text_bytes) {
  const wire::DeviceSnapshot& device = node.device();
  char path[128];
  snprintf(path, sizeof(path), "/sys/bus/pci/devices/%04x:%02x:%02x.0/%s",
           static_cast<unsigned>(device.pci_domain), static_cast<unsigned>(device.pci_bus),
           static_cast<unsigned>(device.pci_device), file);
  const channel::UniqueFd fd(open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return false;
  const ssize_t size = read(fd.get(), text, text_bytes - 1);
  if (size <= 0) return false;
  text[size] = '\0';
  return true;
}

bool ReadSysfsHex(const char* file, unsigned* value) {
  char text[32];
  return ReadSysfs(file, text, sizeof(text)) && sscanf(text, "%x", value) == 1;
}

namespace {

using Word = unsigned long;  // NVML's own type
constexpr unsigned kWordBits = 8 * sizeof(Word);

// The kernel's mask: groups of 32 bits in hexadecimal, the highest first, with commas between.
bool ParseMask(const char* text, unsigned words, Word* set) {
  memset(set, 0, words * sizeof(Word));
  unsigned bit = 0;
  bool any = false;
  for (const char* at = text + strlen(text); at != text;) {
    const char digit = *--at;
    if (digit == ',' || digit == '\n') continue;
    int value = -1;
    if (digit >= '0' && digit <= '9') value = digit - '0';
    if (digit >= 'a' && digit <= 'f') value = digit - 'a' + 10;
    if (value < 0) return false;
    // The program's set may be shorter than the kernel's mask: what does not fit is left out.
    if (bit / kWordBits < words)
      set[bit / kWordBits] |= static_cast<Word>(value) << bit % kWordBits;
    bit += 4;
    any = true;
  }
  return any;
}

Return Processors(DeviceHandle device, unsigned words, Word* set) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (words == 0 || set == nullptr) return kInvalidArgument;
  char text[4096];
  if (!ReadSysfs("local_cpus", text, sizeof(text))) return kNotSupported;
  return ParseMask(text, words, set) ? kSuccess : kNotSupported;
}

}  // namespace
}  // namespace gpuloom::nvml

using namespace gpuloom::nvml;  // NVML's functions are written in our terms

NVML_EXPORT int nvmlDeviceGetCpuAffinity(DeviceHandle device, unsigned words, Word* set) {
  return Processors(device, words, set);
}
// Node or socket: the kernel has one answer for both.
NVML_EXPORT int nvmlDeviceGetCpuAffinityWithinScope(DeviceHandle device, unsigned words, Word* set,
                                                    unsigned) {
  return Processors(device, words, set);
}

NVML_EXPORT int nvmlDeviceGetMemoryAffinity(DeviceHandle device, unsigned words, Word* set,
                                            unsigned) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (words == 0 || set == nullptr) return kInvalidArgument;
  char text[32];
  if (!ReadSysfs("numa_node", text, sizeof(text))) return kNotSupported;
  const int numa_node = atoi(text);
  // The kernel says -1 where the machine has one node, or does not know.
  if (numa_node < 0 || static_cast<unsigned>(numa_node) / kWordBits >= words) return kNotSupported;
  memset(set, 0, words * sizeof(Word));
  set[static_cast<unsigned>(numa_node) / kWordBits] =
      Word{1} << static_cast<unsigned>(numa_node) % kWordBits;
  return kSuccess;
}
