// SPDX-License-Identifier: Apache-2.0
// Loading, and what a domain knows of images: sessions of the real loop, with a driver that needs
// no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"
#include "proto/cuda/fatbin.h"
#include "proto/cuda/image_hash.h"
#include "proto/cuda/testing/images.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom::executor {
namespace {

using wire::Fatal;
using wire::KernelId;
using wire::LibraryId;

wire::LibraryLoadByHash::Request ByHash(uint32_t library, std::string_view image) {
  const ImageHash hash = HashImage(reinterpret_cast<const uint8_t*>(image.data()), image.size());
  wire::LibraryLoadByHash::Request request = {LibraryId{library}, 0, {}};
  std::memcpy(request.hash, hash.words, sizeof(request.hash));
  return request;
}

class LibraryLoadTest : public ::testing::Test {
 protected:
  ~LibraryLoadTest() override { TestingDriver::Release(); }

  static bool Known(TestingTenant* tenant, uint32_t library, std::string_view image) {
    wire::LibraryLoadByHash::Reply reply = {};
    EXPECT_EQ(tenant->Call<wire::LibraryLoadByHash>(ByHash(library, image), &reply), CUDA_SUCCESS);
    return reply.known != 0;
  }
  // Images from a size on are remembered when the tenant has its answer already.
  static bool BecomesKnown(TestingTenant* tenant, uint32_t library, std::string_view image) {
    return WaitFor([&] { return Known(tenant, library, image); });
  }
  static CUresult Kernel(TestingTenant* tenant, uint32_t library, uint32_t kernel) {
    const uint8_t name[] = {'k'};
    return tenant->Call<wire::KernelGet>({LibraryId{library}, KernelId{kernel}}, nullptr, name)
        .value_or(CUDA_ERROR_UNKNOWN);
  }
  static ptrdiff_t Loads() {
    const auto calls = TestingDriver::TakeCalls();
    return std::count(calls.begin(), calls.end(), "load") +
           std::count(calls.begin(), calls.end(), "load cubin");
  }

  static std::string Large(std::string_view more) {
    return std::string(kEmptyPtx) + "//" + std::string(wire::kByHashBytes, 'x') + "\n" +
           std::string(more);
  }

