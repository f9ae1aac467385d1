// SPDX-License-Identifier: Apache-2.0
// Arrays and views of them, tensor maps, parts of the device.
#include <cstring>

#include "tests/bench/record_forms.h"

namespace gpuloom::executor {
namespace {

using namespace wire;  // nothing else is spoken of here

constexpr ArrayId kMipmap{1}, kPicture{2}, kLevel{3}, kNewArray{77};
constexpr uint32_t kLevels = 11;
constexpr uint32_t kViews = 1000;
constexpr GreenContextId kGreen{1}, kNewGreen{77};
constexpr SplitArguments kSplit{0, 2, 4, 0};

ArrayCreate::Request Array(ArrayId id, uint32_t levels) {
  return {id, levels, 1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST, 0};
}

TextureCreate::Request Texture(ArrayId array) {
  TextureCreate::Request request{};
  request.resource = ViewResource::kArray;
  request.array = array;
  return request;
}

GreenCreate::Request Green(GreenContextId id, uint32_t part) {
  GreenCreate::Request request{};
  request.context = id;
  request.part = DevicePartId{part};
  request.split = kSplit;
  request.picked[0] = 1;
  return request;
}

}  // namespace

void RecordForms::SetUpArrays() {
  meter_->Ask<ArrayCreate>(Array(kMipmap, kLevels));
  meter_->Ask<ArrayCreate>(Array(kPicture, 0));
  Post<ArrayLevel>({kMipmap, kLevel, 0});
  for (uint32_t i = 0; i < kViews; ++i) Post<TextureCreate>(Texture(kPicture));
  texture_ = meter_->Ask<TextureCreate>(Texture(kPicture)).texture;
  surface_ = meter_->Ask<SurfaceCreate>({kPicture}).surface;
  Post<GreenCreate>(Green(kGreen, 1));
}

void RecordForms::FillArrays() {
  On<ArrayCreate>([this] { Post<ArrayCreate>(Array(kNewArray, kLevels)); });
  On<ArrayLevel>([this] { Post<ArrayLevel>({kMipmap, ArrayId{78}, kLevels - 1}); });
  On<ArrayDestroy>([this] { Post<ArrayDestroy>({kNewArray}); });
  On<TextureCreate>([this] { Post<TextureCreate>(Texture(kLevel)); });
  On<TextureDestroy>([this] { Post<TextureDestroy>({texture_}); });
  On<SurfaceCreate>([this] { Post<SurfaceCreate>({kPicture}); });
  On<SurfaceDestroy>([this] { Post<SurfaceDestroy>({surface_}); });
  On<TensorMapEncode>([this] {
    TensorMapEncode::Request request{};
    request.rank = 2;
    request.data_type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    request.address = large_;
    for (uint32_t i = 0; i < 2; ++i) {
      request.dimensions[i] = 64;
      request.strides_bytes[i] = 256;
      request.box[i] = 16;
      request.element_strides[i] = 1;
    }
    Post<TensorMapEncode>(request);
  });
  // Of a map that is none: the driver says so.
  On<TensorMapReplaceAddress>([this] { PostAny<TensorMapReplaceAddress>({large_, {}}); });
}

void RecordForms::FillGreen() {
  On<PartGet>([this] { Post<PartGet>({kWholeDevice}); });
  On<PartSplit>([this] { Post<PartSplit>({kWholeDevice, 0, {0, 1, kMaxSplitGroups, 0}}); });
  On<GreenCreate>([this] {
    PartPick pick{PartPick::What::kGroup, 1, kSplit};
    std::vector<uint8_t> picks(kMaxPartPicks * sizeof(pick));
    for (uint32_t i = 0; i < kMaxPartPicks; ++i) {
      std::memcpy(picks.data() + i * sizeof(pick), &pick, sizeof(pick));
    }
    PostAny<GreenCreate>(Green(kNewGreen, 2), picks);
  });
  On<GreenDestroy>([this] { Post<GreenDestroy>({kGreen}); }).takes_away = true;
  On<GreenStreamCreate>([this] {
    Post<GreenStreamCreate>({StreamId{kStreams + 6}, kGreen, 0, 0});
  });
}

}  // namespace gpuloom::executor
