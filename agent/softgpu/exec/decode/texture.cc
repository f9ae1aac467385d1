// SPDX-License-Identifier: Apache-2.0
// Textures by handle or reference: tex, tld4, txq. The operands do not fit into an Instr, so they
// lie in a table of the function.
#include "agent/softgpu/exec/decode/image.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/sampler.h"

namespace gpuloom::softgpu {
namespace {

// Instr::extra: dimensions in the lowest two bits.
constexpr uint16_t kDimensions = 0x03;
constexpr uint16_t kLayered = 0x04;
constexpr uint16_t kIntegers = 0x08;
constexpr uint16_t kLevel = 0x10;
constexpr uint16_t kGather = 0x20;
constexpr uint16_t kGradients = 0x40;
constexpr uint16_t kCube = 0x80;
constexpr uint16_t kResident = 0x100;  // sets the predicate: everything is resident

// The table: where each operand is.
enum Operand : uint32_t {
  kHandle,
  kFirstResult,                 // four
  kFirstAt = kFirstResult + 4,  // three
  kLayer = kFirstAt + 3,
  kLevelOfDetail,
  kFirstGradient,                   // three for each of two axes
  kResidence = kFirstGradient + 6,  // a predicate
  kOperands
};

// Lane by lane, as each may sample another place, or another texture.
Step SampleTexture(Warp& warp, const Instr& in) {
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  const uint64_t* handles = warp.Source<uint64_t>(refs[kHandle]);
  const GridRun& run = warp.block().run();
  std::shared_ptr<const Texture> texture;
  uint64_t known = 0;
  for (uint32_t rest = warp.exec; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    // As in surface.cc.
    if (texture == nullptr || handles[lane] != known) {
      known = handles[lane];
      texture = run.FindTexture(known);
      if (texture == nullptr) {
        return warp.Fault(Outcome::kIllegalAddress, known,
                          "a handle that is no texture, or a reference without one");
      }
    }
    TextureCoordinate place;
    place.dimensions = in.extra & kDimensions;
    place.integers = (in.extra & kIntegers) != 0;
    for (uint32_t i = 0; i < place.dimensions; ++i) {
      if (place.integers) {
        place.whole[i] = warp.Source<int32_t>(refs[kFirstAt + i])[lane];
      } else {
        place.at[i] = warp.Source<float>(refs[kFirstAt + i])[lane];
      }
    }
    if ((in.extra & kLayered) != 0) place.layer = warp.Source<uint32_t>(refs[kLayer])[lane];
    float level = (in.extra & kLevel) != 0 ? warp.Source<float>(refs[kLevelOfDetail])[lane] : 0;
    float gradients[2][3] = {};
    if ((in.extra & kGradients) != 0) {
      for (uint32_t i = 0; i < 2 * 3; ++i) {
        if (i % 3 >= place.dimensions) continue;
        gradients[i / 3][i % 3] = warp.Source<float>(refs[kFirstGradient + i])[lane];
      }
    }
    // A cube's place becomes one of two dimensions in one of its faces, and so do the gradients.
    if ((in.extra & kCube) != 0) OntoCube(*texture, &place, gradients);
    if ((in.extra & kGradients) != 0) level = LevelOf(*texture, place.dimensions, gradients);
    // The sampler finds addresses, and only the warp knows which may be read; `touched` is for the
    // fault.
    uint64_t touched = 0;
    const auto read = [&](uint64_t address, uint32_t size_bytes) -> const std::byte* {
      touched = address;
      return warp.PointerFor(lane, ptx::Space::kGlobal, address, size_bytes, false);
    };
    Element element;
    const bool done = (in.extra & kGather) != 0
                          ? Gather(*texture, place, static_cast<uint32_t>(in.imm), read, &element)
                          : Sample(*texture, place, level, read, &element);
    if (!done) {
      return warp.Fault(Outcome::kIllegalAddress, touched, "a texture of memory that is gone");
    }
    for (uint32_t c = 0; c < 4; ++c) {
      warp.Destination<uint32_t>(refs[kFirstResult + c])[lane] = element.bits[c];
    }
  }
  // All memory of a texture is always resident.
  if ((in.extra & kResident) != 0) warp.SetPredicate(refs[kResidence], kAllLanes);
  return Step::kNext;
}

// txq and suq. A cube or a layered image counts its layers as depth.
enum class Question : int64_t { kWidth, kHeight, kDepth, kLevels };

template <bool kSurface>
Step Query(Warp& warp, const Instr& in) {
  const uint64_t* handles = warp.Source<uint64_t>(in.a);
  uint32_t* results = warp.Destination<uint32_t>(in.d);
  const GridRun& run = warp.block().run();
  for (uint32_t rest = warp.exec; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    Image image;
    uint32_t levels = 1;
    if constexpr (kSurface) {
      const auto surface = run.FindSurface(handles[lane]);
      if (surface == nullptr) {
        return warp.Fault(Outcome::kIllegalAddress, handles[lane],
                          "a handle that is no surface, or a reference without one");
      }
      image = *surface;
    } else {
      const auto texture = run.FindTexture(handles[lane]);
      if (texture == nullptr) {
        return warp.Fault(Outcome::kIllegalAddress, handles[lane],
                          "a handle that is no texture, or a reference without one");
      }
      image = texture->levels[0];
      levels = static_cast<uint32_t>(texture->levels.size());
    }
    switch (static_cast<Question>(in.imm)) {
      case Question::kWidth:
        results[lane] = image.width;
        break;
      case Question::kHeight:
        results[lane] = image.height;
        break;
      case Question::kDepth:
        results[lane] = image.depth;
        break;
      case Question::kLevels:
        results[lane] = levels;
        break;
    }
  }
  return Step::kNext;
}

bool DecodeQuery(Decoder& decoder, Op& op, Handler run) {
  const std::string_view what =
      op.mods.TakeOneOf({"width", "height", "depth", "array_size", "num_mipmap_levels"});
  if (what.empty() || !op.mods.Take("b32") || op.count() != 2) return false;
  Instr in;
  in.d = decoder.Destination(op[0], 4);
  if (!HandleOf(decoder, op[1], &in.a)) return false;
  Question question = Question::kDepth;  // the layers are slices
  if (what == "width") question = Question::kWidth;
  if (what == "height") question = Question::kHeight;
  if (what == "num_mipmap_levels") question = Question::kLevels;
  in.imm = static_cast<int64_t>(question);
  return decoder.Emit(run, in);
}

// Result, address with coordinates, and what follows.
bool DecodeSample(Decoder& decoder, Op& op, Instr in) {
  ImageShape shape;
  if (!TakeShape(op.mods, &shape) || !op.mods.Take("v4")) return false;
  const ptx::Type result = op.mods.TakeType();
  const ptx::Type coordinate = op.mods.TakeType();
  if ((result != ptx::Type::kF32 && result != ptx::Type::kS32 && result != ptx::Type::kU32) ||
      (coordinate != ptx::Type::kF32 && coordinate != ptx::Type::kS32)) {
    return false;
  }
  const bool leveled = (in.extra & kLevel) != 0;
  const bool changes = (in.extra & kGradients) != 0;
  // result|p: p tells whether the element was resident.
  const bool tells = op[0].kind == ptx::Operand::kPair;
  const ptx::Operand& results = tells ? op[0].parts[0] : op[0];
  if (op.count() != 2u + (leveled ? 1 : 0) + (changes ? 2 : 0) ||
      results.kind != ptx::Operand::kVector || results.parts.size() != 4) {
    return false;
  }
  // Directions and gradients are floats.
  if ((shape.cube || changes) && coordinate != ptx::Type::kF32) return false;
  std::vector<uint32_t> refs(kOperands, 0);
  ImageOperands at;
  if (!ImageOperandsOf(decoder, op[1], shape, &at)) return false;
  refs[kHandle] = at.handle;
  for (uint32_t i = 0; i < 4; ++i) {
    refs[kFirstResult + i] = decoder.Destination(results.parts[i], 4);
  }
  for (uint32_t i = 0; i < shape.dimensions; ++i) {
    refs[kFirstAt + i] = decoder.Source(*at.coordinates[i], coordinate);
  }
  if (shape.layered) refs[kLayer] = decoder.Source(*at.layer, 4);
  if (leveled) refs[kLevelOfDetail] = decoder.Source(op[2], ptx::Type::kF32);
  // A gradient of one dimension needs no braces.
  for (uint32_t i = 0; changes && i < 2; ++i) {
    const ptx::Operand& gradient = op[2 + i];
    const bool braces = gradient.kind == ptx::Operand::kVector;
    if (braces ? gradient.parts.size() < shape.dimensions : shape.dimensions != 1) return false;
    for (uint32_t k = 0; k < shape.dimensions; ++k) {
      refs[kFirstGradient + 3 * i + k] =
          decoder.Source(braces ? gradient.parts[k] : gradient, ptx::Type::kF32);
    }
  }
  if (tells) {
    in.extra |= kResident;
    refs[kResidence] = decoder.DestinationPredicate(op[0].parts[1]);
  }
  if (shape.cube) in.extra |= kCube;
  in.extra |= static_cast<uint16_t>(shape.dimensions);
  if (shape.layered) in.extra |= kLayered;
  if (coordinate == ptx::Type::kS32) in.extra |= kIntegers;
  std::vector<std::vector<uint32_t>>& tables = decoder.function().tables;
  in.target = static_cast<uint32_t>(tables.size());
  tables.push_back(std::move(refs));
  return decoder.Emit(SampleTexture, in);
}

}  // namespace

bool DecodeTex(Decoder& decoder, Op& op) {
  Instr in;
  if (op.mods.Take("level")) in.extra = kLevel;
  if (op.mods.Take("grad")) in.extra |= kGradients;
  // The level is either given or computed.
  if (in.extra == (kLevel | kGradients)) return false;
  return DecodeSample(decoder, op, in);
}

bool DecodeTld4(Decoder& decoder, Op& op) {
  constexpr std::string_view kChannels[] = {"r", "g", "b", "a"};
  Instr in;
  in.extra = kGather;
  in.imm = -1;
  for (int i = 0; i < 4 && in.imm < 0; ++i) {
    if (op.mods.Take(kChannels[i])) in.imm = i;
  }
  return in.imm >= 0 && (op.mods.Has("2d") || op.mods.Has("a2d")) && DecodeSample(decoder, op, in);
}

bool DecodeTxq(Decoder& decoder, Op& op) { return DecodeQuery(decoder, op, Query<false>); }
bool DecodeSuq(Decoder& decoder, Op& op) { return DecodeQuery(decoder, op, Query<true>); }

}  // namespace gpuloom::softgpu
