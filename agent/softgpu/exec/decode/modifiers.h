// SPDX-License-Identifier: Apache-2.0
// The parts of an opcode behind its name: ".rn", ".ftz", ".f32" of "add.rn.ftz.f32". A decoder
// takes those that it understands; an instruction with parts left over is not supported. Plain
// value of views into the PTX text, which must outlive it; used on the loading thread.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "agent/softgpu/ptx/types.h"

namespace gpuloom::softgpu {

class Modifiers {
 public:
  // For "add.rn.f32", name() is "add". A leading dot, which no instruction has, gives an empty
  // name.
  explicit Modifiers(std::string_view opcode) {
    name_ = Cut(&opcode);
    while (!opcode.empty()) parts_.push_back(Cut(&opcode));
  }

  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] bool empty() const { return parts_.empty(); }
  [[nodiscard]] bool Has(std::string_view part) const {
    for (const std::string_view p : parts_) {
      if (p == part) return true;
    }
    return false;
  }
  bool Take(std::string_view part) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i] != part) continue;
      parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    return false;
  }
  // Takes the one of `parts` that is there; an empty view if there is none.
  std::string_view TakeOneOf(std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts) {
      if (Take(part)) return part;
    }
    return {};
  }
  // Takes every part that begins with `prefix` ("L1::", "L2::"). Returns whether there was one.
  bool TakePrefixed(std::string_view prefix) {
    bool taken = false;
    for (size_t i = 0; i < parts_.size();) {
      if (!parts_[i].starts_with(prefix)) {
        ++i;
        continue;
      }
      parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(i));
      taken = true;
    }
    return taken;
  }
  // Takes the first part for which `known` returns true.
  template <class F>
  bool TakeFirst(F known) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!known(parts_[i])) continue;
      parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    return false;
  }
  // Takes the first type.
  ptx::Type TakeType() {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const ptx::Type type = ptx::FindType(parts_[i]);
      if (type == ptx::Type::kNone) continue;
      parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(i));
      return type;
    }
    return ptx::Type::kNone;
  }

 private:
  static std::string_view Cut(std::string_view* text) {
    const size_t dot = text->find('.');
    const std::string_view part = text->substr(0, dot);
    *text = dot == std::string_view::npos ? std::string_view() : text->substr(dot + 1);
    return part;
  }

  std::string_view name_;
  std::vector<std::string_view> parts_;
};

}  // namespace gpuloom::softgpu
