// SPDX-License-Identifier: Apache-2.0
// Traces of the real loop: recorded by a library that stands in for CUPTI, and by the executor itself.
#include "agent/executor/trace/tracer.h"

#include <dlfcn.h>

#include <array>
#include <string>

#include "agent/executor/testing/tenant_test_fixture.h"
#include "agent/node/clock.h"
#include "proto/channel/region.h"

namespace gpuloom::executor {
namespace {

using control::TraceStep;
using wire::TraceHeader;
using wire::TraceKind;
using wire::TraceRecord;
using wire::TraceSource;

class TracerTest : public ::testing::Test {
 protected:
  // The fixture is used where `means` has it.
  void Start() {
    scheduler_ = std::make_unique<TestingScheduler>(driver_, true, -1, 0, &means_);
    tenant_ = AddTenant();
  }
  ~TracerTest() override { TestingDriver::Release(); }

  std::unique_ptr<TestingTenant> AddTenant() {
    auto tenant = scheduler_->AddTenant();
    EXPECT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
    return tenant;
  }
  void Run() { EXPECT_TRUE(tenant_->WaitDone(0, tenant_->LaunchPlain(0, 1))); }

  void Begin(uint64_t trace_id) {
    region_ = channel::MakeSealedMemory("trace", wire::kTraceRegionBytes);
    scheduler_->StartTracing(trace_id, region_.get());
    ASSERT_TRUE(scheduler_->WaitTrace(trace_id, TraceStep::kRecords));
  }
  // For one allocation only, with CUPTI if there is one.
  void BeginOwn(uint64_t trace_id, const TestingTenant& tenant, bool cupti,
                uint64_t most_records = 1000) {
    region_ = channel::MakeSealedMemory("trace", wire::kTraceRegionBytes);
    scheduler_->StartTracingOwn(
        {trace_id, tenant.order.allocation_id, most_records, cupti ? 1u : 0u, 0}, region_.get());
    ASSERT_TRUE(scheduler_->WaitTrace(trace_id, TraceStep::kRecords));
  }
  // Takes what was recorded.
  void End(uint64_t trace_id) {
    scheduler_->StopTracing(trace_id);
    ASSERT_TRUE(scheduler_->WaitTrace(trace_id, TraceStep::kStopped));
    ASSERT_TRUE(scheduler_->WaitTrace(trace_id, TraceStep::kWritten));
    Read();
  }
  void Read() {
    ASSERT_TRUE(
        mapping_.Map(region_.get(), wire::kTraceRegionBytes, channel::Mapping::Access::kReadOnly));
    header_ = *reinterpret_cast<const TraceHeader*>(mapping_.data());
    const auto* records =
        reinterpret_cast<const TraceRecord*>(mapping_.data() + wire::kTraceRecordsAt);
    records_.assign(records, records + header_.records);
  }
  bool HasName(std::string_view name) const {
    const auto* names = reinterpret_cast<const char*>(mapping_.data()) + wire::kTraceNamesAt;
    return std::string_view(names, header_.name_bytes).find(name) != std::string_view::npos;
  }
  size_t RecordsOf(uint64_t session) const {
    return static_cast<size_t>(
        std::count_if(records_.begin(), records_.end(),
                      [session](const TraceRecord& one) { return one.session_id == session; }));
  }

