// SPDX-License-Identifier: Apache-2.0
// Contexts that the program creates, used wrongly.
#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

class CreatedContexts : public ShimTest {
 protected:
  void SetUp() override { Begin(); }

  CUcontext Create() {
    CUcontext context = nullptr;
    EXPECT_EQ(cu_.cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
    return context;
  }
};

// Otherwise two of those that are created later would have one handle.
TEST_F(CreatedContexts, AreDestroyedOnceByManyThreads) {
  constexpr int kRounds = 100;
  constexpr int kThreads = 4;
  for (int round = 0; round < kRounds; ++round) {
    const CUcontext context = Create();
    std::atomic<int> ready{0};
    std::atomic<int> successes{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        ++ready;
        while (ready != kThreads) std::this_thread::yield();
        const CUresult result = cu_.cuCtxDestroy_v2(context);
        if (result == CUDA_SUCCESS) {
          ++successes;
        } else {
          EXPECT_EQ(result, CUDA_ERROR_INVALID_CONTEXT);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(successes, 1);
  }
  // As many as it takes for the first handles to be given again.
  for (int i = 0; i < 300; ++i) EXPECT_EQ(cu_.cuCtxDestroy_v2(Create()), CUDA_SUCCESS);
  std::set<CUcontext> contexts;
  for (int i = 0; i < 300; ++i) EXPECT_TRUE(contexts.insert(Create()).second);
}

// Each kind once in the context and once in the primary one, whose objects stay.
TEST_F(CreatedContexts, TakeWhatWasMadeInThemAlong) {
  constexpr uint64_t kBytes = TestingNode::kImportedBytes;
  const uint64_t text[] = {0x6970636d6d6f6f6c, ~uint64_t{0}, 1, 1, 0, kBytes};
  CUipcMemHandle of_another = {};
  memcpy(&of_another, text, sizeof(text));
  struct Made {
    CUarray array;
    CUmipmappedArray mipmap;
    CUtexObject texture;
    CUsurfObject surface;
    CUlinkState link;
    CUdeviceptr opened;
  };
  const auto make = [&](Made* made) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {};
    shape.Width = shape.Height = 16;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    ASSERT_EQ(cu_.cuArray3DCreate_v2(&made->array, &shape), CUDA_SUCCESS);
    ASSERT_EQ(cu_.cuMipmappedArrayCreate(&made->mipmap, &shape, 2), CUDA_SUCCESS);
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = made->array;
    const CUDA_TEXTURE_DESC sampler = {};
    ASSERT_EQ(cu_.cuTexObjectCreate(&made->texture, &resource, &sampler, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cu_.cuSurfObjectCreate(&made->surface, &resource), CUDA_SUCCESS);
    ASSERT_EQ(cu_.cuLinkCreate_v2(0, nullptr, nullptr, &made->link), CUDA_SUCCESS);
    ASSERT_EQ(
        cu_.cuIpcOpenMemHandle_v2(&made->opened, of_another, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        CUDA_SUCCESS);
  };
  Made of_primary = {}, of_created = {};
  ASSERT_NO_FATAL_FAILURE(make(&of_primary));
  const CUcontext context = Create();
  ASSERT_EQ(cu_.cuCtxSetCurrent(context), CUDA_SUCCESS);
  ASSERT_NO_FATAL_FAILURE(make(&of_created));
  ASSERT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuCtxDestroy_v2(context), CUDA_SUCCESS);

  EXPECT_EQ(node_.count("ArrayDestroy"), 2u);
  EXPECT_EQ(node_.count("TextureDestroy"), 1u);
  EXPECT_EQ(node_.count("SurfaceDestroy"), 1u);
  EXPECT_EQ(node_.count("LinkDestroy"), 1u);
  CUDA_ARRAY3D_DESCRIPTOR shape;
  CUDA_RESOURCE_DESC resource;
  EXPECT_EQ(cu_.cuArray3DGetDescriptor_v2(&shape, of_created.array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cu_.cuTexObjectGetResourceDesc(&resource, of_created.texture),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuArray3DGetDescriptor_v2(&shape, of_primary.array), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuTexObjectGetResourceDesc(&resource, of_primary.texture), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuSurfObjectGetResourceDesc(&resource, of_primary.surface), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuLinkDestroy(of_primary.link), CUDA_SUCCESS);
  // Opened twice, and the context's opening has ended.
  EXPECT_EQ(node_.count("MemUnmap"), 0u);
  EXPECT_EQ(cu_.cuIpcCloseMemHandle(of_primary.opened), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("MemUnmap"), 1u);
}

// What was destroyed before is not destroyed again with the context: its handle may be another's.
TEST_F(CreatedContexts, LeaveWhatTheProgramHasDestroyed) {
  const CUcontext context = Create();
  ASSERT_EQ(cu_.cuCtxSetCurrent(context), CUDA_SUCCESS);
  CUDA_ARRAY3D_DESCRIPTOR shape = {};
  shape.Width = 16;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  CUarray array = nullptr;
  ASSERT_EQ(cu_.cuArray3DCreate_v2(&array, &shape), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuArrayDestroy(array), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
  CUarray again = nullptr;
  ASSERT_EQ(cu_.cuArray3DCreate_v2(&again, &shape), CUDA_SUCCESS);
  EXPECT_EQ(again, array);
  ASSERT_EQ(cu_.cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuArray3DGetDescriptor_v2(&shape, again), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom
