// SPDX-License-Identifier: Apache-2.0
// Threads that help a thread of the program with a large copy. They start with the first call that could use them, at
// most kMostCopyThreads and so many that the caller and the executor keep a processor of their own: with
// few processors there is none, and callers work alone. They end with the process.
//
// One call is helped at a time; whoever comes meanwhile works alone, for then several threads are copying anyway.
// A helper stays awake for some time after it has helped, for copies come in rows and waking takes long, then it sleeps.
//
//   struct Sum { void Add(); … };  // Add: takes pieces until none is left
//   DoTogether([](void* sum) { static_cast<Sum*>(sum)->Add(); }, &sum, Help::kWake);
//
// Safe from any thread.
#pragma once

#include <cstdint>

namespace gpuloom {

inline constexpr uint32_t kMostCopyThreads = 3;

// Whom a call asks: nobody, who is awake, or everybody. Waking costs the caller some microseconds.
enum class Help { kNone, kAwake, kWake };

// Calls `part(context)` here and on the helpers that come before it returns here; returns when all have returned.
void DoTogether(void (*part)(void* context), void* context, Help help);

// True when there will never be a helper. To be asked for large copies only: it starts them.
bool CopiesAlone();

}  // namespace gpuloom