  TraceMeans means_;
  const Driver& driver_ = TestingDriver::Reset();
  std::unique_ptr<TestingScheduler> scheduler_;
  std::unique_ptr<TestingTenant> tenant_;
  channel::UniqueFd region_;
  channel::Mapping mapping_;
  TraceHeader header_{};
  std::vector<TraceRecord> records_;
};

TEST_F(TracerTest, WithoutCuptiTheExecutorsOwnMarksServe) {
  means_.why_not = "no CUPTI here";
  Start();
  Run();
  Begin(1);
  for (int i = 0; i < 3; ++i) Run();
  End(1);
  Run();
  EXPECT_EQ(header_.source, static_cast<uint32_t>(TraceSource::kOwn));
  EXPECT_STREQ(header_.source_reason, "no CUPTI here");
  EXPECT_LT(header_.begin_ns, header_.end_ns);
  uint32_t commands = 0;
  for (const TraceRecord& record : records_) {
    EXPECT_EQ(record.session_id, tenant_->order.session_id);
    EXPECT_EQ(record.kind, static_cast<uint32_t>(TraceKind::kKernel));
    EXPECT_LE(record.begin_ns, record.end_ns);
    EXPECT_LE(record.end_ns, header_.end_ns);
    commands += record.commands;
  }
  EXPECT_EQ(commands, 3u);
}

TEST_F(TracerTest, ATenantsOwnTraceHasNothingOfItsNeighbours) {
  means_.why_not = "cupti: /a/path/of/the/node";
  Start();
  const auto neighbour = AddTenant();
  const auto run_neighbours = [&] {
    EXPECT_TRUE(neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1)));
  };
  const auto run_both = [&] {
    run_neighbours();
    Run();
  };
  BeginOwn(1, *tenant_, /*cupti=*/true);
  run_neighbours();
  End(1);
  EXPECT_TRUE(records_.empty());
  EXPECT_EQ(header_.name_bytes, 0u) << "no name of a neighbour's kernel";
  EXPECT_STREQ(header_.source_reason, "cupti: cannot be had on this node");
  EXPECT_EQ(header_.dropped, 0u);
  // What has no room is counted, of one's own only.
  BeginOwn(2, *tenant_, /*cupti=*/false, /*most_records=*/2);
  for (int i = 0; i < 5; ++i) run_both();
  End(2);
  EXPECT_EQ(RecordsOf(tenant_->order.session_id), 2u);
  EXPECT_EQ(records_.size(), 2u);
  EXPECT_EQ(header_.dropped, 3u);
  EXPECT_TRUE(HasName("found")) << "as the testing driver calls all kernels";
  // And the next trace has all.
  Begin(3);
  run_both();
  End(3);
  EXPECT_EQ(RecordsOf(neighbour->order.session_id), 1u);
}

TEST_F(TracerTest, ATraceThatIsStoppedTwiceOrUnknownChangesNothing) {
  Start();
  scheduler_->StopTracing(77);
  Begin(1);
  scheduler_->StopTracing(2);
  Run();
  End(1);
  scheduler_->StopTracing(1);
  EXPECT_EQ(RecordsOf(tenant_->order.session_id), 1u);
  Begin(3);
  End(3);
  EXPECT_TRUE(records_.empty());
}

TEST_F(TracerTest, ANewTraceEndsTheFormerOne) {
  Start();
  Begin(1);
  const channel::UniqueFd former = std::move(region_);
  Begin(2);
  EXPECT_TRUE(scheduler_->WaitTrace(1, TraceStep::kWritten));
  Run();
  End(2);
  EXPECT_EQ(RecordsOf(tenant_->order.session_id), 1u);
  region_.Reset(dup(former.get()));
  Read();
  EXPECT_TRUE(records_.empty());
}

TEST_F(TracerTest, MemoryThatCannotBeUsedEndsTheTraceAtOnce) {
  Start();
  const channel::UniqueFd small = channel::MakeSealedMemory("trace", 4096);
  scheduler_->StartTracing(1, small.get());
  EXPECT_TRUE(scheduler_->WaitTrace(1, TraceStep::kWritten));
  Begin(2);
  Run();
  End(2);
  EXPECT_EQ(records_.size(), 1u);
}

class CuptiTracerTest : public TracerTest {
 protected:
  CuptiTracerTest() {
    means_.cupti.emplace();
    std::string why;
    EXPECT_TRUE(LoadCupti(GPULOOM_CUPTI_FIXTURE, nullptr, &*means_.cupti, &why)) << why;
    void* library = dlopen(GPULOOM_CUPTI_FIXTURE, RTLD_NOW | RTLD_NOLOAD);
    const auto take = [&]<typename F>(const char* name, F* function) {
      *function = reinterpret_cast<F>(dlsym(library, name));
      EXPECT_NE(*function, nullptr) << name;
    };
    take("FixtureKernel", &kernel_);
    take("FixtureCopy", &copy_);
    take("FixtureRefuse", &refuse_);
    take("FixtureEnabled", &enabled_);
    take("FixtureDrop", &drop_);
    refuse_(0);
  }

