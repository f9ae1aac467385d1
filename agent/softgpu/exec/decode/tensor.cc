// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk.tensor and its kin: boxes of a tensor that a map describes, to and from shared
// memory. Done at once, and reported at once.
#include <algorithm>
#include <cstring>

#include "agent/softgpu/exec/decode/bulk.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/tensor_map.h"

namespace gpuloom::softgpu {
namespace {

// A CUtensorMap has 128 bytes; a box begins at a multiple of 128 bytes of shared memory, and of 16
// bytes in the tensor.
constexpr uint32_t kMapBytes = 128;
constexpr uint32_t kSharedAlignment = 128;
constexpr int64_t kPlaceBytes = 16;

// Indexed by TensorMap::Type.
struct ElementFacts {
  uint32_t bytes;
  ptx::Type type;  // as which elements are added
  uint64_t nan;    // that hardware fills with; 0: there is none
};
constexpr ElementFacts kElements[] = {
    {1, ptx::Type::kNone, 0},
    {2, ptx::Type::kNone, 0},
    {4, ptx::Type::kU32, 0},
    {4, ptx::Type::kS32, 0},
    {8, ptx::Type::kU64, 0},
    {8, ptx::Type::kS64, 0},
    {2, ptx::Type::kF16, 0x7ff7},
    {4, ptx::Type::kF32, 0x7ff77ff7},
    {8, ptx::Type::kF64, 0x7ff77ff77ff77ff7},
    {2, ptx::Type::kBf16, 0x7ff7},
    {4, ptx::Type::kF32, 0x7ff77ff7},
    {4, ptx::Type::kF32, 0x7ff77ff7},
    {4, ptx::Type::kF32, 0x7ff77ff7},
};

// In the order of their numbers in Instr::imm.
constexpr std::string_view kReductions[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};

// Places in the table; the coordinates follow.
enum : uint32_t {
  kMap,
  kShared = kMap + kAddressWords,
  kBarrier = kShared + kAddressWords,
  kMask = kBarrier + kAddressWords,
  kCoordinates
};

// Instr::flags
constexpr uint8_t kLoads = 0x01;
constexpr uint8_t kMulticast = 0x02;

// Bits 7 and on of a shared address change the number of the 16 bytes within a span of 32, 64 or
// 128 bytes.
uint64_t Swizzled(uint64_t address, uint8_t swizzle) {
  return address ^ (((address >> 7) & ((uint64_t{1} << swizzle) - 1)) << 4);
}

// One box, of one lane. The fault is set when Copy returns false.
class Box {
 public:
  Box(Warp& warp, uint32_t lane, const TensorMap& map, const int32_t* coordinates)
      : warp_(warp),
        lane_(lane),
        map_(map),
        facts_(kElements[map.type]),
        coordinates_(coordinates) {
    // A stride between elements skips some of the box, so fewer are copied.
    for (uint32_t i = 0; i < map.rank; ++i) {
      counts_[i] = (map.box[i] + map.element_strides[i] - 1u) / map.element_strides[i];
      elements_ *= counts_[i];
    }
  }

  [[nodiscard]] uint32_t SizeBytes() const { return elements_ * facts_.bytes; }

  bool Load(uint64_t shared) {
    return ForEachElement(shared, false, [&](std::byte* inside, std::byte* at) {
      const uint64_t outside = map_.fills_with_nan != 0 ? facts_.nan : 0;
      std::memcpy(at, inside != nullptr ? inside : reinterpret_cast<const std::byte*>(&outside),
                  facts_.bytes);
    });
  }
  bool Store(uint64_t shared) {
    return ForEachElement(shared, true, [&](std::byte* inside, const std::byte* at) {
      if (inside != nullptr) std::memcpy(inside, at, facts_.bytes);
    });
  }
  bool Reduce(uint64_t shared, Reduction reduce) {
    return ForEachElement(shared, true, [&](std::byte* inside, const std::byte* at) {
      if (inside != nullptr) reduce(inside, at, nullptr);
    });
  }

