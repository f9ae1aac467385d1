// SPDX-License-Identifier: Apache-2.0
// Every command of AllCommands: it arrives whole, at its handler, once; every other size is refused;
// nothing beyond its own bytes is touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/wire/completion_writer.h"
#include "proto/wire/dispatch.h"
#include "proto/wire/ring_writer.h"

namespace gpuloom::wire {
namespace {

constexpr uint8_t kPoison = 0xBD;

struct Handled {
  uint16_t opcode;
  std::vector<uint8_t> request;
  std::vector<uint8_t> payload;
};

struct Recorder {
  std::vector<Handled> handled;
  template <Command C>
  void On(Tag<C>, const typename C::Request& request, const Record& record) {
    Keep(kOpcode<C>, {reinterpret_cast<const uint8_t*>(&request), kWireSize<typename C::Request>},
         record);
  }
  void Keep(uint16_t opcode, std::span<const uint8_t> request, const Record& record) {
    handled.push_back(
        {opcode, {request.begin(), request.end()}, {record.payload.begin(), record.payload.end()}});
  }
};

// A command's typed calls behind untyped ones, so that the tests below are compiled once and not for
// each command.
struct TypedCalls {
  uint8_t* (*reserve)(RingWriter& writer, uint32_t payload_bytes, uint8_t** payload, uint16_t slot);
  // Null where there is no reply.
  void (*publish_reply)(CompletionWriter& writer, uint16_t slot, Ticket ticket,
                        const uint8_t* reply, std::span<const uint8_t> payload);
  uint16_t opcode;
  std::string_view name;
};

template <Command C>
TypedCalls CallsOf() {
  TypedCalls calls{};
  calls.reserve = [](RingWriter& writer, uint32_t payload_bytes, uint8_t** payload, uint16_t slot) {
    return reinterpret_cast<uint8_t*>(writer.Reserve<C>(payload_bytes, payload, slot));
  };
  if constexpr (C::kReply) {
    calls.publish_reply = [](CompletionWriter& writer, uint16_t slot, Ticket ticket,
                             const uint8_t* bytes, std::span<const uint8_t> payload) {
      typename C::Reply reply;
      std::copy_n(bytes, kWireSize<typename C::Reply>, reinterpret_cast<uint8_t*>(&reply));
      writer.PublishReply<C>(slot, ticket, 0, reply, payload);
    };
  }
  calls.opcode = kOpcode<C>;
  calls.name = C::kName;
  return calls;
}

template <Command... Cs>
std::vector<TypedCalls> CallsOfAll(CommandList<Cs...>) {
  return {CallsOf<Cs>()...};
}

class EveryCommand : public ::testing::TestWithParam<size_t> {
 protected:
  // A request whose bytes are 1, 2, 3 …
  static void Fill(uint8_t* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i + 1);
  }

  // Puts a record with any header into the ring, as a tenant could.
  void Put(const RecordHeader& header, uint32_t tail) {
    std::memcpy(commands_->ring, &header, sizeof(header));
    commands_->head.tail = tail;
  }

  RecordHeader HonestHeader(uint32_t payload_bytes) const {
    return RecordHeader{RoundUpToRecord(sizeof(RecordHeader) + info_.request_bytes + payload_bytes),
                        opcode_, slot_, payload_bytes, 0};
  }

