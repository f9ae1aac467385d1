// The wire's version. A server accepts every minor up to its own of its own major (pods keep the
// shim they were started with while the node is upgraded); another major is refused with a message.
//
// Rules for a change: append commands to AllCommands and fields to the end of structs, raise
// kWireMinor, and update tests/golden/wire_layout.txt in the same commit. Anything else is a new
// major.
#pragma once

#include <cstdint>

namespace gpuloom::wire {

inline constexpr uint16_t kWireMajor = 1;
inline constexpr uint16_t kWireMinor = 2;

// True when a server of this build can serve a tenant that says (major, minor).
constexpr bool CanServe(uint16_t major_untrusted, uint16_t minor_untrusted) {
  return major_untrusted == kWireMajor && minor_untrusted <= kWireMinor;
}

}  // namespace gpuloom::wire