 private:
  // f(the element in the tensor, or null outside of it; the element in shared memory). Each address
  // is checked by itself: a map that a kernel has made up reaches nothing that its loads and stores
  // could not. A box that is too large for shared memory ends at the first element outside.
  template <class F>
  bool ForEachElement(uint64_t shared, bool writes_tensor, F f) {
    if (shared % kSharedAlignment != 0) {
      warp_.Fault(Outcome::kMisaligned, shared, "a tensor copy is not of 128 aligned bytes");
      return false;
    }
    uint32_t index[kMaxTensorRank] = {};
    for (uint32_t number = 0; number < elements_; ++number) {
      uint64_t address = 0;
      const bool is_inside = AddressOf(index, &address);
      std::byte* inside = nullptr;
      if (is_inside) {
        inside = warp_.PointerFor(lane_, ptx::Space::kGlobal, address, facts_.bytes, writes_tensor);
        if (inside == nullptr) {
          warp_.Fault(Outcome::kIllegalAddress, address, "a tensor lies in memory that is gone");
          return false;
        }
      }
      // The swizzle works on addresses of shared memory, so it depends on where the box begins.
      const uint64_t place = Swizzled(shared + uint64_t{number} * facts_.bytes, map_.swizzle);
      std::byte* const at =
          warp_.PointerFor(lane_, ptx::Space::kShared, place, facts_.bytes, !writes_tensor);
      if (at == nullptr) {
        warp_.Fault(Outcome::kIllegalAddress, place, "a tensor copy outside of shared memory");
        return false;
      }
      f(inside, at);
      // The innermost dimension counts fastest.
      for (uint32_t i = 0; i < map_.rank && ++index[i] == counts_[i]; ++i) index[i] = 0;
    }
    return true;
  }

  // False outside of the tensor. The product may wrap around with a made-up map; then it is only
  // another address to check.
  bool AddressOf(const uint32_t* index, uint64_t* address) const {
    *address = map_.address;
    for (uint32_t i = 0; i < map_.rank; ++i) {
      const int64_t at = int64_t{coordinates_[i]} + int64_t{index[i]} * map_.element_strides[i];
      if (at < 0 || static_cast<uint64_t>(at) >= map_.dimensions[i]) return false;
      *address += static_cast<uint64_t>(at) * (i == 0 ? facts_.bytes : map_.strides[i - 1]);
    }
    return true;
  }

