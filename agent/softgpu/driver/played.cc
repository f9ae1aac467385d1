// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/played.h"

#include <cstdlib>
#include <iterator>

namespace gpuloom::softgpu {
namespace {

// Branch, CUDA version, newest PTX.
constexpr PlayedDriver kDrivers[] = {
    {535, 12020, 82},
    {550, 12040, 84},
    {570, 12080, 87},
    {580, 13000, 90},
};
constexpr const PlayedDriver& kDefaultDriver = kDrivers[3];

// In the order of PlayedCapability's fields.
constexpr PlayedCapability kCapabilities[] = {
    {75, 10000, 1024, 16, 64, 64, 0, 32},       {80, 11000, 2048, 32, 164, 163, 1024, 2},
    {86, 11010, 1536, 16, 100, 99, 1024, 32},   {87, 11040, 1536, 16, 164, 163, 1024, 32},
    {89, 11080, 1536, 24, 100, 99, 1024, 64},   {90, 11080, 2048, 32, 228, 227, 1024, 2},
    {100, 12080, 2048, 32, 228, 227, 1024, 2},  {103, 12090, 2048, 32, 228, 227, 1024, 64},
    {110, 13000, 1536, 24, 228, 227, 1024, 64}, {120, 12080, 1536, 24, 100, 99, 1024, 64},
    {121, 12090, 1536, 24, 100, 99, 1024, 64},
};
constexpr const PlayedCapability& kDefaultCapability = kCapabilities[5];

// Attributes that are younger than the oldest driver of the table.
struct Since {
  CUdevice_attribute attribute;
  int version;
};
constexpr Since kYoungAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 12040},
    {CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 12030},
    {CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED, 12050},
    {CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 12080},
    {CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH, 12080},
    {CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED, 12080},
};
// All above the last of them came later than driver 570.
constexpr int kYoungestVersion = 12090;

const char* Variable(const char* name) {
  const char* value = std::getenv(name);  // read once
  return value == nullptr ? "" : value;
}

// The rows' names as a sentence has them: "535, 550, 570 or 580".
template <typename Row, typename Text>
std::string All(const Row& rows, const Text& text) {
  std::string all;
  for (const auto& row : rows) {
    all += all.empty() ? "" : &row == std::end(rows) - 1 ? " or " : ", ";
    all += text(row);
  }
  return all;
}

}  // namespace

const PlayedDriver* FindPlayedDriver(std::string_view text, std::string* error) {
  if (text.empty()) return &kDefaultDriver;
  for (const PlayedDriver& driver : kDrivers) {
    if (std::to_string(driver.branch) == text) return &driver;
  }
  *error = "GPULOOM_SOFTGPU_DRIVER is \"" + std::string(text) + "\"; write " +
           All(kDrivers, [](const PlayedDriver& driver) { return std::to_string(driver.branch); });
  return nullptr;
}

const PlayedCapability* FindPlayedCapability(std::string_view text, std::string* error) {
  if (text.empty()) return &kDefaultCapability;
  for (const PlayedCapability& capability : kCapabilities) {
    if (ptx::Dotted(capability.number) == text) return &capability;
  }
  *error = "GPULOOM_SOFTGPU_CAPABILITY is \"" + std::string(text) + "\"; write " +
           All(kCapabilities, [](const PlayedCapability& one) { return ptx::Dotted(one.number); });
  return nullptr;
}

bool KnowsCapability(const PlayedDriver& driver, const PlayedCapability& capability,
                     std::string* error) {
  if (driver.version >= capability.since_version) return true;
  // Ends: the newest driver of the table knows all capabilities of the table.
  const PlayedDriver* first = std::begin(kDrivers);
  while (first->version < capability.since_version) ++first;
  *error = "GPULOOM_SOFTGPU_DRIVER=" + std::to_string(driver.branch) +
           " does not know compute capability " + ptx::Dotted(capability.number) +
           "; the first that does is " + std::to_string(first->branch);
  return false;
}

// Read once for the whole process: cuDriverGetVersion may be asked before cuInit, and may not
// answer otherwise after it.
const PlayedDriver& ThePlayedDriver() {
  static const PlayedDriver* const driver = [] {
    std::string ignored;
    return FindPlayedDriver(Variable("GPULOOM_SOFTGPU_DRIVER"), &ignored);
  }();
  return driver != nullptr ? *driver : kDefaultDriver;
}

const PlayedCapability& ThePlayedCapability() {
  static const PlayedCapability* const capability = [] {
    std::string ignored;
    return FindPlayedCapability(Variable("GPULOOM_SOFTGPU_CAPABILITY"), &ignored);
  }();
  return capability != nullptr ? *capability : kDefaultCapability;
}

ptx::Target PlayedTarget() {
  const PlayedDriver& driver = ThePlayedDriver();
  return {ThePlayedCapability().number, driver.newest_ptx,
          "driver " + std::to_string(driver.branch) + " (CUDA " +
              std::to_string(driver.version / 1000) + "." +
              std::to_string(driver.version % 1000 / 10) + ")"};
}

bool KnowsAttribute(CUdevice_attribute attribute) {
  if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return false;
  for (const Since& young : kYoungAttributes) {
    if (young.attribute == attribute) return PlayedVersion() >= young.version;
  }
  return attribute <= CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED ||
         PlayedVersion() >= kYoungestVersion;
}

}  // namespace gpuloom::softgpu
