// Every command of AllCommands, by a typed suite: it arrives whole, at its handler, once; every
// other size is refused; nothing beyond its own bytes is touched.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "proto/wire/completion_writer.h"
#include "proto/wire/dispatch.h"
#include "proto/wire/ring_writer.h"

namespace gpuloom::wire {
namespace {

constexpr uint8_t kPoison = 0xBD;

template <typename List>
struct TypesOf;
template <typename... Cs>
struct TypesOf<CommandList<Cs...>> {
  using Types = ::testing::Types<Cs...>;
};

struct Handled {
  uint16_t opcode;
  std::vector<uint8_t> request;
  std::vector<uint8_t> payload;
};

struct Recorder {
  std::vector<Handled> handled;
  template <Command C>
  void On(Tag<C>, const typename C::Request& request, const Record& record) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&request);
    handled.push_back({kOpcode<C>,
                       {bytes, bytes + kWireSize<typename C::Request>},
                       {record.payload.begin(), record.payload.end()}});
  }
};

template <typename C>
class EveryCommand : public ::testing::Test {
 protected:
  static constexpr uint32_t kRequestBytes = kWireSize<typename C::Request>;
  static constexpr uint16_t kSlot = C::kReply ? 7 : kNoReply;

  // A request whose bytes are 1, 2, 3 …
  static void Fill(uint8_t* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i + 1);
  }

  // Puts a record with any header into the ring, as a tenant could.
  void Put(const RecordHeader& header, uint32_t tail) {
    std::memcpy(commands_->ring, &header, sizeof(header));
    commands_->head.tail = tail;
  }

  static RecordHeader HonestHeader(uint32_t payload_bytes) {
    return RecordHeader{RoundUpToRecord(sizeof(RecordHeader) + kRequestBytes + payload_bytes),
                        kOpcode<C>, kSlot, payload_bytes, 0};
  }

  std::unique_ptr<CommandRegion> commands_ = std::make_unique<CommandRegion>();
  std::unique_ptr<CompletionRegion> completions_ = std::make_unique<CompletionRegion>();
};
TYPED_TEST_SUITE(EveryCommand, typename TypesOf<AllCommands>::Types);

TYPED_TEST(EveryCommand, ArrivesWholeAtItsHandlerOnce) {
  using C = TypeParam;
  RingWriter writer(this->commands_.get(), this->completions_.get());
  RingReader reader(this->commands_.get(), &this->completions_->head);
  Recorder recorder;
  for (const uint32_t payload_bytes : {0u, 1u, MaxPayloadBytes<C>()}) {
    if (payload_bytes > MaxPayloadBytes<C>()) continue;
    uint8_t* payload = nullptr;
    auto* request = writer.Reserve<C>(payload_bytes, &payload, this->kSlot);
    ASSERT_NE(request, nullptr);
    this->Fill(reinterpret_cast<uint8_t*>(request), this->kRequestBytes);
    this->Fill(payload, payload_bytes);
    const Ticket ticket = writer.Commit();

    Record record;
    ASSERT_EQ(reader.Next(&record), RingReader::Status::kRecord);
    EXPECT_EQ(record.ticket, ticket);
    EXPECT_EQ(record.reply_slot, this->kSlot);
    Dispatch(recorder, record);
    ASSERT_EQ(recorder.handled.size(), 1u);
    const Handled& handled = recorder.handled[0];
    EXPECT_EQ(handled.opcode, kOpcode<C>);
    std::vector<uint8_t> expected(this->kRequestBytes);
    this->Fill(expected.data(), expected.size());
    EXPECT_EQ(handled.request, expected);
    expected.resize(payload_bytes);
    this->Fill(expected.data(), expected.size());
    EXPECT_EQ(handled.payload, expected);
    EXPECT_EQ(reader.Next(&record), RingReader::Status::kEmpty);
    recorder.handled.clear();
  }
}

TYPED_TEST(EveryCommand, Malicious_EveryOtherSizeIsRefused) {
  const uint32_t right = this->HonestHeader(0).size_bytes;
  for (uint32_t size = kRecordAlignment; size <= right + 4 * kRecordAlignment;
       size += kRecordAlignment) {
    if (size == right) continue;
    RecordHeader header = this->HonestHeader(0);
    header.size_bytes = size;
    this->Put(header, kRingBytes / 2);
    RingReader reader(this->commands_.get(), &this->completions_->head);
    Record record;
    EXPECT_EQ(reader.Next(&record), RingReader::Status::kFatal) << "size " << size;
    EXPECT_EQ(reader.fatal(), Fatal::kRecordSize) << "size " << size;
  }
}

