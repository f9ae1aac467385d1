// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/testing/scheduler_fixture.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "proto/channel/region.h"
#include "proto/channel/socket.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom::scheduler {
namespace {

bool HangsUp(int fd, std::chrono::milliseconds limit) {
  pollfd polled{fd, POLLRDHUP, 0};
  return poll(&polled, 1, static_cast<int>(limit.count())) == 1 &&
         (polled.revents & (POLLRDHUP | POLLHUP)) != 0;
}

}  // namespace

bool Tenant::Connect(const std::string& directory) {
  socket = channel::ConnectTo((directory + "/" + wire::kSocketName).c_str());
  timeval limit{60, 0};
  if (socket.valid()) setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  return socket.valid();
}

bool Tenant::Attach(const std::string& directory, uint16_t major, uint16_t minor) {
  if (!Connect(directory)) return false;
  const wire::Hello hello{wire::kHelloMagic, major, minor, 0, 0, 0, {}};
  return channel::SendMessage(socket.get(), &hello, sizeof(hello)) && ReceiveWelcome();
}

bool Tenant::ReceiveWelcome() {
  const ptrdiff_t size = channel::ReceiveMessage(socket.get(), &welcome, sizeof(welcome), fds,
                                                 wire::kWelcomeFds, &fd_count);
  attached_ = size == static_cast<ptrdiff_t>(sizeof(welcome)) && welcome.magic == wire::kHelloMagic;
  return attached_;
}

int Tenant::Order(char byte) {
  const int doorbell = fds[wire::kDoorbellFd].get();
  uint8_t answer = 0;
  if (send(doorbell, &byte, 1, MSG_NOSIGNAL) != 1) return -1;
  return recv(doorbell, &answer, 1, 0) == 1 ? answer : -1;
}

uint32_t Tenant::OrderForNumber(char byte) {
  const int doorbell = fds[wire::kDoorbellFd].get();
  uint32_t answer = 0;
  if (send(doorbell, &byte, 1, MSG_NOSIGNAL) != 1) return 0;
  return recv(doorbell, &answer, sizeof(answer), MSG_WAITALL) == sizeof(answer) ? answer : 0;
}

void Tenant::SendByte(char byte) {
  if (send(fds[wire::kDoorbellFd].get(), &byte, 1, MSG_NOSIGNAL) != 1) ADD_FAILURE() << "gone";
}

int Tenant::Answer(std::chrono::milliseconds limit) {
  const int doorbell = fds[wire::kDoorbellFd].get();
  pollfd polled{doorbell, POLLIN, 0};
  uint8_t answer = 0;
  if (poll(&polled, 1, static_cast<int>(limit.count())) != 1) return -1;
  return recv(doorbell, &answer, 1, 0) == 1 ? answer : -1;
}

bool Tenant::HungUp(std::chrono::milliseconds limit) const { return HangsUp(socket.get(), limit); }

bool Tenant::DoorbellHungUp(std::chrono::milliseconds limit) const {
  return HangsUp(fds[wire::kDoorbellFd].get(), limit);
}

void Tenant::Leave() {
  socket.Reset();
  for (channel::UniqueFd& fd : fds) fd.Reset();
}

SchedulerTest::SchedulerTest() {
  char name[] = "/tmp/gpuloom-scheduler-test-XXXXXX";
  root_ = mkdtemp(name);
  options_.state_dir = root_;
  options_.cuda_library = "none";
  options_.executor_path = GPULOOM_SCRIPTED_EXECUTOR;
  options_.idle_timeout = std::chrono::seconds(60);
  options_.drain_timeout = std::chrono::seconds(60);
  options_.exit_grace = std::chrono::milliseconds(500);
  SetExecutorStart("");
  setenv("GPULOOM_EXECUTOR_START", (root_ / "executor_start").c_str(), 1);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signals_.Reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  stop_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

SchedulerTest::~SchedulerTest() {
  const uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof(one)) != sizeof(one)) ADD_FAILURE() << "cannot stop";
  if (thread_.joinable()) thread_.join();
  EXPECT_EQ(device_.live, 0) << "memory was not given back";
  std::filesystem::remove_all(root_);
}

