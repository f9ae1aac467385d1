// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "agent/node/log.h"
#include "agent/supervisor/control_client.h"
#include "agent/supervisor/scheduler_process.h"
#include "agent/testing/clock.h"
#include "proto/control/connection.h"
#include "proto/control/testing/recording.h"
#include "proto/sync/testing/wait_for.h"

namespace {
thread_local int g_interrupted_polls = 0;
}  // namespace

// In place of libc's: a signal comes.
extern "C" int poll(pollfd* entries, nfds_t count, int timeout_ms) {
  if (g_interrupted_polls > 0) {
    --g_interrupted_polls;
    errno = EINTR;
    return -1;
  }
  return static_cast<int>(syscall(SYS_poll, entries, count, timeout_ms));
}

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char kUuid[] = "GPU-1";

class FakeClient : public SchedulerClient {
 public:
  absl::Status AddAllocation(const std::string&, const std::string&, int) override {
    return absl::OkStatus();
  }
  absl::Status BindAllocation(const BindOrder&) override { return absl::OkStatus(); }
  absl::Status PrepareExecutor(const std::string&) override { return absl::OkStatus(); }
  absl::Status RemoveAllocation(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<std::string>> ListAllocations() override {
    return std::vector<std::string>{};
  }
  absl::StatusOr<std::vector<UnsupportedCalls>> ListUnsupported() override {
    return std::vector<UnsupportedCalls>{};
  }
  absl::StatusOr<GpuReport> Report() override { return GpuReport{}; }
  bool IsConnected() override { return connected; }
  bool connected = true;
};

class InTemporaryDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "supervisorXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    state_ = name;
  }
  void TearDown() override { fs::remove_all(state_); }
  std::string state_;
};

class SupervisorTest : public InTemporaryDirectory {
 protected:
  // A scheduler whose life is a shell script.
  Supervisor MakeSupervisor(const std::string& script, bool may_start = true) {
    Supervisor::Options options;
    options.state_directory = state_;
    options.may_start = may_start;
    options.command = [script](const std::string& gpu, const std::string& directory) {
      return std::vector<std::string>{"/bin/sh", "-c", script, "sh", gpu, directory};
    };
    options.connect =
        [this](const std::string&) -> absl::StatusOr<std::shared_ptr<SchedulerClient>> {
      if (client_ == nullptr) return absl::NotFoundError("scheduler: nobody listens");
      return std::shared_ptr<SchedulerClient>(client_);
    };
    options.on_connected = [this](const std::string& gpu, SchedulerClient*) {
      connected_.push_back(gpu);
      return absl::OkStatus();
    };
    return Supervisor(std::move(options));
  }
  std::string Directory() { return state_ + "/gpus/" + kUuid; }
  // Ticks without passing time, until the process that was started has done its work.
  template <typename Done>
  void TickUntil(Supervisor* supervisor, Done done) {
    EXPECT_TRUE(WaitFor([&] {
      if (done()) return true;
      supervisor->Tick(clock_.Now());
      return false;
    }));
  }

  TestingClock clock_;
  std::shared_ptr<FakeClient> client_;
  std::vector<std::string> connected_;
};

TEST_F(SupervisorTest, NoSchedulerIsStartedForAGpuThatWasRemoved) {
  Supervisor supervisor = MakeSupervisor("echo begun >> $2/begun; exit 3");
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  const auto has_failed = [&] {
    return supervisor.Client(kUuid).status().message().find("at its start") != std::string::npos;
  };
  TickUntil(&supervisor, has_failed);
  supervisor.RemoveGpu(kUuid);
  EXPECT_TRUE(absl::IsNotFound(supervisor.Client(kUuid).status()));
  clock_.Advance(Backoff::kLongest);
  supervisor.Tick(clock_.Now());
  EXPECT_FALSE(supervisor.IsAnyRunning());
  EXPECT_EQ(fs::file_size(Directory() + "/begun"), 6u) << "it was started once";
  // It is back.
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  TickUntil(&supervisor, [&] { return fs::file_size(Directory() + "/begun") == 12; });
  TickUntil(&supervisor, has_failed);
}

