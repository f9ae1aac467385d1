// SPDX-License-Identifier: Apache-2.0
// The wire's version. A server accepts every minor up to its own within its major (pods keep the shim they were
// started with while the node is upgraded); another major is refused with a message.
//
// Rules for a change: append commands to AllCommands and fields to the end of structs, raise
// kWireMinor, and update tests/golden/wire_layout.txt in the same commit. Anything else is a new
// major.
#pragma once

#include <cstdint>

namespace gpuloom::wire {

inline constexpr uint16_t kWireMajor = 1;
inline constexpr uint16_t kWireMinor = 8;

// What a tenant of this build sends in Hello: the oldest minor whose servers know every command that it sends. So a
// scheduler that keeps running while its node is upgraded also serves new pods, whose library is newer; an older
// server ignores what a tenant appends to Hello, and does not send what a newer one appends to Welcome. It is raised
// when the shim needs a newer command in order to work.
inline constexpr uint16_t kNeededMinor = 2;
static_assert(kNeededMinor <= kWireMinor);

// Returns true if a server of this build can serve a tenant that sends (major, minor).
constexpr bool CanServe(uint16_t major_untrusted, uint16_t minor_untrusted) {
  return major_untrusted == kWireMajor && minor_untrusted <= kWireMinor;
}

}  // namespace gpuloom::wire
