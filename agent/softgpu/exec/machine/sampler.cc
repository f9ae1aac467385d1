// SPDX-License-Identifier: Apache-2.0
// Level does the work for one image: where a place lies, and what an element there is. Places are
// floats up to kFar, and indices are 64-bit integers until they have been wrapped, so nothing
// overflows whatever a kernel brings.
#include "agent/softgpu/exec/machine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "agent/softgpu/exec/machine/half.h"

namespace gpuloom::softgpu {
namespace {

// Farther away than any texture is large, and still exact: floats have 24 bits of fraction.
constexpr float kFar = 1 << 24;

// 8- and 16-bit integers read as floats: unsigned ones in [0, 1], signed ones in [-1, 1].
bool IsFraction(const Texture& texture, ElementFormat format) {
  if (texture.reads_integers) return false;
  return format == ElementFormat::kU8 || format == ElementFormat::kS8 ||
         format == ElementFormat::kU16 || format == ElementFormat::kS16;
}

// The register gets a float, so the element may be filtered.
bool IsFloat(const Texture& texture, ElementFormat format) {
  return format == ElementFormat::kF16 || format == ElementFormat::kF32 ||
         IsFraction(texture, format);
}

template <typename T>
T Load(const std::byte* from, uint32_t channel) {
  T value;
  std::memcpy(&value, from + channel * sizeof(T), sizeof(T));
  return value;
}

uint32_t FloatBits(float value) { return std::bit_cast<uint32_t>(value); }

// The bits of one channel's register.
uint32_t Channel(ElementFormat format, bool fraction, const std::byte* from, uint32_t channel) {
  switch (format) {
    case ElementFormat::kU8: {
      const auto value = Load<uint8_t>(from, channel);
      return fraction ? FloatBits(static_cast<float>(value) / 255.0F) : value;
    }
    case ElementFormat::kU16: {
      const auto value = Load<uint16_t>(from, channel);
      return fraction ? FloatBits(static_cast<float>(value) / 65535.0F) : value;
    }
    case ElementFormat::kS8: {
      const auto value = Load<int8_t>(from, channel);
      // -128 / 127 is below -1, which both -128 and -127 stand for.
      return fraction ? FloatBits(std::max(static_cast<float>(value) / 127.0F, -1.0F))
                      : static_cast<uint32_t>(value);
    }
    case ElementFormat::kS16: {
      const auto value = Load<int16_t>(from, channel);
      return fraction ? FloatBits(std::max(static_cast<float>(value) / 32767.0F, -1.0F))
                      : static_cast<uint32_t>(value);
    }
    case ElementFormat::kF16:
      return FloatBits(ToFloat(Half{Load<uint16_t>(from, channel)}));
    case ElementFormat::kU32:
    case ElementFormat::kS32:
    case ElementFormat::kF32:
      return Load<uint32_t>(from, channel);
  }
  return 0;
}

// The border's color. Channels that the image does not have are 0, as they are in any element.
Element Border(const Texture& texture, const Image& image) {
  Element element;
  const bool is_float = IsFloat(texture, image.format);
  for (uint32_t i = 0; i < 4 && i < image.channels; ++i) {
    element.bits[i] = is_float ? FloatBits(texture.border[i])
                               : static_cast<uint32_t>(static_cast<int32_t>(texture.border[i]));
  }
  return element;
}

// The index that `i` stands for, or -1 for the border. Also of numbers below zero, for which C++'s
// remainder is negative.
int64_t Wrapped(int64_t i, uint32_t size, AddressMode mode) {
  const int64_t n = size;
  switch (mode) {
    case AddressMode::kWrap:
      return ((i % n) + n) % n;
    case AddressMode::kMirror: {
      const int64_t p = ((i % (2 * n)) + 2 * n) % (2 * n);
      return p < n ? p : 2 * n - 1 - p;
    }
    case AddressMode::kClamp:
      return std::clamp<int64_t>(i, 0, n - 1);
    case AddressMode::kBorder:
      break;
  }
  return i < 0 || i >= n ? -1 : i;
}

// One image, seen through a texture from one place. Refers to all its arguments.
class Level {
 public:
  Level(const Texture& texture, const Image& image, const TextureCoordinate& place,
        const ReadBytes& read)
      : texture_(texture), image_(image), place_(place), read_(read) {
    // Only the dimensions that the shape has: a layer is an index of its own and is never filtered.
    const uint32_t sizes[3] = {image.width, image.height, image.depth};
    for (uint32_t i = 0; i < place.dimensions; ++i) {
      size_[i] = sizes[i];
      mode_[i] = texture.address_mode[i];
      // Coordinates that repeat do so in fractions of the whole only.
      if (!texture.normalized_coordinates &&
          (mode_[i] == AddressMode::kWrap || mode_[i] == AddressMode::kMirror)) {
        mode_[i] = AddressMode::kClamp;
      }
      float at = place.at[i];
      if (texture.normalized_coordinates) {
        // Whole turns change nothing, and would cost precision.
        // Mirroring repeats after two turns.
        if (mode_[i] == AddressMode::kWrap) at -= std::floor(at);
        if (mode_[i] == AddressMode::kMirror) at -= 2 * std::floor(at / 2);
        at *= static_cast<float>(size_[i]);
      }
      if (std::isnan(at)) at = 0;
      at_[i] = std::clamp(at, -kFar, kFar);
    }
  }

