// SPDX-License-Identifier: Apache-2.0
// Surfaces by handle or reference: suld.b, sust.b and sured.b. The operands do not fit into an
// Instr, so they lie in a table of the function. x counts bytes.
#include <cstring>

#include "agent/softgpu/exec/decode/bulk.h"
#include "agent/softgpu/exec/decode/image.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

// Instr::extra: dimensions in the lowest two bits, then what happens outside (.trap, .clamp,
// .zero).
constexpr uint16_t kDimensions = 0x03;
constexpr uint16_t kLayered = 0x04;
constexpr uint16_t kTrap = 0x08;
constexpr uint16_t kClamp = 0x10;  // neither: zero

// Places in the table. Registers of values differ in width, so their sizes are stored, too.
enum Operand : uint32_t {
  kHandle,
  kFirstAt,  // three
  kLayer = kFirstAt + 3,
  kComponents,                    // how many
  kFirstValue,                    // four
  kFirstBytes = kFirstValue + 4,  // the size of each register
  kOperands = kFirstBytes + 4
};

enum class Where { kInside, kOutside, kFault };

// The bytes that one lane means.
Where Locate(const Image& image, const Instr& in, const std::vector<uint32_t>& refs, Warp& warp,
             uint32_t lane, uint32_t size_bytes, uint64_t* address) {
  const uint32_t dimensions = in.extra & kDimensions;
  // Signed: what lies before the surface is outside as well.
  const auto coordinate = [&](uint32_t i) -> int64_t {
    return warp.Source<int32_t>(refs[kFirstAt + i])[lane];
  };
  int64_t x = coordinate(0);
  int64_t y = dimensions > 1 ? coordinate(1) : 0;
  int64_t z = dimensions > 2 ? coordinate(2) : 0;
  if ((in.extra & kLayered) != 0) z = warp.Source<uint32_t>(refs[kLayer])[lane];
  const int64_t width_bytes = int64_t{image.width} * image.element_bytes;
  // Without a sum that could wrap around.
  const auto inside = [](int64_t at, int64_t size, int64_t whole) {
    return at >= 0 && size <= whole && at <= whole - size;
  };
  if (!inside(x, size_bytes, width_bytes) || !inside(y, 1, image.height) ||
      !inside(z, 1, image.depth)) {
    if ((in.extra & kTrap) != 0) {
      warp.Fault(Outcome::kTrap, image.begin, "a surface access outside of its surface");
      return Where::kFault;
    }
    // Clamping moves the access to the nearest element that is there; one that is wider than a row
    // has no such.
    if ((in.extra & kClamp) == 0 || width_bytes < size_bytes) return Where::kOutside;
    const auto clamp = [](int64_t at, int64_t last) { return at < 0 ? 0 : at > last ? last : at; };
    x = clamp(x, width_bytes - size_bytes);
    y = clamp(y, image.height - 1);
    z = clamp(z, image.depth - 1);
  }
  // PTX wants x to be a multiple of the access's size.
  if (x % size_bytes != 0) {
    warp.Fault(Outcome::kMisaligned, static_cast<uint64_t>(x), "a surface access at an odd place");
    return Where::kFault;
  }
  *address = image.begin + static_cast<uint64_t>(z) * image.slice_bytes +
             static_cast<uint64_t>(y) * image.pitch_bytes + static_cast<uint64_t>(x);
  return Where::kInside;
}

void Put(Warp& warp, Ref ref, uint32_t register_bytes, uint32_t lane, uint64_t value) {
  switch (register_bytes) {
    case 1:
      warp.Destination<uint8_t>(ref)[lane] = static_cast<uint8_t>(value);
      break;
    case 2:
      warp.Destination<uint16_t>(ref)[lane] = static_cast<uint16_t>(value);
      break;
    case 4:
      warp.Destination<uint32_t>(ref)[lane] = static_cast<uint32_t>(value);
      break;
    default:
      warp.Destination<uint64_t>(ref)[lane] = value;
  }
}

