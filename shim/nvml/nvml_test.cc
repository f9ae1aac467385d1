// SPDX-License-Identifier: Apache-2.0
// The built library against a door of the test's own, loaded anew by each test.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "proto/channel/socket.h"
#include "proto/cuda/cuda_all.h"
#include "proto/sync/testing/passing_time.h"
#include "proto/wire/attribute.h"
#include "proto/wire/query.h"
#include "proto/wire/version.h"
#include "shim/nvml/nvml_api.h"

namespace gpuloom::nvml {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// Answers every question with the same words, until it is destroyed.
class Door {
 public:
  explicit Door(const std::string& directory)
      : listener_(channel::ListenAt((directory + "/" + wire::kSocketName).c_str())) {
    answer.magic = wire::kQueryMagic;
    answer.major = wire::kWireMajor;
    answer.minor = wire::kWireMinor;
    answer.admission = wire::Admission::kAccepted;
    wire::DeviceSnapshot& device = answer.device;
    for (int32_t& attribute : device.attributes) attribute = wire::kNoAttribute;
    device.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 9;
    device.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR] = 0;
    device.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 132;
    device.driver_version = 13000;
    device.total_memory_bytes = 4 * kGiB;
    device.pci_domain = 0x10;
    device.pci_bus = 0xab;
    device.pci_device = 2;
    for (int i = 0; i < 16; ++i) device.uuid[i] = static_cast<uint8_t>(i + 1);
    strcpy(device.name, "NVIDIA H200");
    strcpy(answer.driver_text, "580.95.05");
    answer.used_memory_bytes = kGiB;
    answer.process_count = 2;
    answer.processes[0] = {1234, 0, kGiB / 4};
    answer.processes[1] = {99, 0, kGiB / 2};
    answer.description.pci_device_and_vendor = 0x233510de;
    answer.description.pci_subsystem = 0x18be10de;
    answer.description.pcie_generation = 5;
    answer.description.pcie_device_generation = 6;
    answer.description.pcie_width = 8;
    answer.description.pcie_max_width = 16;
    answer.description.max_clock_mhz[0] = 1980;
    answer.description.power_default_mw = 700'000;
    answer.description.power_min_mw = 200'000;
    answer.description.power_max_mw = 700'000;
  }
  ~Door() {
    ends_ = true;
    shutdown(listener_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }
  void Open() {
    thread_ = std::thread([this] { Serve(); });
  }
  int visits() const { return visits_; }

  wire::QueryAnswer answer{};  // set before Open
  size_t answer_bytes = sizeof(answer);
  wire::Hello last() {
    std::lock_guard<std::mutex> lock(mutex_);
    return last_;
  }

 private:
  void Serve() {
    while (true) {
      pollfd ready = {listener_.get(), POLLIN, 0};
      if (poll(&ready, 1, -1) != 1 || (ready.revents & POLLIN) == 0 || ends_) return;
      const channel::UniqueFd connection(accept(listener_.get(), nullptr, nullptr));
      if (!connection.valid()) continue;
      wire::Hello hello{};
      if (channel::ReceiveMessage(connection.get(), &hello, sizeof(hello)) < 0) continue;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        last_ = hello;
      }
      ++visits_;
      // Who does not wait for the answer misses it.
      [[maybe_unused]] const bool sent =
          channel::SendMessage(connection.get(), &answer, answer_bytes);
    }
  }

  channel::UniqueFd listener_;
  std::thread thread_;
  std::mutex mutex_;
  wire::Hello last_{};  // guarded by mutex_
  std::atomic<int> visits_{0};
  std::atomic<bool> ends_{false};
};

class Nvml : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "nvmlXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    setenv(wire::kSocketDirVariable, directory_.c_str(), 1);
    setenv("GPULOOM_LOG", "off", 1);
    library_ = dlopen(GPULOOM_NVML, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    door_.emplace(directory_);
  }
  void TearDown() override {
    door_.reset();
    if (library_ != nullptr) dlclose(library_);
    std::filesystem::remove_all(directory_);
  }
  template <typename... Arguments>
  int Call(const char* name, Arguments... arguments) {
    void* const function = dlsym(library_, name);
    EXPECT_NE(function, nullptr) << name;
    return function == nullptr ? -1
                               : reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
  }
  DeviceHandle Device() {
    DeviceHandle device = nullptr;
    EXPECT_EQ(Call("nvmlDeviceGetHandleByIndex_v2", 0u, &device), kSuccess);
    return device;
  }
  void Begin() {
    door_->Open();
    ASSERT_EQ(Call("nvmlInit_v2"), kSuccess);
  }

  std::string directory_;
  void* library_ = nullptr;
  std::optional<Door> door_;
};

