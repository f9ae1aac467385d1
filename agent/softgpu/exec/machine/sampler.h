// SPDX-License-Identifier: Apache-2.0
// What a texture gives at a place: addressing, filtering, and the conversion of elements. Pure; the
// caller says how an element's bytes are found, because only it knows what a kernel may touch.
//
// Weights of linear filtering have 8 bits, as the hardware's do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "agent/softgpu/exec/machine/image.h"

namespace gpuloom::softgpu {

// A place in a texture. Whole numbers when `integers`, else in elements or, normalised, in parts of
// the texture's size.
struct Place {
  uint32_t dimensions = 1;  // 1, 2 or 3 of `at` and `whole` count
  bool integers = false;
  float at[3] = {};
  int32_t whole[3] = {};
  uint32_t layer = 0;
};

// Four registers' bits: floats, or integers when the texture reads integers.
struct Element {
  uint32_t bits[4] = {};
};

// The bytes at an address, or null, which ends the sampling.
using ReadBytes = std::function<const std::byte*(uint64_t address, uint32_t size_bytes)>;

// Turns a direction, in `at`, into the place in the face that it meets: of two dimensions, in the layer
// of that face, `layer` having counted whole cubes. With `gradients`, how the direction changes along
// two axes: then they say how the place does.
void OntoCube(const Texture& texture, Place* place, float (*gradients)[3] = nullptr);
// The level of detail at which an element changes along neither axis by more than one.
[[nodiscard]] float LevelOf(const Texture& texture, uint32_t dimensions,
                            const float (*gradients)[3]);

// False when `read` gave null.
[[nodiscard]] bool Sample(const Texture& texture, const Place& place, float level,
                          const ReadBytes& read, Element* element);
// One channel of the four elements that linear filtering in two dimensions would mix, in the order
// of tld4.
[[nodiscard]] bool Gather(const Texture& texture, const Place& place, uint32_t channel,
                          const ReadBytes& read, Element* element);

}  // namespace gpuloom::softgpu