// imm: bytes of a component.
template <bool kStore>
Step Access(Warp& warp, const Instr& in) {
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  const uint64_t* handles = warp.Source<uint64_t>(refs[kHandle]);
  const GridRun& run = warp.block().run();
  const auto bytes = static_cast<uint32_t>(in.imm);
  const uint32_t components = refs[kComponents];
  std::shared_ptr<const Image> surface;
  uint64_t known = 0;
  for (uint32_t rest = warp.exec; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    // The lanes of a warp mostly use one surface: it is looked up when the handle changes. Holding
    // it keeps the image as it is.
    if (surface == nullptr || handles[lane] != known) {
      known = handles[lane];
      surface = run.FindSurface(known);
      if (surface == nullptr) {
        return warp.Fault(Outcome::kIllegalAddress, known,
                          "a handle that is no surface, or a reference without one");
      }
    }
    uint64_t address = 0;
    const Where where = Locate(*surface, in, refs, warp, lane, bytes * components, &address);
    if (where == Where::kFault) return Step::kFault;
    std::byte* at = nullptr;
    if (where == Where::kInside) {
      // The image may have been unmapped, so its addresses are checked like any other.
      at = warp.PointerFor(lane, ptx::Space::kGlobal, address, bytes * components, kStore);
      if (at == nullptr) {
        return warp.Fault(Outcome::kIllegalAddress, address, "a surface of memory that is gone");
      }
    }
    for (uint32_t i = 0; i < components; ++i) {
      const Ref ref = refs[kFirstValue + i];
      const uint32_t register_bytes = refs[kFirstBytes + i];
      uint64_t value = 0;
      if constexpr (kStore) {
        // Stores outside vanish, and loads give 0.
        if (at == nullptr) continue;
        value = warp.SourceBits(ref, register_bytes, lane);
        std::memcpy(at + size_t{i} * bytes, &value, bytes);
      } else {
        if (at != nullptr) std::memcpy(&value, at + size_t{i} * bytes, bytes);
        Put(warp, ref, register_bytes, lane, value);
      }
    }
  }
  return Step::kNext;
}

// imm: the Reduction. A surface in global memory is changed as global memory is.
Step Reduce(Warp& warp, const Instr& in) {
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  const uint64_t* handles = warp.Source<uint64_t>(refs[kHandle]);
  const uint32_t bytes = refs[kFirstBytes];
  for (uint32_t rest = warp.exec; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const auto surface = warp.block().run().FindSurface(handles[lane]);
    if (surface == nullptr) {
      return warp.Fault(Outcome::kIllegalAddress, handles[lane], "a handle that is no surface");
    }
    uint64_t address = 0;
    const Where where = Locate(*surface, in, refs, warp, lane, bytes, &address);
    if (where == Where::kFault) return Step::kFault;
    if (where == Where::kOutside) continue;
    std::byte* const at = warp.PointerFor(lane, ptx::Space::kGlobal, address, bytes, true);
    if (at == nullptr) {
      return warp.Fault(Outcome::kIllegalAddress, address, "a surface of memory that is gone");
    }
    const std::byte* const value = warp.Source<std::byte>(refs[kFirstValue]) + size_t{lane} * bytes;
    reinterpret_cast<Reduction>(in.imm)(at, value, nullptr);
  }
  return Step::kNext;
}

// The operand [handle, {coordinates}].
bool TakeAddress(Decoder& decoder, const ptx::Operand& operand, const ImageShape& shape,
                 std::vector<uint32_t>* refs) {
  ImageOperands at;
  if (!ImageOperandsOf(decoder, operand, shape, &at)) return false;
  (*refs)[kHandle] = at.handle;
  for (uint32_t i = 0; i < shape.dimensions; ++i) {
    (*refs)[kFirstAt + i] = decoder.Source(*at.coordinates[i], 4);
  }
  if (shape.layered) (*refs)[kLayer] = decoder.Source(*at.layer, 4);
  return true;
}

