// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "proto/wire/completion_reader.h"
#include "proto/wire/completion_writer.h"
#include "proto/wire/ring_reader.h"
#include "proto/wire/ring_writer.h"

namespace gpuloom::wire {
namespace {

struct Regions {
  std::unique_ptr<CommandRegion> commands = std::make_unique<CommandRegion>();
  std::unique_ptr<CompletionRegion> completions = std::make_unique<CompletionRegion>();
};

class Ring : public ::testing::Test {
 protected:
  // One CopyInline of `payload_bytes`, or false when the ring is full.
  bool Write(uint32_t payload_bytes, uint8_t fill = 0) {
    uint8_t* payload = nullptr;
    auto* request = writer_.Reserve<CopyInline>(payload_bytes, &payload);
    if (request == nullptr) return false;
    *request = CopyInline::Request{kLegacyStream, 0, DevicePtr{fill}};
    std::memset(payload, fill, payload_bytes);
    writer_.Commit();
    return true;
  }

  // What an honest tenant needs: used after each hostile one, in the same process.
  static void ExpectHonestTenantIsServed() {
    Regions regions;
    RingWriter writer(regions.commands.get(), regions.completions.get());
    RingReader reader(regions.commands.get(), &regions.completions->head);
    auto* request = writer.Reserve<MemAlloc>(0, nullptr, 3);
    ASSERT_NE(request, nullptr);
    request->size_bytes = 4096;
    const Ticket ticket = writer.Commit();
    Record record;
    ASSERT_EQ(reader.Next(&record), RingReader::Status::kRecord);
    EXPECT_EQ(record.opcode, kOpcode<MemAlloc>);
    EXPECT_EQ(record.ticket, ticket);
  }

  void PutHeader(uint32_t offset, const RecordHeader& header) {
    std::memcpy(regions_.commands->ring + offset, &header, sizeof(header));
  }
  void ExpectFatal(Fatal fatal) {
    Record record;
    EXPECT_EQ(reader_.Next(&record), RingReader::Status::kFatal);
    EXPECT_EQ(reader_.fatal(), fatal);
    // Sticky, and told to the tenant.
    regions_.commands->head.tail = 0;
    EXPECT_EQ(reader_.Next(&record), RingReader::Status::kFatal);
    EXPECT_EQ(CompletionReader(regions_.completions.get()).fatal(), fatal);
    ExpectHonestTenantIsServed();
  }

