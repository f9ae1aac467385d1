// SPDX-License-Identifier: Apache-2.0
// Arrays: what they say of themselves, that their memory is counted and comes back, and every copy
// to, from and between them.
#include <cstring>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

class Arrays : public WithContext {
 protected:
  void TearDown() override {
    for (CUarray array : arrays_) EXPECT_EQ(Cu().cuArrayDestroy(array), CUDA_SUCCESS);
    WithContext::TearDown();
  }

  CUarray Make(size_t width, size_t height, size_t depth, unsigned flags = 0,
               CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT32, unsigned channels = 1) {
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {width, height, depth, format, channels, flags};
    CUarray array = nullptr;
    EXPECT_EQ(Cu().cuArray3DCreate_v2(&array, &descriptor), CUDA_SUCCESS);
    if (array != nullptr) arrays_.push_back(array);
    return array;
  }

  // The whole array of words, into or out of rows side by side.
  static CUDA_MEMCPY3D Whole(size_t width, size_t height, size_t depth) {
    CUDA_MEMCPY3D copy = {};
    copy.WidthInBytes = width * 4;
    copy.Height = height;
    copy.Depth = depth;
    return copy;
  }
  CUresult Write(CUarray array, const std::vector<uint32_t>& words, size_t width, size_t height,
                 size_t depth) {
    CUDA_MEMCPY3D copy = Whole(width, height, depth);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = words.data();
    copy.srcPitch = width * 4;
    copy.srcHeight = height;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    return Cu().cuMemcpy3D_v2(&copy);
  }
  std::vector<uint32_t> Read(CUarray array, size_t width, size_t height, size_t depth) {
    std::vector<uint32_t> words(width * height * depth);
    CUDA_MEMCPY3D copy = Whole(width, height, depth);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = words.data();
    copy.dstPitch = width * 4;
    copy.dstHeight = height;
    EXPECT_EQ(Cu().cuMemcpy3D_v2(&copy), CUDA_SUCCESS);
    return words;
  }

  std::vector<CUarray> arrays_;
};

TEST_F(Arrays, TellWhatTheyAre) {
  const CUarray array =
      Make(33, 17, 5, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST, CU_AD_FORMAT_HALF, 4);
  CUDA_ARRAY3D_DESCRIPTOR full = {};
  ASSERT_EQ(Cu().cuArray3DGetDescriptor_v2(&full, array), CUDA_SUCCESS);
  EXPECT_EQ(full.Width, 33u);
  EXPECT_EQ(full.Height, 17u);
  EXPECT_EQ(full.Depth, 5u);
  EXPECT_EQ(full.Format, CU_AD_FORMAT_HALF);
  EXPECT_EQ(full.NumChannels, 4u);
  EXPECT_EQ(full.Flags, unsigned{CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST});
  CUDA_ARRAY_DESCRIPTOR plain = {};
  ASSERT_EQ(Cu().cuArrayGetDescriptor_v2(&plain, array), CUDA_SUCCESS);
  EXPECT_EQ(plain.Width, 33u);
  EXPECT_EQ(plain.Height, 17u);
  EXPECT_EQ(plain.Format, CU_AD_FORMAT_HALF);
  EXPECT_EQ(plain.NumChannels, 4u);
}

TEST_F(Arrays, KeepWhatIsWritten) {
  const struct {
    size_t width, height, depth;
    unsigned flags;
  } kShapes[] = {{1, 0, 0, 0},
                 {1000, 0, 0, 0},
                 {37, 21, 0, 0},
                 {1024, 300, 0, 0},
                 {40, 30, 20, 0},
                 {16, 16, 7, CUDA_ARRAY3D_LAYERED},
                 {100, 0, 6, CUDA_ARRAY3D_LAYERED},
                 {32, 32, 6, CUDA_ARRAY3D_CUBEMAP}};
  for (const auto& shape : kShapes) {
    const size_t height = shape.height == 0 ? 1 : shape.height;
    const size_t depth = shape.depth == 0 ? 1 : shape.depth;
    SCOPED_TRACE(std::to_string(shape.width) + "x" + std::to_string(height) + "x" +
                 std::to_string(depth));
    const CUarray array = Make(shape.width, shape.height, shape.depth, shape.flags);
    const std::vector<uint32_t> words = Pattern(shape.width * height * depth, 5);
    ASSERT_EQ(Write(array, words, shape.width, height, depth), CUDA_SUCCESS);
    EXPECT_EQ(Read(array, shape.width, height, depth), words);
  }
}

