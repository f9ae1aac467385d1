// SPDX-License-Identifier: Apache-2.0
// The memory of textures and surfaces: rows of elements in plain memory. A driver that lays arrays
// out as rows needs nothing else. Plain data; immutable while a kernel can see it, and safe from
// any thread then.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace gpuloom::softgpu {

enum class ElementFormat : uint8_t { kU8, kU16, kU32, kS8, kS16, kS32, kF16, kF32 };

// One level. Layers are slices: `depth` counts them.
struct Image {
  uint64_t begin = 0;
  uint64_t pitch_bytes = 0;  // from row to row
  uint64_t slice_bytes = 0;  // from slice to slice
  uint32_t width = 0;        // elements
  uint32_t height = 1;
  uint32_t depth = 1;
  uint32_t channels = 1;
  uint32_t element_bytes = 0;
  ElementFormat format = ElementFormat::kU8;

  [[nodiscard]] uint64_t AddressOf(uint32_t x, uint32_t y, uint32_t z) const {
    return begin + z * slice_bytes + y * pitch_bytes + uint64_t{x} * element_bytes;
  }
};

enum class AddressMode : uint8_t { kWrap, kClamp, kMirror, kBorder };

struct Texture {
  std::vector<Image> levels;   // at least one
  bool linear_memory = false;  // is fetched by whole numbers; what lies outside is 0
  bool filters = false;        // linearly; otherwise it takes the nearest element
  bool filters_levels = false;
  bool normalized_coordinates = false;
  bool reads_integers = false;  // otherwise elements of 8 and 16 bits become fractions of 1
  AddressMode address_mode[3] = {AddressMode::kClamp, AddressMode::kClamp, AddressMode::kClamp};
  float border[4] = {};
  float level_bias = 0;
  float min_level = 0;
  float max_level = 0;
};

// What a module's texture or surface reference stands for in a launch. nullptr: it is not bound.
struct BoundImage {
  std::shared_ptr<const Texture> texture;  // of a texture reference
  std::shared_ptr<const Image> surface;    // of a surface reference
};

}  // namespace gpuloom::softgpu
