// SPDX-License-Identifier: Apache-2.0
#include "agent/node/pci.h"

#include <filesystem>
#include <fstream>

namespace gpuloom {
namespace {

constexpr unsigned kNvidia = 0x10de;
constexpr unsigned kDisplayControllers = 0x03;  // the class: VGA (0x0300), 3D (0x0302)

// sysfs writes "0x10de".
unsigned ReadNumber(const std::filesystem::path& path) {
  std::ifstream file(path);
  unsigned number = 0;
  return file >> std::hex >> number ? number : 0;
}

}  // namespace

bool HasNvidiaGpuOnPci(const std::string& pci_devices) {
  std::error_code error;
  // A range-for would throw where reading fails half way.
  for (std::filesystem::directory_iterator device(pci_devices, error), end; !error && device != end;
       device.increment(error)) {
    if (ReadNumber(device->path() / "vendor") == kNvidia &&
        ReadNumber(device->path() / "class") >> 16 == kDisplayControllers) {
      return true;
    }
  }
  return false;
}

}  // namespace gpuloom