TEST_F(Arrays, CopiesOfOneRow) {
  const CUarray first = Make(4096, 0, 0), second = Make(4096, 0, 0);
  const std::vector<uint32_t> words = Pattern(4096, 6);
  ASSERT_EQ(Cu().cuMemcpyHtoA_v2(first, 0, words.data(), 4096 * 4), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyAtoA_v2(second, 400, first, 800, 1000 * 4), CUDA_SUCCESS);
  std::vector<uint32_t> back(1000);
  ASSERT_EQ(Cu().cuMemcpyAtoH_v2(back.data(), second, 400, 4000), CUDA_SUCCESS);
  EXPECT_EQ(back, std::vector<uint32_t>(words.begin() + 200, words.begin() + 1200));
  const CUdeviceptr device = Alloc(4000);
  ASSERT_EQ(Cu().cuMemcpyAtoD_v2(device, first, 4, 4000), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(device, 1000),
            std::vector<uint32_t>(words.begin() + 1, words.begin() + 1001));
  ASSERT_EQ(Cu().cuMemcpyDtoA_v2(second, 0, device, 4000), CUDA_SUCCESS);
  CUstream stream = Stream();
  std::vector<uint32_t> source = Pattern(1000, 7);
  const std::vector<uint32_t> expected = source;
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoAAsync_v2(second, 40, source.data(), 4000, stream), CUDA_SUCCESS);
  std::fill(source.begin(), source.end(), 0);
  ASSERT_EQ(Cu().cuMemcpyAtoHAsync_v2(back.data(), second, 40, 4000, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(back, expected);
}

TEST_F(Arrays, PartsThroughPinnedMemory) {
  const CUarray array = Make(64, 32, 8);
  const std::vector<uint32_t> words = Pattern(64 * 32 * 8, 8);
  ASSERT_EQ(Write(array, words, 64, 32, 8), CUDA_SUCCESS);
  auto* pinned = static_cast<uint32_t*>(HostAlloc(10 * 7 * 3 * 4));
  CUstream stream = Stream();
  CUDA_MEMCPY3D out = Whole(10, 7, 3);
  out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  out.srcArray = array;
  out.srcXInBytes = 5 * 4;
  out.srcY = 6;
  out.srcZ = 4;
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = pinned;
  out.dstPitch = 40;
  out.dstHeight = 7;
  ASSERT_EQ(Cu().cuMemcpy3DAsync_v2(&out, stream), CUDA_SUCCESS);
  CUDA_MEMCPY3D in = Whole(10, 7, 3);
  in.srcMemoryType = CU_MEMORYTYPE_HOST;
  in.srcHost = pinned;
  in.srcPitch = 40;
  in.srcHeight = 7;
  in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  in.dstArray = array;
  ASSERT_EQ(Cu().cuMemcpy3DAsync_v2(&in, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::vector<uint32_t> expected = words;
  for (size_t z = 0; z < 3; ++z) {
    for (size_t y = 0; y < 7; ++y) {
      for (size_t x = 0; x < 10; ++x) {
        expected[(z * 32 + y) * 64 + x] = words[((z + 4) * 32 + y + 6) * 64 + x + 5];
      }
    }
  }
  EXPECT_EQ(Read(array, 64, 32, 8), expected);
}

// Blocks that a graph copies and fills, again at each launch.
TEST_F(Arrays, CapturedBlocks) {
  const CUarray array = Make(16, 8, 0);
  const CUdeviceptr rows = Alloc(128 * 8), packed = Alloc(64 * 8);
  auto* pinned = static_cast<uint32_t*>(HostAlloc(64 * 8));
  CUstream stream = Stream();
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD2D32Async(rows, 128, 7, 16, 8, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD2D16Async(rows + 4, 128, 0x1234, 2, 4, stream), CUDA_SUCCESS);
  CUDA_MEMCPY2D in = {};
  in.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  in.srcDevice = rows;
  in.srcPitch = 128;
  in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  in.dstArray = array;
  in.WidthInBytes = 64;
  in.Height = 8;
  ASSERT_EQ(Cu().cuMemcpy2DAsync_v2(&in, stream), CUDA_SUCCESS);
  CUDA_MEMCPY3D out = Whole(16, 8, 1);
  out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  out.srcArray = array;
  out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  out.dstDevice = packed;
  out.dstPitch = 64;
  ASSERT_EQ(Cu().cuMemcpy3DAsync_v2(&out, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(pinned, packed, 64 * 8, stream), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  std::vector<uint32_t> expected(128, 7);
  for (size_t y = 0; y < 4; ++y) expected[y * 16 + 1] = 0x12341234;
  for (int launch = 0; launch < 2; ++launch) {
    std::memset(pinned, 0, 64 * 8);
    ASSERT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(std::vector<uint32_t>(pinned, pinned + 128), expected);
  }
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(Arrays, ManyComeAndGo) {
  // More in all than softgpu has in tests: what is destroyed must be given back.
  for (int i = 0; i < 40; ++i) {
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        1024, 1024, 8, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED};
    CUarray array = nullptr;
    ASSERT_EQ(Cu().cuArray3DCreate_v2(&array, &descriptor), CUDA_SUCCESS) << i;
    ASSERT_EQ(Cu().cuArrayDestroy(array), CUDA_SUCCESS) << i;
  }
}

TEST_F(Arrays, MipmapsHaveLevels) {
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = {64, 32, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0};
  CUmipmappedArray mipmap = nullptr;
  ASSERT_EQ(Cu().cuMipmappedArrayCreate(&mipmap, &descriptor, 4), CUDA_SUCCESS);
  for (unsigned level = 0; level < 4; ++level) {
    CUarray array = nullptr;
    ASSERT_EQ(Cu().cuMipmappedArrayGetLevel(&array, mipmap, level), CUDA_SUCCESS);
    CUDA_ARRAY3D_DESCRIPTOR seen = {};
    ASSERT_EQ(Cu().cuArray3DGetDescriptor_v2(&seen, array), CUDA_SUCCESS);
    EXPECT_EQ(seen.Width, size_t{64} >> level);
    EXPECT_EQ(seen.Height, size_t{32} >> level);
    const std::vector<uint32_t> words = Pattern(seen.Width * seen.Height, level);
    ASSERT_EQ(Write(array, words, seen.Width, seen.Height, 1), CUDA_SUCCESS);
    EXPECT_EQ(Read(array, seen.Width, seen.Height, 1), words);
  }
  CUarray none = nullptr;
  EXPECT_EQ(Cu().cuMipmappedArrayGetLevel(&none, mipmap, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMipmappedArrayDestroy(mipmap), CUDA_SUCCESS);
}

TEST_F(Arrays, WrongCalls) {
  CUarray array = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR wrong = {0, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  EXPECT_EQ(Cu().cuArray3DCreate_v2(&array, &wrong), CUDA_ERROR_INVALID_VALUE);
  wrong = {4, 4, 0, CU_AD_FORMAT_FLOAT, 3, 0};
  EXPECT_EQ(Cu().cuArray3DCreate_v2(&array, &wrong), CUDA_ERROR_INVALID_VALUE);
  wrong = {4, 0, 4, CU_AD_FORMAT_FLOAT, 1, 0};
  EXPECT_EQ(Cu().cuArray3DCreate_v2(&array, &wrong), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuArray3DCreate_v2(nullptr, &wrong), CUDA_ERROR_INVALID_VALUE);
  array = Make(16, 4, 0);
  uint32_t words[64] = {};
  EXPECT_EQ(Cu().cuMemcpyHtoA_v2(array, 60, words, 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemcpyHtoA_v2(array, 64, words, 4), CUDA_ERROR_INVALID_VALUE);
  CUDA_MEMCPY3D copy = Whole(16, 5, 1);
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = words;
  copy.srcPitch = 0;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  EXPECT_EQ(Cu().cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpuloom::conformance
