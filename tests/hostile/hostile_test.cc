// SPDX-License-Identifier: Apache-2.0
// Tenants that lie. Whatever one writes, its own session ends with a reason; the tenant beside it
// in the same trust domain goes on, and the next honest one is served.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <random>

#include "agent/executor/process/sanitized.h"
#include "tests/hostile/hostile_tenant.h"
#include "tests/integration/stack.h"

namespace gpuloom::testing {
namespace {

using wire::Fatal;

class Malicious : public ::testing::Test {
 protected:
  void SetUp() override {
    hostile_ = stack_.Allocate({.pod = "hostile"});
    honest_ = stack_.Allocate({.pod = "honest"});
    neighbour_ = stack_.Tenant(honest_, {"bystander"});
    ASSERT_TRUE(neighbour_.ReadLine("ready"));
    executor_ = stack_.ExecutorOf("team-a");
    ASSERT_GT(executor_, 0);
  }

  // The neighbour works, the executor is the same, a new tenant is served, nothing is charged.
  void TearDown() override {
    EXPECT_TRUE(stack_.BackToNothing(hostile_));
    neighbour_.WriteLine("go");
    EXPECT_TRUE(neighbour_.ReadLine("slowest")) << neighbour_.output();
    EXPECT_EQ(stack_.ExecutorOf("team-a"), executor_);
    EXPECT_EQ(stack_.Tenant(hostile_, {"vadd"}).ExitStatus(), 0);
    neighbour_.CloseInput();
    EXPECT_EQ(neighbour_.ExitStatus(), 0);
    EXPECT_TRUE(stack_.Ended());
  }

  static std::vector<uint8_t> Record(uint32_t size_bytes, uint16_t opcode, uint16_t slot,
                                     uint32_t payload_bytes) {
    const wire::RecordHeader header{size_bytes, opcode, slot, payload_bytes, 0};
    std::vector<uint8_t> bytes(4096);
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
  }

  void ExpectRingIsFatal(const std::vector<uint8_t>& bytes, uint32_t tail, Fatal reason) {
    HostileTenant tenant(hostile_.directory);
    ASSERT_TRUE(tenant.Attach());
    tenant.WriteRing(bytes, tail);
    EXPECT_EQ(tenant.WaitForFatal(), reason) << wire::FatalText(tenant.completions().fatal());
  }

  template <wire::Command C>
  void ExpectCommandIsFatal(const typename C::Request& request, Fatal reason,
                            const std::string& payload = "") {
    HostileTenant tenant(hostile_.directory);
    ASSERT_TRUE(tenant.Attach());
    tenant.Write<C>(request, payload, C::kReply ? 0 : wire::kNoReply);
    EXPECT_EQ(tenant.WaitForFatal(), reason)
        << C::kName << ": " << wire::FatalText(tenant.completions().fatal());
  }