TEST_F(Nvml, BeforeInitNothingAnswers) {
  unsigned count = 0;
  EXPECT_EQ(Call("nvmlDeviceGetCount_v2", &count), kUninitialized);
  EXPECT_EQ(Call("nvmlShutdown"), kUninitialized);
  EXPECT_EQ(Call("nvmlDeviceGetTemperature"), kUninitialized);
  EXPECT_EQ(door_->visits(), 0);
}

TEST_F(Nvml, InitIsCountedAndAsksOnce) {
  Begin();
  EXPECT_EQ(Call("nvmlInit"), kSuccess);
  EXPECT_EQ(door_->visits(), 1);
  EXPECT_EQ(door_->last().magic, wire::kQueryMagic);
  EXPECT_EQ(door_->last().pid, getpid());
  EXPECT_EQ(Call("nvmlShutdown"), kSuccess);
  unsigned count = 0;
  EXPECT_EQ(Call("nvmlDeviceGetCount_v2", &count), kSuccess);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(Call("nvmlShutdown"), kSuccess);
  EXPECT_EQ(Call("nvmlDeviceGetCount_v2", &count), kUninitialized);
  EXPECT_EQ(Call("nvmlInit_v2"), kSuccess) << "it may begin again";
}

TEST_F(Nvml, TheOneDeviceIsFoundByAllItsNames) {
  Begin();
  const DeviceHandle device = Device();
  ASSERT_NE(device, nullptr);
  DeviceHandle found = nullptr;
  for (const char* id : {"00000010:AB:02.0", "0010:ab:02.0", "10:ab:2"}) {
    found = nullptr;
    EXPECT_EQ(Call("nvmlDeviceGetHandleByPciBusId_v2", id, &found), kSuccess) << id;
    EXPECT_EQ(found, device);
  }
  EXPECT_EQ(Call("nvmlDeviceGetHandleByPciBusId_v2", "0010:ac:02.0", &found), kNotFound);
  EXPECT_EQ(Call("nvmlDeviceGetHandleByPciBusId_v2", "nonsense", &found), kInvalidArgument);
  EXPECT_EQ(Call("nvmlDeviceGetHandleByUUID", "GPU-01020304-0506-0708-090a-0b0c0d0e0f10", &found),
            kSuccess);
  EXPECT_EQ(Call("nvmlDeviceGetHandleByUUID", "GPU-02020304-0506-0708-090a-0b0c0d0e0f10", &found),
            kNotFound);
  EXPECT_EQ(Call("nvmlDeviceGetHandleByIndex_v2", 1u, &found), kInvalidArgument);
  unsigned index = 7;
  EXPECT_EQ(Call("nvmlDeviceGetIndex", device, &index), kSuccess);
  EXPECT_EQ(index, 0u);
  EXPECT_EQ(Call("nvmlDeviceGetIndex", DeviceHandle{nullptr}, &index), kInvalidArgument);
}

TEST_F(Nvml, SaysWhatTheDeviceIs) {
  Begin();
  const DeviceHandle device = Device();
  char text[96];
  EXPECT_EQ(Call("nvmlDeviceGetName", device, text, 96u), kSuccess);
  EXPECT_STREQ(text, "NVIDIA H200");
  EXPECT_EQ(Call("nvmlDeviceGetName", device, text, 11u), kInsufficientSize);
  EXPECT_EQ(Call("nvmlDeviceGetUUID", device, text, 96u), kSuccess);
  EXPECT_STREQ(text, "GPU-01020304-0506-0708-090a-0b0c0d0e0f10");
  EXPECT_EQ(Call("nvmlSystemGetDriverVersion", text, 80u), kSuccess);
  EXPECT_STREQ(text, "580.95.05");
  int major = 0, minor = -1, version = 0;
  EXPECT_EQ(Call("nvmlDeviceGetCudaComputeCapability", device, &major, &minor), kSuccess);
  EXPECT_EQ(major, 9);
  EXPECT_EQ(minor, 0);
  EXPECT_EQ(Call("nvmlSystemGetCudaDriverVersion_v2", &version), kSuccess);
  EXPECT_EQ(version, 13000);
  PciInfo pci{};
  EXPECT_EQ(Call("nvmlDeviceGetPciInfo_v3", device, &pci), kSuccess);
  EXPECT_STREQ(pci.bus_id, "00000010:AB:02.0");
  EXPECT_STREQ(pci.place.bus_id, "0010:AB:02.0");
  unsigned cores = 0;
  EXPECT_EQ(Call("nvmlDeviceGetNumGpuCores", device, &cores), kSuccess);
  EXPECT_EQ(cores, 132u * 128);
}