// `outside`: the modifier for places outside of the image; .trap if none is given.
bool EmitWith(Decoder& decoder, Handler run, int64_t imm, const ImageShape& shape,
              std::string_view outside, std::vector<uint32_t> refs) {
  Instr in;
  in.imm = imm;
  in.extra = static_cast<uint16_t>(shape.dimensions);
  if (shape.layered) in.extra |= kLayered;
  if (outside == "clamp") in.extra |= kClamp;
  if (outside.empty() || outside == "trap") in.extra |= kTrap;
  std::vector<std::vector<uint32_t>>& tables = decoder.function().tables;
  in.target = static_cast<uint32_t>(tables.size());
  tables.push_back(std::move(refs));
  return decoder.Emit(run, in);
}

// sured: an atomic operation on the element, without a result.
bool DecodeReduction(Decoder& decoder, Op& op) {
  ImageShape shape;
  if (!op.mods.Take("b") || !TakeShape(op.mods, &shape) || shape.cube || op.count() != 2) {
    return false;
  }
  const std::string_view what = op.mods.TakeOneOf({"add", "min", "max", "and", "or"});
  const std::string_view outside = op.mods.TakeOneOf({"trap", "clamp", "zero"});
  const ptx::Type type = op.mods.TakeType();
  if (what.empty() || ptx::IsFloat(type)) return false;
  const Reduction reduce = FindReduction(type, what, ptx::Space::kGlobal);
  if (reduce == nullptr) return false;
  std::vector<uint32_t> refs(kOperands, 0);
  if (!TakeAddress(decoder, op[0], shape, &refs)) return false;
  refs[kFirstBytes] = ptx::SizeBytes(type);
  refs[kFirstValue] = decoder.Source(op[1], type);
  return EmitWith(decoder, Reduce, reinterpret_cast<int64_t>(reduce), shape, outside,
                  std::move(refs));
}

bool DecodeAccess(Decoder& decoder, Op& op, bool store) {
  ImageShape shape;
  if (!op.mods.Take("b") || !TakeShape(op.mods, &shape) || shape.cube || op.count() != 2) {
    return false;
  }
  const std::string_view vector = op.mods.TakeOneOf({"v2", "v4"});
  const std::string_view outside = op.mods.TakeOneOf({"trap", "clamp", "zero"});
  const ptx::Type type = op.mods.TakeType();
  if (type != ptx::Type::kB8 && type != ptx::Type::kB16 && type != ptx::Type::kB32 &&
      type != ptx::Type::kB64) {
    return false;
  }
  // As many registers as the vector has, however wide they are.
  const uint32_t components = vector.empty() ? 1 : static_cast<uint32_t>(vector[1] - '0');
  const uint32_t bytes = ptx::SizeBytes(type);
  if (bytes * components > 16) return false;
  op.mods.TakeOneOf({"ca", "cg", "cs", "cv", "wb", "wt"});
  std::vector<uint32_t> refs(kOperands, 0);
  if (!TakeAddress(decoder, op[store ? 0 : 1], shape, &refs)) return false;
  const ptx::Operand& values = op[store ? 1 : 0];
  const bool braces = values.kind == ptx::Operand::kVector;
  if (braces ? values.parts.size() != components : components != 1) return false;
  refs[kComponents] = components;
  for (uint32_t i = 0; i < components; ++i) {
    const ptx::Operand& value = braces ? values.parts[i] : values;
    refs[kFirstValue + i] = store ? decoder.LooseSource(value, type, &refs[kFirstBytes + i])
                                  : decoder.LooseDestination(value, bytes, &refs[kFirstBytes + i]);
  }
  return EmitWith(decoder, store ? Access<true> : Access<false>, bytes, shape, outside,
                  std::move(refs));
}

}  // namespace

bool DecodeSuld(Decoder& decoder, Op& op) { return DecodeAccess(decoder, op, false); }
bool DecodeSust(Decoder& decoder, Op& op) { return DecodeAccess(decoder, op, true); }
bool DecodeSured(Decoder& decoder, Op& op) { return DecodeReduction(decoder, op); }

}  // namespace gpuloom::softgpu
