// SPDX-License-Identifier: Apache-2.0
// One thread and one poll over everything: the eventfd that Stop writes, the listener, and each
// connection, which waits either for its request or to send. Each connection has one deadline for
// the state that it is in; the next of all deadlines is how long poll waits.
#include "agent/metrics/http_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "agent/cat.h"

namespace gpuloom {
namespace {

// Without a free descriptor accept fails at once, again and again.
constexpr std::chrono::milliseconds kAcceptPause{100};
// More than Accept takes in one go, so that a burst waits here and is not turned away.
constexpr int kBacklog = 64;

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

HttpAnswer ErrorAnswer(int status) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = std::make_shared<const std::string>(Cat(ReasonOf(status), "\n"));
  return answer;
}

// EINTR with them: the next poll tells whether to try again.
bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

HttpServer::HttpServer(ListenAddress address, Handler handler, Limits limits)
    : address_(std::move(address)), handler_(std::move(handler)), limits_(limits) {}

// The socket is made by the thread, which also tries again: an agent that takes over finds the port
// in use until the agent before it has closed it.
void HttpServer::Start() {
  Stop();
  is_stopping_ = false;
  last_trouble_.clear();
  next_listen_ = {};
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  thread_ = std::thread([this] { Run(); });
}

void HttpServer::Stop() {
  if (!thread_.joinable()) return;
  is_stopping_ = true;
  CheckAgain();
  thread_.join();
  wake_.Reset();
}

void HttpServer::CheckAgain() {
  const uint64_t one = 1;
  // A thread that cannot be woken looks again, or ends, with its pause.
  (void)!write(wake_.get(), &one, sizeof(one));
}

void HttpServer::Run() {
  while (!is_stopping_) {
    Time now = std::chrono::steady_clock::now();
    if (!listener_.valid() && now >= next_listen_) {
      next_listen_ = now + limits_.next_try;
      Listen();
    }
    Time next = now + limits_.next_try;
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
    const bool accepts = listener_.valid() && now >= next_accept_;
    // poll ignores a descriptor of -1, and the connections stand from place 2 on.
    polled.push_back({accepts ? listener_.get() : -1, POLLIN, 0});
    if (!accepts && listener_.valid()) next = std::min(next, next_accept_);
    for (const Connection& connection : connections_) {
      const bool sends = connection.state == Connection::State::kAnswer;
      // Of who waits for an answer only its hang-up is heard.
      const bool waits = connection.state == Connection::State::kLater;
      const int events = waits ? 0 : sends ? POLLOUT : POLLIN;
      polled.push_back({connection.fd.get(), static_cast<int16_t>(events), 0});
      next = std::min(next, connection.deadline);
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - now);
    // Its result says nothing more: where it fails, no revents are set, and deadlines are looked at
    // all the same. ceil above, so that it does not wake just before a deadline and spin.
    poll(polled.data(), polled.size(),
         static_cast<int>(std::max(wait, std::chrono::milliseconds(0)).count()));
    now = std::chrono::steady_clock::now();
    uint64_t ignored;
    const bool looks_again =
        (polled[0].revents & POLLIN) != 0 && read(wake_.get(), &ignored, sizeof(ignored)) > 0;
    // connections_ has not changed since `polled` was made, so both are in the same order.
    size_t i = 2;
    for (auto it = connections_.begin(); it != connections_.end(); ++i) {
      const bool is_ready = looks_again && it->state == Connection::State::kLater;
      const bool lives = now < it->deadline && (polled[i].revents == 0 || GoOn(&*it, now)) &&
                         (!is_ready || !Answer(&*it, now) || SendMore(&*it, now));
      it = lives ? std::next(it) : connections_.erase(it);
    }
    // Last: a new connection may take the place of an old one, which had its chance just now.
    if ((polled[1].revents & POLLIN) != 0) Accept();
  }
  connections_.clear();
  listener_.Reset();
  port_ = 0;
}

void HttpServer::Listen() {
  sockaddr_storage address = address_.address;
  socklen_t length = address_.length;
  channel::UniqueFd fd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // A kernel without IPv6: "all addresses" are those of IPv4 then, at the same port.
  if (address_.is_any && !fd.valid() && errno == EAFNOSUPPORT) {
    in_port_t port;
    memcpy(&port, reinterpret_cast<const char*>(&address) + offsetof(sockaddr_in6, sin6_port),
           sizeof(port));
    sockaddr_in v4 = {};
    v4.sin_family = AF_INET;
    v4.sin_port = port;
    memcpy(&address, &v4, sizeof(v4));
    length = sizeof(v4);
    fd.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  }
  const int on = 1;
  // ":PORT" serves both families with one socket; an IPv6 address that was named is only itself.
  const int is_v6_only = address_.is_any ? 0 : 1;
  // Connections of the agent before this one may still be in TIME_WAIT.
  if (fd.valid()) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (fd.valid() && address.ss_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &is_v6_only, sizeof(is_v6_only));
  }
  if (!fd.valid() || bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    const std::string trouble =
        Cat("metrics: cannot serve on ", address_.text, ": ", strerror(errno),
            errno == EADDRINUSE ? "; another process has the port (ss -ltnp), or the agent before "
                                  "this one does and will leave it"
                                : "; see --metrics-address",
            "; trying again every ", limits_.next_try.count(), " ms");
    // An agent that waits for the one before it would say so every two seconds.
    if (trouble != last_trouble_) spdlog::warn("{}", trouble);
    last_trouble_ = trouble;
    return;
  }
  sockaddr_storage bound = {};
  length = sizeof(bound);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  const std::string url = UrlOf(bound);
  // As bound: of port 0 the kernel has chosen one.
  port_ = std::stoi(url.substr(url.rfind(':') + 1));
  listener_ = std::move(fd);
  last_trouble_.clear();
  spdlog::info("metrics: serving at {}", url);
}

