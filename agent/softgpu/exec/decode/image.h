// SPDX-License-Identifier: Apache-2.0
// What instructions of textures and surfaces have in common: the shape in their names, and the
// operand [handle, {coordinates}]. Used while a module is loaded, on the loader's thread.
#pragma once

#include "agent/softgpu/exec/decode/decoder.h"

namespace gpuloom::softgpu {

struct ImageShape {
  uint32_t dimensions = 1;  // of the coordinates: a cube has three, those of a direction
  bool layered = false;
  bool cube = false;
};

struct ImageOperands {
  Ref handle = 0;
  const ptx::Operand* layer = nullptr;  // of a layered shape
  const ptx::Operand* coordinates[3] = {};
};

// .1d, .2d, .3d, .a1d, .a2d, and for textures .cube and .acube.
inline bool TakeShape(Modifiers& mods, ImageShape* shape) {
  const std::string_view name = mods.TakeOneOf({"1d", "2d", "3d", "a1d", "a2d", "cube", "acube"});
  if (name.empty()) return false;
  shape->layered = name[0] == 'a';
  shape->cube = name.ends_with("cube");
  if (shape->cube) {
    shape->dimensions = 3;
    return true;
  }
  shape->dimensions = static_cast<uint32_t>(name[name.size() - 2] - '0');
  return true;
}

// The handle in [handle, …]: a 64-bit register, or the name of a reference.
inline bool HandleOf(Decoder& decoder, const ptx::Operand& operand, Ref* handle) {
  if (operand.kind != ptx::Operand::kAddress || operand.offset != 0 || operand.name.empty()) {
    return false;
  }
  ptx::Operand name;
  name.name = operand.name;
  if (decoder.Lookup(operand.name).kind != Symbol::kReference && decoder.RegisterBytes(name) != 8) {
    return false;
  }
  *handle = decoder.Source(name, 8);
  return true;
}

// A vector may be longer than the shape needs: three coordinates are written as four.
inline bool ImageOperandsOf(Decoder& decoder, const ptx::Operand& operand, const ImageShape& shape,
                            ImageOperands* operands) {
  if (!HandleOf(decoder, operand, &operands->handle) || operand.parts.size() != 1) return false;
  const ptx::Operand& place = operand.parts[0];
  const uint32_t first = shape.layered ? 1 : 0;
  const uint32_t wanted = first + shape.dimensions;
  if (place.kind != ptx::Operand::kVector) {
    if (wanted != 1) return false;
    operands->coordinates[0] = &place;
    return true;
  }
  if (place.parts.size() < wanted) return false;
  if (shape.layered) operands->layer = place.parts.data();
  for (uint32_t i = 0; i < shape.dimensions; ++i) {
    operands->coordinates[i] = &place.parts[first + i];
  }
  return true;
}

}  // namespace gpuloom::softgpu
