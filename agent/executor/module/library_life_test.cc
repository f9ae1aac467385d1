// SPDX-License-Identifier: Apache-2.0
// Libraries that go, or whose tenant goes, while a worker is still at work for them: sessions of the real
// loop, with a driver that takes as long as the test likes.
#include <gtest/gtest.h>

#include <algorithm>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"
#include "proto/cuda/testing/images.h"

namespace gpuloom::executor {
namespace {

using wire::Fatal;
using wire::KernelId;
using wire::LibraryId;

constexpr uint8_t kName[] = {'k'};

// Puts an input for link 1 into the tenant's arena.
wire::LinkAdd::Request StageInput(const TestingTenant& tenant, CUjitInputType type,
                                  const void* bytes, size_t size_bytes) {
  const auto arena = static_cast<uint64_t>(tenant.order.host_range_begin + kImageOffset);
  std::memcpy(reinterpret_cast<void*>(arena), bytes, size_bytes);
  wire::LinkAdd::Request add = {};
  add.link = wire::LinkId{1};
  add.type = type;
  add.data = wire::HostPtr{arena};
  add.data_bytes = size_bytes;
  return add;
}

class LibraryLifeTest : public ::testing::Test {
 protected:
  ~LibraryLifeTest() override { TestingDriver::Release(); }

  template <wire::Command C>
  static std::optional<CUresult> Answer(TestingTenant& tenant, uint16_t slot, wire::Ticket ticket,
                                        typename C::Reply* reply = nullptr) {
    const wire::ReplySlot* answer = nullptr;
    if (!tenant.Wait([&] { return (answer = tenant.reader.FindReply(slot, ticket)) != nullptr; })) {
      return std::nullopt;
    }
    if (reply != nullptr) std::memcpy(reply, answer->reply, sizeof(*reply));
    return static_cast<CUresult>(answer->result);
  }
  static bool BecomesHeld(int calls) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (TestingDriver::held_calls() != calls) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }
  void TakeCalls() {
    for (std::string& call : TestingDriver::TakeCalls()) calls_.push_back(std::move(call));
  }
  ptrdiff_t Called(std::string_view what) {
    TakeCalls();
    return std::count_if(calls_.begin(), calls_.end(),
                         [&](const std::string& call) { return call.starts_with(what); });
  }
  bool BecomesCalled(std::string_view what, ptrdiff_t times) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    do {
      if (Called(what) == times) return true;
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }
  // Nothing gets its quiet moment before Release.
  void KeepTheDeviceBusy() {
    ASSERT_TRUE(neighbour_->LoadKernel(1, 1, "k", kEmptyPtx));
    TestingDriver::Hold();
    neighbour_->LaunchPlain(0, 1);
    ASSERT_TRUE(BecomesCalled("launch", 1));
  }
  // In their order: what the neighbour does here comes after all that waits for an idle device now.
  void WaitUntilRetired() {
    const uint64_t page = neighbour_->order.host_range_begin + (64u << 10);
    *reinterpret_cast<volatile char*>(page) = 1;
    const uint64_t size_bytes = wire::kPageBytes;
    ASSERT_EQ(neighbour_->Call<wire::HostRegister>({wire::HostPtr{page}, size_bytes}),
              CUDA_SUCCESS);
    ASSERT_EQ(neighbour_->Call<wire::HostUnregister>({wire::HostPtr{page}, size_bytes}),
              CUDA_SUCCESS);
    ASSERT_TRUE(BecomesCalled("unregister " + std::to_string(page), 1));
  }
  void ExpectNeighbourServed() {
    EXPECT_EQ(neighbour_->reader.fatal(), Fatal::kNone);
    EXPECT_TRUE(neighbour_->LoadKernel(50, 50, "k", NotLinked("served")));
    EXPECT_TRUE(neighbour_->WaitDone(0, neighbour_->LaunchPlain(0, 50)));
  }

  // Programs that differ. The first kind goes through the driver's linker.
  static std::string Text(const std::string& more) { return std::string(kEmptyPtx) + "//" + more; }
  static std::string NotLinked(const std::string& more) {
    return std::string(kEmptyPtx) + ".extern .func f();\n//" + more;
  }
  // Each tenant has its own, which goes with it.
  static std::string WithState(const std::string& more) {
    return Text(more) + "\n.global .u32 state;\n";
  }
  // Sends the image without waiting for an answer.
  static wire::Ticket SendImage(TestingTenant& tenant, uint32_t library, std::string_view image) {
    std::memcpy(reinterpret_cast<void*>(tenant.order.host_range_begin + kImageOffset), image.data(),
                image.size());
    return tenant.Post<wire::LibraryLoad>(
        {LibraryId{library}, 0, wire::HostPtr{tenant.order.host_range_begin + kImageOffset},
         image.size()},
        {}, 1);
  }

