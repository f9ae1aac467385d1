// SPDX-License-Identifier: Apache-2.0
// Cat("a", 1, view): absl::StrCat that also takes std::string_view. Debian builds absl with a string_view of its
// own, which std::string_view does not convert to. Pure; safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace gpuloom {

template <typename T>
decltype(auto) CatPiece(const T& piece) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return absl::string_view(piece.data(), piece.size());
  } else {
    return (piece);
  }
}

template <typename... Pieces>
std::string Cat(const Pieces&... pieces) {
  return absl::StrCat(CatPiece(pieces)...);
}

}  // namespace gpuloom