  void (*kernel_)(uint32_t stream, uint64_t start, uint64_t end, uint32_t correlation,
                  uint64_t node, const char* name) = nullptr;
  void (*copy_)(uint32_t stream, uint64_t start, uint64_t end, uint8_t kind,
                uint64_t bytes) = nullptr;
  void (*refuse_)(int result) = nullptr;
  size_t (*enabled_)() = nullptr;
  void (*drop_)(size_t records) = nullptr;
};

// The testing driver numbers streams from 1; more than anybody has here.
constexpr uint32_t kStreams = 64;

TEST_F(CuptiTracerTest, RecordsBelongToWhoseTheStreamIs) {
  Start();
  const auto later = AddTenant();
  Run();
  EXPECT_EQ(enabled_(), 0u) << "nothing is enabled while there is no trace";
  Begin(1);
  EXPECT_EQ(enabled_(), 3u);
  // A stream that comes into use meanwhile.
  EXPECT_TRUE(later->WaitDone(0, later->LaunchPlain(0, 1)));
  for (uint32_t stream = 0; stream < kStreams; ++stream) {
    const uint64_t now = NowNs();
    kernel_(stream, now, now + 10, 0, 0, "_Z4vaddPKfS0_Pfi");
    copy_(stream, now + 10, now + 20, 2, 4096);
  }
  const uint64_t now = NowNs();
  kernel_(1000, now, now + 10, 5, 99, nullptr);
  kernel_(1, 0, 0, 0, 0, "without times");
  drop_(11);
  End(1);
  EXPECT_EQ(enabled_(), 0u);
  EXPECT_EQ(header_.source, static_cast<uint32_t>(TraceSource::kCupti));
  EXPECT_EQ(records_.size(), 2 * kStreams + 1);
  EXPECT_EQ(header_.incomplete, 1u);
  EXPECT_EQ(header_.lost, 11u);
  EXPECT_EQ(RecordsOf(tenant_->order.session_id), 2u);
  EXPECT_EQ(RecordsOf(later->order.session_id), 2u);
  EXPECT_EQ(RecordsOf(wire::kTraceOfExecutor), 2u);
  EXPECT_EQ(records_.back().correlation, 5u);
  EXPECT_EQ(records_.back().session_id, 0u);
  EXPECT_EQ(records_[1].kind, static_cast<uint32_t>(TraceKind::kCopyFromDevice));
  EXPECT_EQ(records_[1].bytes, 4096u);
  EXPECT_STREQ(
      reinterpret_cast<const char*>(mapping_.data()) + wire::kTraceNamesAt + records_[0].name,
      "_Z4vaddPKfS0_Pfi");
}

TEST_F(CuptiTracerTest, ATenantsOwnTraceHasNothingOfItsNeighbours) {
  Start();
  const auto neighbour = AddTenant();
  Run();
  EXPECT_TRUE(neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1)));
  BeginOwn(1, *tenant_, /*cupti=*/true);
  EXPECT_EQ(enabled_(), 3u);
  std::array<std::string, kStreams> names;  // CUPTI's live as long as its record
  for (uint32_t stream = 0; stream < kStreams; ++stream) {
    const uint64_t now = NowNs();
    names[stream] = "of stream " + std::to_string(stream);
    kernel_(stream, now, now + 10, 0, 0, names[stream].c_str());
  }
  kernel_(1000, NowNs(), NowNs() + 10, 5, 99, "nobody knows whose");
  drop_(11);
  End(1);
  EXPECT_EQ(header_.source, static_cast<uint32_t>(TraceSource::kCupti));
  ASSERT_EQ(records_.size(), 1u);
  EXPECT_EQ(records_[0].session_id, tenant_->order.session_id);
  EXPECT_EQ(header_.lost, 1u) << "that some are lost, and not how many";
  EXPECT_FALSE(HasName("nobody knows whose"));
  const std::string own =
      reinterpret_cast<const char*>(mapping_.data()) + wire::kTraceNamesAt + records_[0].name;
  EXPECT_EQ(header_.name_bytes, own.size() + 2) << "no other name";
}