  // The tenant's kernel runs until Release; nothing of the neighbour's library is on the device
  // yet.
  void LoadBesideAKernelThatRuns() {
    TestingDriver::SetLoadsBlock(true);
    ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
    const std::string other = std::string(kEmptyPtx) + "// another program\n";
    ASSERT_EQ(neighbour_->LoadLibrary(1, other), CUDA_SUCCESS);
    TestingDriver::Hold();
    tenant_->LaunchPlain(0, 1);
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
  std::unique_ptr<TestingTenant> neighbour_ = scheduler_.AddTenant();
};

TEST_F(LibraryLoadTest, LoadsThatWouldWaitForTheDeviceWaitForAnIdleMoment) {
  ASSERT_NO_FATAL_FAILURE(LoadBesideAKernelThatRuns());
  const uint8_t name[] = {'k'};
  const wire::Ticket get =
      neighbour_->Post<wire::KernelGet>({LibraryId{1}, KernelId{1}}, name, /*slot=*/9);
  const auto answered = [&] { return neighbour_->reader.FindReply(9, get) != nullptr; };
  EXPECT_TRUE(neighbour_->Never(answered));
  // Held back or not (QuietTest), it must go at last.
  const wire::Ticket later = tenant_->LaunchPlain(0, 1);
  EXPECT_NE(neighbour_->Alloc(1000), 0u) << "memory does not wait";
  TestingDriver::Release();
  EXPECT_TRUE(neighbour_->Wait(answered));
  EXPECT_TRUE(tenant_->WaitDone(0, later)) << "what was held back waits for something else";
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

// Listing a library's kernels puts nothing on the device, so what comes first behind it still
// waits.
TEST_F(LibraryLoadTest, AListOfKernelsMakesNoLibraryUsable) {
  ASSERT_NO_FATAL_FAILURE(LoadBesideAKernelThatRuns());
  EXPECT_EQ(neighbour_->Call<wire::LibraryKernels>({LibraryId{1}, 0}), CUDA_SUCCESS);
  const uint8_t name[] = {'k'};
  const wire::Ticket get =
      neighbour_->Post<wire::KernelGet>({LibraryId{1}, KernelId{1}}, name, /*slot=*/9);
  const auto answered = [&] { return neighbour_->reader.FindReply(9, get) != nullptr; };
  EXPECT_TRUE(neighbour_->Never(answered));
  TestingDriver::Release();
  EXPECT_TRUE(neighbour_->Wait(answered));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

// The linker would let its calls pass when it met it again.
TEST_F(LibraryLoadTest, TextThatDeclaresFunctionsIsNotLinked) {
  using ::testing::Contains;
  using ::testing::Not;
  const std::string text(kEmptyPtx);
  ASSERT_EQ(tenant_->LoadLibrary(1, text + ".extern .global .u32 x;\n// .func\n"), CUDA_SUCCESS);
  EXPECT_THAT(TestingDriver::TakeCalls(), Contains("unlink"));
  ASSERT_EQ(tenant_->LoadLibrary(2, text + ".extern .global .u32 x;\n.extern\t.func away();\n"),
            CUDA_SUCCESS);
  EXPECT_THAT(TestingDriver::TakeCalls(), Not(Contains("unlink")));
}

// Nor would it take what is older than linking.
TEST_F(LibraryLoadTest, OldTextIsNotLinked) {
  using ::testing::Contains;
  using ::testing::Not;
  for (const auto& [version, linked] :
       {std::pair{"1.4", false}, {"3.0", false}, {"3.1", true}, {"10.0", true}}) {
    const std::string text = std::string("\n.version ") + version + "\n.target sm_10\n";
    (void)TestingDriver::TakeCalls();
    EXPECT_EQ(tenant_->LoadLibrary(1, text), CUDA_SUCCESS) << version;
    const auto calls = TestingDriver::TakeCalls();
    EXPECT_EQ(std::count(calls.begin(), calls.end(), "unlink"), linked ? 1 : 0) << version;
    EXPECT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  }
}

// Also to who shares the library, and of what was compiled to something else.
TEST_F(LibraryLoadTest, TheTenantIsToldWhichKernelsHaveAtomicOperationsOfTheSystemsScope) {
  const std::string text = std::string(kEmptyPtx) +
                           ".visible .entry k() { red.sys.add.u32 [%rd1], 1; ret; }\n"
                           ".visible .entry o() { red.gpu.add.u32 [%rd1], 1; ret; }\n";
  const auto system_atomics = [](TestingTenant* tenant, uint32_t kernel, uint8_t name) {
    wire::KernelGet::Reply reply = {};
    EXPECT_EQ(tenant->Call<wire::KernelGet>({LibraryId{1}, KernelId{kernel}}, &reply, {&name, 1}),
              CUDA_SUCCESS);
    return reply.system_atomics;
  };
  for (TestingTenant* tenant : {tenant_.get(), neighbour_.get()}) {
    ASSERT_EQ(tenant->LoadLibrary(1, text), CUDA_SUCCESS);
    EXPECT_EQ(system_atomics(tenant, 1, 'k'), 1u);
    EXPECT_EQ(system_atomics(tenant, 2, 'o'), 0u);
  }
  EXPECT_EQ(Loads(), 1);
}

// ---- Drivers before CUDA 12.4, which tell nothing of kernels

class OldDriverTest : public ::testing::Test {
 protected:
  static Driver Old() {
    Driver driver = TestingDriver::Reset();
    driver.cuKernelGetParamInfo = nullptr;
    driver.cuLibraryGetKernelCount = nullptr;
    driver.cuLibraryEnumerateKernels = nullptr;
    return driver;
  }
  static CUresult Find(TestingTenant* tenant, uint32_t kernel, std::string_view name,
                       wire::KernelGet::Reply* reply) {
    return tenant
        ->Call<wire::KernelGet>({LibraryId{1}, KernelId{kernel}}, reply,
                                {reinterpret_cast<const uint8_t*>(name.data()), name.size()})
        .value_or(CUDA_ERROR_UNKNOWN);
  }

  // The function keeps the text from being linked.
  const std::string text_ =
      ".version 8.0\n.target sm_90\n.address_size 64\n"
      ".extern .func away();\n"
      ".visible .entry k(.param .u8 a, .param .u64 b) { ret; }\n";
  const Driver driver_ = Old();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(OldDriverTest, TheImageTellsHowParametersLie) {
  ASSERT_EQ(tenant_->LoadLibrary(1, text_), CUDA_SUCCESS);
  wire::KernelGet::Reply reply{};
  ASSERT_EQ(Find(tenant_.get(), 1, "k", &reply), CUDA_SUCCESS);
  EXPECT_EQ(reply.param_count, 2u);
  EXPECT_EQ(reply.param_bytes, 16u);
  wire::LibraryKernels::Reply names{};
  ASSERT_EQ(tenant_->Call<wire::LibraryKernels>({LibraryId{1}, 0}, &names), CUDA_SUCCESS);
  EXPECT_EQ(names.kernel_count, 1u);
}

TEST_F(OldDriverTest, Malicious_AKernelOfWhichTheImageSaysNothingIsRefused) {
  const std::string contradicts = text_ + ".visible .entry k(.param .u64 a) { ret; }\n";
  ASSERT_EQ(tenant_->LoadLibrary(1, contradicts), CUDA_SUCCESS);
  wire::KernelGet::Reply reply{};
  EXPECT_EQ(Find(tenant_.get(), 1, "k", &reply), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Find(tenant_.get(), 1, "another", &reply), CUDA_ERROR_NOT_SUPPORTED);
  const auto neighbour = scheduler_.AddTenant();
  ASSERT_EQ(neighbour->LoadLibrary(1, text_), CUDA_SUCCESS);
  EXPECT_EQ(Find(neighbour.get(), 1, "k", &reply), CUDA_SUCCESS);
}

// ---- What the device holds for an image

// A cubin with so much code, and variables that take so much.
std::string Cubin(uint64_t code_bytes, uint64_t variable_bytes) {
  using fatbin_internal::ElfSection;
  const auto header = testing_images::CubinHeader(sizeof(fatbin_internal::ElfHeader), 5, 1);
  constexpr char kNames[] = "\0.text.k\0.nv.global";
  constexpr uint64_t kNamesAt = sizeof(header) + 5 * sizeof(ElfSection);
  constexpr uint64_t kCodeAt = kNamesAt + sizeof(kNames);
  const fatbin_internal::ElfSymbol symbol = {};
  ElfSection sections[5] = {};
  sections[1] = {0, 3, 0, 0, kNamesAt, sizeof(kNames), 0, 0, 1, 0};
  sections[2] = {1, 1, 6, 0, kCodeAt, code_bytes, 4, 0, 128, 0};
  sections[3] = {9, 8, 3, 0, 0, variable_bytes, 0, 0, 4, 0};
  sections[4] = {0, 2, 0, 0, kCodeAt + code_bytes, sizeof(symbol), 1, 0, 8, sizeof(symbol)};
  std::string image(reinterpret_cast<const char*>(&header), sizeof(header));
  image.append(reinterpret_cast<const char*>(sections), sizeof(sections));
  image.append(kNames, sizeof(kNames));
  image.append(code_bytes, 'c');
  return image.append(reinterpret_cast<const char*>(&symbol), sizeof(symbol));
}

TEST_F(LibraryLoadTest, Malicious_VariablesBeyondTheQuotaNeverReachTheDriver) {
  scheduler_.quota_bytes = 64u << 20;
  const std::string text = std::string(kEmptyPtx) + ".global .align 4 .b8 x[1572864000];\n";
  for (const std::string& image : {text, Cubin(512, 1'572'864'000)}) {
    (void)TestingDriver::TakeCalls();
    EXPECT_EQ(tenant_->LoadLibrary(1, image), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(Loads(), 0);
    EXPECT_EQ(scheduler_.memory_in_use(), 0u);
  }
  EXPECT_EQ(neighbour_->LoadLibrary(1, kEmptyPtx), CUDA_SUCCESS);
}

TEST_F(LibraryLoadTest, Malicious_ADamagedCubinNeverReachesTheDriver) {
  std::string image = Cubin(512, 4);
  const uint32_t nowhere = 77;
  std::memcpy(&image[sizeof(fatbin_internal::ElfHeader) + 2 * sizeof(fatbin_internal::ElfSection) +
                     offsetof(fatbin_internal::ElfSection, link)],
              &nowhere, sizeof(nowhere));
  EXPECT_EQ(tenant_->LoadLibrary(1, image), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(Loads(), 0);
  EXPECT_EQ(neighbour_->LoadLibrary(1, Cubin(512, 4)), CUDA_SUCCESS);
  EXPECT_EQ(Loads(), 1);
}

// ---- Of a fatbin for several devices, what this one needs

std::string Fatbin(const std::vector<std::string>& cubins, const std::vector<uint32_t>& sms) {
  const std::vector<std::string_view> members(cubins.begin(), cubins.end());
  const auto fatbin = testing_images::PlainFatbin(FatbinMemberKind::kElf, members, 0, sms);
  return {fatbin.begin(), fatbin.end()};
}

std::vector<std::string> LoadCalls() {
  std::vector<std::string> calls = TestingDriver::TakeCalls();
  std::erase_if(
      calls, [](const std::string& call) { return call != "refuse" && !call.starts_with("load"); });
  return calls;
}

TEST_F(LibraryLoadTest, TheDriverGetsTheOnlyCubinForItsDevice) {
  const std::string image =
      Fatbin({Cubin(512, 1000), Cubin(512, 2'000'000), Cubin(512, 3000)}, {80, 90, 100});
  ASSERT_EQ(tenant_->LoadLibrary(1, image), CUDA_SUCCESS);
  EXPECT_THAT(LoadCalls(), ::testing::ElementsAre("load cubin"));
  EXPECT_EQ(scheduler_.memory_in_use(), 2'000'512u) << "only this is on the device";
  EXPECT_TRUE(BecomesKnown(neighbour_.get(), 1, image)) << "by the hash of what was sent";
}

TEST_F(LibraryLoadTest, WhoHashesAnImageHasReasonTo) {
  const auto known = [&](uint64_t image_bytes) {
    wire::LibrarySizeKnown::Reply reply = {};
    EXPECT_EQ(neighbour_->Call<wire::LibrarySizeKnown>({image_bytes}, &reply), CUDA_SUCCESS);
    return reply.known != 0;
  };
  const std::string image = Fatbin({Cubin(512, 1000), Cubin(wire::kByHashBytes, 4)}, {80, 90});
  EXPECT_FALSE(known(image.size()));
  ASSERT_EQ(tenant_->LoadLibrary(1, image), CUDA_SUCCESS);
  EXPECT_TRUE(known(image.size())) << "at once, though it is hashed later";
  EXPECT_TRUE(BecomesKnown(neighbour_.get(), 1, image)) << "by the hash of what was sent";
  EXPECT_TRUE(known(image.size()));
  EXPECT_FALSE(known(image.size() - 1));
  // Nobody's word is taken for a size: it is a question only.
  EXPECT_FALSE(known(0));
  EXPECT_FALSE(known(UINT64_MAX));
  EXPECT_EQ(tenant_->LoadLibrary(2, Fatbin({"no cubin"}, {90})), CUDA_ERROR_INVALID_IMAGE);
}

TEST_F(LibraryLoadTest, WhereTwoCubinsFitTheDriverChooses) {
  const std::string image = Fatbin({Cubin(512, 0), Cubin(1024, 0)}, {90, 90});
  ASSERT_EQ(tenant_->LoadLibrary(1, image), CUDA_SUCCESS);
  EXPECT_THAT(LoadCalls(), ::testing::ElementsAre("load"));
}

TEST_F(LibraryLoadTest, ADriverThatTakesNoCubinsGetsAllThatWasSent) {
  TestingDriver::RefuseCubins();
  const std::string image = Fatbin({Cubin(512, 1000), Cubin(512, 2000)}, {80, 90});
  ASSERT_EQ(tenant_->LoadLibrary(1, image), CUDA_SUCCESS);
  EXPECT_THAT(LoadCalls(), ::testing::ElementsAre("refuse", "load"));
  EXPECT_EQ(scheduler_.memory_in_use(), 2512u) << "the larger of both, once";
  const std::string other = Fatbin({Cubin(512, 1000), Cubin(600, 2000)}, {80, 90});
  ASSERT_EQ(tenant_->LoadLibrary(2, other), CUDA_SUCCESS);
  EXPECT_THAT(LoadCalls(), ::testing::ElementsAre("load")) << "it is not asked again";
}

// The first programs of a trust domain may load at the same time.
TEST_F(LibraryLoadTest, ADriverThatTakesNoCubinsGetsAllThatWasSentAlsoByWhoTriedMeanwhile) {
  TestingDriver::RefuseCubins();
  TestingDriver::HoldCalls("load cubin", 1);
  std::optional<CUresult> loaded;
  std::thread load([&] {
    loaded = tenant_->LoadLibrary(1, Fatbin({Cubin(512, 1000), Cubin(512, 2000)}, {80, 90}));
  });
  EXPECT_TRUE(WaitFor([] { return TestingDriver::held_calls() == 1; }));
  const std::string other = Fatbin({Cubin(512, 1000), Cubin(600, 2000)}, {80, 90});
  EXPECT_EQ(neighbour_->LoadLibrary(1, other), CUDA_SUCCESS);
  EXPECT_THAT(LoadCalls(), ::testing::ElementsAre("refuse", "load"));
  TestingDriver::ReleaseCalls();
  load.join();
  EXPECT_EQ(loaded, CUDA_SUCCESS);
  EXPECT_THAT(LoadCalls(), ::testing::ElementsAre("refuse", "load"));
}

TEST_F(LibraryLoadTest, Malicious_ADamagedCubinIsNotTakenFromAFatbin) {
  std::string damaged = Cubin(512, 4);
  const uint32_t nowhere = 77;
  std::memcpy(
      &damaged[sizeof(fatbin_internal::ElfHeader) + 2 * sizeof(fatbin_internal::ElfSection) +
               offsetof(fatbin_internal::ElfSection, link)],
      &nowhere, sizeof(nowhere));
  EXPECT_EQ(tenant_->LoadLibrary(1, Fatbin({Cubin(512, 4), damaged}, {80, 90})),
            CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(Loads(), 0);
  EXPECT_EQ(neighbour_->LoadLibrary(1, Fatbin({damaged, Cubin(512, 4)}, {80, 90})), CUDA_SUCCESS)
      << "what no device of this kind needs is nobody's concern";
}

TEST_F(LibraryLoadTest, Malicious_TextWithoutAnEndNeverReachesTheDriver) {
  for (const bool ends : {true, false}) {
    std::string text(kEmptyPtx);
    text.resize((text.size() + 8) & ~size_t{7}, ends ? '\0' : ' ');
    const auto fatbin = testing_images::PlainFatbin(FatbinMemberKind::kPtx, {text});
    const std::string image(fatbin.begin(), fatbin.end());
    EXPECT_EQ(tenant_->LoadLibrary(1, image), ends ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE);
    EXPECT_EQ(Loads(), ends ? 1 : 0);
    if (ends) {
      EXPECT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
    }
  }
}

TEST_F(LibraryLoadTest, VariablesAreChargedToEachWhoLoadsThemUntilTheyAreUnloaded) {
  const std::string image = Cubin(1000, 1'000'000);
  ASSERT_EQ(tenant_->LoadLibrary(1, image), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 1'001'000u);
  ASSERT_EQ(neighbour_->LoadLibrary(1, image), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 2'002'000u);
  EXPECT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  EXPECT_TRUE(tenant_->Wait([&] { return scheduler_.memory_in_use() == 1'001'000u; }));
}

TEST_F(LibraryLoadTest, WhoSharesCodePaysForItInFull) {
  const std::string image = Cubin(1'000'000, 0);
  ASSERT_EQ(tenant_->LoadLibrary(1, image), CUDA_SUCCESS);
  ASSERT_TRUE(BecomesKnown(neighbour_.get(), 1, image));
  (void)TestingDriver::TakeCalls();
  ASSERT_TRUE(Known(neighbour_.get(), 2, image));
  EXPECT_EQ(Loads(), 0) << "it is shared";
  EXPECT_EQ(scheduler_.memory_in_use(), 3'000'000u);
  scheduler_.quota_bytes = scheduler_.memory_in_use();
  EXPECT_EQ(neighbour_->Call<wire::LibraryLoadByHash>(ByHash(3, image)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  EXPECT_TRUE(tenant_->Wait([&] { return scheduler_.memory_in_use() == 2'000'000u; }))
      << "what stays loaded for others is not its own";
  EXPECT_EQ(neighbour_->Call<wire::LibraryLoadByHash>(ByHash(3, image)), CUDA_SUCCESS);
}

TEST_F(LibraryLoadTest, VariablesStayOnTheAccountWhileTheDriverHasThem) {
  TestingDriver::SetLoadsBlock(true);
  ASSERT_EQ(tenant_->LoadLibrary(1, Cubin(1000, 1'000'000)), CUDA_SUCCESS);
  ASSERT_TRUE(neighbour_->LoadKernel(1, 1, "k", kEmptyPtx));
  TestingDriver::Hold();
  neighbour_->LaunchPlain(0, 1);
  scheduler_.RemoveTenant(*tenant_);
  ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id));
  EXPECT_EQ(scheduler_.memory_in_use(), 1'001'000u) << "unloading waits for the device";
  TestingDriver::Release();
  EXPECT_TRUE(neighbour_->Wait([&] { return scheduler_.memory_in_use() == 0; }));
}

class CompileTest : public LibraryLoadTest {
 protected:
  // Of text that lies in the arena, with the compiler's texts behind it.
  wire::LibraryCompile::Request Request(uint32_t library, uint32_t info_bytes,
                                        uint32_t error_bytes) const {
    const uint64_t address = tenant_->order.host_range_begin;
    std::memcpy(reinterpret_cast<void*>(address), kEmptyPtx.data(), kEmptyPtx.size());
    std::memset(reinterpret_cast<void*>(address + kTexts), '#', 4096);
    return {LibraryId{library},
            info_bytes,
            wire::HostPtr{address},
            kEmptyPtx.size(),
            wire::HostPtr{address + kTexts},
            error_bytes,
            0};
  }
  std::string Text(size_t offset, size_t bytes) const {
    return {reinterpret_cast<const char*>(tenant_->order.host_range_begin + kTexts + offset),
            bytes};
  }
  void ExpectEnds(Fatal reason) {
    EXPECT_TRUE(tenant_->WaitFatal(reason));
    EXPECT_NE(neighbour_->Alloc(4096), 0u) << "the next tenant is served";
  }
  static constexpr uint64_t kTexts = 8192;
};

TEST_F(CompileTest, WhatTheCompilerSaysComesBack) {
  const wire::LinkOption options[] = {{CU_JIT_MAX_REGISTERS, 32}, {CU_JIT_THREADS_PER_BLOCK, 64}};
  const std::span payload(reinterpret_cast<const uint8_t*>(options), sizeof(options));
  wire::LibraryCompile::Reply reply{};
  ASSERT_EQ(tenant_->Call<wire::LibraryCompile>(Request(1, 100, 100), &reply, payload),
            CUDA_SUCCESS);
  EXPECT_EQ(reply.result, static_cast<uint32_t>(CUDA_SUCCESS));
  EXPECT_EQ(reply.report.info_bytes, 10u);
  EXPECT_EQ(Text(0, 11), "5000 bytes#");
  EXPECT_EQ(reply.report.error_bytes, 0u);
  EXPECT_EQ(reply.report.wall_time_bits, 0x40200000u);
  EXPECT_EQ(reply.report.threads_per_block, 96u);
  EXPECT_EQ(Kernel(tenant_.get(), 1, 1), CUDA_SUCCESS);
  // A text is cut to its capacity, and none is written where there is no room.
  ASSERT_EQ(tenant_->Call<wire::LibraryCompile>(Request(2, 4, 0), &reply, payload), CUDA_SUCCESS);
  EXPECT_EQ(reply.report.info_bytes, 4u);
  EXPECT_EQ(Text(0, 5), "5000#");
  ASSERT_EQ(tenant_->Call<wire::LibraryCompile>(Request(3, 0, 0), &reply, payload), CUDA_SUCCESS);
  EXPECT_EQ(Text(0, 1), "#");
}

TEST_F(CompileTest, IsForNobodyElse) {
  wire::LibraryCompile::Reply reply{};
  ASSERT_EQ(tenant_->Call<wire::LibraryCompile>(Request(1, 0, 0), &reply), CUDA_SUCCESS);
  ASSERT_EQ(neighbour_->LoadLibrary(1, kEmptyPtx), CUDA_SUCCESS);
  EXPECT_EQ(Loads(), 2);
}

TEST_F(CompileTest, ALinkReportsToo) {
  ASSERT_EQ(tenant_->Call<wire::LinkCreate>({wire::LinkId{1}}), CUDA_SUCCESS);
  const auto request = Request(1, 100, 100);
  wire::LinkReport::Reply reply{};
  ASSERT_EQ(tenant_->Call<wire::LinkReport>({wire::LinkId{1}, 100, request.texts, 100, 0}, &reply),
            CUDA_SUCCESS);
  EXPECT_EQ(reply.report.info_bytes, 10u);
  EXPECT_EQ(Text(0, 11), "5000 bytes#");
}

TEST_F(CompileTest, MaliciousTextsOutsideOfTheArena) {
  auto request = Request(1, 100, 100);
  request.texts =
      wire::HostPtr{tenant_->order.host_range_begin + tenant_->order.host_range_bytes - 100};
  tenant_->Post<wire::LibraryCompile>(request, {}, 0);
  ExpectEnds(Fatal::kBadRange);
}

TEST_F(CompileTest, MaliciousCapacityBeyondTheLimit) {
  tenant_->Post<wire::LibraryCompile>(Request(1, wire::kMaxJitTextBytes + 1, 0), {}, 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(CompileTest, MaliciousImageOutsideOfTheArena) {
  auto request = Request(1, 0, 0);
  request.image_bytes = ~uint64_t{0};
  tenant_->Post<wire::LibraryCompile>(request, {}, 0);
  ExpectEnds(Fatal::kBadRange);
}

// The driver would divide by it.
TEST_F(CompileTest, MaliciousCompileForNoThreads) {
  const wire::LinkOption option = {CU_JIT_THREADS_PER_BLOCK, 0};
  tenant_->Post<wire::LibraryCompile>(
      Request(1, 0, 0), std::span(reinterpret_cast<const uint8_t*>(&option), sizeof(option)), 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(CompileTest, MaliciousReportOfNoLink) {
  tenant_->Post<wire::LinkReport>({wire::LinkId{7}, 0, {}, 0, 0}, {}, 0);
  ExpectEnds(Fatal::kBadHandle);
}

class ByHashTest : public LibraryLoadTest {
 protected:
  void SetUp() override {
    if (!HashesImagesFast()) GTEST_SKIP() << "nobody asks by hash on such a processor";
  }
};

TEST_F(ByHashTest, WhatADomainHasSentIsLoadedByItsName) {
  const std::string image = Large("");
  EXPECT_FALSE(Known(neighbour_.get(), 1, image));
  ASSERT_EQ(tenant_->LoadLibrary(1, image), CUDA_SUCCESS);
  EXPECT_EQ(Loads(), 1);
  ASSERT_TRUE(BecomesKnown(neighbour_.get(), 1, image));
  EXPECT_EQ(Loads(), 0) << "it has no variables: the loaded library is shared";
  EXPECT_EQ(Kernel(neighbour_.get(), 1, 1), CUDA_SUCCESS);
  EXPECT_FALSE(Known(neighbour_.get(), 2, image + " "));
}

TEST_F(ByHashTest, WhatHasStateIsLoadedForEveryTenantButSentOnce) {
  const std::string image = Large(".visible .global .u32 state;\n");
  ASSERT_EQ(tenant_->LoadLibrary(1, image), CUDA_SUCCESS);
  ASSERT_TRUE(BecomesKnown(neighbour_.get(), 1, image));
  EXPECT_EQ(Loads(), 2);
  ASSERT_TRUE(Known(tenant_.get(), 2, image));
  EXPECT_EQ(Loads(), 1);
}

TEST_F(ByHashTest, AnImageIsKnownByWhatWasReadNotByWhatTheTenantWritesLater) {
  const std::string image = Large("");
  ASSERT_EQ(tenant_->LoadLibrary(1, image), CUDA_SUCCESS);
  const std::string other = Large("// other\n");
  std::memcpy(reinterpret_cast<void*>(tenant_->order.host_range_begin + kImageOffset), other.data(),
              other.size());
  EXPECT_TRUE(BecomesKnown(neighbour_.get(), 1, image));
  EXPECT_FALSE(Known(neighbour_.get(), 2, other));
}

TEST_F(ByHashTest, ANameThatNobodyKnowsLeavesTheIdFree) {
  const std::string image = Large("");
  EXPECT_FALSE(Known(tenant_.get(), 7, image));
  EXPECT_EQ(tenant_->LoadLibrary(7, image), CUDA_SUCCESS);
  EXPECT_EQ(Kernel(tenant_.get(), 7, 1), CUDA_SUCCESS);
}

TEST_F(ByHashTest, WhatTheDriverRefusedIsNotRemembered) {
  const std::string image = std::string(wire::kByHashBytes * 2, 'x');
  EXPECT_EQ(tenant_->LoadLibrary(1, image), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_FALSE(Known(tenant_.get(), 1, image));
}

TEST_F(ByHashTest, ATenantsLibraryOutlivesTheOneWhoSentIt) {
  const std::string image = Large("");
  ASSERT_EQ(tenant_->LoadLibrary(1, image), CUDA_SUCCESS);
  ASSERT_TRUE(BecomesKnown(neighbour_.get(), 1, image));
  scheduler_.RemoveTenant(*tenant_);
  ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id).has_value());
  EXPECT_EQ(Kernel(neighbour_.get(), 1, 1), CUDA_SUCCESS);
  EXPECT_TRUE(neighbour_->WaitDone(0, neighbour_->LaunchPlain(0, 1)));
}

TEST_F(ByHashTest, Malicious_IdInUse) {
  ASSERT_EQ(tenant_->LoadLibrary(1, kEmptyPtx), CUDA_SUCCESS);
  tenant_->Post<wire::LibraryLoadByHash>(ByHash(1, kEmptyPtx), {}, 0);
  EXPECT_TRUE(tenant_->WaitFatal(Fatal::kBadHandle));
  EXPECT_EQ(neighbour_->LoadLibrary(1, kEmptyPtx), CUDA_SUCCESS);
}

TEST_F(ByHashTest, Malicious_IdOutOfRange) {
  tenant_->Post<wire::LibraryLoadByHash>(ByHash(UINT32_MAX, kEmptyPtx), {}, 0);
  EXPECT_TRUE(tenant_->WaitFatal(Fatal::kBadHandle));
  EXPECT_EQ(neighbour_->LoadLibrary(1, kEmptyPtx), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::executor
