// SPDX-License-Identifier: Apache-2.0
// tensormap: changes maps of tensors in memory, field by field, and publishes them.
#include <cstddef>
#include <cstring>

#include "agent/softgpu/exec/decode/bulk.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/tensor_map.h"

namespace gpuloom::softgpu {
namespace {

constexpr uint32_t kMapBytes = 128;

// The fields that .replace can change, by the names of the modifiers.
enum Field : uint8_t {
  kAddress,
  kRank,
  kBoxDimension,
  kDimension,
  kStride,
  kElementStride,
  kElementType,
  kInterleave,
  kSwizzle,
  kFill,
};

struct FieldFacts {
  std::string_view name;
  Field field;
  bool is_wide;       // 64 bits
  uint32_t ordinals;  // 0: there is one of it
};
constexpr FieldFacts kFields[] = {
    {"global_address", kAddress, true, 0},
    {"rank", kRank, false, 0},
    {"box_dim", kBoxDimension, false, kMaxTensorRank},
    {"global_dim", kDimension, false, kMaxTensorRank},
    {"global_stride", kStride, true, kMaxTensorRank - 1},
    {"element_stride", kElementStride, false, kMaxTensorRank},
    {"elemtype", kElementType, false, 0},
    {"interleave_layout", kInterleave, false, 0},
    {"swizzle_mode", kSwizzle, false, 0},
    {"fill_mode", kFill, false, 0},
};

// PTX counts the types of elements in another order than the driver's interface.
constexpr TensorMap::Type kTypes[] = {
    TensorMap::kU8,          TensorMap::kU16, TensorMap::kU32,  TensorMap::kS32,
    TensorMap::kU64,         TensorMap::kS64, TensorMap::kF16,  TensorMap::kF32,
    TensorMap::kF32Flushed,  TensorMap::kF64, TensorMap::kBf16, TensorMap::kTf32,
    TensorMap::kTf32Flushed,
};

// Values that no map may have stay visible as such: a copy refuses them.
template <class T>
T Narrow(uint64_t value) {
  const auto narrow = static_cast<T>(value);
  return narrow == value ? narrow : T{0};
}

// `ordinal`: of which dimension. Whatever does not fit becomes a value that IsUsable() of tensor.cc
// refuses.
void Set(TensorMap* map, Field field, uint32_t ordinal, uint64_t value) {
  constexpr uint8_t kNone = 0xff;
  switch (field) {
    case kAddress:
      map->address = value;
      break;
    case kRank:
      // PTX counts ranks from 0.
      map->rank = Narrow<uint8_t>(value + 1);
      break;
    case kBoxDimension:
      map->box[ordinal] = Narrow<uint16_t>(value);
      break;
    case kDimension:
      map->dimensions[ordinal] = value;
      break;
    case kStride:
      map->strides[ordinal] = value;
      break;
    case kElementStride:
      map->element_strides[ordinal] = Narrow<uint8_t>(value);
      break;
    case kElementType:
      map->type = value < std::size(kTypes) ? uint8_t{kTypes[value]} : kNone;
      break;
    case kInterleave:
      map->interleave = value > 2 ? kNone : static_cast<uint8_t>(value);
      break;
    case kSwizzle:
      map->swizzle = value > 3 ? kNone : static_cast<uint8_t>(value);
      break;
    case kFill:
      map->fills_with_nan = value != 0 ? 1 : 0;
      break;
  }
}

// b: the value; extra: the Field; e: which one; target: the value is of 64 bits. A map of zeros is
// one to begin with, so the mark of a map is written each time.
Step Replace(Warp& warp, const Instr& in) {
  const auto space = static_cast<ptx::Space>(in.flags & kSpaceMask);
  for (uint32_t rest = warp.exec; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const uint64_t address =
        warp.AddressOf(in.a, (in.flags & kAddress32) != 0, lane) + static_cast<uint64_t>(in.imm);
    if (address % kMapBytes != 0) {
      return warp.Fault(Outcome::kMisaligned, address, "a tensor map");
    }
    std::byte* const at = warp.PointerFor(lane, space, address, kMapBytes, true);
    if (at == nullptr) {
      return warp.Fault(Outcome::kIllegalAddress, address, "a tensor map outside of memory");
    }
    TensorMap map;
    std::memcpy(&map, at, sizeof(map));
    map.magic = TensorMap::kMagic;
    const uint64_t value =
        in.target != 0 ? warp.Source<uint64_t>(in.b)[lane] : warp.Source<uint32_t>(in.b)[lane];
    Set(&map, static_cast<Field>(in.extra), in.e, value);
    std::memcpy(at, &map, sizeof(map));
  }
  return Step::kNext;
}

// tensormap.cp_fenceproxy: copies a map from shared to global memory. The table: two addresses.
Step Publish(Warp& warp, const Instr& in) {
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  for (uint32_t rest = warp.exec; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const TableAddress to = AddressIn(warp, refs.data(), lane);
    const TableAddress from = AddressIn(warp, refs.data() + kAddressWords, lane);
    std::byte* const at = warp.PointerFor(lane, to.space, to.address, kMapBytes, true);
    const std::byte* const source =
        warp.PointerFor(lane, from.space, from.address, kMapBytes, false);
    if (at == nullptr || source == nullptr) {
      return warp.Fault(Outcome::kIllegalAddress, at == nullptr ? to.address : from.address,
                        "a tensor map outside of memory");
    }
    // There is only one memory here, so the copy is all there is to publishing.
    std::memmove(at, source, kMapBytes);
  }
  return Step::kNext;
}

bool DecodeReplace(Decoder& decoder, Op& op) {
  if (!op.mods.Take("tile")) return false;
  const FieldFacts* facts = nullptr;
  op.mods.TakeFirst([&](std::string_view part) {
    for (const FieldFacts& one : kFields) {
      if (one.name == part) facts = &one;
    }
    return facts != nullptr;
  });
  ptx::Space space = ptx::Space::kGeneric;
  if (op.mods.Take("global"))
    space = ptx::Space::kGlobal;
  else if (op.mods.Take("shared::cta"))
    space = ptx::Space::kShared;
  if (facts == nullptr || !op.mods.Take("b1024") || !op.mods.Take(facts->is_wide ? "b64" : "b32")) {
    return false;
  }
  const bool counts = facts->ordinals != 0;
  if (op.count() != (counts ? 3u : 2u)) return false;
  Instr in;
  in.extra = facts->field;
  in.target = facts->is_wide ? 1 : 0;
  if (counts) {
    if (op[1].kind != ptx::Operand::kInt || op[1].bits >= facts->ordinals) return false;
    in.e = static_cast<uint32_t>(op[1].bits);
  }
  in.b = decoder.Source(op[counts ? 2 : 1], facts->is_wide ? 8 : 4);
  return decoder.Address(op[0], space, &in) && decoder.Emit(Replace, in);
}

}  // namespace

bool DecodeTensormap(Decoder& decoder, Op& op) {
  if (op.mods.Take("replace")) return DecodeReplace(decoder, op);
  for (const char* part : {"cp_fenceproxy", "global", "shared::cta", "tensormap::generic",
                           "release", "sync", "aligned"}) {
    if (!op.mods.Take(part)) return false;
  }
  if (op.mods.TakeOneOf({"cta", "cluster", "gpu", "sys"}).empty() || op.count() != 3 ||
      op[2].kind != ptx::Operand::kInt || op[2].bits != kMapBytes) {
    return false;
  }
  Instr in;
  std::vector<uint32_t> refs;
  if (!AddAddress(decoder, op[0], ptx::Space::kGlobal, &refs) ||
      !AddAddress(decoder, op[1], ptx::Space::kShared, &refs)) {
    return false;
  }
  std::vector<std::vector<uint32_t>>& tables = decoder.function().tables;
  in.target = static_cast<uint32_t>(tables.size());
  tables.push_back(std::move(refs));
  // All lanes of the warp take part.
  return EmitSyncWarp(decoder) && decoder.Emit(Publish, in);
}

}  // namespace gpuloom::softgpu