TEST_F(SupervisorTest, AGpuWhoseSchedulerRunsIsNotRemoved) {
  Supervisor supervisor =
      MakeSupervisor("trap 'exit 0' TERM; touch $2/begun; while :; do sleep 0.01; done");
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  TickUntil(&supervisor, [&] { return fs::exists(Directory() + "/begun"); });
  supervisor.RemoveGpu(kUuid);
  EXPECT_TRUE(absl::IsUnavailable(supervisor.Client(kUuid).status())) << "it is on its way";
  client_ = std::make_shared<FakeClient>();
  supervisor.Tick(clock_.Now());
  supervisor.RemoveGpu(kUuid);
  EXPECT_TRUE(supervisor.IsServing(kUuid));
  supervisor.RequestStop();
  EXPECT_TRUE(WaitFor([&] { return !supervisor.IsAnyRunning(); }));
  supervisor.RemoveGpu(kUuid);
  EXPECT_TRUE(supervisor.IsServing(kUuid)) << "it is still connected";
}

TEST_F(SupervisorTest, AdoptsARunningScheduler) {
  client_ = std::make_shared<FakeClient>();
  Supervisor supervisor = MakeSupervisor("touch $2/started");
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  EXPECT_FALSE(supervisor.IsServing(kUuid));
  supervisor.Tick(clock_.Now());
  EXPECT_TRUE(supervisor.IsServing(kUuid));
  EXPECT_THAT(connected_, ElementsAre(kUuid));
  EXPECT_FALSE(fs::exists(Directory() + "/started"));
  EXPECT_THAT(supervisor.Client("GPU-2").status().message(),
              HasSubstr("not in this node's inventory"));
}

TEST_F(SupervisorTest, StartsOneInItsOwnSessionAndConnects) {
  Supervisor supervisor = MakeSupervisor(
      "ps -o sid= -p $$ > $2/sid; echo $$ > $2/pid; echo hello; while [ -e $2 ]; do sleep 0.1; "
      "done");
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  TickUntil(&supervisor, [&] {
    return fs::exists(Directory() + "/pid") && fs::file_size(Directory() + "/pid") > 0;
  });
  client_ = std::make_shared<FakeClient>();
  supervisor.Tick(clock_.Now());
  EXPECT_TRUE(supervisor.IsServing(kUuid));
  int sid = 0, pid = 0;
  std::ifstream(Directory() + "/sid") >> sid;
  std::ifstream(Directory() + "/pid") >> pid;
  EXPECT_EQ(sid, pid);
  EXPECT_GT(pid, 0);
}

TEST_F(SupervisorTest, AProcessThatFailsAtItsStartIsToldAndTriedAgainLater) {
  Supervisor supervisor = MakeSupervisor("echo x >> $2/starts; exit 3");
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  const auto failed = [&] {
    return supervisor.Client(kUuid).status().message().find("exited with status 3") !=
           absl::string_view::npos;
  };
  TickUntil(&supervisor, failed);
  EXPECT_THAT(std::string(supervisor.Client(kUuid).status().message()), HasSubstr("scheduler.log"));
  // No time passes: no second start.
  for (int i = 0; i < 5; ++i) supervisor.Tick(clock_.Now());
  EXPECT_EQ(fs::file_size(Directory() + "/starts"), 2u);
  clock_.Advance(Backoff::kFirst);
  TickUntil(&supervisor, [&] { return fs::file_size(Directory() + "/starts") == 4u; });
}

TEST_F(SupervisorTest, AMissingProgramIsNamed) {
  Supervisor::Options options;
  options.state_directory = state_;
  options.command = [](const std::string&, const std::string&) {
    return std::vector<std::string>{"/nonexistent/x"};
  };
  options.connect = [](const std::string&) { return absl::NotFoundError("nobody"); };
  Supervisor supervisor(std::move(options));
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  supervisor.Tick(clock_.Now());
  EXPECT_THAT(std::string(supervisor.Client(kUuid).status().message()),
              HasSubstr("/nonexistent/x"));
}

TEST_F(SupervisorTest, WhatItStartedLogsAsMuchAsItselfOnceItAnswers) {
  Supervisor supervisor = MakeSupervisor(
      "trap 'echo more >> $2/said' USR1; trap 'echo less >> $2/said; exit' HUP; touch $2/ready; "
      "while :; do sleep 0.01; done");
  const auto said = [this] {
    std::stringstream text;
    text << std::ifstream(Directory() + "/said").rdbuf();
    return text.str();
  };
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  LogMore("gpuloom-test", true);
  // Before it handles the signal, it would end it.
  TickUntil(&supervisor, [&] { return fs::exists(Directory() + "/ready"); });
  EXPECT_EQ(said(), "");
  client_ = std::make_shared<FakeClient>();
  TickUntil(&supervisor, [&] { return said() == "more\n"; });
  supervisor.Tick(clock_.Now());
  LogMore("gpuloom-test", false);
  TickUntil(&supervisor, [&] { return said() != "more\n"; });
  EXPECT_EQ(said(), "more\nless\n") << "each once";
}