TEST_F(Nvml, SaysWhatTheNodesNvmlSaid) {
  door_->answer.device.attributes[CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE] = 3'201'000;
  door_->answer.device.attributes[CU_DEVICE_ATTRIBUTE_ECC_ENABLED] = 1;
  Begin();
  const DeviceHandle device = Device();
  const std::pair<const char*, unsigned> expected[] = {
      {"nvmlDeviceGetCurrPcieLinkGeneration", 5},
      {"nvmlDeviceGetMaxPcieLinkGeneration", 5},
      {"nvmlDeviceGetGpuMaxPcieLinkGeneration", 6},
      {"nvmlDeviceGetCurrPcieLinkWidth", 8},
      {"nvmlDeviceGetMaxPcieLinkWidth", 16},
      {"nvmlDeviceGetPcieSpeed", 32'000},
      {"nvmlDeviceGetPcieLinkMaxSpeed", 5},
      {"nvmlDeviceGetPowerManagementDefaultLimit", 700'000},
  };
  for (const auto& [name, value] : expected) {
    unsigned said = 0;
    EXPECT_EQ(Call(name, device, &said), kSuccess) << name;
    EXPECT_EQ(said, value) << name;
    unsigned* const nowhere = nullptr;
    EXPECT_EQ(Call(name, device, nowhere), kInvalidArgument) << name;
    EXPECT_EQ(Call(name, DeviceHandle{nullptr}, &said), kInvalidArgument) << name;
  }
  unsigned first = 0, second = 0;
  EXPECT_EQ(Call("nvmlDeviceGetPowerManagementLimitConstraints", device, &first, &second),
            kSuccess);
  EXPECT_EQ(first, 200'000u);
  EXPECT_EQ(second, 700'000u);
  EXPECT_EQ(Call("nvmlDeviceGetEccMode", device, &first, &second), kSuccess);
  EXPECT_EQ(first, 1u);
  EXPECT_EQ(second, 1u);
  EXPECT_EQ(Call("nvmlDeviceGetMaxClockInfo", device, 0u, &first), kSuccess);
  EXPECT_EQ(first, 1980u);
  EXPECT_EQ(Call("nvmlDeviceGetMaxClockInfo", device, 2u, &first), kSuccess) << "CUDA says it";
  EXPECT_EQ(first, 3201u);
  EXPECT_EQ(Call("nvmlDeviceGetMaxClockInfo", device, 3u, &first), kNotSupported);
  PciInfo pci{};
  EXPECT_EQ(Call("nvmlDeviceGetPciInfo_v3", device, &pci), kSuccess);
  EXPECT_EQ(pci.place.device_and_vendor, 0x233510deu);
  EXPECT_EQ(pci.subsystem, 0x18be10deu);
}

TEST_F(Nvml, WhatTheNodeDoesNotKnowIsNotSupported) {
  door_->answer.description = {};
  Begin();
  unsigned said = 77;
  EXPECT_EQ(Call("nvmlDeviceGetCurrPcieLinkGeneration", Device(), &said), kNotSupported);
  EXPECT_EQ(Call("nvmlDeviceGetPowerManagementLimitConstraints", Device(), &said, &said),
            kNotSupported);
  EXPECT_EQ(said, 77u);
}

TEST_F(Nvml, TheQuotaIsTheMemory) {
  Begin();
  const DeviceHandle device = Device();
  Memory memory{};
  EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo", device, &memory), kSuccess);
  EXPECT_EQ(memory.total, 4 * kGiB);
  EXPECT_EQ(memory.used, kGiB);
  EXPECT_EQ(memory.free, 3 * kGiB);
  MemoryV2 later{};
  EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo_v2", device, &later), kArgumentVersionMismatch);
  later.version = VersionOf(sizeof(later), 2);
  EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo_v2", device, &later), kSuccess);
  EXPECT_EQ(later.total, 4 * kGiB);
  EXPECT_EQ(later.reserved, 0u);
  EXPECT_EQ(later.used, kGiB);
}

TEST_F(Nvml, MoreUsedThanGrantedLeavesNothingFree) {
  door_->answer.used_memory_bytes = 5 * kGiB;
  Begin();
  Memory memory{};
  EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo", Device(), &memory), kSuccess);
  EXPECT_EQ(memory.used, memory.total);
  EXPECT_EQ(memory.free, 0u);
}

TEST_F(Nvml, ProcessesAreListedInEveryForm) {
  Begin();
  const DeviceHandle device = Device();
  unsigned count = 0;
  Process* const none = nullptr;
  EXPECT_EQ(Call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, none),
            kInsufficientSize);
  ASSERT_EQ(count, 2u);
  for (const char* name :
       {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"}) {
    Process processes[3] = {};
    count = 3;
    EXPECT_EQ(Call(name, device, &count, &processes[0]), kSuccess);
    ASSERT_EQ(count, 2u);
    EXPECT_EQ(processes[0].pid, 1234u);
    EXPECT_EQ(processes[1].used_memory, kGiB / 2);
    EXPECT_EQ(processes[1].gpu_instance_id, kNoInstance);
  }
  ProcessV1 first[2] = {};
  count = 2;
  EXPECT_EQ(Call("nvmlDeviceGetComputeRunningProcesses", device, &count, &first[0]), kSuccess);
  EXPECT_EQ(first[1].pid, 99u);
  count = 5;
  EXPECT_EQ(Call("nvmlDeviceGetGraphicsRunningProcesses_v3", device, &count, none), kSuccess);
  EXPECT_EQ(count, 0u);
}

TEST_F(Nvml, WhatNcclAsksAtItsStart) {
  Begin();
  const DeviceHandle device = Device();
  constexpr unsigned kFirstLink = 0;
  int is_active = 1;
  EXPECT_EQ(Call("nvmlDeviceGetNvLinkState", device, kFirstLink, &is_active), kSuccess);
  EXPECT_EQ(is_active, 0);
  PciInfo remote{};
  EXPECT_EQ(Call("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, kFirstLink, &remote),
            kNotSupported);
  unsigned type = 0;
  EXPECT_EQ(Call("nvmlDeviceGetNvLinkRemoteDeviceType", device, kFirstLink, &type), kNotSupported);
  unsigned status = 0;
  EXPECT_EQ(Call("nvmlDeviceGetP2PStatus", device, device, 0u, &status), kSuccess);
  EXPECT_NE(status, 0u);
  FieldValue fields[2] = {};
  fields[0].field = 94;
  EXPECT_EQ(Call("nvmlDeviceGetFieldValues", device, 2, &fields[0]), kSuccess);
  EXPECT_EQ(fields[0].field, 94u);
  EXPECT_EQ(fields[0].result, kNotSupported);
  FabricInfo fabric{};
  fabric.state = 3;
  EXPECT_EQ(Call("nvmlDeviceGetGpuFabricInfo", device, &fabric), kSuccess);
  EXPECT_EQ(fabric.state, 0) << "no fabric";
  FabricInfoV later{};
  later.version = VersionOf(kFabricInfoV2Bytes, 2);
  later.state = 3;
  later.health_summary = 77;
  EXPECT_EQ(Call("nvmlDeviceGetGpuFabricInfoV", device, &later), kSuccess);
  EXPECT_EQ(later.state, 0);
  EXPECT_EQ(later.health_summary, 77) << "what version 2 does not have is not written";
  later.version = 5;
  EXPECT_EQ(Call("nvmlDeviceGetGpuFabricInfoV", device, &later), kArgumentVersionMismatch);
}

TEST_F(Nvml, NvidiaSmisInnerFunctionsAreThereAndRefuse) {
  Begin();
  const uint8_t smis[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                            0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
  const uint8_t others[16] = {1};
  void* const* table = nullptr;
  EXPECT_EQ(Call("nvmlInternalGetExportTable", &table, &others), kFunctionNotFound);
  EXPECT_EQ(table, nullptr);
  ASSERT_EQ(Call("nvmlInternalGetExportTable", &table, &smis), kSuccess);
  const size_t count = reinterpret_cast<uintptr_t>(table[0]) / sizeof(void*);
  ASSERT_GE(count, 270u) << "as many as driver 580 has";
  for (size_t i = 1; i < count; ++i) {
    ASSERT_EQ(reinterpret_cast<int (*)(void*, void*)>(table[i])(nullptr, nullptr), kNotSupported);
  }
}

TEST_F(Nvml, NoEventsCome) {
  Begin();
  void* set = nullptr;
  ASSERT_EQ(Call("nvmlEventSetCreate", &set), kSuccess);
  uint64_t types = 7;
  EXPECT_EQ(Call("nvmlDeviceGetSupportedEventTypes", Device(), &types), kSuccess);
  EXPECT_EQ(types, 0u);
  EXPECT_EQ(Call("nvmlDeviceRegisterEvents", Device(), uint64_t{8}, set), kNotSupported);
  uint64_t event[8];
  EXPECT_EQ(Call("nvmlEventSetWait_v2", set, &event[0], 1u), kTimeout);
  EXPECT_EQ(Call("nvmlEventSetWait", set, &event[0], 0u), kTimeout);
  EXPECT_EQ(Call("nvmlEventSetFree", set), kSuccess);
  EXPECT_EQ(Call("nvmlEventSetFree", static_cast<void*>(&event[0])), kInvalidArgument);
}

TEST_F(Nvml, FreshAnswersAreAskedAtABoundedRate) {
  Begin();
  const DeviceHandle device = Device();
  Memory memory{};
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo", device, &memory), kSuccess);
  }
  EXPECT_GE(door_->visits(), 2);
  // On a slow machine its calls are far apart.
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(door_->visits(), 100 + took / std::chrono::milliseconds(50));
}

// What was asked for in vain is not charged to the time after.
TEST_F(Nvml, AnswersAreFreshAgainSoonAfterAnOutage) {
  Begin();
  const DeviceHandle device = Device();
  door_.reset();
  Memory memory{};
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo", device, &memory), kGpuIsLost);
  }
  std::filesystem::remove(directory_ + "/" + wire::kSocketName);
  door_.emplace(directory_);
  door_->Open();
  EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo", device, &memory), kSuccess);
  const int visits = door_->visits();
  EXPECT_EQ(visits, 1);
  PassTime(std::chrono::milliseconds(150));
  EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo", device, &memory), kSuccess);
  EXPECT_EQ(door_->visits(), 2);
}

TEST_F(Nvml, ARefusalHasItsCode) {
  door_->answer.admission = wire::Admission::kRefused;
  door_->Open();
  EXPECT_EQ(Call("nvmlInit_v2"), kNoPermission);
  unsigned count = 0;
  EXPECT_EQ(Call("nvmlDeviceGetCount_v2", &count), kUninitialized);
}

TEST_F(Nvml, AnotherVersionHasItsCode) {
  door_->answer.admission = wire::Admission::kWrongVersion;
  door_->Open();
  EXPECT_EQ(Call("nvmlInit_v2"), kVersionMismatch);
}

TEST_F(Nvml, AShortAnswerIsAnOlderScheduler) {
  door_->answer_bytes = 100;
  door_->Open();
  EXPECT_EQ(Call("nvmlInit_v2"), kVersionMismatch);
}

TEST_F(Nvml, WithoutASchedulerThereIsNoDriver) {
  door_.reset();
  EXPECT_EQ(Call("nvmlInit_v2"), kDriverNotLoaded);
}

TEST_F(Nvml, ASchedulerThatEndsIsALostDevice) {
  Begin();
  const DeviceHandle device = Device();
  door_.reset();
  Memory memory{};
  EXPECT_EQ(Call("nvmlDeviceGetMemoryInfo", device, &memory), kGpuIsLost);
}

// Every function that is not answered says so, and the page lists exactly those that are.
// Also when another thread was asking at that moment.
TEST_F(Nvml, AForkedChildMayGoOnAsking) {
  Begin();
  std::atomic<bool> ends{false};
  std::thread caller([&] {
    DeviceHandle device = Device();
    uint64_t memory[3] = {};
    while (!ends) Call("nvmlDeviceGetMemoryInfo", device, &memory[0]);
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      uint64_t memory[3] = {};
      const int result = Call("nvmlDeviceGetMemoryInfo", Device(), &memory[0]);
      _exit(result == kSuccess && memory[0] == 4 * kGiB ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  ends = true;
  caller.join();
}

TEST_F(Nvml, ThePageListsWhatAnswers) {
  std::ifstream page(GPULOOM_NVML_PAGE);
  std::set<std::string> listed;
  for (std::string line; std::getline(page, line);) {
    for (size_t at = line.find("`nvml"); at != std::string::npos; at = line.find("`nvml", at)) {
      const size_t end = line.find('`', at + 1);
      ASSERT_NE(end, std::string::npos) << line;
      listed.insert(line.substr(at + 1, end - at - 1));
      at = end + 1;
    }
  }
  constexpr std::pair<const char*, bool> kFunctions[] = {
#define NVML_FN(name, room) {#name, std::string_view(#room) == "kAnswered"},
#include "shim/nvml/nvml_api.def"
#undef NVML_FN
  };
  Begin();
  std::set<std::string> answered;
  for (const auto& [name, answers] : kFunctions) {
    if (answers) {
      answered.insert(name);
    } else {
      EXPECT_EQ(Call(name), kNotSupported) << name;
    }
  }
  EXPECT_EQ(listed, answered);
}

}  // namespace
}  // namespace gpuloom::nvml