void HttpServer::Accept() {
  // As many as there may be, so that those that are served are looked at in between.
  for (size_t i = 0; i < limits_.connections; ++i) {
    const Time now = std::chrono::steady_clock::now();
    channel::UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (errno != ECONNABORTED && !WouldBlock()) next_accept_ = now + kAcceptPause;
      return;
    }
    // Behind accept4: only a connection that is really there costs another one its place.
    if (connections_.size() >= limits_.connections) MakeRoom();
    Connection& connection = connections_.emplace_back();
    connection.fd = std::move(fd);
    connection.deadline = now + limits_.request;
    // Its request is mostly there already, and those that come behind it may take its place.
    if (!GoOn(&connection, now)) connections_.pop_back();
  }
}

// The first of those that qualify, which is the oldest. There is one: if those that are answered
// are not most, some are not answered.
void HttpServer::MakeRoom() {
  const auto is_answered = [](const Connection& connection) {
    return connection.state == Connection::State::kAnswer;
  };
  const auto answered = static_cast<size_t>(std::ranges::count_if(connections_, is_answered));
  const bool are_most = 2 * answered > connections_.size();
  connections_.erase(std::ranges::find(connections_, are_most, is_answered));
}

bool HttpServer::GoOn(Connection* connection, Time now) {
  switch (connection->state) {
    case Connection::State::kRequest:
      return ReadMore(connection, now);
    case Connection::State::kLater:
      return false;  // the peer has gone
    case Connection::State::kAnswer:
      return SendMore(connection, now);
    case Connection::State::kFarewell: {
      // Whatever still comes is thrown away, until the peer hangs up or the time is over.
      char ignored[4096];
      const ssize_t n = recv(connection->fd.get(), ignored, sizeof(ignored), 0);
      return n > 0 || (n < 0 && WouldBlock());
    }
  }
  return false;
}

bool HttpServer::ReadMore(Connection* connection, Time now) {
  char buffer[4096];
  const ssize_t n = recv(connection->fd.get(), buffer, sizeof(buffer), 0);
  // 0: the peer has ended its side before its request was whole, and gets no answer.
  if (n <= 0) return n < 0 && WouldBlock();
  connection->request_untrusted.append(buffer, static_cast<size_t>(n));
  if (ReadRequest(connection->request_untrusted).status == 0) return true;
  connection->deadline = now + limits_.answer;
  return !Answer(connection, now) || SendMore(connection, now);
}

bool HttpServer::Answer(Connection* connection, Time now) {
  // Its texts lie in request_untrusted, which is given up only when the handler has returned.
  HttpRequest request = ReadRequest(connection->request_untrusted);
  request.is_again = connection->state == Connection::State::kLater;
  const HttpAnswer answer = request.status == 200 ? handler_(request) : ErrorAnswer(request.status);
  if (answer.body == nullptr) {
    connection->state = Connection::State::kLater;
    return false;
  }
  connection->head =
      Cat("HTTP/1.1 ", answer.status, " ", ReasonOf(answer.status),
          "\r\nContent-Type: ", answer.content_type, "\r\nContent-Length: ", answer.body->size(),
          "\r\nConnection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"
          "\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin"
          "\r\nContent-Security-Policy: ",
          answer.content_security_policy, answer.status == 405 ? "\r\nAllow: GET, HEAD" : "",
          "\r\n\r\n");
  // Content-Length says what a GET would get.
  if (!request.is_head) connection->body = answer.body;
  connection->request_untrusted = {};
  connection->state = Connection::State::kAnswer;
  connection->deadline = now + limits_.answer;
  return true;
}

bool HttpServer::SendMore(Connection* connection, Time now) {
  // MSG_NOSIGNAL: a peer that has gone is to end its connection, not the process.
  const auto send_some = [connection](std::string_view text) {
    const ssize_t n = send(connection->fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (n > 0) connection->sent += static_cast<size_t>(n);
    return n > 0 || WouldBlock();
  };
  const size_t head = connection->head.size();
  const size_t all = head + (connection->body == nullptr ? 0 : connection->body->size());
  if (connection->sent < head &&
      !send_some(std::string_view(connection->head).substr(connection->sent))) {
    return false;
  }
  if (connection->sent >= head && connection->sent < all &&
      !send_some(std::string_view(*connection->body).substr(connection->sent - head))) {
    return false;
  }
  // As much as the peer's window takes: poll tells when there is room again.
  if (connection->sent < all) return true;
  connection->body = nullptr;
  connection->state = Connection::State::kFarewell;
  connection->deadline = now + limits_.farewell;
  // Not closed yet: a socket that is closed while bytes of the peer's are unread answers them with
  // a reset, which may take the answer away before the peer has read it.
  return shutdown(connection->fd.get(), SHUT_WR) == 0;
}

}  // namespace gpuloom
