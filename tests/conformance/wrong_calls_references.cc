// SPDX-License-Identifier: Apache-2.0
// Texture and surface references.
#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {
namespace {

constexpr CUdeviceptr kNowhere = 0x1234'5678'9000;

constexpr char kText[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64
.visible .global .texref image;
.visible .global .surfref written;
.visible .entry sample(.param .u64 out)
{
  .reg .f32 %f<8>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.f32 %f1, 0f00000000;
  mov.u32 %r1, 0;
  tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [image, {%f1, %f1}];
  sust.b.2d.b32.trap [written, {%r1, %r1}], {%r1};
  st.global.f32 [%rd1], %f3;
  ret;
}
)PTX";

CUresult Array(const Driver& cu, CUarray* array, unsigned flags) {
  const CUDA_ARRAY3D_DESCRIPTOR shape = {16, 16, 0, CU_AD_FORMAT_FLOAT, 1, flags};
  return cu.cuArray3DCreate_v2(array, &shape);
}

void Getters(Calls& c, CUtexref image, CUsurfref written) {
  const Driver& cu = Cu();
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  CUdeviceptr address = 0;
  CUaddress_mode mode = CU_TR_ADDRESS_MODE_WRAP;
  float least = 0;
  c("cuTexRefGetArray of none", [&] { return cu.cuTexRefGetArray(&array, image); });
  c("cuTexRefGetArray without output", [&] { return cu.cuTexRefGetArray(nullptr, image); });
  c("cuTexRefGetMipmappedArray of none",
    [&] { return cu.cuTexRefGetMipmappedArray(&mipmap, image); });
  c("cuTexRefGetAddress of none", [&] { return cu.cuTexRefGetAddress_v2(&address, image); });
  c("cuTexRefGetAddress without output", [&] { return cu.cuTexRefGetAddress_v2(nullptr, image); });
  c("cuTexRefGetAddressMode of dimension 2",
    [&] { return cu.cuTexRefGetAddressMode(&mode, image, 2); });
  c("cuTexRefGetAddressMode of dimension 3",
    [&] { return cu.cuTexRefGetAddressMode(&mode, image, 3); });
  c("cuTexRefGetAddressMode of dimension -1",
    [&] { return cu.cuTexRefGetAddressMode(&mode, image, -1); });
  c("cuTexRefGetAddressMode without output",
    [&] { return cu.cuTexRefGetAddressMode(nullptr, image, 0); });
  c("cuTexRefGetFilterMode without output",
    [&] { return cu.cuTexRefGetFilterMode(nullptr, image); });
  c("cuTexRefGetFlags without output", [&] { return cu.cuTexRefGetFlags(nullptr, image); });
  c("cuTexRefGetFormat without output",
    [&] { return cu.cuTexRefGetFormat(nullptr, nullptr, image); });
  c("cuTexRefGetBorderColor without output",
    [&] { return cu.cuTexRefGetBorderColor(nullptr, image); });
  c("cuTexRefGetMipmapLevelClamp with one output",
    [&] { return cu.cuTexRefGetMipmapLevelClamp(&least, nullptr, image); });
  c("cuTexRefGetFlags of NULL", [&] {
    unsigned flags = 0;
    return cu.cuTexRefGetFlags(&flags, nullptr);
  });
  c("cuSurfRefGetArray of none", [&] { return cu.cuSurfRefGetArray(&array, written); });
  c("cuSurfRefGetArray without output", [&] { return cu.cuSurfRefGetArray(nullptr, written); });
}

void Setters(Calls& c, CUtexref image) {
  const Driver& cu = Cu();
  c("cuTexRefSetFilterMode of NULL",
    [&] { return cu.cuTexRefSetFilterMode(nullptr, CU_TR_FILTER_MODE_POINT); });
  c("cuTexRefSetFilterMode of an unknown mode",
    [&] { return cu.cuTexRefSetFilterMode(image, static_cast<CUfilter_mode>(99)); });
  c("cuTexRefSetMipmapFilterMode of an unknown mode",
    [&] { return cu.cuTexRefSetMipmapFilterMode(image, static_cast<CUfilter_mode>(99)); });
  c("cuTexRefSetAddressMode of an unknown mode",
    [&] { return cu.cuTexRefSetAddressMode(image, 0, static_cast<CUaddress_mode>(99)); });
  c("cuTexRefSetAddressMode of dimension 2",
    [&] { return cu.cuTexRefSetAddressMode(image, 2, CU_TR_ADDRESS_MODE_CLAMP); });
  c("cuTexRefSetAddressMode of dimension 3",
    [&] { return cu.cuTexRefSetAddressMode(image, 3, CU_TR_ADDRESS_MODE_CLAMP); });
  c("cuTexRefSetAddressMode wrapping unnormalized coordinates",
    [&] { return cu.cuTexRefSetAddressMode(image, 0, CU_TR_ADDRESS_MODE_WRAP); });
  c("cuTexRefSetFlags of unknown flags", [&] { return cu.cuTexRefSetFlags(image, 0x1000); });
  c("cuTexRefSetFlags of a seamless cube map",
    [&] { return cu.cuTexRefSetFlags(image, CU_TRSF_SEAMLESS_CUBEMAP); });
  c("cuTexRefSetFormat of 3 channels",
    [&] { return cu.cuTexRefSetFormat(image, CU_AD_FORMAT_FLOAT, 3); });
  c("cuTexRefSetFormat of 0 channels",
    [&] { return cu.cuTexRefSetFormat(image, CU_AD_FORMAT_FLOAT, 0); });
  c("cuTexRefSetFormat of an unknown format",
    [&] { return cu.cuTexRefSetFormat(image, static_cast<CUarray_format>(0x77), 1); });
  c("cuTexRefSetBorderColor without a color",
    [&] { return cu.cuTexRefSetBorderColor(image, nullptr); });
  c("cuTexRefSetMaxAnisotropy of 100", [&] { return cu.cuTexRefSetMaxAnisotropy(image, 100); });
  c("cuTexRefSetMipmapLevelClamp the wrong way round",
    [&] { return cu.cuTexRefSetMipmapLevelClamp(image, 3, 1); });
}

void Binding(Calls& c, CUtexref image, CUsurfref written) {
  const Driver& cu = Cu();
  CUdeviceptr memory = 0;
  CUarray plain = nullptr, array = nullptr;
  size_t offset = 0;
  if (!c.Has("memory", cu.cuMemAlloc_v2(&memory, 1 << 16)) ||
      !c.Has("an array", Array(cu, &plain, 0)) ||
      !c.Has("a surface's array", Array(cu, &array, CUDA_ARRAY3D_SURFACE_LDST))) {
    return;
  }
  c("cuTexRefSetArray without flags", [&] { return cu.cuTexRefSetArray(image, plain, 0); });
  c("cuTexRefSetArray of unknown flags", [&] { return cu.cuTexRefSetArray(image, plain, 2); });
  c("cuTexRefSetArray of NULL",
    [&] { return cu.cuTexRefSetArray(image, nullptr, CU_TRSA_OVERRIDE_FORMAT); });
  c("cuTexRefSetMipmappedArray of NULL",
    [&] { return cu.cuTexRefSetMipmappedArray(image, nullptr, CU_TRSA_OVERRIDE_FORMAT); });
  c("cuTexRefSetFormat behind an array",
    [&] { return cu.cuTexRefSetFormat(image, CU_AD_FORMAT_FLOAT, 1); });
  c("cuTexRefSetAddress of nothing",
    [&] { return cu.cuTexRefSetAddress_v2(nullptr, image, 0, 0); });
  c("cuTexRefSetAddress at NULL with a size",
    [&] { return cu.cuTexRefSetAddress_v2(&offset, image, 0, 256); });
  c("cuTexRefSetAddress nowhere",
    [&] { return cu.cuTexRefSetAddress_v2(&offset, image, kNowhere & ~CUdeviceptr{511}, 256); });
  c("cuTexRefSetAddress of 0 bytes",
    [&] { return cu.cuTexRefSetAddress_v2(&offset, image, memory, 0); });
  c("cuTexRefSetAddress of more than there is",
    [&] { return cu.cuTexRefSetAddress_v2(&offset, image, memory, size_t{1} << 40); });
  c("cuTexRefSetAddress in between without an offset",
    [&] { return cu.cuTexRefSetAddress_v2(nullptr, image, memory + 4, 256); });
  CUDA_ARRAY_DESCRIPTOR shape = {16, 16, CU_AD_FORMAT_FLOAT, 1};
  c("cuTexRefSetAddress2D without a shape",
    [&] { return cu.cuTexRefSetAddress2D_v3(image, nullptr, memory, 512); });
  c("cuTexRefSetAddress2D at an address of 4",
    [&] { return cu.cuTexRefSetAddress2D_v3(image, &shape, memory + 4, 512); });
  c("cuTexRefSetAddress2D of a pitch of 513",
    [&] { return cu.cuTexRefSetAddress2D_v3(image, &shape, memory, 513); });
  c("cuTexRefSetAddress2D of a pitch too small",
    [&] { return cu.cuTexRefSetAddress2D_v3(image, &shape, memory, 32); });
  c("cuTexRefSetAddress2D, the second version, of a pitch of 513",
    [&] { return cu.cuTexRefSetAddress2D_v2(image, &shape, memory, 513); });
  c("cuTexRefSetAddress2D nowhere",
    [&] { return cu.cuTexRefSetAddress2D_v3(image, &shape, kNowhere & ~CUdeviceptr{511}, 512); });
  c("cuTexRefSetAddress2D", [&] { return cu.cuTexRefSetAddress2D_v3(image, &shape, memory, 512); });
  c("cuTexRefSetFormat behind rows",
    [&] { return cu.cuTexRefSetFormat(image, CU_AD_FORMAT_FLOAT, 1); });
  c("cuSurfRefSetArray of an array not made for it",
    [&] { return cu.cuSurfRefSetArray(written, plain, 0); });
  c("cuSurfRefSetArray of unknown flags", [&] { return cu.cuSurfRefSetArray(written, array, 1); });
  c("cuSurfRefSetArray of NULL", [&] { return cu.cuSurfRefSetArray(written, nullptr, 0); });
  c("cuTexRefGetArray of one that was destroyed", [&] {
    CUarray gone = nullptr, same = nullptr;
    CUresult result = Array(cu, &gone, 0);
    if (result == CUDA_SUCCESS) result = cu.cuTexRefSetArray(image, gone, CU_TRSA_OVERRIDE_FORMAT);
    if (result == CUDA_SUCCESS) result = cu.cuArrayDestroy(gone);
    return result != CUDA_SUCCESS ? result : cu.cuTexRefGetArray(&same, image);
  });
  c("cuTexRefGetFormat behind what was bound", [&] {
    CUarray_format format = CU_AD_FORMAT_FLOAT;
    int channels = 0;
    return cu.cuTexRefGetFormat(&format, &channels, image);
  });
}

}  // namespace

