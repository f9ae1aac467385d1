// SPDX-License-Identifier: Apache-2.0
// Programs that a tenant of the integration tests loads (tenant_main.cc), beside those of the conformance tests.
#pragma once

namespace gpuloom {

// A program without variables: every tenant of a domain after the first shares its loaded code. Loading one that is new
// to the domain waits for running kernels on real drivers (docs/design/module-loading.md).
inline constexpr char kCodeOnly[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry increment(.param .u64 counter) {
  .reg .u64 %address;
  .reg .u32 %old;
  ld.param.u64 %address, [counter];
  atom.global.add.u32 %old, [%address], 1;
  ret;
}
)";

inline constexpr char kPrints[] = R"(.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[19] = {116, 101, 110, 97, 110, 116, 32, 37, 117, 32, 108, 105, 110, 101, 32, 37, 117, 10, 0};
.visible .entry print(.param .u32 tenant, .param .u32 line) {
  .local .align 8 .b8 values[8];
  .reg .u64 %at, %generic, %format;
  .reg .u32 %value;
  mov.u64 %at, values;
  cvta.local.u64 %generic, %at;
  ld.param.u32 %value, [tenant];
  st.local.u32 [%at], %value;
  ld.param.u32 %value, [line];
  st.local.u32 [%at+4], %value;
  mov.u64 %format, text;
  cvta.global.u64 %format, %format;
  {
    .param .b64 a;
    .param .b64 b;
    .param .b32 r;
    st.param.b64 [a], %format;
    st.param.b64 [b], %generic;
    call.uni (r), vprintf, (a, b);
  }
  ret;
}
)";

}  // namespace gpuloom
