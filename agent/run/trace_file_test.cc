// SPDX-License-Identifier: Apache-2.0
// What becomes of an executor's records: the file that people load, its sums, and what is done with records that make
// no sense.
#include "agent/run/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "proto/channel/region.h"
#include "proto/trace/event_file.h"

namespace gpuloom::run {
namespace {

using wire::TraceKind;
using wire::TraceRecord;
using Json = nlohmann::json;

constexpr uint64_t kBeginNs = 1'000'000'000, kEndNs = 3'000'000'000;
constexpr uint64_t kExecutor = 7;

// What an executor would have written.
class Region {
 public:
  Region() : memory_(channel::MakeSealedMemory("trace", wire::kTraceRegionBytes)) {
    EXPECT_TRUE(
        mapping_.Map(memory_.get(), wire::kTraceRegionBytes, channel::Mapping::Access::kReadWrite));
    header().source = static_cast<uint32_t>(wire::TraceSource::kCupti);
    header().begin_ns = kBeginNs;
    header().end_ns = kEndNs;
    header().name_bytes = 1;
  }
  wire::TraceHeader& header() { return *reinterpret_cast<wire::TraceHeader*>(mapping_.data()); }
  uint8_t* data() { return mapping_.data(); }
  uint32_t Name(const std::string& name) {
    const auto place = static_cast<uint32_t>(header().name_bytes);
    std::memcpy(mapping_.data() + wire::kTraceNamesAt + place, name.c_str(), name.size() + 1);
    header().name_bytes += name.size() + 1;
    return place;
  }
  TraceRecord& Add(uint64_t session, TraceKind kind, uint64_t begin_ns, uint64_t end_ns) {
    auto* records = reinterpret_cast<TraceRecord*>(mapping_.data() + wire::kTraceRecordsAt);
    TraceRecord& record = records[header().records++];
    record = {session, kBeginNs + begin_ns, kBeginNs + end_ns, 0, 0, 0, 0, 0, 1, 0};
    record.kind = static_cast<uint32_t>(kind);
    return record;
  }
  channel::UniqueFd ReadOnly() const { return channel::ReopenReadOnly(memory_.get()); }

 private:
  channel::UniqueFd memory_;
  channel::Mapping mapping_;
};

class TraceFileTest : public ::testing::Test {
 protected:
  TraceFileTest() {
    AddSession(1, "one");
    AddSession(2, "two");
    AddSession(3, "elsewhere", kExecutor + 1);
  }
  void AddSession(uint64_t id, const char* pod, uint64_t executor = kExecutor) {
    control::TraceSession session{};
    session.session_id = id;
    session.executor_id = executor;
    control::SetText(session.pod_namespace, "team-a");
    control::SetText(session.pod, pod);
    control::SetText(session.container, "main");
    session.time.compute_ns = id * 1'000'000;
    gpu_.trace.sessions.push_back(session);
  }
  // What it comes to.
  std::vector<TracedGpu> Read() {
    gpu_.name = "GPU-1";
    gpu_.window = {kBeginNs - 1000, kEndNs + 1000};
    control::Client::Part part{};
    part.part.executor_id = kExecutor;
    control::SetText(part.part.trust_domain, "red");
    part.region = region_.ReadOnly();
    trace::Part reader;
    EXPECT_TRUE(reader.Open(std::move(part.region), gpu_.SessionsOf(kExecutor), gpu_.window))
        << strerror(errno);
    gpu_.parts.push_back(std::move(reader));
    gpu_.trace.parts.push_back(std::move(part));
    std::vector<TracedGpu> gpus;
    gpus.push_back(std::move(gpu_));
    sums_ = SumUp(gpus);
    return gpus;
  }
  // The file's bytes, which are kept nowhere.
  uint64_t Measure() {
    const std::vector<TracedGpu> gpus = Read();
    uint64_t bytes = 0;
    cookie_io_functions_t counts = {};
    counts.write = [](void* sum, const char*, size_t size) {
      *static_cast<uint64_t*>(sum) += size;
      return static_cast<ssize_t>(size);
    };
    FILE* file = fopencookie(&bytes, "w", counts);
    EXPECT_TRUE(WriteTraceFile(gpus, sums_, file));
    fclose(file);
    return bytes;
  }
  // The file, whose events do not describe themselves.
  Json Write() {
    const std::vector<TracedGpu> gpus = Read();
    FILE* file = tmpfile();
    EXPECT_TRUE(WriteTraceFile(gpus, sums_, file));
    std::string text(static_cast<size_t>(ftell(file)), '\0');
    rewind(file);
    EXPECT_EQ(fread(text.data(), 1, text.size(), file), text.size());
    fclose(file);
    Json json = Json::parse(text);
    for (const Json& event : json["traceEvents"]) {
      if (event["ph"] == "X") events_.push_back(event);
      if (event["name"] == "process_name") processes_[event["pid"]] = event["args"]["name"];
      if (event["name"] == "thread_name") {
        threads_[{event["pid"], event["tid"]}] = event["args"]["name"];
      }
    }
    return json;
  }
  std::string TenantOf(const Json& event) { return processes_.at(event["pid"].get<int>()); }