  Stack stack_;
  Allocation hostile_, honest_;
  Process neighbour_;
  pid_t executor_ = -1;
};

TEST_F(Malicious, TailOutOfBounds) {
  ExpectRingIsFatal({}, wire::kRingBytes + 16, Fatal::kTailBeyondCapacity);
  ExpectRingIsFatal({}, 0xfffffff0u, Fatal::kTailBeyondCapacity);
  ExpectRingIsFatal({}, 24, Fatal::kTailMisaligned);
}

TEST_F(Malicious, RecordsThatAreNone) {
  ExpectRingIsFatal(Record(0, 0, 0, 0), 64, Fatal::kRecordTruncated);
  ExpectRingIsFatal(Record(1 << 30, 0, 0, 0), 64, Fatal::kRecordTruncated);
  ExpectRingIsFatal(Record(64, 0x7fff, wire::kNoReply, 0), 64, Fatal::kUnknownOpcode);
  ExpectRingIsFatal(Record(64, wire::kOpcode<wire::MemFree>, 0, 0), 64, Fatal::kRecordSize);
  ExpectRingIsFatal(Record(32, wire::kOpcode<wire::MemFree>, 64, 0), 32, Fatal::kBadReplySlot);
  ExpectRingIsFatal(Record(4096, wire::kOpcode<wire::Launch>, wire::kNoReply, 0xffffffff), 4096,
                    Fatal::kPayloadTooLarge);
}

TEST_F(Malicious, HandlesThatAreNone) {
  ExpectCommandIsFatal<wire::Launch>(
      {wire::kLegacyStream, wire::KernelId{77}, {1, 1, 1}, {1, 1, 1}, 0, 0}, Fatal::kBadHandle);
  ExpectCommandIsFatal<wire::StreamDestroy>({wire::StreamId{5}}, Fatal::kBadHandle);
  ExpectCommandIsFatal<wire::StreamCreate>({wire::StreamId{wire::kMaxStreams}, 1, 0},
                                           Fatal::kBadHandle);
  ExpectCommandIsFatal<wire::EventRecord>({wire::EventId{9}, wire::kLegacyStream},
                                          Fatal::kBadHandle);
  ExpectCommandIsFatal<wire::KernelGet>({wire::LibraryId{3}, wire::KernelId{1}}, Fatal::kBadHandle,
                                        "vadd");
}

// Ids and addresses that are good, but another tenant's: the neighbour has libraries, kernels and
// memory under the smallest ones.
TEST_F(Malicious, WhatIsTheNeighbours) {
  ExpectCommandIsFatal<wire::Launch>(
      {wire::kLegacyStream, wire::KernelId{1}, {1, 1, 1}, {1, 1, 1}, 0, 0}, Fatal::kBadHandle,
      std::string(8, '\0'));
  ExpectCommandIsFatal<wire::LibraryUnload>({wire::LibraryId{1}}, Fatal::kBadHandle);
  // The neighbour was the first to get addresses.
  ExpectCommandIsFatal<wire::Fill>({wire::kLegacyStream, 4, 0, 0, 0x5000'0000'0000, 1},
                                   Fatal::kBadRange);
  HostileTenant tenant(hostile_.directory);
  ASSERT_TRUE(tenant.Attach());
  const wire::Ticket ticket =
      tenant.Write<wire::MemFree>({wire::DevicePtr{0x5000'0000'0000}}, "", 0);
  const wire::ReplySlot* answer = tenant.WaitForReply(0, ticket);
  EXPECT_TRUE(tenant.completions().fatal() != Fatal::kNone ||
              (answer != nullptr && answer->result != 0));
}

TEST_F(Malicious, RangesOfOthers) {
  // The executor's own memory, and device addresses that were never granted.
  ExpectCommandIsFatal<wire::Copy>(
      {wire::kLegacyStream, wire::CopyKind::kHostToDevice, 0x5000'0000'0000, 0x400000, 4096},
      Fatal::kBadRange);
  ExpectCommandIsFatal<wire::Fill>({wire::kLegacyStream, 1, 0, 0, 0x400000, 4096},
                                   Fatal::kBadRange);
  ExpectCommandIsFatal<wire::HostRegister>({wire::HostPtr{0x400000}, 4096}, Fatal::kBadRange);
  ExpectCommandIsFatal<wire::LibraryLoad>(
      {wire::LibraryId{1}, 0, wire::HostPtr{~uint64_t{0} - 8}, 4096}, Fatal::kBadRange);
}

TEST_F(Malicious, RandomRings) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    HostileTenant tenant(hostile_.directory);
    ASSERT_TRUE(tenant.Attach());
    std::vector<uint8_t> bytes(wire::kRingBytes);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    tenant.WriteRing(bytes, (random() % wire::kRingBytes) & ~15u);
    EXPECT_NE(tenant.WaitForFatal(), Fatal::kNone);
  }
}

// Sizes, opcodes and payload lengths change while the executor reads them.
TEST_F(Malicious, RingRewrittenWhileItIsRead) {
  HostileTenant tenant(hostile_.directory);
  ASSERT_TRUE(tenant.Attach());
  for (uint32_t offset = 0; offset < wire::kRingBytes; offset += 16) {
    const wire::RecordHeader header{16, wire::kOpcode<wire::MemInfo>, 0, 0, 0};
    std::memcpy(tenant.commands()->ring + offset, &header, sizeof(header));
  }
  std::atomic<bool> stop{false};
  std::thread rewriter([&] {
    std::mt19937 random(11);
    while (!stop) {
      auto& word = *reinterpret_cast<uint32_t*>(tenant.commands()->ring +
                                                (random() % wire::kRingBytes & ~3u));
      std::atomic_ref<uint32_t>(word).store(random(), std::memory_order_relaxed);
    }
  });
  for (uint32_t tail = 4096; tail < wire::kRingBytes; tail += 4096) {
    tenant.WriteRing({}, tail);
    std::this_thread::sleep_for(Milliseconds(1));
  }
  EXPECT_NE(tenant.WaitForFatal(), Fatal::kNone);
  stop = true;
  rewriter.join();
}