  // The functions below are false only when the memory of an element is gone.
  bool Nearest(Element* element) const {
    int64_t index[3] = {};
    for (uint32_t i = 0; i < place_.dimensions; ++i) {
      index[i] = place_.integers ? place_.whole[i] : static_cast<int64_t>(std::floor(at_[i]));
    }
    return ElementAt(index, element);
  }

  bool Linear(Element* element) const {
    int64_t low[3] = {};
    float weight[3] = {};
    Split(low, weight);
    float sum[4] = {};
    // Each corner of the square or cube around the place, by the bits of its number.
    for (uint32_t corner = 0; corner < 1u << place_.dimensions; ++corner) {
      int64_t index[3] = {};
      float share = 1;
      for (uint32_t i = 0; i < place_.dimensions; ++i) {
        const uint32_t high = (corner >> i) & 1;
        index[i] = low[i] + high;
        share *= high != 0 ? weight[i] : 1 - weight[i];
      }
      // Not read: its memory need not even exist.
      if (share == 0) continue;
      Element one;
      if (!ElementAt(index, &one)) return false;
      for (uint32_t c = 0; c < 4; ++c) sum[c] += share * std::bit_cast<float>(one.bits[c]);
    }
    for (uint32_t c = 0; c < 4; ++c) element->bits[c] = FloatBits(sum[c]);
    return true;
  }

