// SPDX-License-Identifier: Apache-2.0
// What the names of a PTX text stand for while it is decoded. Plain values of views into the text,
// which must outlive them.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "agent/softgpu/ptx/syntax.h"

namespace gpuloom::softgpu {

struct Symbol {
  enum Kind : uint8_t {
    kNothing,
    kRegister,       // value: offset in the frame's registers
    kPredicate,      // value: number
    kGlobal,         // value: address in this process
    kShared,         // value: offset in shared memory
    kDynamicShared,  // behind the kernel's static shared memory, known at launch
    kFrame,          // value: offset in the running frame's local memory
    kParam,          // value: offset in the kernel's parameter block
    kFunction,       // value: index in the program
    kReference,      // value: the handle of a texture or surface reference
    kBranchTargets,  // value: index of the statement
    kPrototype,      // value: index of the statement
  };
  Kind kind = kNothing;
  ptx::Type type = ptx::Type::kNone;
  uint64_t value = 0;
  uint64_t size_bytes = 0;
};

// Names declared between one pair of braces.
struct Scope {
  struct Range {  // .reg .b32 %r<12>
    ptx::Type type = ptx::Type::kNone;
    uint32_t count = 0;
  };
  uint32_t id = 0;
  uint32_t frame_start = 0;  // end of the frame's variables when the scope began
  std::map<std::string_view, Symbol> names;
  std::map<std::string_view, Range> ranges;
};

}  // namespace gpuloom::softgpu
