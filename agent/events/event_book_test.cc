// SPDX-License-Identifier: Apache-2.0
#include "agent/events/event_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace gpuloom {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

class EventBookTest : public ::testing::Test {
 protected:
  void Add(const std::string& pod_namespace, const std::string& pod,
           const std::string& reason = "GpuFault", const std::string& message = "m",
           const std::string& instance = "") {
    book_.Add({true, pod_namespace, pod, "main", reason, message, false, instance}, now_);
  }
  // What is posted now, all of it.
  std::vector<EventBook::Post> PostAll() {
    std::vector<EventBook::Post> posts;
    while (const auto post = book_.Next(now_)) {
      posts.push_back(*post);
      book_.Posted(post->series, post->count, "name-" + std::to_string(post->series), "uid");
    }
    return posts;
  }

  Clock::Time now_{seconds(1'700'000'000)};
  EventBook book_;
};

TEST_F(EventBookTest, TheFirstIsPostedAtOnceAndWhatFollowsTogether) {
  Add("a", "p", "GpuFault", "one");
  auto posts = PostAll();
  ASSERT_EQ(posts.size(), 1u);
  EXPECT_EQ(posts[0].event.message, "one");
  EXPECT_EQ(posts[0].count, 1u);
  EXPECT_EQ(posts[0].name, "");
  const Clock::Time first = now_;
  for (int i = 0; i < 500; ++i) {
    now_ += std::chrono::milliseconds(100);
    Add("a", "p", "GpuFault", "no " + std::to_string(i));
    EXPECT_TRUE(PostAll().empty());
  }
  now_ = first + EventBook::kRepeatPause;
  posts = PostAll();
  ASSERT_EQ(posts.size(), 1u);
  EXPECT_EQ(posts[0].count, 501u);
  EXPECT_EQ(posts[0].event.message, "no 499");
  EXPECT_EQ(posts[0].name, "name-1") << "the same event, with a higher count";
  EXPECT_EQ(posts[0].pod_uid, "uid");
  EXPECT_EQ(posts[0].first, first);
}

TEST_F(EventBookTest, AnotherPodContainerOrReasonIsAnotherSeries) {
  Add("a", "p");
  Add("a", "q");
  Add("b", "p");
  Add("a", "p", "GpuMemoryRefused");
  Add("", "", "GpuSick");
  EXPECT_EQ(PostAll().size(), 5u);
}

TEST_F(EventBookTest, TwoGpusOrTwoPodsOfOneNameAreTwoSeries) {
  const auto tell = [&](const std::string& pod, const std::string& instance) {
    Event event{true, pod.empty() ? "" : "a", pod, "", "GpuSick", instance};
    event.instance = instance;
    book_.Add(event, now_);
  };
  for (const char* instance : {"GPU-1", "GPU-2"}) tell("", instance);
  for (const char* instance : {"old-allocation", "new-allocation"}) tell("p", instance);
  const auto posts = PostAll();
  ASSERT_EQ(posts.size(), 4u);
  EXPECT_EQ(posts[0].event.message, "GPU-1") << "what was said of one is not lost";
  EXPECT_EQ(posts[1].event.message, "GPU-2");
  for (const EventBook::Post& post : posts) EXPECT_EQ(post.pod_uid, "") << "asked for anew";
  tell("", "GPU-1");
  now_ += EventBook::kRepeatPause;
  ASSERT_EQ(PostAll().size(), 1u);
}

TEST_F(EventBookTest, APodOfTheSameNameIsAnother) {
  Add("a", "train-0", "GpuFault", "m", "of-the-first");
  ASSERT_EQ(PostAll().size(), 1u);
  Add("a", "train-0", "GpuFault", "m", "of-the-second");
  const auto posts = PostAll();
  ASSERT_EQ(posts.size(), 1u);
  EXPECT_EQ(posts[0].name, "");
  EXPECT_EQ(posts[0].pod_uid, "");
  EXPECT_EQ(posts[0].count, 1u);
}

TEST_F(EventBookTest, TheNodesComeFirstThenEachNamespaceHasItsTurn) {
  for (const char* pod : {"p", "q", "r"}) Add("a", pod);
  for (const char* pod : {"p", "q"}) Add("b", pod);
  Add("c", "p");
  std::vector<std::string> order;
  for (int i = 0; i < 7; ++i) {
    if (i == 2) Add("", "", "GpuSick");
    const auto post = book_.Next(now_);
    ASSERT_TRUE(post.has_value());
    order.push_back(post->event.pod_namespace + post->event.pod);
  }
  EXPECT_THAT(order, ::testing::ElementsAre("ap", "bp", "", "cp", "aq", "bq", "ar"));
  // Of one namespace, what has waited longest: not what is tried again.
  now_ += EventBook::kRepeatPause - seconds(1);
  Add("a", "s");
  now_ += seconds(1);
  std::vector<std::string> of_a;
  while (const auto post = book_.Next(now_)) {
    if (post->event.pod_namespace == "a") of_a.push_back(post->event.pod);
  }
  EXPECT_THAT(of_a, ::testing::ElementsAre("s", "p", "q", "r"));
}

TEST_F(EventBookTest, ANamespaceThatFailsWaitsByItself) {
  for (int i = 0; i < 3; ++i) Add("a", "p" + std::to_string(i));
  auto pause = EventBook::kFirstPause;
  for (int i = 0; i < 12; ++i) {
    const auto post = book_.Next(now_);
    ASSERT_TRUE(post.has_value()) << i;
    EXPECT_EQ(post->event.pod_namespace, "a");
    book_.Failed(post->series, now_);
    Add("b", "p" + std::to_string(i));
    ASSERT_EQ(PostAll().size(), 1u) << "the other's";
    now_ += pause - std::chrono::milliseconds(1);
    EXPECT_FALSE(book_.Next(now_).has_value());
    // Each of its series waits a minute as well.
    now_ += std::max(EventBook::kRepeatPause, pause);
    pause = std::min(pause * 2, EventBook::kLongestPause);
  }
  ASSERT_EQ(PostAll().size(), 3u) << "a success ends it";
  book_.Failed(999, now_);
}

TEST_F(EventBookTest, WhatCouldNotBePostedIsPostedLater) {
  Add("a", "p");
  ASSERT_TRUE(book_.Next(now_).has_value());
  EXPECT_FALSE(book_.Next(now_).has_value()) << "it is on its way";
  now_ += EventBook::kRepeatPause;
  ASSERT_EQ(PostAll().size(), 1u);
  now_ += EventBook::kRepeatPause;
  EXPECT_TRUE(PostAll().empty());
}

TEST_F(EventBookTest, Malicious_ANamespaceFloodsOnlyItself) {
  for (int i = 0; i < 5000; ++i) Add("evil", "p" + std::to_string(i));
  EXPECT_LE(book_.series(), EventBook::kMaxSeries);
  size_t of_evil = PostAll().size();
  EXPECT_EQ(of_evil, EventBook::kAtOnce);
  // The node and another namespace are heard at once, although the table is full.
  Add("", "", "GpuSick");
  Add("honest", "p");
  auto posts = PostAll();
  ASSERT_EQ(posts.size(), 2u);
  for (int minute = 0; minute < 10; ++minute) {
    now_ += std::chrono::minutes(1);
    for (int i = 0; i < 1000; ++i) Add("evil", "q" + std::to_string(1000 * minute + i));
    Add("honest", "p");
    for (const auto& post : PostAll()) of_evil += post.event.pod_namespace == "evil";
  }
  EXPECT_LE(of_evil, EventBook::kAtOnce + 10 * 6);
  EXPECT_GT(book_.dropped(), 0u);
  now_ += std::chrono::minutes(1);
  Add("honest", "p");
  posts = PostAll();
  EXPECT_TRUE(std::any_of(posts.begin(), posts.end(), [](const EventBook::Post& post) {
    return post.event.pod_namespace == "honest" && post.count == 12;
  }));
}

TEST_F(EventBookTest, Malicious_ManyNamespacesThatFillTheTableKeepNobodyOut) {
  constexpr size_t kEvil = EventBook::kMaxSeries / EventBook::kMaxSeriesOfNamespace;
  for (size_t evil = 0; evil < kEvil; ++evil) {
    for (size_t i = 0; i < EventBook::kMaxSeriesOfNamespace; ++i) {
      Add("evil-" + std::to_string(evil), "p" + std::to_string(i));
    }
  }
  for (size_t i = 0; i < EventBook::kMaxSeriesOfNamespace; ++i, now_ += EventBook::kRefill)
    PostAll();
  ASSERT_EQ(book_.series(), EventBook::kMaxSeries);
  const uint64_t dropped = book_.dropped();
  Add("honest", "p");
  Add("other", "p");
  EXPECT_EQ(PostAll().size(), 2u);
  EXPECT_EQ(book_.series(), EventBook::kMaxSeries);
  EXPECT_EQ(book_.dropped(), dropped) << "what was given had been told";
}

TEST_F(EventBookTest, Malicious_ATableOfEventsThatWaitHasRoomForWhoHasLess) {
  for (size_t i = 0; i < 2 * EventBook::kMaxSeries; ++i) {
    Add("evil-" + std::to_string(i % 20), "p" + std::to_string(i));
  }
  ASSERT_EQ(book_.series(), EventBook::kMaxSeries);
  const uint64_t dropped = book_.dropped();
  for (int i = 0; i < 10; ++i) Add("honest", "p" + std::to_string(i));
  EXPECT_EQ(book_.dropped(), dropped + 10);
  size_t of_honest = 0;
  for (const auto& post : PostAll()) of_honest += post.event.pod_namespace == "honest";
  EXPECT_EQ(of_honest, 10u);
  EXPECT_EQ(book_.series(), EventBook::kMaxSeries);
}

TEST_F(EventBookTest, Malicious_NamespacesWithoutEndKeepNobodyOut) {
  for (size_t i = 0; i < 2 * EventBook::kMaxSeries; ++i) Add("evil-" + std::to_string(i), "p");
  EXPECT_LE(book_.series(), EventBook::kMaxSeries);
  Add("honest", "p");
  Add("honest", "q");
  size_t of_honest = 0;
  for (const auto& post : PostAll()) of_honest += post.event.pod_namespace == "honest";
  EXPECT_EQ(of_honest, 1u) << "as much as each of them has";
}

TEST_F(EventBookTest, Malicious_MessagesAreOneLineOfABoundedLength) {
  Add("a", "p", "GpuFault", std::string(5000, 'x') + "\n\x1b[2J");
  const auto posts = PostAll();
  ASSERT_EQ(posts.size(), 1u);
  EXPECT_LE(posts[0].event.message.size(), 1024u) << "as much as Kubernetes takes";
  Add("a", "q", "GpuFault", "one\ntwo\x1b");
  EXPECT_THAT(PostAll()[0].event.message, Not(HasSubstr("\n")));
}

TEST_F(EventBookTest, WhatIsDroppedIsNotPostedAgain) {
  Add("a", "gone");
  const auto post = book_.Next(now_);
  ASSERT_TRUE(post.has_value());
  book_.Drop(post->series);
  EXPECT_EQ(book_.dropped(), 1u);
  now_ += EventBook::kRepeatPause;
  EXPECT_TRUE(PostAll().empty());
  book_.Posted(post->series, 1, "late", "");
  book_.Drop(post->series);
  EXPECT_EQ(book_.series(), 0u);
}

}  // namespace
}  // namespace gpuloom
