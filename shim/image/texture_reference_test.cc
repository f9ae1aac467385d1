// SPDX-License-Identifier: Apache-2.0
// Texture and surface references: what is sent to the executor, and when.
#include <algorithm>

#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

class References : public ShimTest {
 protected:
  void SetUp() override {
    auto welcome = node_.welcome();
    int32_t* attributes = welcome.device.attributes;
    attributes[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT] = 512;
    attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH] = 1 << 27;
    attributes[CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT] = 32;
    attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH] = 1 << 17;
    attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT] = 65000;
    attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH] = 1 << 21;
    attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH] = 1 << 16;
    attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT] = 1 << 16;
    node_.set_welcome(welcome);
    Begin();
    ASSERT_EQ(cu_.cuModuleLoadData(&module_, ".version 8.0"), CUDA_SUCCESS);
  }
  CUtexref Texture(const char* name, CUmodule module = nullptr) {
    CUtexref reference = nullptr;
    EXPECT_EQ(cu_.cuModuleGetTexRef(&reference, module == nullptr ? module_ : module, name),
              CUDA_SUCCESS);
    return reference;
  }
  CUarray Array() {
    const CUDA_ARRAY3D_DESCRIPTOR shape = {
        8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
    CUarray array = nullptr;
    EXPECT_EQ(cu_.cuArray3DCreate_v2(&array, &shape), CUDA_SUCCESS);
    return array;
  }
  // The commands of one name, once there are so many.
  std::vector<TestingNode::Seen> Seen(std::string_view name, size_t count) {
    node_.WaitForCount(name, count);
    return node_.seen(name);
  }
  wire::ReferenceSet::Request LastSet(size_t count) {
    const auto sets = Seen("ReferenceSet", count);
    EXPECT_EQ(sets.size(), count);
    return sets.empty() ? wire::ReferenceSet::Request{} : sets.back().As<wire::ReferenceSet>();
  }
};

TEST_F(References, EachIsAskedForOnce) {
  const CUtexref reference = Texture("image");
  EXPECT_EQ(Texture("image"), reference);
  EXPECT_NE(Texture("other"), reference);
  CUsurfref surface = nullptr;
  ASSERT_EQ(cu_.cuModuleGetSurfRef(&surface, module_, "image"), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("ReferenceGet"), 3u);
  EXPECT_EQ(cu_.cuTexRefSetFlags(reinterpret_cast<CUtexref>(surface), 0),
            CUDA_ERROR_INVALID_HANDLE);
}

