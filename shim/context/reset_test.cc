// SPDX-License-Identifier: Apache-2.0
// What the end of the primary context ends, and what outlives it.
#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

class Reset : public ShimTest {
 protected:
  void SetUp() override { Begin(); }

  CUlibrary Library(const char* image, bool preserved) {
    CUlibrary library = nullptr;
    CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
    void* value = reinterpret_cast<void*>(uintptr_t{1});
    EXPECT_EQ(cu_.cuLibraryLoadData(&library, image, nullptr, nullptr, 0, &option, &value,
                                    preserved ? 1 : 0),
              CUDA_SUCCESS);
    return library;
  }
  CUkernel Kernel(CUlibrary library) {
    CUkernel kernel = nullptr;
    EXPECT_EQ(cu_.cuLibraryGetKernel(&kernel, library, "none"), CUDA_SUCCESS);
    return kernel;
  }
};

TEST_F(Reset, ReleasingTheContextGivesEverythingBack) {
  const CUdeviceptr device = Alloc(4096);
  CUstream stream = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(cu_.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuEventCreate(&event, 0), CUDA_SUCCESS);
  const CUfunction kernel = Function("none");
  ASSERT_EQ(cu_.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  node_.WaitForCount("MemFreeLater", 1);
  EXPECT_EQ(node_.seen("MemFreeLater")[0].As<wire::MemFreeLater>().address,
            wire::DevicePtr{device});
  EXPECT_EQ(node_.count("LibraryUnload"), 1u);
  EXPECT_EQ(node_.count("StreamDestroy"), 1u);
  EXPECT_EQ(node_.count("EventDestroy"), 1u);
  EXPECT_EQ(Launch(kernel), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cu_.cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  Begin();
  EXPECT_EQ(Launch(kernel), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cu_.cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  Alloc(4096);
}

// NVIDIA's runtime keeps its libraries' handles through cudaDeviceReset.
TEST_F(Reset, APreservedLibraryIsLoadedAgainWhenItIsNextUsed) {
  const CUlibrary library = Library(".version 8.0 // preserved", true);
  const CUkernel kernel = Kernel(library);
  ASSERT_EQ(cu_.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1, kernel, 0),
            CUDA_SUCCESS);
  CUdeviceptr variable = 0;
  ASSERT_EQ(cu_.cuLibraryGetGlobal(&variable, nullptr, library, "variable"), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("LibraryUnload"), 1u);
  Begin();
  int word = 0;
  EXPECT_EQ(cu_.cuMemcpyDtoH_v2(&word, variable, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(node_.count("LibraryLoad"), 1u);  // not before it is used
  ASSERT_EQ(Launch(reinterpret_cast<CUfunction>(kernel)), CUDA_SUCCESS);
  ASSERT_EQ(Launch(reinterpret_cast<CUfunction>(kernel)), CUDA_SUCCESS);
  const auto gets = node_.seen("KernelGet");
  ASSERT_EQ(gets.size(), 2u);
  EXPECT_EQ(gets[0].request, gets[1].request);
  const auto images = node_.images();
  ASSERT_EQ(images.size(), 2u);
  EXPECT_EQ(images[0], images[1]);
  int shared = 0;
  EXPECT_EQ(
      cu_.cuKernelGetAttribute(&shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 0),
      CUDA_SUCCESS);
  EXPECT_EQ(shared, 48 << 10);
  EXPECT_EQ(cu_.cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("LibraryUnload"), 2u);
}

TEST_F(Reset, ALibraryWhoseImageIsGoneStaysLoaded) {
  const CUkernel kernel = Kernel(Library(".version 8.0", false));
  ASSERT_EQ(cu_.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("LibraryUnload"), 0u);
  Begin();
  EXPECT_EQ(Launch(reinterpret_cast<CUfunction>(kernel)), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("LibraryLoad"), 1u);
}

}  // namespace
}  // namespace gpuloom
