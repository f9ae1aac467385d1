#include "agent/supervisor/control_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "absl/strings/str_split.h"
#include "agent/cat.h"
#include "proto/control/connection.h"

namespace gpuloom {
namespace {

// Making a socket in a directory takes milliseconds; a scheduler that needs seconds hangs.
constexpr int kTimeoutSeconds = 5;

// False when the text does not fit: cutting an identity would make two tenants one.
template <size_t N>
bool Fill(char (&field)[N], const std::string& text) {
  if (text.size() >= N || text.find('\0') != text.npos) return false;
  control::SetText(field, text.data(), text.size());
  return true;
}

template <size_t N>
std::string Read(const char (&field)[N]) {
  return std::string(field, control::TextLength(field));
}

class ControlClient : public SchedulerClient {
 public:
  ControlClient(const std::string& directory, channel::UniqueFd socket)
      : directory_(directory), connection_(std::move(socket)) {}

  absl::Status Hello() {
    control::ControlHello hello = {};
    hello.version = control::kControlVersion;
    return Ask(hello, nullptr);
  }

  absl::Status AddAllocation(const std::string& name, const std::string& directory,
                             int slots) override {
    control::AddAllocation order = {};
    order.slots = static_cast<uint32_t>(slots);
    if (!Fill(order.name, name) || !Fill(order.directory, directory)) {
      return absl::InvalidArgumentError(Cat("scheduler: too long a path: ", directory));
    }
    return Ask(order, nullptr);
  }

  absl::Status BindAllocation(const BindOrder& order) override {
    control::BindAllocation message = {};
    if (!Fill(message.name, order.name) || !Fill(message.pod_namespace, order.pod_namespace) ||
        !Fill(message.pod, order.pod) || !Fill(message.container, order.container)) {
      return absl::InvalidArgumentError(
          Cat("scheduler: too long a name: ", order.pod_namespace, "/", order.pod));
    }
    if (!Fill(message.trust_domain, order.trust_domain)) {
      return absl::InvalidArgumentError(Cat("scheduler: trust domain '", order.trust_domain,
                                            "' is too long: shorten the pod's name"));
    }
    message.memory_quota_bytes = order.memory_quota_bytes;
    message.pinned_limit_bytes = order.pinned_limit_bytes;
    return Ask(message, nullptr);
  }

  absl::Status PrepareExecutor(const std::string& name) override {
    control::PrepareExecutor order = {};
    if (!Fill(order.name, name)) return absl::InvalidArgumentError("scheduler: too long a name");
    return Ask(order, nullptr);
  }

  absl::Status RemoveAllocation(const std::string& name) override {
    control::RemoveAllocation order = {};
    if (!Fill(order.name, name)) return absl::InvalidArgumentError("scheduler: too long a name");
    return Ask(order, nullptr);
  }

  absl::StatusOr<std::vector<std::string>> ListAllocations() override {
    std::vector<control::AllocationState> states;
    if (absl::Status status = Ask(control::ListAllocations{}, &states); !status.ok()) return status;
    std::vector<std::string> names;
    for (const control::AllocationState& state : states) names.push_back(Read(state.name));
    return names;
  }

  absl::StatusOr<std::vector<UnsupportedCalls>> ListUnsupported() override {
    std::vector<control::AllocationState> states;
    if (absl::Status status = Ask(control::ListAllocations{}, &states); !status.ok()) return status;
    std::vector<UnsupportedCalls> all;
    for (const control::AllocationState& state : states) {
      all.push_back({Read(state.name), Read(state.pod_namespace), Read(state.pod),
                     Read(state.container),
                     absl::StrSplit(Read(state.unsupported), '\n', absl::SkipEmpty())});
    }
    return all;
  }

  bool IsConnected() override {
    const std::lock_guard lock(mutex_);
    if (!connection_.valid()) return false;
    pollfd entry = {connection_.fd(), POLLRDHUP, 0};
    return poll(&entry, 1, 0) == 0;
  }

 private:
  // Sends, and reads until the Answer to this request; AllocationStates before it go to `states`.
  template <control::Message M>
  absl::Status Ask(const M& message, std::vector<control::AllocationState>* states) {
    const std::lock_guard lock(mutex_);
    if (!connection_.valid()) return Gone("the connection was lost");
    const uint32_t request = ++last_request_;
    if (!connection_.Send(request, message)) return GoneWithErrno("send");
    for (;;) {
      control::Incoming in;
      if (!connection_.Receive(&in)) return GoneWithErrno("receive");
      if (in.header.request != request) continue;
      control::Answer answer = {};
      control::AllocationState state = {};
      if (states != nullptr && in.As(&state)) {
        states->push_back(state);
      } else if (in.As(&answer)) {
        if (answer.ok != 0) return absl::OkStatus();
        return absl::FailedPreconditionError(Cat("scheduler: ", Read(answer.message)));
      } else {
        return Gone("it sent a message of another version");
      }
    }
  }

  absl::Status GoneWithErrno(const char* what) {
    if (errno == EAGAIN) return Gone(Cat("no answer within ", kTimeoutSeconds, " s"));
    return Gone(Cat(what, ": ", strerror(errno)));
  }

  // A late answer would be taken for the next one's, so a connection that failed once is not used
  // again.
  absl::Status Gone(const std::string& why) {
    connection_.Close();
    return absl::UnavailableError(
        Cat("scheduler: ", directory_, ": ", why, "; see ", directory_, "/scheduler.log"));
  }

  const std::string directory_;
  std::mutex mutex_;
  control::Connection connection_;
  uint32_t last_request_ = 0;
};

}  // namespace

absl::StatusOr<std::shared_ptr<SchedulerClient>> ConnectToScheduler(const std::string& directory) {
  const std::string path = directory + "/" + control::kControlSocketName;
  channel::UniqueFd socket = channel::ConnectTo(path.c_str());
  if (!socket.valid()) return absl::NotFoundError(Cat("scheduler: ", path, ": ", strerror(errno)));
  const timeval timeout = {kTimeoutSeconds, 0};
  if (setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) != 0 ||
      setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) != 0) {
    return absl::InternalError(Cat("scheduler: ", path, ": ", strerror(errno)));
  }
  auto client = std::make_shared<ControlClient>(directory, std::move(socket));
  if (absl::Status status = client->Hello(); !status.ok()) return status;
  return std::shared_ptr<SchedulerClient>(std::move(client));
}

}  // namespace gpuloom