// CUDA 11's runtime sets everything again before each launch.
TEST_F(References, OnlyChangesAreTold) {
  const CUtexref reference = Texture("image");
  const CUdeviceptr memory = Alloc(4096);
  EXPECT_EQ(cu_.cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_LINEAR), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuTexRefSetAddress_v2(nullptr, reference, memory, 1024), CUDA_SUCCESS);
  wire::ReferenceSet::Request last = LastSet(1);
  EXPECT_EQ(last.bound, 1u);
  EXPECT_EQ(last.look.resource, wire::ViewResource::kLinear);
  EXPECT_EQ(last.look.address, memory);
  EXPECT_EQ(last.look.size_bytes, 1024u);
  EXPECT_EQ(last.look.filter_mode, static_cast<uint32_t>(CU_TR_FILTER_MODE_LINEAR));
  EXPECT_EQ(cu_.cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_LINEAR), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuTexRefSetFlags(reference, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuTexRefSetAddress_v2(nullptr, reference, memory, 1024), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuTexRefSetFlags(reference, CU_TRSF_READ_AS_INTEGER), CUDA_SUCCESS);
  EXPECT_EQ(LastSet(2).look.flags, static_cast<uint32_t>(CU_TRSF_READ_AS_INTEGER));
  ASSERT_EQ(cu_.cuTexRefSetAddress_v2(nullptr, reference, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(LastSet(3).bound, 0u);
}

TEST_F(References, OfNoModuleAreNobodysBusiness) {
  CUtexref reference = nullptr;
  ASSERT_EQ(cu_.cuTexRefCreate(&reference), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuTexRefSetAddress_v2(nullptr, reference, Alloc(4096), 1024), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuTexRefDestroy(reference), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuTexRefDestroy(reference), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cu_.cuTexRefDestroy(Texture("image")), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("ReferenceSet"), 0u);
}

// The executor would end a session that binds what is gone.
TEST_F(References, ADestroyedArrayIsUnboundFirst) {
  const CUtexref texture = Texture("image");
  CUsurfref surface = nullptr;
  ASSERT_EQ(cu_.cuModuleGetSurfRef(&surface, module_, "written"), CUDA_SUCCESS);
  const CUarray array = Array(), other = Array();
  ASSERT_EQ(cu_.cuTexRefSetArray(texture, array, CU_TRSA_OVERRIDE_FORMAT), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuSurfRefSetArray(surface, array, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuArrayDestroy(other), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuArrayDestroy(array), CUDA_SUCCESS);
  const auto sets = Seen("ReferenceSet", 4);
  ASSERT_EQ(sets.size(), 4u);
  EXPECT_EQ(sets[2].As<wire::ReferenceSet>().bound, 0u);
  EXPECT_EQ(sets[3].As<wire::ReferenceSet>().bound, 0u);
  EXPECT_LT(sets[3].ticket, Seen("ArrayDestroy", 2).back().ticket);
  EXPECT_EQ(cu_.cuTexRefSetFilterMode(texture, CU_TR_FILTER_MODE_LINEAR), CUDA_SUCCESS);
  CUarray none = nullptr;
  EXPECT_EQ(cu_.cuSurfRefGetArray(&none, surface), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(node_.count("ReferenceSet"), 4u);
}

// A fetch would fault, as natively, and not what is told after it is freed.
TEST_F(References, FreedMemoryStaysBound) {
  const CUtexref reference = Texture("image");
  const CUdeviceptr memory = Alloc(4096);
  ASSERT_EQ(cu_.cuTexRefSetAddress_v2(nullptr, reference, memory, 1024), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuTexRefSetFormat(reference, CU_AD_FORMAT_UNSIGNED_INT32, 1), CUDA_SUCCESS);
  const wire::ReferenceSet::Request last = LastSet(2);
  EXPECT_EQ(last.bound, 1u);
  EXPECT_EQ(last.look.address, memory);
  EXPECT_EQ(last.look.size_bytes, 1024u);
  EXPECT_EQ(last.look.format, static_cast<uint32_t>(CU_AD_FORMAT_UNSIGNED_INT32));
  EXPECT_EQ(cu_.cuTexRefSetAddress_v2(nullptr, reference, memory, 1024), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("ReferenceSet"), 2u) << "nothing has changed";
}

// CUDA 11's runtime binds 4 GiB where the program says no size.
TEST_F(References, MoreThanThereIsIsBoundWhole) {
  const CUdeviceptr memory = Alloc(4096);
  ASSERT_EQ(cu_.cuTexRefSetAddress_v2(nullptr, Texture("image"), memory, UINT32_MAX), CUDA_SUCCESS);
  const wire::ReferenceSet::Request last = LastSet(1);
  EXPECT_EQ(last.bound, 1u);
  EXPECT_EQ(last.look.address, memory);
  EXPECT_EQ(last.look.size_bytes, uint64_t{UINT32_MAX});
}

TEST_F(References, AddressesWhereNothingLiesAreBound) {
  constexpr CUdeviceptr kNowhere = 4096;
  const CUtexref reference = Texture("image");
  ASSERT_EQ(cu_.cuTexRefSetAddress_v2(nullptr, reference, kNowhere, 1024), CUDA_SUCCESS);
  EXPECT_EQ(LastSet(1).look.address, kNowhere);
  const CUDA_ARRAY_DESCRIPTOR shape = {16, 4, CU_AD_FORMAT_FLOAT, 1};
  ASSERT_EQ(cu_.cuTexRefSetAddress2D_v3(reference, &shape, kNowhere, 512), CUDA_SUCCESS);
  const wire::ReferenceSet::Request last = LastSet(2);
  EXPECT_EQ(last.bound, 1u);
  EXPECT_EQ(last.look.resource, wire::ViewResource::kPitched);
  EXPECT_EQ(last.look.address, kNowhere);
}

TEST_F(References, GoWithTheirModule) {
  const CUtexref reference = Texture("image");
  ASSERT_EQ(cu_.cuModuleUnload(module_), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuTexRefSetFlags(reference, 0), CUDA_ERROR_INVALID_HANDLE);
}

// A library that the reset does not end keeps the ids that the executor knows.
TEST_F(References, OfALibraryOutliveAReset) {
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  ASSERT_EQ(
      cu_.cuLibraryLoadData(&library, ".version 8.0", nullptr, nullptr, 0, nullptr, nullptr, 0),
      CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuLibraryGetModule(&module, library), CUDA_SUCCESS);
  const CUtexref reference = Texture("image", module);
  ASSERT_EQ(cu_.cuTexRefSetAddress_v2(nullptr, reference, Alloc(4096), 1024), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(LastSet(2).bound, 0u);
  Begin();
  ASSERT_EQ(cu_.cuModuleLoadData(&module_, ".version 8.0"), CUDA_SUCCESS);
  EXPECT_NE(Texture("image"), reference);
  EXPECT_EQ(Texture("image", module), reference);
  EXPECT_EQ(node_.count("ReferenceGet"), 2u);
}

}  // namespace
}  // namespace gpuloom
