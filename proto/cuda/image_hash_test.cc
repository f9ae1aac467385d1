// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/image_hash.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace gpuloom {
namespace {

std::string Text(const ImageHash& hash) {
  uint32_t words[8];
  std::memcpy(words, hash.words, sizeof(words));
  std::string text;
  for (const uint32_t word : words) {
    char digits[9];
    snprintf(digits, sizeof(digits), "%08x", word);
    text += digits;
  }
  return text;
}

std::string TextOf(const std::string& bytes) {
  return Text(HashImage(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

// The values of FIPS 180-4's examples.
TEST(ImageHash, IsSha256) {
  EXPECT_EQ(TextOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(TextOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(TextOf("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(TextOf(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(ImageHash, EveryLengthAndEveryByteCounts) {
  std::string bytes(200, 'x');
  std::string last = TextOf("");
  for (size_t size = 1; size <= bytes.size(); ++size) {
    const std::string text = TextOf(bytes.substr(0, size));
    EXPECT_NE(text, last);
    std::string other = bytes.substr(0, size);
    other[size / 2] = 'y';
    EXPECT_NE(TextOf(other), text);
    last = text;
  }
}

TEST(ImageHash, BothWaysToComputeItAgree) {
  if (!HashesImagesFast()) GTEST_SKIP() << "this processor has no instructions for it";
  std::vector<uint8_t> bytes(64 * 50);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 31 + i / 7);
  for (size_t blocks = 0; blocks <= 50; ++blocks) {
    uint32_t plain[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint32_t fast[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    image_hash_internal::TakeBlocksPlainly(plain, bytes.data(), blocks);
    image_hash_internal::TakeBlocksFast(fast, bytes.data(), blocks);
    EXPECT_EQ(std::memcmp(plain, fast, sizeof(plain)), 0) << blocks;
  }
}

}  // namespace
}  // namespace gpuloom
