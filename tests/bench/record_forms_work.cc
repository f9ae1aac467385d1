// SPDX-License-Identifier: Apache-2.0
// Streams, events, launches, copies, graphs.
#include "agent/executor/testing/graph.h"
#include "tests/bench/record_forms.h"

namespace gpuloom::executor {
namespace {

using namespace wire;  // nothing else is spoken of here

constexpr uint32_t kSharedEvents = 20'000;
constexpr uint32_t kFirstShared = 100;
constexpr GraphId kSmall{1}, kLarge{2}, kNewGraph{77};
constexpr ReservationId kFull{1};
constexpr StreamId kWriting{RecordForms::kStreams - 1};
constexpr KernelId kOrdinary{1}, kWide{RecordForms::kKernels + 1};

}  // namespace

void RecordForms::SetUpWork() {
  for (uint32_t id = 1; id < kStreams; ++id) Post<StreamCreate>({StreamId{id}, 0, 0});
  for (uint32_t id = 1; id <= kEvents; ++id) Post<EventCreate>({EventId{id}, 1});
  for (uint32_t id = 3; id <= 6; ++id) Post<EventRecord>({EventId{id}, kLegacyStream});
  for (uint32_t id = kFirstShared; id < kFirstShared + kSharedEvents; ++id) {
    Post<EventShare>({EventId{id}});
  }
  event_ = meter_->Ask<EventShare>({EventId{7}}).token;
  TestingGraph graph;
  for (uint32_t i = 0; i < 64; ++i) graph.AddKernel(1, params_);
  Post<GraphInstantiate>({kSmall, 0, HostPtr{0}, 0}, graph.Block());
  for (uint32_t i = 1; i < kMaxConditions; ++i) Post<ConditionCreate>({kFull, 0, 0, 0});
  meter_->Settle();
  Post<GraphInstantiate>({kLarge, 0, StageBytes(large_graph_), large_graph_.size()});
}

void RecordForms::FillWork() {
  const auto streams = [](auto post) {
    for (uint32_t id = 1; id < kStreams; ++id) post(StreamId{id});
  };
  On<StreamCreate>([this] { Post<StreamCreate>({StreamId{kStreams + 5}, 0, 0}); });
  On<StreamDestroy>([this] { Post<StreamDestroy>({StreamId{kStreams + 5}}); });
  // Behind every blocking stream.
  On<StreamMark>([=, this] {
    streams([this](StreamId id) { Post<StreamMark>({id}); });
    Post<StreamMark>({kLegacyStream});
  });
  On<EventCreate>([this] { Post<EventCreate>({EventId{kEvents + 9}, 1}); });
  On<EventDestroy>([this] { Post<EventDestroy>({EventId{kFirstShared}}); });
  On<EventRecord>([=, this] {
    streams([this](StreamId id) { Post<StreamMark>({id}); });
    Post<EventRecord>({EventId{5}, kLegacyStream});
  });
  On<StreamWaitEvent>([=, this] {
    streams([this](StreamId id) { Post<StreamMark>({id}); });
    Post<StreamWaitEvent>({kLegacyStream, EventId{5}});
  });
  // Of events that nobody records again: those are done.
  On<EventElapsed>([this] { Post<EventElapsed>({EventId{3}, EventId{4}}); });
  On<EventShare>([this] { Post<EventShare>({EventId{kEvents}}); });
  On<EventOpen>([this] { Post<EventOpen>({EventId{kEvents + 10}, 0, event_}); });
  On<EventDone>([=, this] {
    streams([this](StreamId id) { Post<StreamMark>({id}); });
    Post<EventRecord>({EventId{5}, kLegacyStream});
    Post<EventDone>({EventId{5}, 1});
  });
  On<Launch>([this] {
    Post<Launch>({kLegacyStream, kWide, {1, 1, 1}, {1, 1, 1}, 0, 0}, longest_);
  });
  On<LaunchEx>([this] {
    LaunchEx::Request request{kLegacyStream, kWide, {1, 1, 1}, {1, 1, 1}, 0, {}};
    request.attributes.set = 1u << 8;  // priority
    Post<LaunchEx>(request, longest_);
  });
  On<HostFunction>([=, this] {
    streams([this](StreamId id) { Post<StreamMark>({id}); });
    Post<HostFunction>({1, kLegacyStream, 0});
  });
  // Each in a stream of its own; words of device memory, which cost most to look at.
  const auto word = [this](uint32_t id) { return large_ + id % 8 * sizeof(uint64_t); };
  const auto write_all = [=, this](uint64_t value) {
    for (uint32_t id = 0; id < 8; ++id) {
      Post<StreamWriteValue>({word(id), value, kWriting, sizeof(uint64_t)});
    }
  };
  On<StreamWriteValue>([=] { write_all(1); });
  On<StreamWaitValue>(
      [=, this] {
        for (uint32_t id = 1; id < static_cast<uint32_t>(kWriting); ++id) {
          Post<StreamWaitValue>({word(id), 1, StreamId{id}, sizeof(uint64_t), 1, 0});
        }
        meter_->Settle();
        write_all(1);
      },
      [=] { write_all(0); });
  On<UnsupportedCall>(
      [this] { Post<UnsupportedCall>({}, std::vector<uint8_t>(kMaxReportBytes, 'x')); });
}

void RecordForms::FillGraphs() {
  On<GraphInstantiate>(
      [this] {
        Post<GraphInstantiate>({kNewGraph, 0, HostPtr{Host(0)}, large_graph_.size()});
      },
      [this] { StageBytes(large_graph_); });
  On<GraphUpdate>([this] {
    TestingGraph update;
    for (uint32_t i = 0; i < 16; ++i) update.AddKernel(1, params_);
    Post<GraphUpdate>({kSmall, 0, HostPtr{0}, 0}, update.Block());
  });
  On<GraphUpload>([this] { Post<GraphUpload>({kLarge, kLegacyStream}); });
  On<GraphLaunch>([this] { Post<GraphLaunch>({kLarge, kLegacyStream}); });
  On<GraphDestroy>([this] { Post<GraphDestroy>({kLarge}); }).takes_away = true;
  On<ConditionCreate>([this] { Post<ConditionCreate>({kFull, 0, 0, 0}); });
  On<ConditionsDrop>([this] { Post<ConditionsDrop>({kFull}); });
}

}  // namespace gpuloom::executor