TEST_F(Malicious, ImagesThatAreNone) {
  HostileTenant tenant(hostile_.directory);
  ASSERT_TRUE(tenant.Attach());
  std::mt19937 random(3);
  const uint64_t fatbin_header[] = {0x00100001ba55ed50, 1 << 20};
  for (uint32_t i = 1; i <= 10; ++i) {
    for (int k = 0; k < 4096; ++k) tenant.arena()[k] = static_cast<uint8_t>(random());
    if (i % 2 == 0) std::memcpy(tenant.arena(), fatbin_header, sizeof(fatbin_header));
    const wire::Ticket ticket = tenant.Write<wire::LibraryLoad>(
        {wire::LibraryId{i}, 0, wire::HostPtr{tenant.welcome().host_range_begin}, 4096}, "", 0);
    const wire::ReplySlot* answer = tenant.WaitForReply(0, ticket);
    ASSERT_NE(answer, nullptr) << wire::FatalText(tenant.completions().fatal());
    EXPECT_NE(answer->result, 0u);
  }
  // An image that is no image is the program's mistake, not an attack: the session goes on.
  EXPECT_EQ(tenant.completions().fatal(), Fatal::kNone);
}

TEST_F(Malicious, NeverReadsItsDoorbell) {
  HostileTenant tenant(hostile_.directory);
  ASSERT_TRUE(tenant.Attach());
  std::atomic_ref<uint32_t>(tenant.commands()->head.tenant_sleeps).store(1);
  for (int i = 0; i < 5000; ++i) {
    const wire::Ticket ticket = tenant.Write<wire::MemInfo>({}, "", 1);
    ASSERT_NE(tenant.WaitForReply(1, ticket), nullptr) << i;
  }
  EXPECT_EQ(tenant.completions().fatal(), Fatal::kNone);
}

TEST_F(Malicious, Handshakes) {
  const auto refused = [this](const void* data, size_t size) {
    HostileTenant tenant(hostile_.directory);
    return tenant.Send(data, size) &&
           (!tenant.ReceiveWelcome() || tenant.welcome().admission != wire::Admission::kAccepted);
  };
  const wire::Hello no_magic{0, wire::kWireMajor, wire::kWireMinor, 0, 0, 0, {}};
  EXPECT_TRUE(refused(&no_magic, sizeof(no_magic)));
  EXPECT_TRUE(refused(&no_magic, 3));
  const std::vector<char> large(100'000, 'x');
  EXPECT_TRUE(refused(large.data(), large.size()));

  const wire::Hello next_major{wire::kHelloMagic, wire::kWireMajor + 1, 0, 0, 0, 0, {}};
  HostileTenant tenant(hostile_.directory);
  ASSERT_TRUE(tenant.Send(&next_major, sizeof(next_major)));
  ASSERT_TRUE(tenant.ReceiveWelcome());
  EXPECT_EQ(tenant.welcome().admission, wire::Admission::kWrongVersion);
  EXPECT_NE(std::string(tenant.welcome().message).find(std::to_string(wire::kWireMajor)),
            std::string::npos)
      << tenant.welcome().message;

  // Descriptors where none are expected are not kept.
  const size_t before = DescriptorCount(stack_.scheduler().pid());
  const wire::Hello hello{wire::kHelloMagic, wire::kWireMajor, wire::kWireMinor, 0, 0, 0, {}};
  for (int i = 0; i < 50; ++i) {
    HostileTenant with_fds(hostile_.directory);
    const int fds[] = {0, 1, 2, 0, 1, 2};
    (void)with_fds.Send(&hello, sizeof(hello), fds, std::size(fds));
    (void)with_fds.ReceiveWelcome();
  }
  EXPECT_TRUE(Eventually([&] { return DescriptorCount(stack_.scheduler().pid()) <= before + 2; }));
}

// Many that connect and say nothing must not keep others from being served.
TEST_F(Malicious, SilentConnections) {
  std::vector<std::unique_ptr<HostileTenant>> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(std::make_unique<HostileTenant>(hostile_.directory));
  }
  EXPECT_EQ(stack_.Tenant(honest_, {"vadd"}).ExitStatus(), 0);
}

TEST_F(Malicious, RegionsCannotBeShrunkOrSealed) {
  HostileTenant tenant(hostile_.directory);
  ASSERT_TRUE(tenant.Attach());
  for (const wire::WelcomeFd which :
       {wire::kCommandRegionFd, wire::kCompletionRegionFd, wire::kArenaFd}) {
    EXPECT_NE(ftruncate(tenant.descriptor(which), 0), 0) << which;
    EXPECT_NE(fcntl(tenant.descriptor(which), F_ADD_SEALS, F_SEAL_WRITE), 0) << which;
  }
  void* writable = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
                        tenant.descriptor(wire::kCompletionRegionFd), 0);
  EXPECT_EQ(writable, MAP_FAILED);
}

