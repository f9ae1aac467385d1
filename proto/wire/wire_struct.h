// SPDX-License-Identifier: Apache-2.0
// The types that may be in shared memory or in a message: plain, of fixed size, without padding that could leak data or
// differ.
#pragma once

#include <type_traits>

namespace gpuloom::wire {

// Floats have no unique representation and are refused along with padding: send their bits.
template <typename T>
concept WireStruct = std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T> &&
    (std::is_empty_v<T> || std::has_unique_object_representations_v<T>);

}  // namespace gpuloom::wire
