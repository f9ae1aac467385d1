// SPDX-License-Identifier: Apache-2.0
// Copies and memsets of rows and slices between linear memory of every kind: pageable, pinned,
// device. Sizes lie around what an implementation may cut pieces at.
#include <cstring>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

struct Block {
  size_t width, height, depth;  // bytes, rows, slices
  size_t pitch, rows;           // of the larger memory around it
  size_t x, y, z;               // where it begins there
};

void PrintTo(const Block& block, std::ostream* out) {
  *out << block.width << "x" << block.height << "x" << block.depth << " in " << block.pitch << "x"
       << block.rows;
}

class BlockCopy : public WithContext, public testing::WithParamInterface<Block> {
 protected:
  size_t around_bytes() const {
    const Block& b = GetParam();
    return b.pitch * b.rows * (b.z + b.depth);
  }
  size_t packed_bytes() const { return GetParam().width * GetParam().height * GetParam().depth; }

  static std::vector<uint8_t> Bytes(size_t count, uint32_t seed) {
    std::vector<uint8_t> bytes(count);
    for (size_t i = 0; i < count; ++i) {
      bytes[i] = static_cast<uint8_t>((i * 2654435761u + seed * 40503u) >> 13);
    }
    return bytes;
  }

  // The block out of the memory around it, rows side by side.
  std::vector<uint8_t> Packed(const uint8_t* around) const {
    const Block& b = GetParam();
    std::vector<uint8_t> packed(packed_bytes());
    for (size_t z = 0; z < b.depth; ++z) {
      for (size_t y = 0; y < b.height; ++y) {
        std::memcpy(packed.data() + (z * b.height + y) * b.width,
                    around + ((b.z + z) * b.rows + b.y + y) * b.pitch + b.x, b.width);
      }
    }
    return packed;
  }

  // A copy from the memory around to packed rows; the sides' addresses are the caller's.
  CUDA_MEMCPY3D Gather() const {
    const Block& b = GetParam();
    CUDA_MEMCPY3D copy = {};
    copy.srcXInBytes = b.x;
    copy.srcY = b.y;
    copy.srcZ = b.z;
    copy.srcPitch = b.pitch;
    copy.srcHeight = b.rows;
    copy.dstPitch = b.width;
    copy.dstHeight = b.height;
    copy.WidthInBytes = b.width;
    copy.Height = b.height;
    copy.Depth = b.depth;
    return copy;
  }
  CUDA_MEMCPY3D Scatter() const {
    const Block& b = GetParam();
    CUDA_MEMCPY3D copy = {};
    copy.dstXInBytes = b.x;
    copy.dstY = b.y;
    copy.dstZ = b.z;
    copy.dstPitch = b.pitch;
    copy.dstHeight = b.rows;
    copy.srcPitch = b.width;
    copy.srcHeight = b.height;
    copy.WidthInBytes = b.width;
    copy.Height = b.height;
    copy.Depth = b.depth;
    return copy;
  }
  static void From(CUDA_MEMCPY3D* copy, const void* host) {
    copy->srcMemoryType = CU_MEMORYTYPE_HOST;
    copy->srcHost = host;
  }
  static void From(CUDA_MEMCPY3D* copy, CUdeviceptr device) {
    copy->srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy->srcDevice = device;
  }
  static void To(CUDA_MEMCPY3D* copy, void* host) {
    copy->dstMemoryType = CU_MEMORYTYPE_HOST;
    copy->dstHost = host;
  }
  static void To(CUDA_MEMCPY3D* copy, CUdeviceptr device) {
    copy->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy->dstDevice = device;
  }
};

TEST_P(BlockCopy, PageableThereAndBack) {
  const std::vector<uint8_t> around = Bytes(around_bytes(), 1);
  std::vector<uint8_t> packed(packed_bytes());
  const CUdeviceptr device = Alloc(packed_bytes());
  CUDA_MEMCPY3D in = Gather();
  From(&in, around.data());
  To(&in, device);
  ASSERT_EQ(Cu().cuMemcpy3D_v2(&in), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(device, packed_bytes()), Packed(around.data()));
  // Back into other memory, of which only the block changes.
  std::vector<uint8_t> other = Bytes(around_bytes(), 2);
  const std::vector<uint8_t> before = other;
  CUDA_MEMCPY3D out = Scatter();
  From(&out, device);
  To(&out, other.data());
  ASSERT_EQ(Cu().cuMemcpy3D_v2(&out), CUDA_SUCCESS);
  EXPECT_EQ(Packed(other.data()), Packed(around.data()));
  size_t changed = 0, may_change = 0;
  for (size_t i = 0; i < other.size(); ++i) changed += other[i] != before[i];
  const std::vector<uint8_t> was = Packed(before.data()), is = Packed(other.data());
  for (size_t i = 0; i < was.size(); ++i) may_change += was[i] != is[i];
  EXPECT_EQ(changed, may_change);
}