  std::vector<std::string> calls_;
  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
  std::unique_ptr<TestingTenant> neighbour_ = scheduler_.AddTenant();
};

// Its memory is charged until then.
TEST_F(LibraryLifeTest, WhoNeedsRoomGetsThatOfALibraryThatWasUnloaded) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", WithState("large")));
  ASSERT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  EXPECT_TRUE(scheduler_.Reclaim(*tenant_));
  EXPECT_EQ(Called("unload"), 1);
  // Nobody waits for what is not coming.
  KeepTheDeviceBusy();
  EXPECT_TRUE(scheduler_.Reclaim(*tenant_));
  // A session that ends waits for nothing.
  ASSERT_EQ(tenant_->LoadLibrary(2, WithState("another")), CUDA_SUCCESS);
  ASSERT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{2}}), CUDA_SUCCESS);
  scheduler_.SendReclaim(*tenant_);
  tenant_->doorbell.Reset();
  EXPECT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id).has_value());
  TestingDriver::Release();
  ExpectNeighbourServed();
}

// ---- another library under the id of the one that was asked about

TEST_F(LibraryLifeTest, Malicious_AKernelOfALibraryWhoseIdHasAnotherNow) {
  KeepTheDeviceBusy();
  ASSERT_EQ(tenant_->LoadLibrary(1, WithState("first")), CUDA_SUCCESS);
  const auto get = tenant_->Post<wire::KernelGet>({LibraryId{1}, KernelId{1}}, kName, 5);
  ASSERT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  ASSERT_EQ(tenant_->LoadLibrary(1, WithState("second")), CUDA_SUCCESS);
  TestingDriver::Release();
  EXPECT_EQ(Answer<wire::KernelGet>(*tenant_, 5, get), CUDA_ERROR_INVALID_HANDLE);
  // Its parameters went with the first library.
  tenant_->Post<wire::KernelParams>({KernelId{1}, 0}, {}, 6);
  EXPECT_TRUE(tenant_->WaitFatal(Fatal::kBadHandle));
  ExpectNeighbourServed();
}

TEST_F(LibraryLifeTest, Malicious_AVariableOfALibraryWhoseIdHasAnotherNow) {
  KeepTheDeviceBusy();
  ASSERT_EQ(tenant_->LoadLibrary(1, WithState("first")), CUDA_SUCCESS);
  const auto get = tenant_->Post<wire::GlobalGet>({LibraryId{1}}, kName, 5);
  ASSERT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  ASSERT_EQ(tenant_->LoadLibrary(1, WithState("second")), CUDA_SUCCESS);
  TestingDriver::Release();
  wire::GlobalGet::Reply found = {};
  EXPECT_EQ(Answer<wire::GlobalGet>(*tenant_, 5, get, &found), CUDA_ERROR_INVALID_HANDLE);
  // Where it was, another's may be by now.
  tenant_->Post<wire::Fill>(
      {wire::kLegacyStream, 4, 0, 0, static_cast<uint64_t>(found.address), 1});
  EXPECT_TRUE(tenant_->WaitFatal(Fatal::kBadRange));
  ExpectNeighbourServed();
}

// Unloading waits for the device to be idle, but not for workers.
TEST_F(LibraryLifeTest, Malicious_ALibraryIsNotUnloadedWhileAWorkerAsksAboutIt) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", WithState("asked about")));
  TestingDriver::HoldCalls("occupancy");
  const auto asked = tenant_->Post<wire::OccupancyBlocks>({KernelId{1}, 32, 0, 0, 0}, {}, 5);
  ASSERT_TRUE(BecomesHeld(1));
  ASSERT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  WaitUntilRetired();
  EXPECT_EQ(Called("unload"), 0);
  TestingDriver::ReleaseCalls();
  EXPECT_EQ(Answer<wire::OccupancyBlocks>(*tenant_, 5, asked), CUDA_SUCCESS);
  EXPECT_TRUE(BecomesCalled("unload", 1));
}

