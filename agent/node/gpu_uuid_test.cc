// SPDX-License-Identifier: Apache-2.0
#include "agent/node/gpu_uuid.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

TEST(GpuUuid, IsWrittenAsNvmlWritesIt) {
  const uint8_t uuid[16] = {0x8d, 0x7e, 0x6a, 0x90, 0x01, 0x23, 0x45, 0x67,
                            0x89, 0xab, 0xcd, 0xef, 0xff, 0x00, 0x10, 0x0f};
  EXPECT_EQ(FormatUuid(uuid), "GPU-8d7e6a90-0123-4567-89ab-cdefff00100f");
}

TEST(GpuUuid, BytesOfASignedTypeAreTheSame) {
  char uuid[16] = {};
  uuid[0] = static_cast<char>(0x8d);
  uuid[15] = 1;
  EXPECT_EQ(FormatUuid(uuid), "GPU-8d000000-0000-0000-0000-000000000001");
}

}  // namespace
}  // namespace gpuloom