// The most that the process has had in memory, in MiB; -1 when it cannot be read.
int64_t MostResidentMib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) / 1024;
  }
  return -1;
}

// What the executor copies is paid for by nobody's container: images, inputs and graphs out of holes in
// the arena cost the tenant nothing.
class MaliciousCopies : public ::testing::Test {
 protected:
  static constexpr uint64_t kInputBytes = 24 * kMiB;
  static constexpr uint16_t kInputs = 48;
  static constexpr uint32_t kPtxInput = 1;  // CU_JIT_INPUT_PTX

  void SetUp() override {
    ASSERT_EQ(stack_.Tenant(honest_, {"vadd"}).ExitStatus(), 0);
    executor_ = stack_.ExecutorOf("team-a");
    before_mib_ = MostResidentMib(executor_);
    ASSERT_GT(before_mib_, 0);
    ASSERT_TRUE(tenant_.Attach()) << tenant_.welcome().message;
    hole_ = wire::HostPtr{tenant_.welcome().host_range_begin};
  }

  // The executor has taken no more than a session may cost it, and serves on.
  void TearDown() override {
    // What is freed stays in a sanitizer's quarantine.
    if (!executor::kSanitized) {
      EXPECT_LT(MostResidentMib(executor_), before_mib_ + 300);
    }
    EXPECT_EQ(stack_.ExecutorOf("team-a"), executor_);
    EXPECT_EQ(stack_.Tenant(honest_, {"vadd"}).ExitStatus(), 0);
    tenant_.HangUp();
    EXPECT_TRUE(stack_.BackToNothing(hostile_));
    EXPECT_TRUE(stack_.Ended());
  }

  Stack stack_{{.executor_memory = "512MiB"}};  // a session's: 128 MiB
  const Allocation honest_ = stack_.Allocate({.pod = "honest"});
  const Allocation hostile_ =
      stack_.Allocate({.pod = "hostile", .pinned_limit_bytes = uint64_t{8} << 30});
  HostileTenant tenant_{hostile_.directory};
  pid_t executor_ = -1;
  int64_t before_mib_ = -1;
  wire::HostPtr hole_{};
};

TEST_F(MaliciousCopies, ManyImagesAtATime) {
  std::vector<wire::Ticket> tickets;
  for (uint16_t i = 0; i < kInputs; ++i) {
    tickets.push_back(
        tenant_.Write<wire::LibraryLoad>({wire::LibraryId{i + 1u}, 0, hole_, kInputBytes}, "", i));
  }
  for (uint16_t i = 0; i < kInputs; ++i) {
    const wire::ReplySlot* reply = tenant_.WaitForReply(i, tickets[i]);
    ASSERT_NE(reply, nullptr);
    EXPECT_NE(reply->result, 0u);
  }
}