  Regions regions_;
  RingWriter writer_{regions_.commands.get(), regions_.completions.get()};
  RingReader reader_{regions_.commands.get(), &regions_.completions->head};
};

TEST_F(Ring, ZeroedMemoryIsAnEmptyRing) {
  Record record;
  EXPECT_EQ(reader_.Next(&record), RingReader::Status::kEmpty);
  EXPECT_FALSE(reader_.HasWork());
  EXPECT_TRUE(CompletionReader(regions_.completions.get()).Done(kLegacyStream, Ticket{0}));
  EXPECT_FALSE(CompletionReader(regions_.completions.get()).Done(kLegacyStream, Ticket{1}));
}

TEST_F(Ring, NothingIsVisibleBeforeCommit) {
  ASSERT_NE(writer_.Reserve<StreamDestroy>(0, nullptr), nullptr);
  Record record;
  EXPECT_EQ(reader_.Next(&record), RingReader::Status::kEmpty);
  writer_.Commit();
  EXPECT_EQ(reader_.Next(&record), RingReader::Status::kRecord);
}

TEST_F(Ring, FullIsNoErrorAndPassesWhenTheReaderGoesOn) {
  uint32_t written = 0;
  while (Write(kMaxInlineCopyBytes)) ++written;
  EXPECT_GE(written, kRingBytes / kMaxRecordBytes);
  Record record;
  ASSERT_EQ(reader_.Next(&record), RingReader::Status::kRecord);
  ASSERT_EQ(reader_.Next(&record), RingReader::Status::kRecord);
  EXPECT_TRUE(Write(kMaxInlineCopyBytes));
  while (reader_.Next(&record) == RingReader::Status::kRecord) {
  }
  EXPECT_EQ(reader_.fatal(), Fatal::kNone);
  EXPECT_EQ(record.ticket, writer_.last_ticket());
}

TEST_F(Ring, RecordsOfRandomSizesArriveInOrderAroundTheEnd) {
  std::mt19937 random(1);
  uint64_t sent = 0, received = 0;
  std::vector<std::pair<uint32_t, uint8_t>> expected;
  for (int step = 0; step < 20000; ++step) {
    const uint32_t bytes =
        random() % 4 == 0 ? random() % (kMaxInlineCopyBytes + 1) : random() % 200;
    const auto fill = static_cast<uint8_t>(random());
    if (random() % 2 == 0 && Write(bytes, fill)) {
      expected.emplace_back(bytes, fill);
      ++sent;
      continue;
    }
    Record record;
    while (reader_.Next(&record) == RingReader::Status::kRecord) {
      ASSERT_LT(received, sent);
      const auto [size, value] = expected[received++];
      ASSERT_EQ(record.ticket, Ticket{received});
      ASSERT_EQ(record.payload.size(), size);
      ASSERT_TRUE(std::all_of(record.payload.begin(), record.payload.end(),
                              [v = value](uint8_t byte) { return byte == v; }));
    }
    ASSERT_EQ(reader_.fatal(), Fatal::kNone) << FatalText(reader_.fatal());
  }
  EXPECT_GT(regions_.completions->head.head / kRingBytes, 3u) << "the ring must go round";
}

TEST_F(Ring, SleepIsAnnouncedOnlyWhenThereIsNoWork) {
  EXPECT_TRUE(reader_.AnnounceSleep());
  EXPECT_TRUE(Write(16));
  EXPECT_TRUE(writer_.ExecutorSleeps());
  reader_.Awake();
  EXPECT_FALSE(writer_.ExecutorSleeps());
  EXPECT_FALSE(reader_.AnnounceSleep());
  EXPECT_FALSE(writer_.ExecutorSleeps());
}

TEST_F(Ring, FirstFatalReasonIsKept) {
  reader_.Fail(Fatal::kBadHandle);
  reader_.Fail(Fatal::kBadRange);
  EXPECT_EQ(reader_.fatal(), Fatal::kBadHandle);
  EXPECT_FALSE(reader_.HasWork());
}

TEST(Completion, FirstFaultIsKeptAndErrorsAreCounted) {
  Regions regions;
  CompletionWriter writer(regions.completions.get(), regions.commands.get());
  const CompletionReader reader(regions.completions.get());
  writer.PublishFault(719);
  writer.PublishFault(700);
  EXPECT_EQ(reader.fault(), 719u);
  writer.PublishAsyncError(1);
  writer.PublishAsyncError(400);
  EXPECT_EQ(reader.async_error_code(), 400u);
  EXPECT_EQ(reader.async_error_count(), 2u);
}

TEST(Completion, AReplyIsFoundByItsTicketOnly) {
  Regions regions;
  CompletionWriter writer(regions.completions.get(), regions.commands.get());
  const CompletionReader reader(regions.completions.get());
  EXPECT_EQ(reader.FindReply(2, Ticket{9}), nullptr);
  writer.PublishReply<MemAlloc>(2, Ticket{9}, 0, MemAlloc::Reply{DevicePtr{0x5000}});
  EXPECT_EQ(reader.FindReply(2, Ticket{8}), nullptr);
  ASSERT_NE(reader.FindReply(2, Ticket{9}), nullptr);
  writer.PublishReply<MemAlloc>(2, Ticket{12}, 2, MemAlloc::Reply{});
  EXPECT_EQ(reader.FindReply(2, Ticket{9}), nullptr);
  EXPECT_EQ(reader.FindReply(2, Ticket{12})->result, 2u);
}

TEST(Completion, APayloadBeyondTheSlotIsCut) {
  Regions regions;
  CompletionWriter writer(regions.completions.get(), regions.commands.get());
  const std::vector<uint8_t> payload(kReplyPayloadBytes + 100, 1);
  writer.PublishReply<LibraryLoad>(0, Ticket{1}, 0, LibraryLoad::Reply{}, payload);
  EXPECT_EQ(regions.completions->replies[0].payload_bytes, kReplyPayloadBytes);
  EXPECT_EQ(regions.completions->replies[1].ticket, 0u);
}

TEST_F(Ring, Malicious_TailBeyondCapacity) {
  regions_.commands->head.tail = kRingBytes + kRecordAlignment;
  ExpectFatal(Fatal::kTailBeyondCapacity);
}

TEST_F(Ring, Malicious_TailBehindHead) {
  regions_.commands->head.tail = 0u - kRecordAlignment;
  ExpectFatal(Fatal::kTailBeyondCapacity);
}

TEST_F(Ring, Malicious_TailMisaligned) {
  regions_.commands->head.tail = 8;
  ExpectFatal(Fatal::kTailMisaligned);
}

TEST_F(Ring, Malicious_RecordOfSizeZero) {
  regions_.commands->head.tail = 64;
  ExpectFatal(Fatal::kRecordTruncated);
}

TEST_F(Ring, Malicious_RecordReachesBeyondTheTail) {
  PutHeader(0, RecordHeader{64, kOpcode<Copy>, kNoReply, 0, 0});
  regions_.commands->head.tail = 48;
  ExpectFatal(Fatal::kRecordTruncated);
}

TEST_F(Ring, Malicious_RecordReachesBeyondTheEndOfTheRing) {
  Record record;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Write(kMaxInlineCopyBytes));
    ASSERT_EQ(reader_.Next(&record), RingReader::Status::kRecord);
  }
  // The writer stands somewhere in the ring; a hostile one claims a record over its end.
  const uint32_t head = regions_.completions->head.head;
  const uint32_t contiguous = kRingBytes - (head & (kRingBytes - 1));
  PutHeader(head & (kRingBytes - 1),
            RecordHeader{contiguous + 16, kOpcode<CopyInline>, kNoReply, contiguous - 16, 0});
  regions_.commands->head.tail = head + contiguous + 16;
  ExpectFatal(Fatal::kRecordTruncated);
}