  const uint16_t opcode_ = static_cast<uint16_t>(GetParam());
  const CommandInfo& info_ = kCommands[opcode_];
  const TypedCalls calls_ = CallsOfAll(AllCommands{})[opcode_];
  const uint16_t slot_ = info_.has_reply ? 7 : kNoReply;
  std::unique_ptr<CommandRegion> commands_ = std::make_unique<CommandRegion>();
  std::unique_ptr<CompletionRegion> completions_ = std::make_unique<CompletionRegion>();
};
INSTANTIATE_TEST_SUITE_P(All, EveryCommand, ::testing::Range(size_t{0}, kCommands.size()),
                         [](const auto& info) { return std::string(kCommands[info.param].name); });

TEST_P(EveryCommand, ArrivesWholeAtItsHandlerOnce) {
  RingWriter writer(commands_.get(), completions_.get());
  RingReader reader(commands_.get(), &completions_->head);
  Recorder recorder;
  for (const uint32_t payload_bytes : {0u, 1u, info_.max_payload_bytes}) {
    if (payload_bytes > info_.max_payload_bytes) continue;
    uint8_t* payload = nullptr;
    uint8_t* request = calls_.reserve(writer, payload_bytes, &payload, slot_);
    ASSERT_NE(request, nullptr);
    Fill(request, info_.request_bytes);
    Fill(payload, payload_bytes);
    const Ticket ticket = writer.Commit();

    Record record;
    ASSERT_EQ(reader.Next(&record), RingReader::Status::kRecord);
    EXPECT_EQ(record.ticket, ticket);
    EXPECT_EQ(record.reply_slot, slot_);
    Dispatch(recorder, record);
    ASSERT_EQ(recorder.handled.size(), 1u);
    const Handled& handled = recorder.handled[0];
    EXPECT_EQ(handled.opcode, opcode_);
    std::vector<uint8_t> expected(info_.request_bytes);
    Fill(expected.data(), expected.size());
    EXPECT_EQ(handled.request, expected);
    expected.resize(payload_bytes);
    Fill(expected.data(), expected.size());
    EXPECT_EQ(handled.payload, expected);
    EXPECT_EQ(reader.Next(&record), RingReader::Status::kEmpty);
    recorder.handled.clear();
  }
}

TEST_P(EveryCommand, Malicious_EveryOtherSizeIsRefused) {
  const uint32_t right = HonestHeader(0).size_bytes;
  for (uint32_t size = kRecordAlignment; size <= right + 4 * kRecordAlignment;
       size += kRecordAlignment) {
    if (size == right) continue;
    RecordHeader header = HonestHeader(0);
    header.size_bytes = size;
    Put(header, kRingBytes / 2);
    RingReader reader(commands_.get(), &completions_->head);
    Record record;
    EXPECT_EQ(reader.Next(&record), RingReader::Status::kFatal) << "size " << size;
    EXPECT_EQ(reader.fatal(), Fatal::kRecordSize) << "size " << size;
  }
}

TEST_P(EveryCommand, Malicious_PayloadBeyondItsLimitIsRefused) {
  for (const uint32_t payload_bytes :
       {info_.max_payload_bytes + 1, info_.max_payload_bytes + kRecordAlignment, uint32_t{1} << 31,
        UINT32_MAX - 15, UINT32_MAX}) {
    Put(HonestHeader(payload_bytes), kRingBytes);
    RingReader reader(commands_.get(), &completions_->head);
    Record record;
    EXPECT_EQ(reader.Next(&record), RingReader::Status::kFatal) << "payload " << payload_bytes;
  }
}

TEST_P(EveryCommand, Malicious_ReplySlotAgainstTheRuleIsRefused) {
  for (const uint16_t slot : {uint16_t{0}, uint16_t{kReplySlots - 1}, uint16_t{kReplySlots},
                              uint16_t{0x7fff}, kNoReply}) {
    RecordHeader header = HonestHeader(0);
    header.reply_slot = slot;
    Put(header, header.size_bytes);
    RingReader reader(commands_.get(), &completions_->head);
    Record record;
    const bool honest = info_.has_reply ? slot < kReplySlots : slot == kNoReply;
    EXPECT_EQ(reader.Next(&record),
              honest ? RingReader::Status::kRecord : RingReader::Status::kFatal)
        << "slot " << slot;
    EXPECT_EQ(reader.fatal(), honest ? Fatal::kNone : Fatal::kBadReplySlot) << "slot " << slot;
  }
}

TEST_P(EveryCommand, RequestTouchesNothingBeyondItsRecord) {
  RingWriter writer(commands_.get(), completions_.get());
  std::memset(commands_->ring, kPoison, kRingBytes);
  const uint8_t* request = calls_.reserve(writer, 0, nullptr, slot_);
  ASSERT_NE(request, nullptr);
  writer.Commit();
  const uint32_t end = sizeof(RecordHeader) + info_.request_bytes;
  for (uint32_t i = end; i < end + 256; ++i) {
    ASSERT_EQ(commands_->ring[i], kPoison) << "byte " << i - end << " beyond the request";
  }
  // The request itself was cleared: what stood there before does not travel.
  for (uint32_t i = sizeof(RecordHeader); i < end; ++i) EXPECT_EQ(commands_->ring[i], 0);
}

TEST_P(EveryCommand, ReplyTouchesNothingBeyondItself) {
  if (!info_.has_reply) {
    EXPECT_EQ(info_.reply_bytes, 0u) << "a command without a reply declares one";
    return;
  }
  CompletionWriter writer(completions_.get(), commands_.get());
  ReplySlot& slot = completions_->replies[7];
  std::memset(completions_->replies, kPoison, sizeof(completions_->replies));
  const ReplySlot before = slot;
  std::vector<uint8_t> reply(info_.reply_bytes);
  Fill(reply.data(), reply.size());
  const std::vector<uint8_t> payload = {9, 9, 9};
  calls_.publish_reply(writer, 7, Ticket{5}, reply.data(), payload);
  EXPECT_EQ(slot.ticket, 5u);
  EXPECT_EQ(slot.payload_bytes, 3u);
  EXPECT_TRUE(std::equal(reply.begin(), reply.end(), slot.reply));
  for (size_t i = reply.size(); i < sizeof(slot.reply); ++i) ASSERT_EQ(slot.reply[i], kPoison);
  for (size_t i = payload.size(); i < sizeof(slot.payload); ++i) {
    ASSERT_EQ(slot.payload[i], kPoison);
  }
  EXPECT_EQ(std::memcmp(&completions_->replies[6], &before, sizeof(before)), 0);
  EXPECT_EQ(std::memcmp(&completions_->replies[8], &before, sizeof(before)), 0);
}

TEST_P(EveryCommand, HasItsOwnNameAndOpcode) {
  EXPECT_EQ(calls_.opcode, opcode_);
  EXPECT_EQ(CommandName(opcode_), calls_.name);
}

TEST(AllCommands, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const CommandInfo& info : kCommands)
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
  EXPECT_EQ(names.size(), AllCommands::kCount);
}

TEST(AllCommands, AnUnknownOpcodeHasAName) {
  EXPECT_EQ(CommandName(static_cast<uint16_t>(kCommands.size())), "unknown command");
  EXPECT_EQ(CommandName(kPadOpcode), "unknown command");
}

struct Launching {
  void On(Tag<Launch>, const Launch::Request&, const Record&) {}
};
struct Copying {
  void On(Tag<Copy>, const Copy::Request&, const Record&) {}
};
static_assert(Handles<Launching, Launch> && !Handles<Launching, Copy>);

TEST(PartWithTest, FindsThePartThatHandlesTheCommand) {
  Launching launching;
  Copying copying;
  const Copying* found_for_copies = &PartWith<Copy>(launching, copying);
  const Launching* found_for_launches = &PartWith<Launch>(launching, copying);
  EXPECT_EQ(found_for_copies, &copying);
  EXPECT_EQ(found_for_launches, &launching);
}

}  // namespace
}  // namespace gpuloom::wire
