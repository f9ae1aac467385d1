// SPDX-License-Identifier: Apache-2.0
// Finds the `__managed__` variables of an image, and rewrites the image so that they lie elsewhere: in memory that host
// and device both reach, at addresses that are given to the loader. Node side only.
//
// Pure functions over bytes that a tenant made: nothing outside the given bounds is read or written, and nothing much
// larger than the image is allocated, because nvcc's variables do not overlap. False means that the image is not in
// nvcc's form; it is then left to the driver.
//
//   ChooseCode(image, 90, &code)
//   if (!HasManagedVariables(code)) …        // else PTX → cubin by the driver's linker
//   ListManagedVariables(code.bytes, &list)  // and give each of them an address
//   ReleaseManagedVariables(&code.bytes)     // now the loader wants those addresses
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/cuda/fatbin_unpack.h"

namespace gpuloom {

struct DeviceCode {
  ImageKind kind = ImageKind::kElf;  // or kPtx, followed by a NUL
  std::vector<uint8_t> bytes;
};

// Chooses what a driver would pick from the image for a device of this compute capability (90 for 9.0): the newest cubin of
// its generation, or else the newest PTX that is not too new. `only_text`: the driver takes no cubins.
[[nodiscard]] bool ChooseCode(std::span<const uint8_t> image, uint32_t capability, DeviceCode* code,
                              bool only_text = false);

[[nodiscard]] bool HasManagedVariables(const DeviceCode& code);

struct ManagedVariable {
  std::string name;
  uint64_t size_bytes = 0;
  uint64_t align_bytes = 16;
  std::vector<uint8_t> initial;  // empty: zeroes
};

// Lists the variables of a cubin.
[[nodiscard]] bool ListManagedVariables(std::span<const uint8_t> cubin,
                                        std::vector<ManagedVariable>* variables);
// Turns them into symbols that are defined elsewhere.
void ReleaseManagedVariables(std::span<uint8_t> cubin);

// The same for PTX text: returns only the names, and the text in which they are merely declared.
[[nodiscard]] bool ReleaseManagedVariables(std::string_view ptx, std::vector<std::string>* names,
                                           std::string* released);

}  // namespace gpuloom
