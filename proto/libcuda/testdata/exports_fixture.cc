// SPDX-License-Identifier: Apache-2.0
// The untyped half of a library that exports the whole driver API: what exports.inc makes.
#include "proto/libcuda/exports.inc"

namespace gpuloom {
int OnUnsupported(SymbolId) { return 801; }
}  // namespace gpuloom