// The driver's copy waits behind a function of the tenant's, which takes as long as it likes.
TEST_F(LibraryLifeTest, ALibraryIsNotUnloadedBeforeTheCopiesToItsVariables) {
  ASSERT_EQ(tenant_->LoadLibrary(1, WithState("first")), CUDA_SUCCESS);
  wire::GlobalGet::Reply found = {};
  ASSERT_EQ(tenant_->Call<wire::GlobalGet>({LibraryId{1}}, &found, kName), CUDA_SUCCESS);
  tenant_->Post<wire::HostFunction>({77, wire::kLegacyStream, 0});
  const auto fill = tenant_->Post<wire::Fill>(
      {wire::kLegacyStream, 4, 0, 0, static_cast<uint64_t>(found.address), 1});
  ASSERT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  WaitUntilRetired();
  EXPECT_EQ(Called("unload"), 0);
  EXPECT_EQ(Called("fill"), 0);
  ASSERT_TRUE(tenant_->Wait([&] { return tenant_->reader.host_functions_due() == 1; }));
  tenant_->writer.PublishHostFunctionsDone(1);
  if (tenant_->writer.ExecutorSleeps()) channel::RingDoorbell(tenant_->doorbell.get());
  EXPECT_TRUE(tenant_->WaitDone(0, fill));
  EXPECT_TRUE(BecomesCalled("unload", 1));
}

