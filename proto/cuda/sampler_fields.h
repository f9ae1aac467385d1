// SPDX-License-Identifier: Apache-2.0
// Converts a texture's sampling between CUDA's form and the wire's, whose structs have the same fields as plain
// numbers (TextureCreate's request, ReferenceGet's reply). Nothing is validated: the driver does that, and no value
// lets it read other memory. Pure functions, safe from any thread.
#pragma once

#include <bit>
#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

template <typename Fields>
CUDA_TEXTURE_DESC SamplerOf(const Fields& from) {
  CUDA_TEXTURE_DESC sampler = {};
  for (int i = 0; i < 3; ++i) {
    sampler.addressMode[i] = static_cast<CUaddress_mode>(from.address_mode[i]);
  }
  sampler.filterMode = static_cast<CUfilter_mode>(from.filter_mode);
  sampler.flags = from.flags;
  sampler.maxAnisotropy = from.max_anisotropy;
  sampler.mipmapFilterMode = static_cast<CUfilter_mode>(from.mipmap_filter_mode);
  sampler.mipmapLevelBias = std::bit_cast<float>(from.mipmap_level_bias_bits);
  sampler.minMipmapLevelClamp = std::bit_cast<float>(from.min_mipmap_level_bits);
  sampler.maxMipmapLevelClamp = std::bit_cast<float>(from.max_mipmap_level_bits);
  for (int i = 0; i < 4; ++i) {
    sampler.borderColor[i] = std::bit_cast<float>(from.border_color_bits[i]);
  }
  return sampler;
}

template <typename Fields>
void SetSampler(const CUDA_TEXTURE_DESC& sampler, Fields* to) {
  for (int i = 0; i < 3; ++i) to->address_mode[i] = sampler.addressMode[i];
  to->filter_mode = sampler.filterMode;
  to->flags = sampler.flags;
  to->max_anisotropy = sampler.maxAnisotropy;
  to->mipmap_filter_mode = sampler.mipmapFilterMode;
  to->mipmap_level_bias_bits = std::bit_cast<uint32_t>(sampler.mipmapLevelBias);
  to->min_mipmap_level_bits = std::bit_cast<uint32_t>(sampler.minMipmapLevelClamp);
  to->max_mipmap_level_bits = std::bit_cast<uint32_t>(sampler.maxMipmapLevelClamp);
  for (int i = 0; i < 4; ++i) {
    to->border_color_bits[i] = std::bit_cast<uint32_t>(sampler.borderColor[i]);
  }
}

}  // namespace gpuloom
