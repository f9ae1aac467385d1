// SPDX-License-Identifier: Apache-2.0
#include "agent/node/pci.h"

#include <filesystem>
#include <fstream>

#include "agent/node/list_folder.h"

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
  for (const std::filesystem::path& device : ListFolder(pci_devices, &error)) {
    if (ReadNumber(device / "vendor") == kNvidia &&
        ReadNumber(device / "class") >> 16 == kDisplayControllers) {
      return true;
    }
  }
  return false;
}

}  // namespace gpuloom