TEST_F(SupervisorTest, AHangUpMeansASchedulerIsLookedForAnew) {
  client_ = std::make_shared<FakeClient>();
  Supervisor supervisor = MakeSupervisor("touch $2/started; while [ -e $2 ]; do sleep 0.1; done");
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  supervisor.Tick(clock_.Now());
  client_->connected = false;
  client_ = nullptr;
  supervisor.Tick(clock_.Now());
  EXPECT_THAT(std::string(supervisor.Client(kUuid).status().message()), HasSubstr("hung up"));
  clock_.Advance(Backoff::kFirst);
  TickUntil(&supervisor, [&] { return fs::exists(Directory() + "/started"); });
  client_ = std::make_shared<FakeClient>();
  supervisor.Tick(clock_.Now());
  EXPECT_TRUE(supervisor.IsServing(kUuid));
  EXPECT_THAT(connected_, ElementsAre(kUuid, kUuid));
}

TEST_F(SupervisorTest, AHeldLockIsNotStartedOver) {
  Supervisor supervisor = MakeSupervisor("touch $2/started");
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  const int lock = open((Directory() + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  supervisor.Tick(clock_.Now());
  clock_.Advance(std::chrono::seconds(21));
  supervisor.Tick(clock_.Now());
  EXPECT_THAT(std::string(supervisor.Client(kUuid).status().message()),
              HasSubstr("does not answer"));
  // Neither now nor before.
  EXPECT_FALSE(supervisor.IsAnyRunning());
  EXPECT_FALSE(fs::exists(Directory() + "/started"));
  close(lock);
}

TEST_F(SupervisorTest, EndsWhatItStartedWhenAsked) {
  Supervisor supervisor = MakeSupervisor(
      "trap 'touch $2/ended; exit 0' TERM; touch $2/ready; while :; do sleep 0.01; done");
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  TickUntil(&supervisor, [&] { return fs::exists(Directory() + "/ready"); });
  EXPECT_TRUE(supervisor.IsAnyRunning());
  supervisor.RequestStop();
  EXPECT_TRUE(WaitFor([&] { return !supervisor.IsAnyRunning(); }));
  EXPECT_TRUE(fs::exists(Directory() + "/ended"));
}

TEST(ReapStrays, TakesOrphansAndLeavesOurs) {
  const auto stray = StartScheduler({"/bin/true"}, "/dev/null");
  ASSERT_TRUE(stray.ok());
  EXPECT_TRUE(WaitFor([&] {
    ReapStrays({});
    return kill(*stray, 0) != 0;
  }));
  const auto ours = StartScheduler({"/bin/false"}, "/dev/null");
  ASSERT_TRUE(ours.ok());
  std::optional<std::string> ended;
  EXPECT_TRUE(WaitFor([&] {
    ReapStrays({*ours});
    ended = ReapProcess(*ours);
    return ended.has_value();
  }));
  EXPECT_EQ(ended, "exited with status 1");
}

TEST_F(SupervisorTest, OnlyAdoptsWhenToldSo) {
  Supervisor supervisor = MakeSupervisor("touch $2/started", /*may_start=*/false);
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  supervisor.Tick(clock_.Now());
  EXPECT_FALSE(supervisor.IsAnyRunning());
  EXPECT_FALSE(fs::exists(Directory() + "/started"));
}

// What is logged while it lives.
class CapturedLog {
 public:
  CapturedLog() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "", std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_)));
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::string text() const { return stream_.str(); }

 private:
  std::ostringstream stream_;
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

// As where agent and schedulers are pods that start beside each other.
TEST_F(SupervisorTest, ASchedulerThatAnotherProcessStartsIsMissedOnlyAfterAWhile) {
  Supervisor supervisor = MakeSupervisor("true", /*may_start=*/false);
  ASSERT_TRUE(supervisor.AddGpu(kUuid).ok());
  const CapturedLog log;
  supervisor.Tick(clock_.Now());
  clock_.Advance(std::chrono::seconds(10));
  supervisor.Tick(clock_.Now());
  EXPECT_EQ(log.text(), "");
  EXPECT_THAT(std::string(supervisor.Client(kUuid).status().message()),
              HasSubstr("not started yet"));
  for (int i = 0; i < 2; ++i) {
    clock_.Advance(std::chrono::seconds(21));
    supervisor.Tick(clock_.Now());
  }
  EXPECT_THAT(std::string(supervisor.Client(kUuid).status().message()), HasSubstr("only adopts"));
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("none has been started"));
  EXPECT_EQ(text.find("none has been"), text.rfind("none has been")) << "said once";
}