void WrongReferences(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUmodule module = nullptr;
  CUfunction sample = nullptr;
  CUtexref image = nullptr, made = nullptr, texture = nullptr;
  CUsurfref written = nullptr, surface = nullptr;
  if (!c.Has("a module", cu.cuModuleLoadData(&module, kText)) ||
      !c.Has("a kernel", cu.cuModuleGetFunction(&sample, module, "sample")) ||
      !c.Has("a texture reference", cu.cuModuleGetTexRef(&image, module, "image")) ||
      !c.Has("a surface reference", cu.cuModuleGetSurfRef(&written, module, "written")) ||
      !c.Has("a reference of no module", cu.cuTexRefCreate(&made))) {
    return;
  }
  c("cuModuleGetTexRef without output",
    [&] { return cu.cuModuleGetTexRef(nullptr, module, "image"); });
  c("cuModuleGetTexRef without a name",
    [&] { return cu.cuModuleGetTexRef(&texture, module, nullptr); });
  c("cuModuleGetTexRef of an empty name",
    [&] { return cu.cuModuleGetTexRef(&texture, module, ""); });
  c("cuModuleGetTexRef without a module",
    [&] { return cu.cuModuleGetTexRef(&texture, nullptr, "image"); });
  c("cuModuleGetTexRef of a surface",
    [&] { return cu.cuModuleGetTexRef(&texture, module, "written"); });
  c("cuModuleGetTexRef of a kernel",
    [&] { return cu.cuModuleGetTexRef(&texture, module, "sample"); });
  c("cuModuleGetSurfRef of a texture",
    [&] { return cu.cuModuleGetSurfRef(&surface, module, "image"); });
  c("cuModuleGetSurfRef without output",
    [&] { return cu.cuModuleGetSurfRef(nullptr, module, "written"); });
  c("cuModuleGetGlobal of a texture reference", [&] {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    return cu.cuModuleGetGlobal_v2(&address, &bytes, module, "image");
  });
  c("cuTexRefCreate without output", [&] { return cu.cuTexRefCreate(nullptr); });
  c("cuTexRefDestroy of NULL", [&] { return cu.cuTexRefDestroy(nullptr); });
  c("cuParamSetTexRef of a unit", [&] { return cu.cuParamSetTexRef(sample, 0, image); });
  c("cuParamSetTexRef of a reference of no module",
    [&] { return cu.cuParamSetTexRef(sample, CU_PARAM_TR_DEFAULT, made); });
  c("cuParamSetTexRef of NULL",
    [&] { return cu.cuParamSetTexRef(sample, CU_PARAM_TR_DEFAULT, nullptr); });
  c("cuParamSetTexRef without a function",
    [&] { return cu.cuParamSetTexRef(nullptr, CU_PARAM_TR_DEFAULT, image); });
  Getters(c, image, written);
  Setters(c, image);
  Binding(c, image, written);
}

}  // namespace gpuloom::conformance
