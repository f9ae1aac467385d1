// SPDX-License-Identifier: Apache-2.0
// Attaching, being refused, forking, and what the snapshot answers.
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "proto/channel/socket.h"
#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

using Session = ShimTest;

TEST_F(Session, LoadingTheLibraryConnectsToNothing) {
  void* function = nullptr;
  EXPECT_EQ(cu_.cuGetProcAddress("cuInit", &function, 13000, 0), CUDA_SUCCESS);
  EXPECT_EQ(node_.connections(), 0);
}

TEST_F(Session, InitAttachesOnce) {
  EXPECT_EQ(cu_.cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuInit(1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(node_.connections(), 1);
}

TEST_F(Session, NothingWorksBeforeInit) {
  int count = 0;
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  EXPECT_EQ(cu_.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cu_.cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cu_.cuMemAlloc_v2(&address, 16), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_ERROR_NOT_INITIALIZED);
}

TEST_F(Session, WithoutASocketThereIsNoDeviceAndOneLine) {
  setenv(wire::kSocketDirVariable, "/nonexistent", 1);
  testing::internal::CaptureStderr();
  int version = 0;
  EXPECT_EQ(cu_.cuDriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, CUDA_VERSION);
  EXPECT_EQ(cu_.cuInit(0), CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(cu_.cuInit(0), CUDA_ERROR_NO_DEVICE);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("gpuloom: no GPU: cannot connect to /nonexistent/gpuloom.sock"), 0u) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST_F(Session, ARefusalIsPassedOnWithItsReason) {
  const struct {
    wire::Admission admission;
    CUresult result;
  } kCases[] = {{wire::Admission::kRefused, CUDA_ERROR_NOT_PERMITTED},
                {wire::Admission::kWrongVersion, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH},
                {wire::Admission::kDeviceLost, CUDA_ERROR_DEVICE_UNAVAILABLE}};
  wire::Welcome welcome = node_.welcome();
  strcpy(welcome.message, "because of the test");
  for (const auto& one : kCases) {
    welcome.admission = one.admission;
    node_.set_welcome(welcome);
    const Driver cu = LoadFreshShim();
    testing::internal::CaptureStderr();
    EXPECT_EQ(cu.cuInit(0), one.result);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("because of the test"), std::string::npos) << log;
  }
}

TEST_F(Session, AfterARefusalInitMayBeTriedAgain) {
  wire::Welcome welcome = node_.welcome();
  welcome.admission = wire::Admission::kRefused;
  node_.set_welcome(welcome);
  testing::internal::CaptureStderr();
  int version = 0;
  EXPECT_EQ(cu_.cuDriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuInit(0), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(node_.connections(), 1);  // what the runtime's start asks of us is refused once
  EXPECT_EQ(cu_.cuInit(0), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(node_.connections(), 2);
  testing::internal::GetCapturedStderr();
  welcome.admission = wire::Admission::kAccepted;
  node_.set_welcome(welcome);
  EXPECT_EQ(cu_.cuInit(0), CUDA_SUCCESS);
}

TEST_F(Session, ANewerSchedulersLongerWelcomeIsUnderstood) {
  node_.welcome_bytes = sizeof(wire::Welcome) + 1000;
  EXPECT_EQ(cu_.cuInit(0), CUDA_SUCCESS);
}

// A scheduler goes on running while its node is upgraded, and new pods get the new library.
TEST_F(Session, AnOlderSchedulerIsAskedForWhatItHasAndItsShorterWelcomeUnderstood) {
  node_.welcome_bytes = wire::kShortestWelcomeBytes;
  EXPECT_EQ(cu_.cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(node_.hello().major, wire::kWireMajor);
  EXPECT_EQ(node_.hello().minor, wire::kNeededMinor);
  EXPECT_TRUE(node_.hello().token.empty()) << "it takes nothing up again";
}

TEST_F(Session, AWelcomeThatIsCutShortIsNone) {
  node_.welcome_bytes = wire::kShortestWelcomeBytes - 1;
  testing::internal::CaptureStderr();
  EXPECT_EQ(cu_.cuInit(0), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("no gpuloom scheduler"), std::string::npos) << log;
}

TEST_F(Session, AddressesInUseAreRefused) {
  void* taken = mmap(reinterpret_cast<void*>(node_.welcome().device_range_begin), 4096, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cu_.cuInit(0), CUDA_ERROR_OPERATING_SYSTEM);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("cannot reserve the session's addresses"), std::string::npos) << log;
  munmap(taken, 4096);
}

#if !defined(__SANITIZE_THREAD__)  // whose own memory lies at these addresses
TEST_F(Session, ALimitedAddressSpaceIsLeftToTheProgram) {
  wire::Welcome welcome = node_.welcome();
  welcome.device_range_begin = 0x2000'0000'0000;
  welcome.device_range_bytes = uint64_t{1} << 40;
  node_.set_welcome(welcome);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit limited = before;
  limited.rlim_cur = uint64_t{1} << 46;  // a sanitizer has taken tens of TiB
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  const CUresult result = cu_.cuInit(0);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(result, CUDA_SUCCESS);
  channel::Mapping free;
  EXPECT_TRUE(free.ReserveAt(welcome.device_range_begin, welcome.device_range_bytes));
}
#endif

TEST_F(Session, TheDeviceIsWhatTheSnapshotSays) {
  int version = 0;
  ASSERT_EQ(cu_.cuDriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, 13000);
  ASSERT_EQ(cu_.cuInit(0), CUDA_SUCCESS);
  int count = 0;
  EXPECT_EQ(cu_.cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1);
  char name[8];
  EXPECT_EQ(cu_.cuDeviceGetName(name, sizeof(name), 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "testing");
  CUuuid uuid;
  EXPECT_EQ(cu_.cuDeviceGetUuid(&uuid, 0), CUDA_SUCCESS);
  EXPECT_EQ(memcmp(&uuid, node_.welcome().device.uuid, sizeof(uuid)), 0);
  size_t total = 0;
  EXPECT_EQ(cu_.cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
  EXPECT_EQ(total, size_t{6} << 30);
  unsigned small_total = 0;
  EXPECT_EQ(cu_.cuDeviceTotalMem(&small_total, 0), CUDA_SUCCESS);
  EXPECT_EQ(small_total, UINT32_MAX);
  int value = 0;
  EXPECT_EQ(cu_.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_SUCCESS);
  EXPECT_EQ(value, 32);
  EXPECT_EQ(cu_.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0),
            CUDA_ERROR_INVALID_VALUE);  // the table has none
  EXPECT_EQ(cu_.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(-1), 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1),
            CUDA_ERROR_INVALID_DEVICE);
  CUdevice device = -1;
  EXPECT_EQ(cu_.cuDeviceGetByPCIBusId(&device, "0000:1b:02.0"), CUDA_SUCCESS);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cu_.cuDeviceGetByPCIBusId(&device, "0000:1c:02.0"), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(node_.seen().size(), 0u);  // all of it without a message
}

TEST_F(Session, AHiddenDeviceIsNone) {
  const auto init = [&](const char* visible) {
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    const CUresult result = LoadFreshShim().cuInit(0);
    unsetenv("CUDA_VISIBLE_DEVICES");
    // That instance keeps its addresses.
    node_.TakeOtherAddresses();
    return result;
  };
  for (const char* hidden : {"", "-1", "1", "GPU-ff", "1,0"}) {
    EXPECT_EQ(init(hidden), CUDA_ERROR_NO_DEVICE) << hidden;
  }
  for (const char* shown : {"0", "0,1", "GPU-0102", "GPU-01020304-0506-0708-090A-0B0C0D0E0F10"}) {
    EXPECT_EQ(init(shown), CUDA_SUCCESS) << shown;
  }
}

int ExitCodeOf(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(Session, AForkedChildIsRefusedAndTheParentGoesOn) {
  Begin();
  const CUdeviceptr address = Alloc(4096);
  // Asked before the fork: in the child the node's lock may be held by a thread that is not there.
  void* const arena = reinterpret_cast<void*>(node_.welcome().host_range_begin);
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    CUdeviceptr other = 0;
    const bool refused =
        cu_.cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
        cu_.cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
        cu_.cuMemAlloc_v2(&other, 16) == CUDA_ERROR_NOT_INITIALIZED &&
        cu_.cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED &&
        cu_.cuMemcpyHtoD_v2(address, &count, sizeof(count)) == CUDA_ERROR_NOT_INITIALIZED;
    // The rings did not come along.
    const bool unmapped = msync(arena, 4096, MS_ASYNC) != 0;
    _exit(refused && unmapped ? 0 : 1);
  }
  EXPECT_EQ(ExitCodeOf(child), 0);
  EXPECT_EQ(cu_.cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(Session, AChildOfAProcessThatUsedNoCudaIsItsOwn) {
  int version = 0;
  ASSERT_EQ(cu_.cuDriverGetVersion(&version), CUDA_SUCCESS);  // attaches, but uses nothing
  const pid_t child = fork();
  if (child == 0) {
    // The parent's node serves this process too; a second session gets addresses of its own.
    _exit(cu_.cuInit(0) == CUDA_SUCCESS ? 0 : 1);
  }
  EXPECT_EQ(ExitCodeOf(child), 0);
  EXPECT_EQ(node_.connections(), 2);
}

// The scheduler takes a second to start an executor, and the program has other threads.
TEST_F(Session, AChildOfAProcessThatIsJustAttachingIsItsOwn) {
  const std::string busy = node_.directory() + "/busy";
  ASSERT_EQ(mkdir(busy.c_str(), 0700), 0);
  const channel::UniqueFd listener(channel::ListenAt((busy + "/" + wire::kSocketName).c_str()));
  ASSERT_TRUE(listener.valid());
  setenv(wire::kSocketDirVariable, busy.c_str(), 1);
  setenv("GPULOOM_LOG", "off", 1);
  std::thread attaching([this] { EXPECT_NE(cu_.cuInit(0), CUDA_SUCCESS); });
  pollfd connection = {listener.get(), POLLIN, 0};
  ASSERT_EQ(poll(&connection, 1, 60'000), 1);
  const channel::UniqueFd tenant(accept(listener.get(), nullptr, nullptr));
  ASSERT_TRUE(tenant.valid());
  char hello[256];
  EXPECT_GT(recv(tenant.get(), hello, sizeof(hello), 0), 0);
  int go_on[2];
  ASSERT_EQ(pipe(go_on), 0);
  setenv(wire::kSocketDirVariable, node_.directory().c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    close(go_on[1]);
    const CUresult result = cu_.cuInit(0);
    char none;
    (void)!read(go_on[0], &none, 1);
    _exit(result == CUDA_SUCCESS ? 0 : 1);
  }
  // The parent is turned away, and its connection is closed although the child lives.
  EXPECT_TRUE(channel::SendMessage(tenant.get(), "no", 2));
  attaching.join();
  EXPECT_EQ(recv(tenant.get(), hello, sizeof(hello), 0), 0);
  close(go_on[0]);
  close(go_on[1]);
  EXPECT_EQ(ExitCodeOf(child), 0);
  unsetenv("GPULOOM_LOG");
  unlink((busy + "/" + wire::kSocketName).c_str());
  rmdir(busy.c_str());
}

}  // namespace
}  // namespace gpuloom
