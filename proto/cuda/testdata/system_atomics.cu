// SPDX-License-Identifier: Apache-2.0
// Atomic operations in each scope, one a kernel: compiled for several capabilities, they are measured by a test.
#define KERNEL(name, scope, code)                                                          \
  extern "C" __global__ void name##_##scope(unsigned* to, unsigned* result, unsigned by) { \
    asm volatile(                                                                          \
        "{ .reg .b32 old; .reg .f32 real, sum; .reg .b64 at, wide;\n"                      \
        " cvta.to.global.u64 at, %0; mov.b32 real, %2; cvt.u64.u32 wide, %2;\n" code       \
        "}" ::"l"(to),                                                                     \
        "l"(result), "r"(by)                                                               \
        : "memory");                                                                       \
  }
#define STORE_OLD "; st.global.u32 [%1], old; "
#define STORE_SUM "; st.global.f32 [%1], sum; "
#define SCOPE(scope)                                                                 \
  KERNEL(add, scope, "atom." #scope ".global.add.u32 old, [at], %2" STORE_OLD)       \
  KERNEL(swap, scope, "atom.global." #scope ".cas.b32 old, [at], %2, 7" STORE_OLD)   \
  KERNEL(quiet, scope, "red.relaxed." #scope ".global.or.b32 [at], %2;")             \
  KERNEL(wide, scope, "red.release." #scope ".global.add.u64 [at], wide;")           \
  KERNEL(anywhere, scope, "atom.acq_rel." #scope ".add.u32 old, [%0], %2" STORE_OLD) \
  KERNEL(swap_anywhere, scope, "atom." #scope ".cas.b32 old, [%0], %2, 7" STORE_OLD) \
  KERNEL(real, scope, "atom." #scope ".global.add.f32 sum, [at], real" STORE_SUM)    \
  KERNEL(quiet_real, scope, "red." #scope ".global.add.f32 [at], real;")             \
  KERNEL(real_anywhere, scope, "atom." #scope ".add.f32 sum, [%0], real" STORE_SUM)
SCOPE(cta)
SCOPE(gpu)
SCOPE(sys)
// What is no atomic operation, also with the system's scope.
extern "C" __global__ void orders_sys(unsigned* to, unsigned* result) {
  asm volatile(
      "{ .reg .b32 seen; ld.acquire.sys.u32 seen, [%0]; fence.sc.sys;\n"
      " st.release.sys.u32 [%1], seen; }" ::"l"(to),
      "l"(result)
      : "memory");
}