TEST_P(BlockCopy, PageableIsReadWhenTheCallReturns) {
  std::vector<uint8_t> source = Bytes(packed_bytes(), 3);
  const std::vector<uint8_t> expected = source;
  const CUdeviceptr device = Alloc(around_bytes());
  CUstream stream = Stream();
  CUDA_MEMCPY3D in = Scatter();
  From(&in, source.data());
  To(&in, device);
  ASSERT_EQ(Cu().cuMemcpy3DAsync_v2(&in, stream), CUDA_SUCCESS);
  std::memset(source.data(), 0, source.size());
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Packed(Download<uint8_t>(device, around_bytes()).data()), expected);
}

TEST_P(BlockCopy, PinnedAndWithinTheDevice) {
  auto* pinned = static_cast<uint8_t*>(HostAlloc(around_bytes() + packed_bytes()));
  const std::vector<uint8_t> around = Bytes(around_bytes(), 4);
  std::memcpy(pinned, around.data(), around.size());
  const CUdeviceptr first = Alloc(packed_bytes()), second = Alloc(around_bytes());
  CUstream stream = Stream();
  CUDA_MEMCPY3D in = Gather();
  From(&in, pinned);
  To(&in, first);
  ASSERT_EQ(Cu().cuMemcpy3DAsync_v2(&in, stream), CUDA_SUCCESS);
  CUDA_MEMCPY3D across = Scatter();
  From(&across, first);
  To(&across, second);
  ASSERT_EQ(Cu().cuMemcpy3DAsync_v2(&across, stream), CUDA_SUCCESS);
  CUDA_MEMCPY3D out = Gather();
  From(&out, second);
  To(&out, pinned + around_bytes());
  ASSERT_EQ(Cu().cuMemcpy3DAsync_v2(&out, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  const std::vector<uint8_t> expected = Packed(around.data());
  EXPECT_EQ(std::memcmp(pinned + around_bytes(), expected.data(), expected.size()), 0);
}

// The forms of two dimensions see the first slice.
TEST_P(BlockCopy, TwoDimensions) {
  const Block& b = GetParam();
  const std::vector<uint8_t> around = Bytes(b.pitch * b.rows, 5);
  const CUdeviceptr device = Alloc(b.width * b.height);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = around.data();
  copy.srcXInBytes = b.x;
  copy.srcY = b.y;
  copy.srcPitch = b.pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = device;
  copy.dstPitch = b.width;
  copy.WidthInBytes = b.width;
  copy.Height = b.height;
  std::vector<uint8_t> expected(b.width * b.height);
  for (size_t y = 0; y < b.height; ++y) {
    std::memcpy(expected.data() + y * b.width, around.data() + (b.y + y) * b.pitch + b.x, b.width);
  }
  ASSERT_EQ(Cu().cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(device, expected.size()), expected);
  ASSERT_EQ(Cu().cuMemsetD8_v2(device, 0, expected.size()), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpy2DUnaligned_v2(&copy), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(device, expected.size()), expected);
  CUstream stream = Stream();
  ASSERT_EQ(Cu().cuMemsetD8Async(device, 0, expected.size(), stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpy2DAsync_v2(&copy, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(device, expected.size()), expected);
}

INSTANTIATE_TEST_SUITE_P(Blocks, BlockCopy,
                         testing::Values(Block{1, 1, 1, 1, 1, 0, 0, 0},
                                         Block{7, 5, 3, 20, 9, 3, 2, 1},
                                         Block{64, 100, 1, 100, 120, 8, 7, 0},
                                         Block{1000, 300, 3, 1024, 310, 12, 5, 0},
                                         Block{600'000, 3, 2, 700'000, 4, 16, 1, 0},
                                         Block{4096, 128, 5, 4096, 128, 0, 0, 0}));

class Memset2D : public WithContext {};

TEST_F(Memset2D, EveryWidth) {
  constexpr size_t kPitch = 128, kRows = 20;
  const CUdeviceptr device = Alloc(kPitch * kRows);
  CUstream stream = Stream();
  ASSERT_EQ(Cu().cuMemsetD8Async(device, 0, kPitch * kRows, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD2D8Async(device + 1, kPitch, 0x5a, 3, 5, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD2D16Async(device + 8, kPitch, 0x1234, 2, 20, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD2D32Async(device + 16, kPitch, 0xdeadbeef, 28, 7, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::vector<uint8_t> expected(kPitch * kRows);
  for (size_t y = 0; y < kRows; ++y) {
    uint8_t* row = expected.data() + y * kPitch;
    if (y < 5) std::memset(row + 1, 0x5a, 3);
    const uint16_t half = 0x1234;
    for (size_t i = 0; i < 2; ++i) std::memcpy(row + 8 + 2 * i, &half, 2);
    const uint32_t word = 0xdeadbeef;
    for (size_t i = 0; y < 7 && i < 28; ++i) std::memcpy(row + 16 + 4 * i, &word, 4);
  }
  EXPECT_EQ(Download<uint8_t>(device, expected.size()), expected);
  ASSERT_EQ(Cu().cuMemsetD2D8_v2(device, kPitch, 1, kPitch, kRows), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD2D16_v2(device, kPitch, 0x0202, kPitch / 4, kRows), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD2D32_v2(device, kPitch, 0x03030303, kPitch / 16, kRows), CUDA_SUCCESS);
  for (size_t i = 0; i < expected.size(); ++i) {
    const size_t x = i % kPitch;
    expected[i] = x < kPitch / 4 ? 3 : x < kPitch / 2 ? 2 : 1;
  }
  EXPECT_EQ(Download<uint8_t>(device, expected.size()), expected);
  EXPECT_EQ(Cu().cuMemsetD2D8_v2(device, kPitch, 1, 0, 5), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemsetD2D8_v2(device, kPitch, 1, 5, 0), CUDA_SUCCESS);
}

TEST_F(Memset2D, PitchedMemory) {
  CUdeviceptr device = 0;
  size_t pitch = 0;
  ASSERT_EQ(Cu().cuMemAllocPitch_v2(&device, &pitch, 100, 10, 4), CUDA_SUCCESS);
  EXPECT_GE(pitch, 100u);
  EXPECT_EQ(Cu().cuMemsetD2D32_v2(device, pitch, 7, 25, 10), CUDA_SUCCESS);
  std::vector<uint32_t> packed(250);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = device;
  copy.srcPitch = pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = packed.data();
  copy.dstPitch = 100;
  copy.WidthInBytes = 100;
  copy.Height = 10;
  EXPECT_EQ(Cu().cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
  EXPECT_EQ(packed, std::vector<uint32_t>(250, 7));
  EXPECT_EQ(Cu().cuMemFree_v2(device), CUDA_SUCCESS);
}

TEST_F(Memset2D, ManagedMemory) {
  CUdeviceptr managed = 0;
  const CUresult result = Cu().cuMemAllocManaged(&managed, 64 * 16, CU_MEM_ATTACH_GLOBAL);
  if (result == CUDA_ERROR_NOT_SUPPORTED) GTEST_SKIP() << "no managed memory";
  ASSERT_EQ(result, CUDA_SUCCESS);
  const CUdeviceptr device = Alloc(32 * 16);
  ASSERT_EQ(Cu().cuMemsetD2D32_v2(managed, 64, 9, 8, 16), CUDA_SUCCESS);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = managed;
  copy.srcPitch = 64;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstPitch = 32;
  copy.WidthInBytes = 32;
  copy.Height = 16;
  ASSERT_EQ(Cu().cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(device, 128), std::vector<uint32_t>(128, 9));
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(managed), CUDA_SUCCESS);
}

class BatchCopy : public WithContext {};

TEST_F(BatchCopy, ThereAndBack) {
  if (IsDriverBelow(13000)) GTEST_SKIP() << "CUDA 13.0 has it first";
  std::vector<uint32_t> first = Pattern(1000, 1), second = Pattern(70'000, 2);
  const std::vector<uint32_t> expected_first = first, expected_second = second;
  const CUdeviceptr a = Alloc(4000), b = Alloc(280'000);
  const auto address = [](const void* p) { return reinterpret_cast<CUdeviceptr>(p); };
  CUstream stream = Stream();
  CUdeviceptr to[] = {a, b};
  CUdeviceptr from[] = {address(first.data()), address(second.data())};
  size_t sizes[] = {4000, 280'000};
  CUmemcpyAttributes attributes[2] = {};
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  size_t begins[] = {0, 1};
  ASSERT_EQ(Cu().cuMemcpyBatchAsync_v2(to, from, sizes, 2, attributes, begins, 2, stream),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(a, 1000), expected_first);
  EXPECT_EQ(Download<uint32_t>(b, 70'000), expected_second);
  // Not on the legacy default stream; every copy needs attributes.
  EXPECT_EQ(Cu().cuMemcpyBatchAsync_v2(to, from, sizes, 2, attributes, begins, 2, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  size_t late[] = {1, 1};
  EXPECT_EQ(Cu().cuMemcpyBatchAsync_v2(to, from, sizes, 2, attributes, late, 1, stream),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(BatchCopy, Blocks) {
  if (IsDriverBelow(13000)) GTEST_SKIP() << "CUDA 13.0 has it first";
  const std::vector<uint32_t> source = Pattern(1000, 3);
  const CUdeviceptr device = Alloc(4000);
  CUstream stream = Stream();
  CUDA_MEMCPY3D_BATCH_OP operation = {};
  operation.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operation.src.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(source.data());
  operation.src.op.ptr.rowLength = 400;
  operation.src.op.ptr.layerHeight = 5;
  operation.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operation.dst.op.ptr.ptr = device;
  operation.extent = {200, 5, 2};
  operation.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  ASSERT_EQ(Cu().cuMemcpy3DBatchAsync_v2(1, &operation, 0, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::vector<uint32_t> expected;
  for (size_t row = 0; row < 10; ++row) {
    expected.insert(expected.end(), source.begin() + row * 100, source.begin() + row * 100 + 50);
  }
  EXPECT_EQ(Download<uint32_t>(device, 500), expected);
}

class WrongBlocks : public WithContext {};

TEST_F(WrongBlocks, AreRefused) {
  const CUdeviceptr device = Alloc(4096);
  uint8_t host[4096] = {};
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = 64;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstPitch = 64;
  copy.WidthInBytes = 64;
  copy.Height = 4;
  EXPECT_EQ(Cu().cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
  CUDA_MEMCPY2D wrong = copy;
  wrong.srcPitch = 32;
  EXPECT_EQ(Cu().cuMemcpy2D_v2(&wrong), CUDA_ERROR_INVALID_VALUE);
  wrong = copy;
  wrong.dstDevice = 0x1000;
  EXPECT_EQ(Cu().cuMemcpy2D_v2(&wrong), CUDA_ERROR_INVALID_VALUE);
  wrong = copy;
  wrong.srcMemoryType = static_cast<CUmemorytype>(77);
  EXPECT_EQ(Cu().cuMemcpy2D_v2(&wrong), CUDA_ERROR_INVALID_VALUE);
  wrong = copy;
  wrong.Height = 0;
  EXPECT_EQ(Cu().cuMemcpy2D_v2(&wrong), CUDA_SUCCESS);
}

TEST_F(WrongBlocks, PeerCopiesWithinOneContext) {
  const std::vector<uint32_t> source = Pattern(64, 9);
  const CUdeviceptr first = Alloc(256), second = Alloc(256);
  CUcontext context = nullptr;
  ASSERT_EQ(Cu().cuCtxGetCurrent(&context), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(first, source.data(), 256), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyPeer(second, context, first, context, 256), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(second, 64), source);
  ASSERT_EQ(Cu().cuMemsetD8_v2(second, 0, 256), CUDA_SUCCESS);
  CUDA_MEMCPY3D_PEER copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = first;
  copy.srcContext = context;
  copy.srcPitch = 16;
  copy.srcHeight = 4;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = second;
  copy.dstContext = context;
  copy.dstPitch = 16;
  copy.dstHeight = 4;
  copy.WidthInBytes = 16;
  copy.Height = 4;
  copy.Depth = 4;
  ASSERT_EQ(Cu().cuMemcpy3DPeer(&copy), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(second, 64), source);
}

}  // namespace
}  // namespace gpuloom::conformance