void SchedulerTest::Start() {
  loop_ = std::make_unique<EventLoop>();
  scheduler_ = std::make_unique<Scheduler>(loop_.get(), &device_, options_);
  std::string error;
  ASSERT_TRUE(scheduler_->Listen(&error)) << error;
  signal_watch_ = loop_->WatchFd(signals_.get(), EPOLLIN, [this](uint32_t) {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    }
    scheduler_->OnChildExit();
  });
  stop_watch_ = loop_->WatchFd(stop_.get(), EPOLLIN, [this](uint32_t) {
    stop_watch_.Change(0);
    scheduler_->Shutdown();
  });
  thread_ = std::thread([this] {
    loop_->Run();
    signal_watch_.End();
    stop_watch_.End();
    scheduler_.reset();
    ended_ = true;
  });
}

bool SchedulerTest::EndsWithin(std::chrono::milliseconds limit) {
  return WaitFor([this] { return ended_.load(); }, limit);
}

void SchedulerTest::SetExecutorStart(const std::string& mode) {
  std::ofstream(root_ / "executor_start") << mode << "\n";
}

control::Client SchedulerTest::Controller() {
  control::Client client;
  std::string error;
  EXPECT_TRUE(client.Connect(root_, control::Client::kDefaultTimeout, &error)) << error;
  return client;
}

std::string SchedulerTest::Add(control::Client* client, const std::string& name,
                               bool ends_with_connection) {
  const std::filesystem::path directory = root_ / name;
  std::filesystem::create_directories(directory);
  control::AddAllocation add{};
  control::SetText(add.name, name.c_str());
  control::SetText(add.directory, directory.c_str());
  add.slots = 1;
  add.ends_with_connection = ends_with_connection ? 1 : 0;
  std::string error;
  EXPECT_TRUE(client->AddAllocation(add, &error)) << error;
  return directory;
}

control::BindAllocation SchedulerTest::BindMessage(const std::string& name,
                                                   const std::string& domain,
                                                   uint64_t quota_bytes) {
  control::BindAllocation bind{};
  control::SetText(bind.name, name.c_str());
  control::SetText(bind.pod_namespace, "team-a");
  control::SetText(bind.pod, name.c_str());
  control::SetText(bind.pod_uid, "uid-1");
  control::SetText(bind.container, "main");
  control::SetText(bind.trust_domain, domain.c_str());
  bind.memory_quota_bytes = quota_bytes;
  bind.pinned_limit_bytes = kGiB;
  return bind;
}

std::string SchedulerTest::Allocate(control::Client* client, const std::string& name,
                                    const std::string& domain, uint64_t quota_bytes) {
  const std::string directory = Add(client, name);
  std::string error;
  EXPECT_TRUE(client->BindAllocation(BindMessage(name, domain, quota_bytes), &error)) << error;
  return directory;
}

control::AllocationState SchedulerTest::State(control::Client* client, const std::string& name) {
  std::vector<control::AllocationState> states;
  std::string error;
  EXPECT_TRUE(client->ListAllocations(&states, &error)) << error;
  for (const control::AllocationState& state : states) {
    if (state.name == name) return state;
  }
  return control::AllocationState{};
}

bool SchedulerTest::Becomes(control::Client* client, const std::string& name,
                            const std::function<bool(const control::AllocationState&)>& done) {
  return WaitFor([&] { return done(State(client, name)); });
}

std::vector<pid_t> SchedulerTest::Children() {
  std::vector<pid_t> children;
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(process.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    pid_t pid = 0;
    pid_t parent = 0;
    const size_t name_end = stat.rfind(')');
    if (name_end == stat.npos || sscanf(stat.c_str(), "%d", &pid) != 1 ||
        sscanf(stat.c_str() + name_end, ") %*c %d", &parent) != 1) {
      continue;
    }
    if (parent == getpid()) children.push_back(pid);
  }
  return children;
}

void SchedulerTest::ExpectServed(const std::string& directory) {
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  ASSERT_TRUE(tenant.accepted()) << tenant.welcome.message;
  EXPECT_EQ(tenant.Order('m'), 0);
  EXPECT_EQ(tenant.Order('r'), 0);
}

}  // namespace gpuloom::scheduler