// Of a kernel that tenants share nobody changes how the others' launches go.
TEST_F(LibraryLifeTest, Malicious_ASharedKernelsClustersAreNotOnesToSet) {
  const std::string image = Text("shared");
  for (const auto& tenant : {tenant_.get(), neighbour_.get()}) {
    ASSERT_TRUE(tenant->LoadKernel(1, 1, "k", image));
  }
  ASSERT_TRUE(BecomesCalled("load", 1)) << "the second one shares it";
  for (const int attribute :
       {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH}) {
    EXPECT_EQ(tenant_->Call<wire::KernelSetAttribute>({KernelId{1}, attribute, 2}),
              CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(tenant_->Call<wire::KernelSetAttribute>(
                {KernelId{1}, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50}),
            CUDA_SUCCESS);
  EXPECT_EQ(Called("set "), 1);
  ExpectNeighbourServed();
}

// The library is shared once its image is hashed, which takes a while if it is large; by then it must be as it was loaded.
TEST_F(LibraryLifeTest, Malicious_AKernelsClustersAreSetBeforeItIsShared) {
  std::string image = NotLinked("large");  // else what was linked is hashed
  image.resize(32u << 20, '/');
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", image));
  EXPECT_EQ(tenant_->Call<wire::KernelSetAttribute>(
                {KernelId{1}, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2}),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Called("set "), 0);
  ExpectNeighbourServed();
}

constexpr int kSharedLimit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

TEST_F(LibraryLifeTest, Malicious_ASharedKernelsTooLargeLimitIsItsAuthorsAlone) {
  const std::string image = Text("shared");
  for (const auto& tenant : {tenant_.get(), neighbour_.get()}) {
    ASSERT_TRUE(tenant->LoadKernel(1, 1, "k", image));
  }
  ASSERT_TRUE(BecomesCalled("load", 1)) << "the second one shares it";
  for (const int too_large : {INT32_MAX, 300 << 10}) {
    EXPECT_EQ(tenant_->Call<wire::KernelSetAttribute>({KernelId{1}, kSharedLimit, too_large}),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(neighbour_->Call<wire::KernelSetAttribute>({KernelId{1}, kSharedLimit, 64 << 10}),
              CUDA_SUCCESS);
  }
  ExpectNeighbourServed();
}

// Both are in the driver at the same time, and the later one is the lower one.
TEST_F(LibraryLifeTest, ASharedKernelsLimitIsNeverLowered) {
  const std::string image = Text("shared");
  for (const auto& tenant : {tenant_.get(), neighbour_.get()}) {
    ASSERT_TRUE(tenant->LoadKernel(1, 1, "k", image));
  }
  ASSERT_TRUE(BecomesCalled("load", 1)) << "the second one shares it";
  constexpr int kStep = 4096;
  for (int round = 1; round < 20; ++round) {
    const int higher = (2 * round + 1) * kStep;
    TestingDriver::HoldCalls("set");
    const auto raised =
        tenant_->Post<wire::KernelSetAttribute>({KernelId{1}, kSharedLimit, higher}, {}, 0);
    ASSERT_TRUE(BecomesHeld(1));
    const auto lower = neighbour_->Post<wire::KernelSetAttribute>(
        {KernelId{1}, kSharedLimit, higher - kStep}, {}, 1);
    // The ring thread has handed it to a worker.
    ASSERT_EQ(neighbour_->Call<wire::MemInfo>({}), CUDA_SUCCESS);
    TestingDriver::ReleaseCalls();
    ASSERT_EQ(Answer<wire::KernelSetAttribute>(*tenant_, 0, raised), CUDA_SUCCESS);
    wire::KernelSetAttribute::Reply reply = {};
    ASSERT_EQ(Answer<wire::KernelSetAttribute>(*neighbour_, 1, lower, &reply), CUDA_SUCCESS);
    EXPECT_EQ(reply.attributes[kSharedLimit], higher - kStep) << "it reads back its own";
    TakeCalls();
    EXPECT_EQ(calls_.back(), "set 8 " + std::to_string(higher));
  }
}

// ---- a tenant that ends while the driver compiles for it

// Everybody else goes on, the tenant's memory is free at once, and its text is loaded for nobody, nor paid for.
TEST_F(LibraryLifeTest, ATenantEndsWhileItsTextIsLinked) {
  ASSERT_TRUE(neighbour_->LoadKernel(1, 1, "k", NotLinked("before")));
  ASSERT_NE(tenant_->Alloc(1 << 20), 0u);
  ASSERT_TRUE(BecomesCalled("load", 1));
  TestingDriver::HoldCalls("link");
  SendImage(*tenant_, 1, WithState("long"));
  ASSERT_TRUE(BecomesHeld(1));
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
  EXPECT_EQ(TestingDriver::held_calls(), 1);
  ExpectNeighbourServed();
  TestingDriver::ReleaseCalls();
  EXPECT_TRUE(BecomesCalled("unlink", 1));
  EXPECT_EQ(neighbour_->LoadLibrary(3, Text("neighbour's")), CUDA_SUCCESS);
  EXPECT_EQ(Called("load"), 3) << "the neighbour's";
}

// More than there are threads: some wait for the linker, some for a thread.
TEST_F(LibraryLifeTest, Malicious_TenantsThatEndWhileTheirTextsAreLinkedTakeNoThreadsWithThem) {
  TestingDriver::HoldCalls("link");
  std::vector<std::unique_ptr<TestingTenant>> tenants;
  for (int i = 0; i < 12; ++i) {
    tenants.push_back(scheduler_.AddTenant());
    SendImage(*tenants.back(), 1, Text(std::to_string(i)));
  }
  ASSERT_TRUE(BecomesHeld(1));
  for (const auto& tenant : tenants) scheduler_.RemoveTenant(*tenant);
  for (const auto& tenant : tenants) {
    const auto ended = scheduler_.WaitEnded(tenant->order.session_id);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->drained, 1u);
  }
  EXPECT_EQ(TestingDriver::held_calls(), 1);
  ExpectNeighbourServed();
  TestingDriver::ReleaseCalls();
  EXPECT_TRUE(BecomesCalled("unlink", 1)) << "the others' texts are not linked any more";
  EXPECT_EQ(neighbour_->LoadLibrary(1, Text("neighbour's")), CUDA_SUCCESS);
}

// Each compilation without the linker has a thread; so many threads are there beside the pool's.
TEST_F(LibraryLifeTest, Malicious_TenantsThatEndWhileTheirKernelsAreLookedUp) {
  TestingDriver::HoldCalls("look up");
  std::vector<std::unique_ptr<TestingTenant>> tenants;
  for (int i = 0; i < 8; ++i) {
    tenants.push_back(scheduler_.AddTenant());
    SendImage(*tenants.back(), 1, NotLinked(std::to_string(i)));
    if (i >= 4) {
      // The four before have all threads.
      scheduler_.RemoveTenant(*tenants[static_cast<size_t>(i - 4)]);
      ASSERT_TRUE(scheduler_.WaitEnded(tenants[static_cast<size_t>(i - 4)]->order.session_id));
    }
    ASSERT_TRUE(BecomesHeld(i + 1));
  }
  for (int i = 4; i < 8; ++i) {
    scheduler_.RemoveTenant(*tenants[static_cast<size_t>(i)]);
    EXPECT_TRUE(scheduler_.WaitEnded(tenants[static_cast<size_t>(i)]->order.session_id));
  }
  TestingDriver::ReleaseCalls();
  ExpectNeighbourServed();
  EXPECT_TRUE(BecomesCalled("unload", 8)) << "what was loaded for them";
}

// It is not damaged: the node's operator can help.
TEST(LinkBudget, WhatTakesTooMuchToBeJudgedIsOutOfMemory) {
  const Driver& driver = TestingDriver::Reset();
  TestingScheduler scheduler(driver, /*batches=*/true, /*submit_threads=*/-1,
                             /*memory_limit_bytes=*/64u << 20);
  auto tenant = scheduler.AddTenant();
  std::vector<uint8_t> fatbin =
      testing_images::PlainFatbin(FatbinMemberKind::kElf, {"packed.."}, kFatbinFlagLz4);
  FatbinMemberHeader member;
  std::memcpy(&member, fatbin.data() + sizeof(FatbinHeader), sizeof(member));
  member.compressed_bytes = 8;
  member.uncompressed_bytes = 256u << 20;
  std::memcpy(fatbin.data() + sizeof(FatbinHeader), &member, sizeof(member));
  ASSERT_EQ(tenant->Call<wire::LinkCreate>({wire::LinkId{1}}), CUDA_SUCCESS);
  const wire::LinkAdd::Request add =
      StageInput(*tenant, CU_JIT_INPUT_FATBINARY, fatbin.data(), fatbin.size());
  // The answer, and what the linker's log says.
  const auto log_of = [&](CUresult expected) {
    const wire::Ticket asked = tenant->Post<wire::LinkAdd>(add, {}, 5);
    const wire::ReplySlot* answer = nullptr;
    EXPECT_TRUE(
        tenant->Wait([&] { return (answer = tenant->reader.FindReply(5, asked)) != nullptr; }));
    if (answer == nullptr) return std::string();
    EXPECT_EQ(static_cast<CUresult>(answer->result), expected);
    return std::string(reinterpret_cast<const char*>(answer->payload), answer->payload_bytes);
  };
  const std::string refusal = log_of(CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(refusal.find("this takes 512 MiB of the node's memory"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("--executor-memory"), std::string::npos) << refusal;
  std::memset(reinterpret_cast<void*>(add.data), 0, fatbin.size());
  const std::string damaged = log_of(CUDA_ERROR_INVALID_IMAGE);
  EXPECT_NE(damaged.find("is damaged"), std::string::npos) << damaged;
}

TEST_F(LibraryLifeTest, ATenantEndsWhileItLinks) {
  TestingDriver::HoldCalls("link");
  ASSERT_EQ(tenant_->Call<wire::LinkCreate>({wire::LinkId{1}}), CUDA_SUCCESS);
  const wire::LinkAdd::Request add =
      StageInput(*tenant_, CU_JIT_INPUT_PTX, kEmptyPtx.data(), kEmptyPtx.size());
  ASSERT_EQ(tenant_->Call<wire::LinkAdd>(add), CUDA_SUCCESS);
  tenant_->Post<wire::LinkComplete>({wire::LinkId{1}}, {}, 5);
  ASSERT_TRUE(BecomesHeld(1));
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  ExpectNeighbourServed();
  TestingDriver::ReleaseCalls();
  EXPECT_TRUE(BecomesCalled("unlink", 1)) << "the state is destroyed all the same";
  EXPECT_EQ(TestingDriver::foreign_link_calls(), 0);
}

// Its variable is asked for before any kernel: nobody waits in a quiet moment for the compiler.
TEST_F(LibraryLifeTest, CompilingForAVariableHoldsUpNobody) {
  ASSERT_TRUE(neighbour_->LoadKernel(1, 1, "k", NotLinked("neighbour's")));
  ASSERT_EQ(tenant_->LoadLibrary(1, NotLinked("tenant's")), CUDA_SUCCESS);
  TestingDriver::HoldCalls("look up");
  const auto get = tenant_->Post<wire::GlobalGet>({LibraryId{1}}, kName, 5);
  ASSERT_TRUE(BecomesHeld(1));
  EXPECT_TRUE(neighbour_->WaitDone(0, neighbour_->LaunchPlain(0, 1)));
  TestingDriver::ReleaseCalls();
  EXPECT_EQ(Answer<wire::GlobalGet>(*tenant_, 5, get), CUDA_SUCCESS);
}

// ---- what a session's end does wait for

TEST_F(LibraryLifeTest, WhoWaitsForANeighboursKernelSaysSoAndIsNotStuck) {
  scheduler_.drain_timeout_ms = 50;
  scheduler_.must_clear = true;
  const auto late = scheduler_.AddTenant();
  ASSERT_TRUE(neighbour_->LoadKernel(1, 1, "k", kEmptyPtx));
  TestingDriver::Hold();
  // Granted, and cleared behind what fills the device.
  late->Post<wire::MemAlloc>({4 << 20}, {}, 5);
  ASSERT_TRUE(BecomesCalled("clear", 1));
  scheduler_.RemoveTenant(*late);
  EXPECT_TRUE(scheduler_.WaitWaits(late->order.session_id, 3));
  EXPECT_FALSE(scheduler_.WaitEnded(late->order.session_id, std::chrono::milliseconds(0)));
  TestingDriver::Release();
  const auto ended = scheduler_.WaitEnded(late->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
}

}  // namespace
}  // namespace gpuloom::executor
