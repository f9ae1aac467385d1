// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/refusal.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace gpuloom::executor {
namespace {

TEST(Refusal, TheSchedulerIsToldWhyAndThenHungUpOn) {
  int ends[2] = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  control::Connection scheduler{channel::UniqueFd(ends[0])};
  Refuse(channel::UniqueFd(ends[1]), "cuda: no device");
  control::Incoming in;
  control::ExecutorReady ready = {};
  ASSERT_TRUE(scheduler.Receive(&in) && in.As(&ready));
  EXPECT_EQ(in.header.request, 0u);
  EXPECT_EQ(ready.ok, 0u);
  EXPECT_STREQ(ready.message, "cuda: no device");
  EXPECT_FALSE(scheduler.Receive(&in));
}

TEST(Refusal, WhatTheDeviceLacksIsNoMatterOfConfinement) {
  for (const CUresult result : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_ECC_UNCORRECTABLE,
                                CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH}) {
    EXPECT_FALSE(MayBeConfinement(result)) << result;
  }
  // A file or a system call that is refused.
  for (const CUresult result :
       {CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_UNKNOWN}) {
    EXPECT_TRUE(MayBeConfinement(result)) << result;
  }
}

TEST(Refusal, ALongReasonIsCut) {
  int ends[2] = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  control::Connection scheduler{channel::UniqueFd(ends[0])};
  Refuse(channel::UniqueFd(ends[1]), std::string(5000, 'x'));
  control::Incoming in;
  control::ExecutorReady ready = {};
  ASSERT_TRUE(scheduler.Receive(&in) && in.As(&ready));
  EXPECT_EQ(ready.message[0], 'x');
  EXPECT_LE(control::TextLength(ready.message), sizeof(ready.message));
}

TEST(Refusal, ASchedulerOfAnotherMajorIsToldBothVersionsAndTheNextStep) {
  std::string error;
  for (const char* version : {"3.0", "3.1", "3.17"}) {
    EXPECT_TRUE(CanServeScheduler(version, &error)) << version;
  }
  for (const char* version : {"2.9", "4.0", "30.1", "3", "", "x.1"}) {
    EXPECT_FALSE(CanServeScheduler(version, &error)) << version;
    EXPECT_NE(error.find("control version " + std::string(version) + ","), error.npos) << error;
    EXPECT_NE(error.find(control::VersionText(control::kControlMajor, control::kControlMinor)),
              error.npos);
    EXPECT_NE(error.find("restart the scheduler"), error.npos);
  }
}

}  // namespace
}  // namespace gpuloom::executor