  Region region_;
  TracedGpu gpu_;
  std::vector<trace::PartSum> sums_;
  std::vector<Json> events_;
  std::map<int, std::string> processes_;
  std::map<std::pair<int, int>, std::string> threads_;
};

TEST_F(TraceFileTest, KernelsAndCopiesAreTheirTenants) {
  TraceRecord& kernel = region_.Add(1, TraceKind::kKernel, 1'500, 2'750);
  kernel.name = region_.Name("_Z4vaddPKfS0_Pfi");
  kernel.stream = 3;
  region_.Add(2, TraceKind::kCopyToDevice, 5'000, 9'000).bytes = 4096;
  const Json json = Write();
  EXPECT_EQ(json["displayTimeUnit"], "ns");
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_EQ(events_[0]["name"], "vadd");
  EXPECT_EQ(events_[0]["args"]["function"], "_Z4vaddPKfS0_Pfi");
  EXPECT_EQ(events_[0]["cat"], "kernel");
  EXPECT_EQ(events_[0]["ts"], 1.5);
  EXPECT_EQ(events_[0]["dur"], 1.25);
  EXPECT_EQ(TenantOf(events_[0]), "team-a/one/main");
  EXPECT_EQ((threads_[{events_[0]["pid"], 3}]), "stream 3");
  EXPECT_EQ(events_[1]["name"], "copy to the device");
  EXPECT_EQ(events_[1]["args"]["bytes"], 4096);
  EXPECT_EQ(TenantOf(events_[1]), "team-a/two/main");
}

TEST_F(TraceFileTest, SumsCountEachMomentOnce) {
  region_.Add(1, TraceKind::kKernel, 0, 1000);
  region_.Add(1, TraceKind::kKernel, 500, 1500);
  region_.Add(2, TraceKind::kKernel, 1000, 2000);
  region_.Add(2, TraceKind::kFill, 4000, 5000);
  region_.Add(2, TraceKind::kCopyToDevice, 6000, 9000);
  const Json part = Write()["otherData"]["gpus"][0]["parts"][0];
  EXPECT_EQ(part["compute_seconds"], 3e-6);
  EXPECT_EQ(part["charged_seconds"], 3e-3);
  EXPECT_EQ(part["seconds"], 2.0);
  EXPECT_EQ(part["source"], "cupti");
  ASSERT_EQ(part["sessions"].size(), 2u) << "those of another executor are not listed";
  EXPECT_EQ(part["sessions"][0]["compute_seconds"], 1.5e-6);
  EXPECT_EQ(part["sessions"][0]["kernels"], 2);
  EXPECT_EQ(part["sessions"][1]["compute_seconds"], 2e-6);
  EXPECT_EQ(part["sessions"][1]["copies"], 1);
}

TEST_F(TraceFileTest, NodesInStreamsOfCudasOwnAreWhoseTheLaunchIs) {
  region_.Add(0, TraceKind::kKernel, 0, 1).correlation = 5;
  region_.Add(2, TraceKind::kKernel, 1, 2).correlation = 5;
  region_.Add(0, TraceKind::kKernel, 2, 3).correlation = 6;
  region_.Add(wire::kTraceOfExecutor, TraceKind::kFill, 2, 3);
  Write();
  ASSERT_EQ(events_.size(), 4u);
  EXPECT_EQ(TenantOf(events_[0]), "team-a/two/main");
  EXPECT_EQ(TenantOf(events_[2]), "unknown tenant of red");
  EXPECT_EQ(TenantOf(events_[3]), "gpuloom itself, for red");
}

TEST_F(TraceFileTest, Malicious_OthersSessionsAreNobodys) {
  region_.Add(3, TraceKind::kKernel, 0, 1);
  region_.Add(99, TraceKind::kKernel, 1, 2);
  Write();
  ASSERT_EQ(events_.size(), 2u);
  for (const Json& event : events_) EXPECT_EQ(TenantOf(event), "unknown tenant of red");
}

TEST_F(TraceFileTest, Malicious_TimesAreCutToTheTrace) {
  region_.Add(1, TraceKind::kKernel, 0, 0).begin_ns = 0;
  region_.Add(1, TraceKind::kKernel, 0, 0).end_ns = UINT64_MAX;
  region_.Add(1, TraceKind::kKernel, 5, 4);
  TraceRecord& never = region_.Add(1, TraceKind::kKernel, 0, 0);
  never.begin_ns = never.end_ns = UINT64_MAX;
  region_.header().begin_ns = 0;
  region_.header().end_ns = UINT64_MAX;
  const Json part = Write()["otherData"]["gpus"][0]["parts"][0];
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_LE(part["compute_seconds"], 2.1);
  EXPECT_LE(part["seconds"], 2.1);
  for (const Json& event : events_) {
    EXPECT_GE(event["ts"], 0);
    EXPECT_LE(event["ts"].get<double>() + event["dur"].get<double>(), 2'000'002);
  }
}

TEST_F(TraceFileTest, Malicious_CountsAndPlacesBeyondTheRegionReachNothing) {
  TraceRecord& record = region_.Add(1, TraceKind::kKernel, 0, 1);
  record.name = UINT32_MAX;
  record.kind = static_cast<uint32_t>(TraceKind::kKernel);
  region_.Add(1, TraceKind::kKernel, 1, 2).kind = UINT32_MAX;
  region_.header().records = UINT64_MAX;
  region_.header().name_bytes = UINT64_MAX;
  region_.header().source = UINT32_MAX;
  std::memset(region_.header().source_reason, 'x', sizeof(region_.header().source_reason));
  const Json part = Write()["otherData"]["gpus"][0]["parts"][0];
  EXPECT_EQ(part["source"], "none");
  EXPECT_FALSE(events_.empty());
  EXPECT_EQ(events_[0]["name"], "kernel");
}

TEST_F(TraceFileTest, Malicious_NamesAreTextInTheFile) {
  region_.Add(1, TraceKind::kKernel, 0, 1).name = region_.Name("\"},{\"\x1b[2J\xff\n");
  Write();
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_THAT(events_[0]["name"].get<std::string>(), ::testing::StartsWith("\"},{\"\x1b[2J"));
}

TEST_F(TraceFileTest, Malicious_PlacesWithinANameAreNoNames) {
  constexpr uint64_t kRecords = 20'000;
  std::memset(region_.data() + wire::kTraceNamesAt + 1, '\x01', wire::kTraceNameBytes - 1);
  region_.header().name_bytes = wire::kTraceNameBytes;
  for (uint32_t i = 0; i < kRecords; ++i) {
    region_.Add(1, TraceKind::kKernel, i, i + 1).name = i + 1;
  }
  EXPECT_LT(Measure(), kRecords * 256);
}

TEST_F(TraceFileTest, Malicious_ALongNameIsInTheFileForABoundedNumberOfTimes) {
  const uint32_t name = region_.Name(std::string(wire::kTraceLongestName, '\x01'));
  for (uint64_t i = 0; i < wire::kTraceRecords; ++i) {
    region_.Add(1, TraceKind::kKernel, i, i + 1).name = name;
  }
  const uint64_t bytes = Measure();
  EXPECT_GT(bytes, trace::kMostNameTextBytes);
  EXPECT_LT(bytes, trace::kMostNameTextBytes + wire::kTraceRecords * 256);
}

TEST_F(TraceFileTest, Malicious_WhatNobodyHasWrittenTakesNoMemoryWhenItIsRead) {
  region_.header().records = wire::kTraceRecords;
  region_.header().name_bytes = wire::kTraceNameBytes;
  Measure();
  struct stat memory = {};
  ASSERT_EQ(fstat(region_.ReadOnly().get(), &memory), 0);
  EXPECT_LT(memory.st_blocks * 512, 1 << 20);
}

TEST_F(TraceFileTest, Malicious_AnythingAtAllMakesAFileThatLoads) {
  std::mt19937_64 random(1);
  for (size_t i = 0; i < wire::kTraceRecordsAt + 2000 * sizeof(TraceRecord); i += 8) {
    const uint64_t word = random();
    std::memcpy(region_.data() + i, &word, sizeof(word));
  }
  region_.header().records = 2000;
  Write();
}

}  // namespace
}  // namespace gpuloom::run
