// SPDX-License-Identifier: Apache-2.0
// What keeps one tenant's work from being everybody's: slices, chores, and tables that are looked up in and never
// walked.
#include "agent/executor/session/chores.h"

#include <gtest/gtest.h>

#include "agent/executor/memory/physical_memory.h"
#include "agent/executor/printing/text_sender.h"
#include "agent/executor/session/id_table.h"
#include "agent/executor/session/range_table.h"
#include "agent/executor/session/slice.h"

namespace gpuloom::executor {
namespace {

uint64_t g_now_ns = 0;
uint64_t TestingClock() { return g_now_ns; }

TEST(Slice, BeginsWithTheFirstQuestionAndEndsAfterItsTime) {
  Slice slice(100, TestingClock);
  g_now_ns = 1000;
  EXPECT_FALSE(slice.Over()) << "what was before does not count";
  g_now_ns = 1099;
  EXPECT_FALSE(slice.Over());
  g_now_ns = 1100;
  EXPECT_TRUE(slice.Over());
}

TEST(Chores, AreDoneInOrderAsFarAsTheSliceReaches) {
  Chores chores;
  std::string done;
  g_now_ns = 1;
  const auto chore = [&done](char name, int pieces) {
    return [&done, name, left = pieces]() mutable {
      done.push_back(name);
      g_now_ns += 10;
      return --left == 0;
    };
  };
  chores.Do(chore('a', 1));
  EXPECT_TRUE(chores.empty()) << "what is small is done at once";
  chores.Do(chore('b', 4));
  chores.Do(chore('c', 2));
  EXPECT_EQ(done, "ab") << "in turn";
  Slice slice(15, TestingClock);
  EXPECT_TRUE(chores.Run(&slice));
  EXPECT_EQ(done, "abbbb") << "a piece, and what fits behind it";
  Slice none(0, TestingClock);
  EXPECT_TRUE(chores.Run(&none));
  EXPECT_EQ(done, "abbbbc") << "however little there is, everybody gets on";
  Slice rest(1000, TestingClock);
  EXPECT_TRUE(chores.Run(&rest));
  EXPECT_FALSE(chores.Run(&rest));
}

TEST(IdTable, AnythingIsTakenUntilNothingIsLeft) {
  IdTable<wire::EventId, int, 1u << 20> table;
  for (const uint32_t id : {1u, 2u, 5000u, 70'000u})
    ASSERT_NE(table.Add(wire::EventId{id}, 7), nullptr);
  EXPECT_NE(table.TakeAny(), nullptr);
  EXPECT_EQ(table.Find(wire::EventId{70'000}), nullptr) << "from the end";
  ASSERT_NE(table.Add(wire::EventId{5001}, 7), nullptr);
  for (int i = 0; i < 4; ++i) EXPECT_NE(table.TakeAny(), nullptr);
  EXPECT_EQ(table.TakeAny(), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

// The same answers as looking at every byte, whatever is added and removed.
TEST(RangeTable, HoldsWhatItsRangesHold) {
  RangeTable table;
  std::map<uint64_t, uint64_t> ranges;
  std::array<bool, 64> bytes{};
  uint32_t random = 1;
  const auto next = [&random](uint32_t bound) {
    return (random = random * 1664525 + 1013904223) >> 8 & (bound - 1);
  };
  for (int round = 0; round < 20'000; ++round) {
    const uint64_t begin = next(64);
    const uint64_t size_bytes = 1 + next(8);
    if (next(2) == 0 && begin + size_bytes <= bytes.size()) {
      const bool free = std::none_of(bytes.begin() + begin, bytes.begin() + begin + size_bytes,
                                     [](bool b) { return b; });
      ASSERT_EQ(table.Add(begin, size_bytes), free);
      if (free) {
        ranges[begin] = size_bytes;
        std::fill_n(bytes.begin() + begin, size_bytes, true);
      }
    } else {
      const auto known = ranges.find(begin);
      ASSERT_EQ(table.Remove(begin), known != ranges.end());
      if (known != ranges.end()) {
        std::fill_n(bytes.begin() + begin, known->second, false);
        ranges.erase(known);
      }
    }
    const uint64_t from = next(64);
    const uint64_t count = 1 + next(16);
    const bool all =
        from + count <= bytes.size() &&
        std::all_of(bytes.begin() + from, bytes.begin() + from + count, [](bool b) { return b; });
    ASSERT_EQ(table.Contains(from, count), all) << from << " " << count << " in round " << round;
  }
}

TEST(SharedMemory, TheNamesOfEventsAndPoolsGoWithThem) {
  SharedMemory names;
  std::vector<SharedEventRef> events;
  for (int i = 0; i < 100; ++i) {
    events.push_back(std::make_shared<SharedEvent>());
    ASSERT_TRUE(names.Export(events.back()));
  }
  EXPECT_EQ(names.events(), 100u);
  const wire::Token token{{events[7]->token.first, events[7]->token.second}};
  EXPECT_EQ(names.FindEvent(token), events[7]);
  events.clear();
  EXPECT_EQ(names.events(), 0u) << "who exports next must not look for what is gone";
  EXPECT_EQ(names.FindEvent(token), nullptr);
}

TEST(SharedMemory, APoolForgetsWhatIsGoneLittleByLittle) {
  SharedMemory names;
  const auto pool = std::make_shared<SharedPool>();
  ASSERT_TRUE(names.Export(pool));
  for (int i = 0; i < 1000; ++i) {
    const auto memory = std::make_shared<Physical>();
    memory->charged_session = 3;
    ASSERT_NE(names.Put(memory, pool.get()), 0u);
    EXPECT_EQ(names.AnyChargedTo(3), memory);
    EXPECT_EQ(names.AnyChargedTo(4), nullptr);
    names.Charge(memory.get(), 4);
    EXPECT_EQ(names.AnyChargedTo(4), memory);
    names.Forget(*memory);
    EXPECT_EQ(names.AnyChargedTo(4), nullptr);
    ASSERT_LT(pool->memory.size(), 8u);
    ASSERT_EQ(pool->memory.size(), pool->numbers.size());
  }
}

TEST(TextSender, SendsPieceByPieceWhatTheTenantTakes) {
  auto commands = std::make_unique<wire::CommandRegion>();
  auto completions = std::make_unique<wire::CompletionRegion>();
  wire::CompletionWriter writer(completions.get(), commands.get());
  TextSender sender(&writer);
  std::string all;
  for (int i = 0; i < 40'000; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    all += line;
    sender.Add(line);
  }
  sender.Add(std::string(TextSender::kMaxWaitingBytes + 5, 'x'));
  std::string taken;
  while (!sender.empty() || taken.size() < completions->text.written) {
    const uint64_t written = completions->text.written;
    while (taken.size() < written)
      taken.push_back(static_cast<char>(completions->text.data[taken.size() % wire::kTextBytes]));
    commands->head.text_read = taken.size();
    sender.Poll();
  }
  EXPECT_EQ(taken.size(), completions->text.announced);
  EXPECT_EQ(taken.substr(0, all.size()), all);
  EXPECT_EQ(taken.find_first_not_of('x', all.size()), std::string::npos);
  EXPECT_LE(taken.size(), wire::kTextBytes + TextSender::kMaxWaitingBytes);
}

}  // namespace
}  // namespace gpuloom::executor