TEST_F(Ring, Malicious_UnknownOpcode) {
  PutHeader(0, RecordHeader{16, static_cast<uint16_t>(kCommands.size()), kNoReply, 0, 0});
  regions_.commands->head.tail = 16;
  ExpectFatal(Fatal::kUnknownOpcode);
  EXPECT_EQ(reader_.last_opcode_untrusted(), kCommands.size());
}

TEST_F(Ring, Malicious_PadInTheMiddle) {
  PutHeader(0, RecordHeader{16, kPadOpcode, kNoReply, 0, 0});
  regions_.commands->head.tail = 32;
  ExpectFatal(Fatal::kRecordSize);
}

TEST_F(Ring, Malicious_PadOfTheWholeRing) {
  // If it were accepted, a tenant that keeps moving the tail would keep the reader for ever.
  PutHeader(0, RecordHeader{kRingBytes, kPadOpcode, kNoReply, 0, 0});
  regions_.commands->head.tail = kRingBytes;
  ExpectFatal(Fatal::kRecordSize);
}

TEST_F(Ring, Malicious_RandomBytes) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    Regions regions;
    RingReader reader(regions.commands.get(), &regions.completions->head);
    for (uint32_t i = 0; i < 4096; i += 4) {
      // Small numbers are the ones that look like headers.
      const uint32_t word = random() % 3 == 0 ? random() : random() % 80;
      std::memcpy(regions.commands->ring + i, &word, sizeof(word));
    }
    regions.commands->head.tail = random() % 2 == 0 ? random() % 4096 / 16 * 16 : random();
    Record record;
    int records = 0;
    while (reader.Next(&record) == RingReader::Status::kRecord) {
      ASSERT_LT(record.opcode, kCommands.size());
      ASSERT_LE(record.payload.size(), kCommands[record.opcode].max_payload_bytes);
      ASSERT_LT(++records, 4096);
    }
  }
  ExpectHonestTenantIsServed();
}

TEST_F(Ring, Malicious_RewrittenWhileItIsRead) {
  std::atomic<bool> stop{false};
  std::thread tenant([&] {
    std::mt19937 random(5);
    auto* words = reinterpret_cast<uint64_t*>(regions_.commands->ring);
    while (!stop.load(std::memory_order_relaxed)) {
      const RecordHeader honest{64, kOpcode<Copy>, kNoReply, 0, 0};
      RecordHeader header = honest;
      if (random() % 64 == 0) header.size_bytes = random();
      if (random() % 64 == 0) header.opcode = static_cast<uint16_t>(random());
      if (random() % 64 == 0) header.payload_bytes = random();
      const uint32_t slot = random() % 64 * 8;
      uint64_t raw[2];
      std::memcpy(raw, &header, sizeof(raw));
      std::atomic_ref<uint64_t>(words[slot]).store(raw[0], std::memory_order_relaxed);
      std::atomic_ref<uint64_t>(words[slot + 1]).store(raw[1], std::memory_order_relaxed);
      std::atomic_ref<uint32_t>(regions_.commands->head.tail)
          .store(random() % 64 * 64, std::memory_order_release);
    }
  });
  for (int round = 0; round < 4000; ++round) {
    RingReader reader(regions_.commands.get(), &regions_.completions->head);
    Record record;
    for (int i = 0; i < 64 && reader.Next(&record) == RingReader::Status::kRecord; ++i) {
      // What was judged is what is handed out, whatever stands in the ring by now.
      ASSERT_LT(record.opcode, kCommands.size());
      ASSERT_LE(record.payload.size(), kCommands[record.opcode].max_payload_bytes);
    }
  }
  stop = true;
  tenant.join();
  ExpectHonestTenantIsServed();
}

}  // namespace
}  // namespace gpuloom::wire
