// SPDX-License-Identifier: Apache-2.0
// The frame around a case. It uses few instructions and simple ones: a mistake in those would show
// in every case.
#include "agent/softgpu/exec/cases/instruction_cases.h"

#include <string_view>

namespace gpuloom::softgpu {
namespace {

// What a case finds: variables to name, functions to call (one that recurses as deep as its
// argument says, two that are called through `functions`), inputs in registers of each size, and a
// result that tells whether it was written. %d9 lies kCommonBytes behind %d8, and kScratchBytes
// from lane to lane. %p0 begins as false by a comparison that is false in every lane.
constexpr std::string_view kBefore = R"(.version 8.6
.target sm_90
.address_size 64
.global .align 8 .u64 answer = 42;
.global .align 8 .u64 pointer = generic(answer);
.const .align 4 .u32 table[4] = {10, 20, 30, 40};
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 out) twice(.param .b32 x)
{
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [x];
  add.u32 %r2, %r1, %r1;
  st.param.b32 [out], %r2;
  ret;
}
.func (.param .b32 out) triple(.param .b32 x)
{
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [x];
  mul.lo.u32 %r2, %r1, 3;
  st.param.b32 [out], %r2;
  ret;
}
.func (.param .b32 out) factorial(.param .b32 x)
{
  .reg .b32 %r<5>;
  .reg .pred %p;
  ld.param.u32 %r1, [x];
  mov.u32 %r3, 1;
  setp.lt.u32 %p, %r1, 2;
  @%p bra DONE;
  sub.u32 %r2, %r1, 1;
  {
    .param .b32 arg;
    .param .b32 result;
    st.param.b32 [arg], %r2;
    call (result), factorial, (arg);
    ld.param.b32 %r3, [result];
  }
  mul.lo.u32 %r3, %r3, %r1;
DONE:
  st.param.b32 [out], %r3;
  ret;
}
.global .align 8 .u64 functions[2] = {twice, triple};
.visible .entry test(.param .u64 inputs, .param .u64 results, .param .u64 scratch)
{
  .reg .b16 %h<40>;
  .reg .b32 %r<40>;
  .reg .b64 %d<40>;
  .reg .pred %p<20>;
  .reg .pred %guard;
  .reg .b32 %lane;
  .reg .b64 %at, %wide;
  .shared .align 16 .b8 shared[256];
  .local .align 16 .b8 local[64];
  ld.param.u64 %at, [inputs];
  cvta.to.global.u64 %at, %at;
  ld.global.u64 %d1, [%at];
  ld.global.u64 %d2, [%at+8];
  ld.global.u64 %d3, [%at+16];
  cvt.u32.u64 %r1, %d1;
  cvt.u32.u64 %r2, %d2;
  cvt.u32.u64 %r3, %d3;
  cvt.u16.u64 %h1, %d1;
  cvt.u16.u64 %h2, %d2;
  cvt.u16.u64 %h3, %d3;
  setp.ne.u64 %p1, %d1, 0;
  setp.ne.u64 %p2, %d2, 0;
  setp.ne.u64 %p3, %d3, 0;
  mov.u32 %lane, %laneid;
  mov.u32 %r9, %lane;
  ld.param.u64 %d8, [scratch];
  cvta.to.global.u64 %d8, %d8;
  mad.wide.u32 %d9, %lane, 64, %d8;
  add.u64 %d9, %d9, 256;
  mov.u64 %d0, 0x5a5a;
  mov.u32 %r0, 0x5a5a;
  mov.u16 %h0, 0x5a5a;
  setp.ne.u32 %p0, %lane, %lane;
  and.b32 %r10, %lane, 1;
  setp.eq.u32 %guard, %r10, 0;
)";

// The result is widened to 64 bits before this, so that all cases store alike.
constexpr std::string_view kAfter = R"(
  ld.param.u64 %at, [results];
  cvta.to.global.u64 %at, %at;
  mad.wide.u32 %at, %lane, 8, %at;
  st.global.u64 [%at], %wide;
  ret;
}
)";

}  // namespace

// By words of the text, which is enough for cases: a guard on a branch or a barrier would change
// what the program does, and a declaration or a label cannot have one.
bool CanBeGuarded(const Case& test) {
  const std::string_view text = test.text;
  for (const char* word : {"{ ", ":", "bar", "shfl", "vote", "match", "redux", "elect", "bra",
                           "call", "activemask", "mma", "matrix"}) {
    if (text.find(word) != std::string_view::npos) return false;
  }
  return test.want_of == nullptr && text.find('@') == std::string_view::npos;
}

// A case is one line; each instruction gets a line of its own.
std::string ProgramOf(const Case& test, bool guarded) {
  std::string text(kBefore);
  std::string_view rest = test.text;
  while (!rest.empty()) {
    const size_t end = rest.find(';');
    std::string_view one = rest.substr(0, end == std::string_view::npos ? rest.size() : end + 1);
    rest.remove_prefix(one.size());
    while (!one.empty() && one[0] == ' ') one.remove_prefix(1);
    if (one.empty()) continue;
    text.append(guarded ? "  @%guard " : "  ").append(one).append("\n");
  }
  switch (test.result) {
    case 'd':
      text += "  mov.u64 %wide, %d0;";
      break;
    case 'r':
      text += "  cvt.u64.u32 %wide, %r0;";
      break;
    case 'h':
      text += "  cvt.u64.u16 %wide, %h0;";
      break;
    default:
      text += "  selp.u64 %wide, 1, 0, %p0;";
      break;
  }
  return text.append(kAfter);
}

}  // namespace gpuloom::softgpu