TYPED_TEST(EveryCommand, Malicious_PayloadBeyondItsLimitIsRefused) {
  using C = TypeParam;
  for (const uint32_t payload_bytes :
       {MaxPayloadBytes<C>() + 1, MaxPayloadBytes<C>() + kRecordAlignment, uint32_t{1} << 31,
        UINT32_MAX - 15, UINT32_MAX}) {
    this->Put(this->HonestHeader(payload_bytes), kRingBytes);
    RingReader reader(this->commands_.get(), &this->completions_->head);
    Record record;
    EXPECT_EQ(reader.Next(&record), RingReader::Status::kFatal) << "payload " << payload_bytes;
  }
}

TYPED_TEST(EveryCommand, Malicious_ReplySlotAgainstTheRuleIsRefused) {
  using C = TypeParam;
  for (const uint16_t slot : {uint16_t{0}, uint16_t{kReplySlots - 1}, uint16_t{kReplySlots},
                              uint16_t{0x7fff}, kNoReply}) {
    RecordHeader header = this->HonestHeader(0);
    header.reply_slot = slot;
    this->Put(header, header.size_bytes);
    RingReader reader(this->commands_.get(), &this->completions_->head);
    Record record;
    const bool honest = C::kReply ? slot < kReplySlots : slot == kNoReply;
    EXPECT_EQ(reader.Next(&record),
              honest ? RingReader::Status::kRecord : RingReader::Status::kFatal)
        << "slot " << slot;
    EXPECT_EQ(reader.fatal(), honest ? Fatal::kNone : Fatal::kBadReplySlot) << "slot " << slot;
  }
}

TYPED_TEST(EveryCommand, RequestTouchesNothingBeyondItsRecord) {
  using C = TypeParam;
  RingWriter writer(this->commands_.get(), this->completions_.get());
  std::memset(this->commands_->ring, kPoison, kRingBytes);
  auto* request = writer.Reserve<C>(0, nullptr, this->kSlot);
  ASSERT_NE(request, nullptr);
  writer.Commit();
  const uint32_t end = sizeof(RecordHeader) + this->kRequestBytes;
  for (uint32_t i = end; i < end + 256; ++i) {
    ASSERT_EQ(this->commands_->ring[i], kPoison) << "byte " << i - end << " beyond the request";
  }
  // The request itself was cleared: what stood there before does not travel.
  for (uint32_t i = sizeof(RecordHeader); i < end; ++i) EXPECT_EQ(this->commands_->ring[i], 0);
}

TYPED_TEST(EveryCommand, ReplyTouchesNothingBeyondItself) {
  using C = TypeParam;
  if constexpr (C::kReply) {
    CompletionWriter writer(this->completions_.get(), this->commands_.get());
    ReplySlot& slot = this->completions_->replies[7];
    std::memset(this->completions_->replies, kPoison, sizeof(this->completions_->replies));
    const ReplySlot before = slot;
    typename C::Reply reply;
    constexpr uint32_t kReplyBytes = kWireSize<typename C::Reply>;
    this->Fill(reinterpret_cast<uint8_t*>(&reply), kReplyBytes);
    const uint8_t payload[3] = {9, 9, 9};
    writer.PublishReply<C>(7, Ticket{5}, 0, reply, payload);
    EXPECT_EQ(slot.ticket, 5u);
    EXPECT_EQ(slot.payload_bytes, 3u);
    EXPECT_EQ(std::memcmp(slot.reply, &reply, kReplyBytes), 0);
    for (size_t i = kReplyBytes; i < sizeof(slot.reply); ++i) ASSERT_EQ(slot.reply[i], kPoison);
    for (size_t i = sizeof(payload); i < sizeof(slot.payload); ++i) {
      ASSERT_EQ(slot.payload[i], kPoison);
    }
    EXPECT_EQ(std::memcmp(&this->completions_->replies[6], &before, sizeof(before)), 0);
    EXPECT_EQ(std::memcmp(&this->completions_->replies[8], &before, sizeof(before)), 0);
  } else {
    EXPECT_EQ(kWireSize<typename C::Reply>, 0u) << "a command without a reply declares one";
  }
}

TYPED_TEST(EveryCommand, HasItsOwnNameAndOpcode) {
  using C = TypeParam;
  ASSERT_LT(kOpcode<C>, kCommands.size());
  EXPECT_EQ(CommandName(kOpcode<C>), C::kName);
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

}  // namespace
}  // namespace gpuloom::wire
