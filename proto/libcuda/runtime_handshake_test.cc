// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/runtime_handshake.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace gpuloom {
namespace {

std::string Hex(const uint8_t* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    char pair[3];
    std::snprintf(pair, sizeof(pair), "%02x", bytes[i]);
    text += pair;
  }
  return text;
}

std::string Md2Of(const std::string& message) {
  Md2 md2;
  md2.Update(message.data(), message.size());
  uint8_t digest[Md2::kDigestBytes];
  md2.Finish(digest);
  return Hex(digest, sizeof(digest));
}

// The test suite of RFC 1319, appendix A.5.
TEST(Md2, Rfc1319) {
  EXPECT_EQ(Md2Of(""), "8350e5a3e24c153df2275c9f80692773");
  EXPECT_EQ(Md2Of("a"), "32ec01ec4a6dac72c0ab96fb34c0b5d1");
  EXPECT_EQ(Md2Of("abc"), "da853b0d3f88d99b30283a69e6ded6bb");
  EXPECT_EQ(Md2Of("message digest"), "ab4f496bfb2a530b219ff33031fe06b0");
  EXPECT_EQ(Md2Of("abcdefghijklmnopqrstuvwxyz"), "4e8ddff3650292ab5a4108c3aa47940b");
  EXPECT_EQ(Md2Of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
            "da33def2a42df13975352846c30338cd");
  EXPECT_EQ(
      Md2Of("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
      "d5976f79d83d3a0dc9806c3c66f3efd8");
}

TEST(Md2, PiecesGiveTheSameDigest) {
  Md2 md2;
  for (const char* piece : {"abcdefghijklm", "", "nopqrstu", "vwxyz"})
    md2.Update(piece, std::strlen(piece));
  uint8_t digest[Md2::kDigestBytes];
  md2.Finish(digest);
  EXPECT_EQ(Hex(digest, sizeof(digest)), "4e8ddff3650292ab5a4108c3aa47940b");
}

HandshakeSubject Subject(uint32_t version) {
  return {13000,          version,        4242,           0xdeadbeef,
          0x7f0000001000, 0x7f0000002000, 0x7f0000003000, 1700000000};
}

// What cudart computes on its side, written out another way: one string, nested digests.
HandshakeAnswer Expected(const HandshakeSubject& subject, const std::string& devices) {
  const std::string key("\x14\x6a\xdd\xae\x53\xa9\xa7\x52\xaa\x08\x41\x36\x0b\xf5\x5a\x9f", 16);
  std::string inner;
  std::string outer;
  for (char c : key) {
    inner += static_cast<char>(c ^ 0x36);
    outer += static_cast<char>(c ^ 0x5c);
  }
  const auto append = [&](auto value) {
    inner.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  append(subject.driver_version);
  append(subject.version);
  append(subject.process);
  append(subject.thread);
  append(subject.interface_table);
  append(subject.integrity_table);
  append(subject.integrity_function);
  append(subject.unix_seconds);
  inner += devices;
  const auto digest = [](const std::string& message) {
    Md2 md2;
    md2.Update(message.data(), message.size());
    std::string bytes(Md2::kDigestBytes, '\0');
    md2.Finish(reinterpret_cast<uint8_t*>(bytes.data()));
    return bytes;
  };
  const std::string result = digest(outer + digest(inner));
  HandshakeAnswer answer;
  std::memcpy(answer.words, result.data(), sizeof(answer.words));
  return answer;
}

TEST(Handshake, TwoConstantsAndOneKeyedHash) {
  const RuntimeDevice devices[2] = {{{1, 2, 3}, 0, 0x17, 0}, {{9, 8, 7}, 1, 0x65, 2}};
  EXPECT_EQ(AnswerHandshake(Subject(13000), devices, 2).words[0], 0x3341181c03cb675cu);
  EXPECT_EQ(AnswerHandshake(Subject(13000), devices, 2).words[1], 0x8ed383aa1f4cd1e8u);
  EXPECT_EQ(AnswerHandshake(Subject(13011), devices, 2).words[0], 0x1841181c03cb675cu);
  EXPECT_EQ(AnswerHandshake(Subject(13011), devices, 2).words[1], 0x8ed383aa1f4cd1e8u);
  for (size_t count : {0, 1, 2}) {
    const std::string bytes(reinterpret_cast<const char*>(devices), count * sizeof(RuntimeDevice));
    const HandshakeAnswer expected = Expected(Subject(13002), bytes);
    const HandshakeAnswer answer = AnswerHandshake(Subject(13002), devices, count);
    EXPECT_EQ(answer.words[0], expected.words[0]) << count;
    EXPECT_EQ(answer.words[1], expected.words[1]) << count;
  }
}

TEST(Handshake, EveryFieldCounts) {
  const RuntimeDevice device{{1, 2, 3}, 0, 0x17, 0};
  const HandshakeSubject base = Subject(13002);
  const HandshakeAnswer answer = AnswerHandshake(base, &device, 1);
  for (size_t byte = 0; byte < sizeof(base); ++byte) {
    if (byte >= 4 && byte < 8) continue;  // the version also selects the kind of answer
    HandshakeSubject changed = base;
    reinterpret_cast<uint8_t*>(&changed)[byte] ^= 1;
    EXPECT_NE(AnswerHandshake(changed, &device, 1).words[0], answer.words[0]) << byte;
  }
  for (size_t byte = 0; byte < sizeof(device); ++byte) {
    RuntimeDevice changed = device;
    reinterpret_cast<uint8_t*>(&changed)[byte] ^= 1;
    EXPECT_NE(AnswerHandshake(base, &changed, 1).words[0], answer.words[0]) << byte;
  }
}

}  // namespace
}  // namespace gpuloom