TEST_F(MaliciousCopies, OneImageBeyondWhatASessionMayCost) {
  const auto ticket =
      tenant_.Write<wire::LibraryLoad>({wire::LibraryId{1}, 0, hole_, 200 * kMiB}, "", 0);
  const wire::ReplySlot* reply = tenant_.WaitForReply(0, ticket);
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(reply->result, 2u) << "CUDA_ERROR_OUT_OF_MEMORY";
  const std::string text(reinterpret_cast<const char*>(reply->payload), reply->payload_bytes);
  EXPECT_NE(text.find("of 128 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("--executor-memory"), std::string::npos) << text;
}

TEST_F(MaliciousCopies, ManyLinksWithInputs) {
  std::vector<wire::Ticket> added;
  uint16_t made = 0;
  // As many as one tenant can have.
  for (; made < kInputs; ++made) {
    const auto ticket = tenant_.Write<wire::LinkCreate>({wire::LinkId{made + 1u}}, "", made);
    const wire::ReplySlot* reply = tenant_.WaitForReply(made, ticket);
    ASSERT_NE(reply, nullptr);
    if (reply->result != 0) break;
  }
  ASSERT_GE(made, 8);
  for (uint16_t i = 0; i < made; ++i) {
    const wire::LinkAdd::Request request{wire::LinkId{i + 1u}, kPtxInput, hole_, kInputBytes, 0, 0};
    added.push_back(tenant_.Write<wire::LinkAdd>(request, "", i));
  }
  bool refused = false;
  for (uint16_t i = 0; i < made; ++i) {
    const wire::ReplySlot* reply = tenant_.WaitForReply(i, added[i]);
    ASSERT_NE(reply, nullptr);
    refused |= reply->result == 2u;
  }
  EXPECT_TRUE(refused) << "CUDA_ERROR_OUT_OF_MEMORY";
}

// Code and variables are the driver's own memory, which no grant of the scheduler's stands for.
TEST(MaliciousModules, VariablesCountAgainstTheQuota) {
  Stack stack;
  const Allocation hostile = stack.Allocate({.pod = "hostile", .quota_bytes = 64 * kMiB});
  HostileTenant tenant(hostile.directory);
  ASSERT_TRUE(tenant.Attach());
  const auto load = [&](uint32_t library, uint64_t bytes) {
    const std::string image =
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .global .align 4 .b8 x[" +
        std::to_string(bytes) + "];\n";
    std::memcpy(tenant.arena(), image.data(), image.size());
    const wire::HostPtr place{tenant.welcome().host_range_begin};
    return tenant.WaitForReply(0, tenant.Write<wire::LibraryLoad>(
                                      {wire::LibraryId{library}, 0, place, image.size()}, "", 0));
  };
  const wire::ReplySlot* reply = load(1, 1500 * kMiB);
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(reply->result, 2u) << "CUDA_ERROR_OUT_OF_MEMORY";
  const std::string text(reinterpret_cast<const char*>(reply->payload), reply->payload_bytes);
  EXPECT_NE(text.find("quota"), std::string::npos) << text;
  EXPECT_EQ(stack.State(hostile).memory_used_bytes, 0u);

  reply = load(2, 16 * kMiB);
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(reply->result, 0u);
  EXPECT_EQ(stack.State(hostile).memory_used_bytes, 16 * kMiB);
  const auto ticket = tenant.Write<wire::LibraryUnload>({wire::LibraryId{2}}, "", 0);
  ASSERT_NE(tenant.WaitForReply(0, ticket), nullptr);
  EXPECT_TRUE(Eventually([&] { return stack.State(hostile).memory_used_bytes == 0; }));
  tenant.HangUp();
  EXPECT_TRUE(stack.BackToNothing(hostile));
  EXPECT_EQ(stack.Tenant(hostile, {"vadd"}).ExitStatus(), 0);
  EXPECT_TRUE(stack.Ended());
}

// What is pinned cannot be unpinned while a kernel runs, and so its addresses stay in use.
TEST(MaliciousAddresses, ManySessionsThatPinBesideALongKernel) {
  Stack stack;
  const AllocationSpec spec{.pod = "hostile", .pinned_limit_bytes = uint64_t{8} << 30};
  const Allocation hostile = stack.Allocate(spec);
  Process spinner = stack.Tenant(hostile, {"busy"});
  ASSERT_TRUE(spinner.ReadLine("running"));
  int accepted = 0;
  std::string refusal;
  for (int i = 0; i < 255; ++i) {
    HostileTenant tenant(hostile.directory);
    if (!tenant.Attach()) {
      refusal = tenant.welcome().message;
      continue;
    }
    ++accepted;
    tenant.arena()[0] = 1;
    const wire::HostPtr page{tenant.welcome().host_range_begin};
    const auto ticket = tenant.Write<wire::HostRegister>({page, wire::kPageBytes}, "", 0);
    ASSERT_NE(tenant.WaitForReply(0, ticket), nullptr);
    tenant.HangUp();
  }
  EXPECT_GT(accepted, 4);
  EXPECT_NE(refusal.find("team-a/hostile/main holds"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("host addresses"), std::string::npos) << refusal;
  // Others have what they always have, in another domain and beside the kernel.
  const Allocation elsewhere = stack.Allocate(
      {.pod_namespace = "team-b", .domain = "team-b", .pinned_limit_bytes = uint64_t{8} << 30});
  {
    HostileTenant looks(elsewhere.directory);
    ASSERT_TRUE(looks.Attach()) << looks.welcome().message;
    EXPECT_EQ(looks.welcome().host_range_bytes, uint64_t{32} << 30);
  }
  EXPECT_EQ(stack.Tenant(elsewhere, {"vadd"}).ExitStatus(), 0);
  HostileTenant neighbour(stack.Allocate({.pod = "neighbour"}).directory);
  EXPECT_TRUE(neighbour.Attach()) << neighbour.welcome().message;
  neighbour.HangUp();
  // With the kernel's end all of it comes back.
  spinner.WriteLine("end");
  EXPECT_EQ(spinner.ExitStatus(), 0);
  EXPECT_TRUE(stack.BackToNothing(hostile));
  EXPECT_TRUE(Eventually([&] { return stack.Tenant(hostile, {"vadd"}).ExitStatus() == 0; }));
  EXPECT_TRUE(stack.Ended());
}

}  // namespace
}  // namespace gpuloom::testing
