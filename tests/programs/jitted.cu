// SPDX-License-Identifier: Apache-2.0
// The driver's functions found in its library by their names, and code compiled by it: text of CUDA's first
// years with a limit on registers and a buffer for the log, and text that is wrong.
#include <cuda.h>
#include <dlfcn.h>

#include <cstring>
#include <string>
#include <vector>

#include "check.h"

// ISA 1.4, for devices of 2007: a product of square matrices with tiles of 16 by 16 in shared memory.
constexpr char kMultiply[] = R"PTX(
	.version 1.4
	.target sm_10, map_f64_to_f32
	// compiled long ago
	.shared .align 4 .b8 left_tile[1024];
	.shared .align 4 .b8 right_tile[1024];

	.entry multiply (
		.param .u64 __cudaparm_multiply_out,
		.param .u64 __cudaparm_multiply_left,
		.param .u64 __cudaparm_multiply_right,
		.param .s32 __cudaparm_multiply_n)
	{
	.reg .u32 %r<20>;
	.reg .u64 %rd<24>;
	.reg .f32 %f<8>;
	.reg .pred %p<4>;
	.loc	16	107	0
$LDWbegin_multiply:
	cvt.s32.u16 	%r1, %ctaid.x;
	cvt.s32.u16 	%r2, %ctaid.y;
	cvt.s32.u16 	%r3, %tid.x;
	cvt.s32.u16 	%r4, %tid.y;
	ld.param.s32 	%r5, [__cudaparm_multiply_n];
	mul24.lo.s32 	%r6, %r2, 16;
	add.s32 	%r6, %r6, %r4;
	mul24.lo.s32 	%r7, %r1, 16;
	add.s32 	%r7, %r7, %r3;
	mul.lo.s32 	%r8, %r6, %r5;
	mov.u64 	%rd1, left_tile;
	mov.u64 	%rd2, right_tile;
	mul.wide.s32 	%rd3, %r4, 64;
	add.u64 	%rd4, %rd1, %rd3;
	mul.wide.s32 	%rd5, %r3, 4;
	add.u64 	%rd6, %rd2, %rd5;
	add.u64 	%rd7, %rd4, %rd5;
	add.u64 	%rd8, %rd6, %rd3;
	mov.f32 	%f1, 0f00000000;     	// 0
	mov.s32 	%r9, 0;
$Lt_0_tiles:
	add.s32 	%r10, %r8, %r9;
	add.s32 	%r10, %r10, %r3;
	mul.wide.s32 	%rd9, %r10, 4;
	ld.param.u64 	%rd10, [__cudaparm_multiply_left];
	add.u64 	%rd10, %rd10, %rd9;
	ld.global.f32 	%f2, [%rd10+0];
	st.shared.f32 	[%rd7+0], %f2;
	add.s32 	%r11, %r9, %r4;
	mul.lo.s32 	%r11, %r11, %r5;
	add.s32 	%r11, %r11, %r7;
	mul.wide.s32 	%rd11, %r11, 4;
	ld.param.u64 	%rd12, [__cudaparm_multiply_right];
	add.u64 	%rd12, %rd12, %rd11;
	ld.global.f32 	%f3, [%rd12+0];
	st.shared.f32 	[%rd8+0], %f3;
	bar.sync 	0;
	mov.s32 	%r12, 0;
	mov.s64 	%rd13, %rd4;
	mov.s64 	%rd14, %rd6;
$Lt_0_products:
	ld.shared.f32 	%f4, [%rd13+0];
	ld.shared.f32 	%f5, [%rd14+0];
	mad.f32 	%f1, %f4, %f5, %f1;
	add.u64 	%rd13, %rd13, 4;
	add.u64 	%rd14, %rd14, 64;
	add.s32 	%r12, %r12, 1;
	setp.lt.s32 	%p1, %r12, 16;
	@%p1 bra 	$Lt_0_products;
	bar.sync 	0;
	add.s32 	%r9, %r9, 16;
	setp.lt.s32 	%p2, %r9, %r5;
	@%p2 bra 	$Lt_0_tiles;
	add.s32 	%r13, %r8, %r7;
	mul.wide.s32 	%rd15, %r13, 4;
	ld.param.u64 	%rd16, [__cudaparm_multiply_out];
	add.u64 	%rd16, %rd16, %rd15;
	st.global.f32 	[%rd16+0], %f1;
	exit;
$LDWend_multiply:
	} // multiply
)PTX";

