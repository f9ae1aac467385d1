// SPDX-License-Identifier: Apache-2.0
// The control protocol's version. Agents, commands and schedulers of one major work together whatever their minors: an
// agent is replaced while the schedulers that it adopts keep running.
//
// Rules for a change: append messages to AllMessages and fields to the ends of structs, keep a struct's original size
// as its kShortestBytes, raise kControlMinor, and regenerate tests/golden/control_layout.txt in the same commit.
// Anything else is a new major.
//
//   A message shorter than ours        what is missing is zero; below kShortestBytes it is malformed
//   longer                             the rest is ignored
//   unknown                            refused with an Answer where one is expected, else ignored;
//                                      from an executor, which is confined, it ends that executor
//   another major                      Hello is refused with both versions and the next step
//
// Before 3.1 there were no minors: the version was one number, 3, in the four bytes of major and minor, and every
// message had to have exactly its size. So a peer of 3.0 is sent all messages as short as they were then.
#pragma once

#include <cstdint>
#include <string>

namespace gpuloom::control {

inline constexpr uint16_t kControlMajor = 3;
inline constexpr uint16_t kControlMinor = 8;

constexpr bool CanTalk(uint16_t major_untrusted) { return major_untrusted == kControlMajor; }

inline std::string VersionText(uint16_t major, uint16_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace gpuloom::control