// A scheduler's end of the control socket, one connection.
class ControlClientTest : public InTemporaryDirectory {
 protected:
  template <typename Serve>
  std::thread ServeOne(Serve serve) {
    listener_ = channel::ListenAt((state_ + "/control.sock").c_str());
    EXPECT_TRUE(listener_.valid());
    return std::thread([this, serve] {
      pollfd ready = {listener_.get(), POLLIN, 0};  // which does not block
      ASSERT_EQ(poll(&ready, 1, 60'000), 1);
      control::Connection connection(
          channel::UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      serve(&connection);
    });
  }
  static void SayYes(control::Connection* connection, uint32_t request) {
    control::Answer answer = {};
    answer.ok = 1;
    answer.major = control::kControlMajor;
    answer.minor = control::kControlMinor;
    EXPECT_TRUE(connection->Send(request, answer));
  }
  channel::UniqueFd listener_;
};

TEST_F(ControlClientTest, OrdersArriveWhole) {
  control::BindAllocation bind = {};
  std::thread server = ServeOne([&](control::Connection* connection) {
    control::Incoming in;
    control::ControlHello hello = {};
    ASSERT_TRUE(connection->Receive(&in) && in.As(&hello));
    EXPECT_EQ(hello.major, control::kControlMajor);
    EXPECT_EQ(hello.minor, control::kControlMinor);
    SayYes(connection, in.header.request);
    ASSERT_TRUE(connection->Receive(&in) && in.As(&bind));
    SayYes(connection, in.header.request);
    control::PrepareExecutor prepare = {};
    ASSERT_TRUE(connection->Receive(&in) && in.As(&prepare));
    EXPECT_STREQ(prepare.name, "n");
    SayYes(connection, in.header.request);
    ASSERT_TRUE(connection->Receive(&in));
    for (const char* name : {"one", "two"}) {
      control::AllocationState state = {};
      control::SetText(state.name, name);
      ASSERT_TRUE(connection->Send(in.header.request, state));
    }
    SayYes(connection, in.header.request);
    control::RemoveAllocation remove = {};
    ASSERT_TRUE(connection->Receive(&in) && in.As(&remove));
    control::Answer no = {};
    control::SetText(no.message, "not now");
    ASSERT_TRUE(connection->Send(in.header.request, no));
  });
  const auto client = ConnectToScheduler(state_);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->IsConnected());
  g_interrupted_polls = 1;
  EXPECT_TRUE((*client)->IsConnected()) << "a signal is no hang-up";
  EXPECT_EQ(g_interrupted_polls, 0);
  EXPECT_TRUE((*client)
                  ->BindAllocation({"n", "team-a", "p", "main", "namespace/team-a", 4096, 8192,
                                    control::ShareTerms{300, 20, 1, 600, 50}, 30'000,
                                    control::KernelTerms{5000, 60'000},
                                    control::PartitionTerms{50, 0, 25, 10},
                                    control::TraceTerms::kOwn, 2000})
                  .ok());
  EXPECT_TRUE((*client)->PrepareExecutor("n").ok());
  EXPECT_THAT(*(*client)->ListAllocations(), ElementsAre("one", "two"));
  EXPECT_EQ((*client)->RemoveAllocation("n").message(), "scheduler: not now");
  server.join();
  EXPECT_STREQ(bind.pod_namespace, "team-a");
  EXPECT_STREQ(bind.trust_domain, "namespace/team-a");
  EXPECT_EQ(bind.memory_quota_bytes, 4096u);
  EXPECT_EQ(bind.pinned_limit_bytes, 8192u);
  EXPECT_EQ(bind.shares, (control::ShareTerms{300, 20, 1, 600, 50}));
  EXPECT_EQ(bind.memory_wait_ms, 30'000u);
  EXPECT_EQ(bind.kernels, (control::KernelTerms{5000, 60'000}));
  EXPECT_EQ(bind.partition, (control::PartitionTerms{50, 0, 25, 10}));
  EXPECT_EQ(bind.trace, static_cast<uint32_t>(control::TraceTerms::kOwn));
  EXPECT_EQ(bind.rescue_after_ms, 2000u);
  EXPECT_FALSE((*client)->IsConnected());
  EXPECT_TRUE(absl::IsUnavailable((*client)->AddAllocation("n", "/d", 1)));
}

TEST_F(ControlClientTest, AnIdentityThatDoesNotFitIsRefusedNotCut) {
  std::thread server = ServeOne([&](control::Connection* connection) {
    control::Incoming in;
    ASSERT_TRUE(connection->Receive(&in));
    SayYes(connection, in.header.request);
    EXPECT_FALSE(connection->Receive(&in));
  });
  {
    const auto client = ConnectToScheduler(state_);
    ASSERT_TRUE(client.ok());
    const std::string long_name(300, 'p');
    EXPECT_THAT(
        std::string((*client)->BindAllocation({"n", "a", long_name, "c", "d", 0, 0}).message()),
        HasSubstr("too long a name"));
    EXPECT_THAT(
        std::string((*client)->BindAllocation({"n", "a", "p", "c", long_name, 0, 0}).message()),
        HasSubstr("trust domain"));
  }
  server.join();
}

TEST_F(ControlClientTest, AnotherVersionAndNobodyAreToldApart) {
  EXPECT_TRUE(absl::IsNotFound(ConnectToScheduler(state_).status()));
  std::thread server = ServeOne([&](control::Connection* connection) {
    control::Incoming in;
    ASSERT_TRUE(connection->Receive(&in));
    control::Answer no = {};
    no.major = 9;
    control::SetText(no.message, "control version 9 is spoken here");
    ASSERT_TRUE(connection->Send(in.header.request, no));
  });
  const auto client = ConnectToScheduler(state_);
  server.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(client.status()));
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("control version 9"));
}

// An agent that is replaced adopts the schedulers of the release before: what one of those has
// answered to an agent of today's, word for word.
class RecordedSchedulers : public ControlClientTest,
                           public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Releases, RecordedSchedulers,
                         ::testing::Values("control_3.0/agent_3.1", "control_3.1/agent_3.2",
                                           "control_3.2/agent_3.3", "control_3.3/agent_3.4",
                                           "control_3.4/agent_3.5", "control_3.5/agent_3.6",
                                           "control_3.6/agent_3.7", "control_3.7/agent_3.8"),
                         [](const auto& name) {
                           return std::string(name.param).substr(8, 1) +
                                  std::string(name.param).substr(10, 1);
                         });

TEST_P(RecordedSchedulers, AreAdopted) {
  const control::RecordedScheduler scheduler(
      state_, control::ReadRecording(std::string(GPULOOM_GOLDEN "/") + GetParam() + ".txt"));
  const auto client = ConnectToScheduler(state_);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->AddAllocation("n", "/d", 1).ok());
  EXPECT_TRUE(
      (*client)->BindAllocation({"n", "team-a", "p", "main", "namespace/team-a", 4096, 8192}).ok());
  EXPECT_TRUE((*client)->PrepareExecutor("n").ok());
  EXPECT_TRUE((*client)->ListAllocations().ok());
  EXPECT_TRUE((*client)->ListUnsupported().ok());
  // Those of 3.3 could tell of their GPU, and were not asked when they were recorded.
  if (!std::string(GetParam()).starts_with("control_3.3/")) {
    const absl::StatusOr<GpuReport> report = (*client)->Report();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->tells_gpu, std::string(GetParam()) >= "control_3.4/");
  }
  EXPECT_TRUE((*client)->RemoveAllocation("n").ok());
  EXPECT_TRUE((*client)->IsConnected());
  EXPECT_FALSE(scheduler.was_surprised());
}

TEST_F(ControlClientTest, WhatAnOlderSchedulerDoesNotKnowIsSaidOnce) {
  const control::RecordedScheduler scheduler(
      state_, control::ReadRecording(GPULOOM_GOLDEN "/control_3.1/agent_3.2.txt"));
  const CapturedLog log;
  const auto client = ConnectToScheduler(state_);
  BindOrder order{"n",
                  "team-a",
                  "p",
                  "main",
                  "namespace/team-a",
                  4096,
                  8192,
                  control::ShareTerms{100, 100, 2, 0, 0},
                  0};
  EXPECT_TRUE(client.ok() && (*client)->BindAllocation(order).ok());
  EXPECT_EQ(log.text(), "") << "the default is what it does in any case";
  for (const uint32_t weight : {300u, 400u}) {
    order.shares.weight = weight;
    EXPECT_TRUE(client.ok() && (*client)->BindAllocation(order).ok());
  }
  const std::string said = log.text();
  const size_t first = said.find(
      "weight, priority, timeShareMax, memoryWait, maxKernelTime, smPercent, smReserved, trace and "
      "rescueAfter have no effect");
  EXPECT_NE(first, said.npos);
  EXPECT_EQ(said.find("have no effect", first + 120), said.npos) << said;
  EXPECT_THAT(said, HasSubstr(state_));
}

TEST_F(ControlClientTest, ASchedulerOf3_3TellsOfItsGpu) {
  const control::RecordedScheduler scheduler(
      state_, control::ReadRecording(GPULOOM_GOLDEN "/control_3.3/status_3.4.txt"));
  const auto client = ConnectToScheduler(state_);
  ASSERT_TRUE(client.ok()) << client.status();
  for (int scrape = 0; scrape < 2; ++scrape) {
    const absl::StatusOr<GpuReport> report = (*client)->Report();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->tells_gpu);
    EXPECT_STREQ(report->gpu.uuid, "GPU-6770756c-6f6f-6d20-736f-667467707500");
    EXPECT_EQ(report->gpu.memory_bytes, uint64_t{1} << 30);
    EXPECT_TRUE(report->allocations.empty() && report->domains.empty());
  }
  EXPECT_FALSE(scheduler.was_surprised());
}

TEST_F(ControlClientTest, ASchedulerOf3_5DoesNotKnowTraces) {
  const control::RecordedScheduler scheduler(
      state_, control::ReadRecording(GPULOOM_GOLDEN "/control_3.5/agent_3.6.txt"));
  const CapturedLog log;
  const auto client = ConnectToScheduler(state_);
  BindOrder order{"n", "team-a", "p", "main", "namespace/team-a", 4096, 8192};
  order.kernels.warn_after_ms = 1000;
  EXPECT_TRUE(client.ok() && (*client)->BindAllocation(order).ok());
  EXPECT_EQ(log.text(), "") << "that it knows";
  order.trace = control::TraceTerms::kOwn;
  EXPECT_TRUE(client.ok() && (*client)->BindAllocation(order).ok());
  EXPECT_THAT(log.text(), HasSubstr(": trace and rescueAfter have no effect on its GPU"));
}

TEST_F(ControlClientTest, ASchedulerOf3_6DoesNotKnowRescueAfter) {
  const control::RecordedScheduler scheduler(
      state_, control::ReadRecording(GPULOOM_GOLDEN "/control_3.6/agent_3.7.txt"));
  const CapturedLog log;
  const auto client = ConnectToScheduler(state_);
  BindOrder order{"n", "team-a", "p", "main", "namespace/team-a", 4096, 8192};
  order.trace = control::TraceTerms::kOwn;
  order.rescue_after_ms = 100;
  EXPECT_TRUE(client.ok() && (*client)->BindAllocation(order).ok());
  EXPECT_EQ(log.text(), "") << "that it knows, and that is what it does in any case";
  order.rescue_after_ms = 2000;
  EXPECT_TRUE(client.ok() && (*client)->BindAllocation(order).ok());
  EXPECT_THAT(log.text(), HasSubstr(": rescueAfter has no effect on its GPU"));
}

TEST_F(ControlClientTest, ASchedulerOf3_3DoesNotKnowMaxKernelTime) {
  const control::RecordedScheduler scheduler(
      state_, control::ReadRecording(GPULOOM_GOLDEN "/control_3.3/agent_3.4.txt"));
  const CapturedLog log;
  const auto client = ConnectToScheduler(state_);
  BindOrder order{"n", "team-a", "p", "main", "namespace/team-a", 4096, 8192};
  order.shares.weight = 300;
  EXPECT_TRUE(client.ok() && (*client)->BindAllocation(order).ok());
  EXPECT_EQ(log.text(), "") << "that it knows";
  order.kernels.warn_after_ms = 1000;
  EXPECT_TRUE(client.ok() && (*client)->BindAllocation(order).ok());
  EXPECT_THAT(log.text(),
              HasSubstr(": maxKernelTime, smPercent, smReserved, trace and rescueAfter have no "
                        "effect on its"));
}

}  // namespace
}  // namespace gpuloom