constexpr char kWrong[] =
    ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n nonsense.u32 "
    "%r1;\n}\n";

// A function of the driver's by its name in the library.
template <typename F>
F* Find(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}
#define FIND(name) const auto name = Find<decltype(::name)>(library, STRING_OF(name))
#define STRING_OF(name) #name

int main() {
  Program program("jitted");
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    program.Expect(false, "no libcuda.so.1");
    return program.Finish("driver=none");
  }
  FIND(cuInit);
  FIND(cuDeviceGet);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuCtxSetCurrent);
  FIND(cuModuleLoadDataEx);
  FIND(cuModuleGetFunction);
  FIND(cuMemAlloc_v2);
  FIND(cuMemcpyHtoD_v2);
  FIND(cuMemcpyDtoH_v2);
  FIND(cuLaunchKernel);
  const auto ok = [&](CUresult result, const char* what) {
    program.Expect(result == CUDA_SUCCESS, what);
  };
  CUdevice device = 0;
  CUcontext context = nullptr;
  ok(cuInit(0), "cuInit");
  ok(cuDeviceGet(&device, 0), "cuDeviceGet");
  ok(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  ok(cuCtxSetCurrent(context), "cuCtxSetCurrent");

  char log[1024];
  std::memset(log, '#', sizeof(log));
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_INFO_LOG_BUFFER,
                            CU_JIT_MAX_REGISTERS};
  void* values[] = {reinterpret_cast<void*>(sizeof(log)), log, reinterpret_cast<void*>(32)};
  CUmodule module = nullptr;
  CUfunction multiply = nullptr;
  ok(cuModuleLoadDataEx(&module, kMultiply, 3, options, values), "cuModuleLoadDataEx of old text");
  program.Expect(std::memchr(log, 0, sizeof(log)) != nullptr, "the log has no end");
  ok(cuModuleGetFunction(&multiply, module, "multiply"), "cuModuleGetFunction");

  constexpr int kSide = 64;
  constexpr size_t kBytes = kSide * kSide * sizeof(float);
  std::vector<float> left(kSide * kSide), right(kSide * kSide), seen(kSide * kSide);
  for (int i = 0; i < kSide * kSide; ++i) {
    left[i] = i % 7;
    right[i] = i % 11 - 5;
  }
  CUdeviceptr out = 0, on_left = 0, on_right = 0;
  ok(cuMemAlloc_v2(&out, kBytes), "cuMemAlloc");
  ok(cuMemAlloc_v2(&on_left, kBytes), "cuMemAlloc");
  ok(cuMemAlloc_v2(&on_right, kBytes), "cuMemAlloc");
  ok(cuMemcpyHtoD_v2(on_left, left.data(), kBytes), "cuMemcpyHtoD");
  ok(cuMemcpyHtoD_v2(on_right, right.data(), kBytes), "cuMemcpyHtoD");
  int n = kSide;
  void* arguments[] = {&out, &on_left, &on_right, &n};
  ok(cuLaunchKernel(multiply, kSide / 16, kSide / 16, 1, 16, 16, 1, 0, nullptr, arguments, nullptr),
     "cuLaunchKernel");
  ok(cuMemcpyDtoH_v2(seen.data(), out, kBytes), "cuMemcpyDtoH");
  for (int row = 0; row < kSide; ++row) {
    for (int column = 0; column < kSide; ++column) {
      float sum = 0;
      for (int i = 0; i < kSide; ++i) sum += left[row * kSide + i] * right[i * kSide + column];
      program.Expect(seen[row * kSide + column] == sum, "another product");
    }
  }

  char errors[1024] = {};
  CUjit_option error_options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                                  CU_JIT_WALL_TIME};
  void* error_values[] = {errors, reinterpret_cast<void*>(sizeof(errors)), nullptr};
  CUmodule wrong = nullptr;
  program.Expect(
      cuModuleLoadDataEx(&wrong, kWrong, 3, error_options, error_values) == CUDA_ERROR_INVALID_PTX,
      "wrong text is not refused");
  program.Expect(errors[0] != 0, "nothing is said of wrong text");
  program.Expect(reinterpret_cast<size_t>(error_values[1]) == std::strlen(errors),
                 "another length than the text's");
  return program.Finish("side=%d", kSide);
}
