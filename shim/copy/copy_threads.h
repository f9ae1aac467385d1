// SPDX-License-Identifier: Apache-2.0
// Threads that help a thread of the program with a large copy. They start with the first call that could use them, at
// most kMostCopyThreads, leaving a processor each to the caller and the executor: with few processors there are none,
// and callers work alone. They end with the process.
//
// One call is helped at a time; concurrent callers work alone, since several threads are copying then anyway. A helper
// stays awake for some time after helping, because copies come in series and waking takes long; then it sleeps.
//
//   struct Sum { void Add(); … };  // Add: takes pieces until none is left
//   DoTogether([](void* sum) { static_cast<Sum*>(sum)->Add(); }, &sum, Help::kWake);
//
// Safe from any thread.
#pragma once

#include <cstdint>

namespace gpuloom {

inline constexpr uint32_t kMostCopyThreads = 3;

// Which helpers a call uses: none, those that are awake, or all. Waking costs the caller some microseconds.
enum class Help { kNone, kAwake, kWake };

// Calls `part(context)` here and on helpers that join before it returns here; returns when all calls have returned.
void DoTogether(void (*part)(void* context), void* context, Help help);

// Returns true if there will never be a helper. Call it for large copies only: it starts them.
bool CopiesAlone();

}  // namespace gpuloom
