// SPDX-License-Identifier: Apache-2.0
#include "shim/copy/streaming_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpuloom {
namespace {

TEST(StreamingCopy, EverySizeAndAlignment) {
  constexpr size_t kBytes = 2048, kMargin = 128;
  std::vector<uint8_t> source(kBytes + kMargin);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 37 + 1);
  for (size_t size = 0; size <= kBytes; size += size < 700 ? 1 : 97) {
    for (const size_t to : {size_t{0}, size_t{1}, size_t{15}, size_t{63}, size_t{64}}) {
      for (const size_t from : {size_t{0}, size_t{3}, size_t{64}}) {
        std::vector<uint8_t> destination(kBytes + kMargin, 0);
        StreamingCopy(destination.data() + to, source.data() + from, size);
        std::vector<uint8_t> expected(kBytes + kMargin, 0);
        memcpy(expected.data() + to, source.data() + from, size);
        ASSERT_EQ(destination, expected) << size << " bytes from " << from << " to " << to;
      }
    }
  }
}

}  // namespace
}  // namespace gpuloom
