// SPDX-License-Identifier: Apache-2.0
// Control messages into the real scheduler: from an agent, which is trusted but may be of another release, and from an
// executor, which is not trusted. The input is a list of steps; the messages are made from the list that dispatch is made
// from, right or nearly right. Whatever is said, the scheduler must serve the next agent and give back all memory at its end.
//
// An executor's end of the socket comes from a process that the scheduler starts and that lends it (testing/lent_executor.cc).
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "agent/scheduler/log.h"
#include "agent/scheduler/scheduler.h"
#include "agent/scheduler/testing/device.h"
#include "proto/channel/region.h"
#include "proto/channel/socket.h"
#include "proto/control/dispatch.h"
#include "proto/wire/session.h"

namespace gpuloom::scheduler {
namespace {

// Not an assert: it holds in every build.
void Check(bool ok, int line = __builtin_LINE()) {
  if (ok) return;
  fprintf(stderr, "control_fuzz.cc:%d: does not hold\n", line);
  abort();
}

// The input, from its beginning; zeros behind its end.
class Steps {
 public:
  Steps(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  uint8_t Byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  uint64_t Number(int bytes) {
    uint64_t number = 0;
    for (int i = 0; i < bytes; ++i) number |= uint64_t{Byte()} << (8 * i);
    return number;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

// The types of a route's messages.
std::vector<uint32_t> TypesOf(control::Route route) {
  std::vector<uint32_t> types;
  for (uint32_t i = 0; i < control::kMessages.size(); ++i) {
    if (control::kMessages[i].route == route) types.push_back(i + 1);
  }
  return types;
}

class Harness {
 public:
  // `lender`: where processes lend their sockets.
  Harness(const std::filesystem::path& folder, int lender) : folder_(folder), lender_(lender) {
    Options options;
    options.state_dir = folder;
    options.cuda_library = "none";
    options.executor_path = GPULOOM_LENT_EXECUTOR;
    options.executor_folders = folder;
    scheduler_ = std::make_unique<Scheduler>(&loop_, &device_, options);
    std::string error;
    Check(scheduler_->Listen(&error));
    directory_ = folder_ / "a";
    std::filesystem::create_directories(directory_);
    ConnectAgent();
  }

  void Run(Steps steps) {
    Prepare();
    for (int i = 0; i < 64 && !steps.empty(); ++i) {
      if (!agent_.valid()) ConnectAgent();
      Step(&steps);
      Turn();
    }
    ExpectServed();
    End();
    Check(device_.live == 0);
  }

 private:
  void ConnectAgent() {
    agent_ =
        control::Connection(channel::ConnectTo((folder_ / control::kControlSocketName).c_str()));
    Check(agent_.valid());
    SendTo(&agent_, control::ControlHello{control::kControlMajor, control::kControlMinor});
  }

  // An allocation with an executor that is ready and a session.
  void Prepare() {
    control::AddAllocation add{};
    control::SetText(add.name, "a");
    control::SetText(add.directory, directory_.c_str());
    SendTo(&agent_, add);
    control::BindAllocation bind{};
    control::SetText(bind.name, "a");
    control::SetText(bind.pod_namespace, "a");
    control::SetText(bind.pod, "a");
    control::SetText(bind.pod_uid, "a");
    control::SetText(bind.container, "a");
    control::SetText(bind.trust_domain, "a");
    // Enough for some requests, too little for all, so that both answers and the queue are met.
    bind.memory_quota_bytes = uint64_t{1} << 30;
    // Some requests wait.
    bind.memory_wait_ms = 1000;
    device_.room_bytes = uint64_t{64} << 20;
    SendTo(&agent_, bind);
    Attach();
    // One may be left from Turn. The wait is for the process only; nothing else here depends on
    // time.
    Check(executor_.valid() || TakeExecutor(60'000));
    SendTo(&executor_, control::ExecutorReady{1, 0, 0, 0, {}, {}, {}, 0});
    SendTo(&executor_, control::SessionReady{session_id_, 1, 0, {}, 0, 0});
  }

  template <control::Message M>
  void SendTo(control::Connection* connection, const M& message) {
    (void)connection->Send(++request_, message, nullptr, 0, MSG_DONTWAIT);
    Turn();
  }

  void Attach() {
    tenant_ = channel::ConnectTo((directory_ / wire::kSocketName).c_str());
    const wire::Hello hello{wire::kHelloMagic, wire::kWireMajor, wire::kWireMinor, 0, 0, 0, {}};
    if (tenant_.valid()) {
      (void)channel::SendMessage(tenant_.get(), &hello, sizeof(hello), nullptr, 0, MSG_DONTWAIT);
    }
    Turn();
  }

  // From a process that was started for it, which may take its time: waits for `limit_ms`.
  bool TakeExecutor(int limit_ms) {
    pollfd coming{lender_, POLLIN, 0};
    for (;;) {
      const int ready = poll(&coming, 1, limit_ms);
      if (ready < 0 && errno == EINTR) continue;  // libFuzzer's alarm
      if (ready != 1) return false;
      const channel::UniqueFd process(accept4(lender_, nullptr, nullptr, SOCK_CLOEXEC));
      char byte;
      channel::UniqueFd lent;
      size_t count = 0;
      // Else it has been ended meanwhile.
      if (channel::ReceiveMessage(process.get(), &byte, 1, &lent, 1, &count) == 1 && count == 1) {
        executor_ = control::Connection(std::move(lent));
        return true;
      }
    }
  }

  void Step(Steps* steps) {
    static const std::vector<uint32_t> kAgents = TypesOf(control::Route::kAgentAsks);
    static const std::vector<uint32_t> kExecutors = TypesOf(control::Route::kExecutorSays);
    const uint8_t step = steps->Byte();
    switch (step % 6) {
      case 0:
        return SendOne(steps, &agent_, kAgents[steps->Byte() % kAgents.size()]);
      case 1:
      case 2:
        // Executors twice as often as the agent: they are the ones that are not trusted.
        return SendOne(steps, &executor_, kExecutors[steps->Byte() % kExecutors.size()]);
      case 3:  // of any route, or none
        return SendOne(steps, step % 2 == 0 ? &agent_ : &executor_, steps->Byte());
      case 4: {
        uint8_t bytes[255];
        const size_t size = steps->Byte();
        for (size_t i = 0; i < size; ++i) bytes[i] = steps->Byte();
        control::Connection& from = steps->Byte() % 2 == 0 ? agent_ : executor_;
        (void)channel::SendMessage(from.fd(), bytes, size, nullptr, 0, MSG_DONTWAIT);
        return;
      }
      default:
        return steps->Byte() % 2 == 0 ? Attach() : tenant_.Reset();
    }
  }

  void SendOne(Steps* steps, control::Connection* from, uint32_t type) {
    const control::MessageInfo* info = control::FindMessage(type);
    const uint8_t shape = steps->Byte();
    const uint32_t full = info == nullptr ? steps->Byte() : info->body_bytes;
    const uint32_t shortest = info == nullptr ? full : info->shortest_bytes;
    // Mostly right sizes; also longer ones, as a newer peer sends them, the shortest that is valid,
    // and one byte less than that.
    const uint32_t sizes[] = {full, full, full, full + 8, shortest, shortest - (shortest != 0)};
    const uint32_t size = sizes[shape % std::size(sizes)];
    const control::MessageHeader header{type, (shape & 64) != 0 ? 0 : ++request_};
    std::vector<uint8_t> bytes(sizeof(header) + full + 8);
    std::memcpy(bytes.data(), &header, sizeof(header));
    uint8_t* body = bytes.data() + sizeof(header);
    for (int words = steps->Byte() % 8; words > 0; --words) {
      Write(steps, body, full);
    }
    // Any descriptor will do: what is no region must be refused.
    const int fds[] = {STDERR_FILENO, STDERR_FILENO, STDERR_FILENO, STDERR_FILENO};
    const size_t fd_count = std::min((shape & 128) != 0 ? steps->Byte() % 5
                                     : info == nullptr  ? 0
                                                        : info->fds,
                                     std::size(fds));
    (void)channel::SendMessage(from->fd(), bytes.data(), sizeof(header) + size, fds, fd_count,
                               MSG_DONTWAIT);
  }

  // Something that makes sense somewhere, where it may make sense here.
  void Write(Steps* steps, uint8_t* body, uint32_t body_bytes) {
    const uint64_t at = steps->Number(2);
    const uint8_t what = steps->Byte();
    std::string text;
    uint64_t number = 0;
    switch (what % 6) {
      case 0:
        number = session_id_;
        break;
      case 1:
        number = memory_id_;
        break;
      case 2:
        number = steps->Number(1) << 20;
        break;
      case 3:
        number = steps->Number(8);
        break;
      case 4:
        text = "a";
        break;
      default:
        text = directory_;
    }
    if (text.empty()) text.assign(reinterpret_cast<const char*>(&number), sizeof(number));
    const size_t offset = body_bytes == 0 ? 0 : at % body_bytes;
    std::memcpy(body + offset, text.data(), std::min<size_t>(text.size(), body_bytes - offset));
  }

  // What the loop does, and what the peers hear of it.
  void Turn() {
    // A few rounds: what one handler has posted to the loop is done in the next.
    for (int i = 0; i < 4; ++i) loop_.RunOnce({});
    scheduler_->OnChildExit();
    if (!executor_.valid()) (void)TakeExecutor(0);
    control::Incoming in;
    while (agent_.valid() && agent_.Receive(&in, 0, MSG_DONTWAIT)) {
    }
    if (agent_.valid() && errno != EAGAIN) agent_.Close();
    while (executor_.valid() && executor_.Receive(&in, channel::kMaxFds, MSG_DONTWAIT)) {
      control::AddSession add;
      control::MemoryGranted granted;
      if (in.As(&add)) session_id_ = add.session_id;
      if (in.As(&granted)) memory_id_ = granted.memory_id;
    }
    if (executor_.valid() && errno != EAGAIN) executor_.Close();
  }

  // Again and again: a thread of libFuzzer's may get SIGCHLD.
  void Reap() {
    scheduler_->OnChildExit();
    reaping_ = loop_.After(std::chrono::milliseconds(1), [this] { Reap(); });
  }

  void ExpectServed() {
    control::Connection next(channel::ConnectTo((folder_ / control::kControlSocketName).c_str()));
    // A new agent over a new connection: the old ones may have been refused for what they sent.
    Check(next.valid());
    for (int i = 0; i < 2; ++i) {
      if (i == 0) Check(next.Send(1, control::ControlHello{control::kControlMajor, 0}));
      if (i == 1) Check(next.Send(2, control::ListAllocations{}));
      control::Incoming in;
      control::Answer answer{};
      for (int turns = 0; !in.As(&answer); ++turns) {
        Check(turns < 100'000);
        Turn();
        (void)next.Receive(&in, 0, MSG_DONTWAIT);
      }
      Check(answer.ok == 1);
    }
  }

  void End() {
    agent_.Close();
    executor_.Close();
    tenant_.Reset();
    Reap();
    scheduler_->Shutdown();
    loop_.Run();
    reaping_.Cancel();
    while (TakeExecutor(0)) {  // what nobody has taken
    }
    executor_.Close();
    scheduler_.reset();
  }

  const std::filesystem::path folder_;
  const int lender_;
  std::filesystem::path directory_;
  TestingDevice device_;
  EventLoop loop_;
  std::unique_ptr<Scheduler> scheduler_;
  Timer reaping_;
  control::Connection agent_;
  control::Connection executor_;
  channel::UniqueFd tenant_;
  uint32_t request_ = 0;
  uint64_t session_id_ = 0;
  uint64_t memory_id_ = 0;
};

}  // namespace
}  // namespace gpuloom::scheduler

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpuloom;
  static const std::filesystem::path kFolder = [] {
    char name[] = "/tmp/gpuloom-control-fuzz-XXXXXX";
    scheduler::Check(mkdtemp(name) != nullptr);
    SetLogLevel(LogLevel::kError);
    setenv("GPULOOM_EXECUTOR_LENDER", (std::string(name) + "/lender").c_str(), 1);
    atexit([] { std::filesystem::remove_all(kFolder); });
    return std::filesystem::path(name);
  }();
  static const channel::UniqueFd kLender = channel::ListenAt((kFolder / "lender").c_str());
  scheduler::Harness(kFolder, kLender.get()).Run({data, size});
  return 0;
}
