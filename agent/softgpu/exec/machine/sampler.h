// SPDX-License-Identifier: Apache-2.0
// The value of a texture at a place: addressing, filtering, and the conversion of elements. Pure; the caller provides a
// function that reads an element's bytes, because only it knows what a kernel may touch.
//
// Weights of linear filtering have 8 bits, as the hardware's do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "agent/softgpu/exec/machine/image.h"

namespace gpuloom::softgpu {

// A place in a texture. Whole numbers if `integers`; otherwise in elements or, normalised, in fractions of the
// texture's size.
struct TextureCoordinate {
  uint32_t dimensions = 1;  // how many entries of `at` and `whole` count: 1, 2 or 3
  bool integers = false;
  float at[3] = {};
  int32_t whole[3] = {};
  uint32_t layer = 0;
};

// The bits of four registers: floats, or integers if the texture reads integers.
struct Element {
  uint32_t bits[4] = {};
};

// The bytes at an address; nullptr ends the sampling.
using ReadBytes = std::function<const std::byte*(uint64_t address, uint32_t size_bytes)>;

// Turns the direction in `at` into the place in the face that it meets: two-dimensional, in the layer of that face,
// where `layer` counted whole cubes before. `gradients`, if given, say how the direction changes along two axes, and
// are turned into how the place changes.
void OntoCube(const Texture& texture, TextureCoordinate* place, float (*gradients)[3] = nullptr);
// The level of detail at which an element changes along neither axis by more than one.
[[nodiscard]] float LevelOf(const Texture& texture, uint32_t dimensions,
                            const float (*gradients)[3]);

// False when `read` returned nullptr.
[[nodiscard]] bool Sample(const Texture& texture, const TextureCoordinate& place, float level,
                          const ReadBytes& read, Element* element);
// One channel of the four elements that linear filtering in two dimensions would mix, in the order
// of tld4.
[[nodiscard]] bool Gather(const Texture& texture, const TextureCoordinate& place, uint32_t channel,
                          const ReadBytes& read, Element* element);

}  // namespace gpuloom::softgpu