  Warp& warp_;
  uint32_t lane_;
  const TensorMap& map_;
  ElementFacts facts_;
  const int32_t* coordinates_;
  uint32_t counts_[kMaxTensorRank] = {};
  uint32_t elements_ = 1;
};

// The map may lie anywhere, and a kernel may have written it: nothing in it is trusted.
bool IsUsable(const TensorMap& map, uint32_t rank) {
  if (map.magic != TensorMap::kMagic || map.mode != TensorMap::kTiled || map.rank != rank ||
      map.interleave != 0 || map.type >= std::size(kElements) || map.swizzle > 3) {
    return false;
  }
  for (uint32_t i = 0; i < rank; ++i) {
    if (map.element_strides[i] == 0 || map.box[i] == 0 || map.box[i] > 256) return false;
  }
  return true;
}

// As hardware has it: at a multiple of 16 bytes in the innermost dimension; and what is stored may
// reach beyond the tensor's end, but not begin before its beginning.
bool CanBeginAt(const TensorMap& map, const int32_t* coordinates, bool loads) {
  if (int64_t{coordinates[0]} * kElements[map.type].bytes % kPlaceBytes != 0) return false;
  return loads ||
         std::none_of(coordinates, coordinates + map.rank, [](int32_t at) { return at < 0; });
}

// extra: the rank; imm: 0 to copy, else 1 + the number of the reduction in kReductions.
Step CopyTensor(Warp& warp, const Instr& in) {
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  for (uint32_t rest = warp.exec; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const TableAddress map_at = AddressIn(warp, &refs[kMap], lane);
    const std::byte* const bytes =
        warp.PointerFor(lane, map_at.space, map_at.address, kMapBytes, false);
    if (bytes == nullptr) {
      return warp.Fault(Outcome::kIllegalAddress, map_at.address, "a tensor map outside of memory");
    }
    // A copy: the map may be changed by other blocks while this one works.
    TensorMap map;
    std::memcpy(&map, bytes, sizeof(map));
    if (!IsUsable(map, in.extra)) {
      return warp.Fault(Outcome::kIllegalInstruction, map_at.address,
                        "what a tensor copy was given is no map of its rank and kind");
    }
    int32_t coordinates[kMaxTensorRank] = {};
    for (uint32_t i = 0; i < in.extra; ++i) {
      coordinates[i] = warp.Source<int32_t>(refs[kCoordinates + i])[lane];
    }
    if (!CanBeginAt(map, coordinates, (in.flags & kLoads) != 0)) {
      return warp.Fault(Outcome::kIllegalInstruction, map_at.address,
                        "a tensor copy begins between two multiples of 16 bytes, or stores before "
                        "the tensor's beginning");
    }
    Box box(warp, lane, map, coordinates);
    const uint64_t shared = AddressIn(warp, &refs[kShared], lane).address;
    if ((in.flags & kLoads) == 0) {
      Reduction reduce = nullptr;
      // Looked up here and not when the module is loaded: the elements' type is the map's.
      if (in.imm != 0) {
        reduce =
            FindReduction(kElements[map.type].type, kReductions[in.imm - 1], ptx::Space::kGlobal);
        if (reduce == nullptr) {
          return warp.Fault(Outcome::kIllegalInstruction, map_at.address,
                            "a tensor of these elements has no such reduction");
        }
      }
      if (reduce != nullptr ? !box.Reduce(shared, reduce) : !box.Store(shared)) return Step::kFault;
      continue;
    }
    const uint64_t barrier = AddressIn(warp, &refs[kBarrier], lane).address;
    if ((in.flags & kMulticast) == 0) {
      if (!box.Load(shared) || !Report(warp, lane, barrier, box.SizeBytes())) return Step::kFault;
      continue;
    }
    // Each block in the mask gets the box at the same offset, and a report at its own barrier.
    const uint32_t mask = warp.Source<uint16_t>(refs[kMask])[lane];
    for (uint32_t rank = 0; rank < 16; ++rank) {
      if (((mask >> rank) & 1) == 0) continue;
      if (!box.Load(AddressOfRank(shared, rank)) ||
          !Report(warp, lane, AddressOfRank(barrier, rank), box.SizeBytes())) {
        return Step::kFault;
      }
    }
  }
  return Step::kNext;
}

Step Nothing(Warp&, const Instr&) { return Step::kNext; }

// [map, {coordinates}]
bool AddMap(Decoder& decoder, const ptx::Operand& operand, uint32_t rank,
            std::vector<uint32_t>* refs, std::vector<uint32_t>* coordinates) {
  if (operand.kind != ptx::Operand::kAddress || operand.parts.size() != 1) return false;
  const ptx::Operand& place = operand.parts[0];
  if (place.kind != ptx::Operand::kVector || place.parts.size() != rank) return false;
  for (const ptx::Operand& part : place.parts) coordinates->push_back(decoder.Source(part, 4));
  return AddAddress(decoder, operand, ptx::Space::kGeneric, refs);
}

}  // namespace

bool DecodeTensorCopy(Decoder& decoder, Op& op, bool reduces) {
  const std::string_view rank_name = op.mods.TakeOneOf({"1d", "2d", "3d", "4d", "5d"});
  if (rank_name.empty()) return false;
  const auto rank = static_cast<uint32_t>(rank_name[0] - '0');
  op.mods.Take("tile");
  const bool hinted = op.mods.Take("L2::cache_hint");  // a policy behind everything else
  const size_t hints = hinted ? 1 : 0;
  std::vector<uint32_t> refs;
  std::vector<uint32_t> coordinates;
  Instr in;
  in.extra = static_cast<uint16_t>(rank);
  if (op.mods.Take("prefetch")) {
    return !reduces && op.mods.Take("L2") && op.mods.Take("global") && op.count() == 1 + hints &&
           AddMap(decoder, op[0], rank, &refs, &coordinates) && decoder.Emit(Nothing, Instr());
  }
  if (op.mods.Take("mbarrier::complete_tx::bytes")) {
    in.flags |= kLoads;
    if (op.mods.Take("multicast::cluster")) in.flags |= kMulticast;
    const bool multicast = (in.flags & kMulticast) != 0;
    if (reduces || !op.mods.TakePrefixed("shared") || !op.mods.Take("global") ||
        op.count() != 3 + (multicast ? 1 : 0) + hints ||
        !AddMap(decoder, op[1], rank, &refs, &coordinates) ||
        !AddAddress(decoder, op[0], ptx::Space::kShared, &refs) ||
        !AddAddress(decoder, op[2], ptx::Space::kShared, &refs)) {
      return false;
    }
    refs.push_back(multicast ? decoder.Source(op[3], 2) : 0);
  } else {
    if (!op.mods.Take("bulk_group") || !op.mods.Take("global") || !op.mods.Take("shared::cta") ||
        op.count() != 2 + hints || !AddMap(decoder, op[0], rank, &refs, &coordinates) ||
        !AddAddress(decoder, op[1], ptx::Space::kShared, &refs)) {
      return false;
    }
    refs.insert(refs.end(), {0, 0, 0, 0});  // no barrier, no mask
    if (reduces) {
      // It reads and writes global memory that other blocks may add to.
      decoder.KeepsOrder();
      for (size_t i = 0; i < std::size(kReductions) && in.imm == 0; ++i) {
        if (op.mods.Take(kReductions[i])) in.imm = static_cast<int64_t>(i) + 1;
      }
      if (in.imm == 0) return false;
    }
  }
  refs.insert(refs.end(), coordinates.begin(), coordinates.end());
  std::vector<std::vector<uint32_t>>& tables = decoder.function().tables;
  in.target = static_cast<uint32_t>(tables.size());
  tables.push_back(std::move(refs));
  return decoder.Emit(CopyTensor, in);
}

}  // namespace gpuloom::softgpu