  bool Gather(uint32_t channel, Element* element) const {
    int64_t low[3] = {};
    float weight[3] = {};
    Split(low, weight);
    // Around the square, beginning where only the second index is the higher one.
    constexpr int kOrder[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    for (uint32_t k = 0; k < 4; ++k) {
      const int64_t index[3] = {low[0] + kOrder[k][0], low[1] + kOrder[k][1], 0};
      Element one;
      if (!ElementAt(index, &one)) return false;
      element->bits[k] = one.bits[channel];
    }
    return true;
  }

 private:
  // The lower of the two elements in each direction, and how much of the upper one there is.
  void Split(int64_t* low, float* weight) const {
    for (uint32_t i = 0; i < place_.dimensions; ++i) {
      // Elements lie at half numbers: the place 0.5 is the middle of element 0. Integers name
      // elements themselves.
      const float at = place_.integers ? static_cast<float>(place_.whole[i]) : at_[i] - 0.5F;
      const float floor = std::floor(at);
      low[i] = static_cast<int64_t>(floor);
      weight[i] = std::round((at - floor) * 256.0F) / 256.0F;
    }
  }

  bool ElementAt(const int64_t* index, Element* element) const {
    uint32_t at[3] = {};
    for (uint32_t i = 0; i < place_.dimensions; ++i) {
      // Linear memory has no border color and no modes: tex1Dfetch gives 0 outside.
      if (texture_.linear_memory && (index[i] < 0 || index[i] >= size_[i])) {
        *element = {};
        return true;
      }
      const int64_t wrapped = Wrapped(index[i], size_[i], mode_[i]);
      if (wrapped < 0) {
        *element = Border(texture_, image_);
        return true;
      }
      at[i] = static_cast<uint32_t>(wrapped);
    }
    // A layer beyond the last one is the last one.
    const uint32_t slice =
        place_.dimensions == 3 ? at[2] : std::min(place_.layer, image_.depth - 1);
    const std::byte* from = read_(image_.AddressOf(at[0], at[1], slice), image_.element_bytes);
    if (from == nullptr) return false;
    // Channels that the image lacks stay 0.
    *element = {};
    const bool fraction = IsFraction(texture_, image_.format);
    for (uint32_t c = 0; c < image_.channels; ++c) {
      element->bits[c] = Channel(image_.format, fraction, from, c);
    }
    return true;
  }

  const Texture& texture_;
  const Image& image_;
  const TextureCoordinate& place_;
  const ReadBytes& read_;
  uint32_t size_[3] = {1, 1, 1};
  AddressMode mode_[3] = {};
  float at_[3] = {};
};

bool SampleLevel(const Texture& texture, uint32_t level, const TextureCoordinate& place,
                 const ReadBytes& read, Element* element) {
  const Image& image = texture.levels[level];
  const Level at(texture, image, place, read);
  // Integers cannot be mixed, and integer coordinates name one element.
  const bool linear = texture.filters && IsFloat(texture, image.format) && !place.integers;
  return linear ? at.Linear(element) : at.Nearest(element);
}

}  // namespace

void OntoCube(const Texture& texture, TextureCoordinate* place, float (*gradients)[3]) {
  // Of each face of a cube: the axis that is longest, and which way the other two run. Faces are
  // +x, -x, +y, -y, +z, -z; the signs are those of OpenGL's table of cube maps.
  struct Face {
    uint32_t major, s, t;
    float s_sign, t_sign;
  };
  constexpr Face kFaces[] = {{0, 2, 1, -1, -1}, {0, 2, 1, 1, -1}, {1, 0, 2, 1, 1},
                             {1, 0, 2, 1, -1},  {2, 0, 1, 1, -1}, {2, 0, 1, -1, -1}};
  const float* const at = place->at;
  const float size[] = {std::fabs(at[0]), std::fabs(at[1]), std::fabs(at[2])};
  uint32_t major = 0;
  if (size[1] > size[major]) major = 1;
  if (size[2] > size[major]) major = 2;
  const uint32_t number = 2 * major + (at[major] < 0 ? 1 : 0);
  const Face& face = kFaces[number];
  const float length = size[major];
  const float extent =
      texture.normalized_coordinates ? 1.0F : static_cast<float>(texture.levels[0].width);
  const float s = face.s_sign * at[face.s];
  const float t = face.t_sign * at[face.t];
  // The derivative of s / length by the quotient rule: `along` is how the length changes.
  for (uint32_t i = 0; gradients != nullptr && i < 2; ++i) {
    float* const change = gradients[i];
    const float along = at[major] < 0 ? -change[major] : change[major];
    const float ds = (face.s_sign * change[face.s] * length - s * along) / (length * length);
    const float dt = (face.t_sign * change[face.t] * length - t * along) / (length * length);
    change[0] = ds / 2 * extent;
    change[1] = dt / 2 * extent;
    change[2] = 0;
  }
  // From [-1, 1] on the face to [0, 1], or to elements.
  place->at[0] = (s / length + 1) / 2 * extent;
  place->at[1] = (t / length + 1) / 2 * extent;
  place->dimensions = 2;
  // A cube map without layers has depth 6.
  const uint32_t cubes = std::max(texture.levels[0].depth / 6, 1u);
  place->layer = std::min(place->layer, cubes - 1) * 6 + number;
}

float LevelOf(const Texture& texture, uint32_t dimensions, const float (*gradients)[3]) {
  const Image& image = texture.levels[0];
  const uint32_t sizes[] = {image.width, image.height, image.depth};
  float longest = 0;
  // Along both axes of the screen; the longer change decides, as anisotropy is ignored.
  for (uint32_t i = 0; i < 2; ++i) {
    float sum = 0;
    for (uint32_t k = 0; k < dimensions; ++k) {
      const float scale = texture.normalized_coordinates ? static_cast<float>(sizes[k]) : 1.0F;
      const float change = gradients[i][k] * scale;
      sum += change * change;
    }
    longest = std::max(longest, std::sqrt(sum));
  }
  // A change of 0 gives minus infinity, which Sample() limits like any other level.
  return std::log2(longest);
}

bool Sample(const Texture& texture, const TextureCoordinate& place, float level,
            const ReadBytes& read, Element* element) {
  // The level of detail is limited twice: by the texture's bounds, then by the levels that exist.
  const auto last = static_cast<float>(texture.levels.size() - 1);
  float lod = std::isnan(level) ? 0 : level;
  lod = std::clamp(lod + texture.level_bias, texture.min_level,
                   std::max(texture.min_level, texture.max_level));
  lod = std::clamp(lod, 0.0F, last);
  if (!texture.filters_levels || !IsFloat(texture, texture.levels[0].format)) {
    return SampleLevel(texture, static_cast<uint32_t>(std::floor(lod + 0.5F)), place, read,
                       element);
  }
  const float floor = std::floor(lod);
  const auto low = static_cast<uint32_t>(floor);
  // 8 bits, as the weights within a level.
  const float weight = std::round((lod - floor) * 256.0F) / 256.0F;
  if (!SampleLevel(texture, low, place, read, element)) return false;
  if (weight == 0) return true;
  Element high;
  if (!SampleLevel(texture, low + 1, place, read, &high)) return false;
  for (uint32_t c = 0; c < 4; ++c) {
    const auto a = std::bit_cast<float>(element->bits[c]);
    const auto b = std::bit_cast<float>(high.bits[c]);
    element->bits[c] = FloatBits(a * (1 - weight) + b * weight);
  }
  return true;
}

// tld4 has no level of detail: it reads the first level.
bool Gather(const Texture& texture, const TextureCoordinate& place, uint32_t channel,
            const ReadBytes& read, Element* element) {
  return Level(texture, texture.levels[0], place, read).Gather(channel, element);
}

}  // namespace gpuloom::softgpu