TEST_F(CuptiTracerTest, WhatIsNobodysIsTheTenantsUntilAnotherComes) {
  Start();
  Run();
  BeginOwn(1, *tenant_, /*cupti=*/true);
  const uint64_t alone = NowNs();
  const auto neighbour = AddTenant();
  EXPECT_TRUE(neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1)));
  const uint64_t beside = NowNs();
  kernel_(1000, alone, alone + 10, 5, 99, "alone");
  kernel_(1000, beside, beside + 10, 5, 99, "beside");
  End(1);
  ASSERT_EQ(records_.size(), 1u);
  EXPECT_EQ(records_[0].session_id, 0u);
  EXPECT_EQ(records_[0].correlation, 5u);
  EXPECT_FALSE(HasName("beside"));
}

TEST_F(CuptiTracerTest, WhereCuptiWouldSlowNeighboursItIsNotAttached) {
  Start();
  BeginOwn(1, *tenant_, /*cupti=*/false);
  EXPECT_EQ(enabled_(), 0u);
  Run();
  End(1);
  EXPECT_EQ(header_.source, static_cast<uint32_t>(TraceSource::kOwn));
  EXPECT_STREQ(header_.source_reason, "cupti: would make other pods of the trust domain slower");
  EXPECT_EQ(records_.size(), 1u);
}

TEST_F(CuptiTracerTest, AStreamThatPassesOnIsTheNewOnes) {
  Start();
  Run();
  Begin(1);
  const uint64_t before = NowNs();
  const uint64_t first = tenant_->order.session_id;
  scheduler_->RemoveTenant(*tenant_);
  ASSERT_TRUE(scheduler_->WaitEnded(first).has_value());
  tenant_ = AddTenant();
  Run();
  const uint64_t after = NowNs();
  for (uint32_t stream = 0; stream < kStreams; ++stream) {
    kernel_(stream, before, before + 1, 0, 0, nullptr);
    kernel_(stream, after, after + 1, 0, 0, nullptr);
  }
  End(1);
  EXPECT_EQ(RecordsOf(first), 1u);
  EXPECT_EQ(RecordsOf(tenant_->order.session_id), 1u);
}

TEST_F(CuptiTracerTest, MoreThanBuffersHoldIsReadMeanwhile) {
  Start();
  Run();
  Begin(1);
  constexpr uint64_t kMany = 2 * kActivityBufferBytes / sizeof(CuptiKernel);
  for (uint64_t i = 0; i < kMany; ++i) {
    const uint64_t now = NowNs();
    kernel_(2, now, now, 0, 0, "k");
  }
  End(1);
  EXPECT_EQ(records_.size() + header_.dropped + header_.lost, kMany);
  EXPECT_EQ(header_.lost, 0u);
}

TEST_F(CuptiTracerTest, WhereItCannotAttachTheExecutorsOwnMarksServe) {
  refuse_(15);
  Start();
  Begin(1);
  Run();
  End(1);
  EXPECT_EQ(header_.source, static_cast<uint32_t>(TraceSource::kOwn));
  EXPECT_NE(std::string(header_.source_reason).find("CUPTI_ERROR_NOT_INITIALIZED"),
            std::string::npos);
  EXPECT_EQ(records_.size(), 1u);
  // And it is tried again.
  refuse_(0);
  Begin(2);
  End(2);
  EXPECT_EQ(header_.source, static_cast<uint32_t>(TraceSource::kCupti));
}

TEST_F(CuptiTracerTest, TheExecutorMayEndInTheMiddle) {
  Start();
  Run();
  Begin(1);
  tenant_.reset();
  scheduler_.reset();
  EXPECT_EQ(enabled_(), 0u);
}

}  // namespace
}  // namespace gpuloom::executor
