// SPDX-License-Identifier: Apache-2.0
// What a random tenant loads. No kernel of the first ones touches memory that it was told of, and none runs
// long, whatever its parameters are: a tenant that writes anything into its ring still does its neighbours no
// harm that the design allows.
#pragma once

#include <string>
#include <vector>

namespace gpuloom::testing {

// Its kernels and variables are asked for by these names, and by ones that there are not.
inline constexpr const char* kHostileKernels[] = {"nothing", "spin", "count", "look", "none"};
inline constexpr const char* kHostileVariables[] = {"state", "shown", "picture", "none"};

inline constexpr char kHostileHead[] = ".version 7.0\n.target sm_70\n.address_size 64\n";

// Code alone, which tenants share: 200 us at most.
inline constexpr char kHostileCode[] = R"(
.visible .entry nothing() { ret; }
.visible .entry spin(.param .u64 ns) {
  .reg .pred %late;
  .reg .u64 %least, %begin, %now;
  ld.param.u64 %least, [ns];
  min.u64 %least, %least, 200000;
  mov.u64 %begin, %globaltimer;
AGAIN:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %late, %now, %least;
  @%late bra AGAIN;
  ret;
}
)";

inline constexpr char kHostileState[] = R"(
.visible .global .align 4 .u32 state = 7;
.visible .entry count() {
  .reg .u32 %value;
  atom.global.add.u32 %value, [state], 1;
  ret;
}
)";

inline constexpr char kHostileManaged[] = R"(
.visible .global .attribute(.managed) .align 4 .u32 shown;
.visible .entry count() {
  .reg .u32 %value;
  atom.global.add.u32 %value, [shown], 1;
  ret;
}
)";

inline constexpr char kHostilePicture[] = R"(
.global .texref picture;
.visible .entry nothing() { ret; }
)";

// A wild tenant's: writes where it is told to, or never ends.
inline constexpr char kHostileWild[] = R"(
.visible .entry spin(.param .u64 address) {
  .reg .u64 %where;
  ld.param.u64 %where, [address];
  st.global.u32 [%where], 1;
  ret;
}
.visible .entry nothing() {
  .reg .u64 %now;
AGAIN:
  mov.u64 %now, %globaltimer;
  bra AGAIN;
}
)";

// `number` makes one that nobody has loaded before.
inline std::vector<std::string> HostileImages(uint64_t number, bool wild) {
  const std::string head = kHostileHead;
  const std::string fresh = "\n//" + std::to_string(number) + "\n";
  std::vector<std::string> images = {head + kHostileCode,
                                     head + kHostileState,
                                     head + kHostileManaged,
                                     head + kHostilePicture,
                                     head + fresh + kHostileCode,
                                     head + fresh + kHostileState,
                                     head + ".visible .entry nothing() { no such instruction; }",
                                     head + ".extern .func f();\n" + fresh + kHostileCode,
                                     std::string("\x50\xed\x55\xba\x01\x00\x10\x00", 8) + fresh};
  if (wild) images.push_back(head + kHostileWild);
  return images;
}

}  // namespace gpuloom::testing
