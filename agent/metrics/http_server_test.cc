// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <latch>
#include <vector>

namespace {
std::atomic<int> g_binds{0};
}  // namespace

// In place of libc's: counts.
extern "C" int bind(int fd, const sockaddr* address, socklen_t bytes) noexcept {
  ++g_binds;
  return static_cast<int>(syscall(SYS_bind, fd, address, bytes));
}

namespace gpuloom {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// More than both ends' kernels hold for a peer that does not read.
constexpr size_t kLargeBytes = 64 << 20;

ListenAddress Address(const std::string& text) {
  std::string error;
  const auto address = ParseListenAddress(text, &error);
  EXPECT_TRUE(address.has_value()) << error;
  return *address;
}

template <typename Condition>
bool WaitFor(Condition holds) {
  for (int i = 0; i < 6000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

size_t Descriptors() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// One client's connection.
class Peer {
 public:
  explicit Peer(int port, int family = AF_INET, in_addr_t address_v4 = INADDR_LOOPBACK)
      : fd_(socket(family, SOCK_STREAM, 0)) {
    sockaddr_in v4 = {};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(port));
    v4.sin_addr.s_addr = htonl(address_v4);
    sockaddr_in6 v6 = {};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = v4.sin_port;
    v6.sin6_addr = in6addr_loopback;
    const auto* address =
        family == AF_INET ? reinterpret_cast<sockaddr*>(&v4) : reinterpret_cast<sockaddr*>(&v6);
    is_connected_ = connect(fd_.get(), address, family == AF_INET ? sizeof(v4) : sizeof(v6)) == 0;
    timeval patience = {60, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  bool is_connected() const { return is_connected_; }
  bool Send(const std::string& text) const {
    return send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  // All until the server hangs up.
  std::string Read() const {
    std::string all;
    char buffer[65536];
    ssize_t n;
    while ((n = recv(fd_.get(), buffer, sizeof(buffer), 0)) > 0) {
      all.append(buffer, static_cast<size_t>(n));
    }
    EXPECT_TRUE(n == 0 || errno == ECONNRESET) << strerror(errno);
    return all;
  }

 private:
  channel::UniqueFd fd_;
  bool is_connected_ = false;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = spdlog::default_logger();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("", log_));
  }
  void TearDown() override {
    server_.reset();
    spdlog::set_default_logger(before_);
  }
  // Who is served stands still for a while, where the machine does.
  static HttpServer::Limits Patient() {
    HttpServer::Limits limits;
    limits.request = limits.answer = milliseconds(600'000);
    return limits;
  }
  void Start(const std::string& address = "127.0.0.1:0", HttpServer::Limits limits = Patient()) {
    server_ = Make(address, limits);
    server_->Start();
    ASSERT_TRUE(WaitFor([&] { return server_->port() != 0; }));
  }
  std::unique_ptr<HttpServer> Make(const std::string& address, HttpServer::Limits limits = {}) {
    return std::make_unique<HttpServer>(
        Address(address),
        [this](const HttpRequest& request) {
          const std::string_view path = request.path;
          if (path == "/wait") {
            waits_.count_down();
            go_on_.wait();
          }
          HttpAnswer answer;
          answer.status = path == "/none" ? 404 : 200;
          answer.body =
              path == "/large"
                  ? large_
                  : std::make_shared<const std::string>("you asked for " + std::string(path));
          asked_for_large_ += path == "/large";
          return answer;
        },
        limits);
  }
  std::string Said() const {
    std::string all;
    for (const std::string& line : log_->last_formatted()) all += line;
    return all;
  }
  std::string Get(const std::string& path, int family = AF_INET) {
    const Peer peer(server_->port(), family);
    EXPECT_TRUE(peer.is_connected() && peer.Send("GET " + path + " HTTP/1.1\r\n\r\n"));
    return peer.Read();
  }

  const std::shared_ptr<const std::string> large_ =
      std::make_shared<const std::string>(kLargeBytes, 'x');
  std::atomic<int> asked_for_large_ = 0;
  std::latch waits_{1}, go_on_{1};  // of who asks for /wait, and with it the server
  const std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> log_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(1000);
  std::shared_ptr<spdlog::logger> before_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAndHangsUp) {
  Start();
  EXPECT_THAT(Get("/a"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("\r\nContent-Length: 16\r\n"),
                    HasSubstr("\r\nConnection: close\r\n"),
                    HasSubstr("\r\nContent-Security-Policy: default-src 'none'\r\n"),
                    HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"),
                    HasSubstr("\r\n\r\nyou asked for /a")));
  EXPECT_THAT(Get("/none"), StartsWith("HTTP/1.1 404 Not Found\r\n"));
  const Peer head(server_->port());
  ASSERT_TRUE(head.Send("HEAD /a HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(head.Read(), ::testing::EndsWith("\r\n\r\n"));
  const Peer post(server_->port());
  ASSERT_TRUE(post.Send("POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"));
  EXPECT_THAT(post.Read(), AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD\r\n")));
  const Peer slow(server_->port());
  for (const char c : std::string("GET /b HTTP/1.1\r\n\r\n")) ASSERT_TRUE(slow.Send({c}));
  EXPECT_THAT(slow.Read(), HasSubstr("you asked for /b"));
  EXPECT_EQ(Get("/large").size(), kLargeBytes + Get("/large").find("\r\n\r\n") + 4);
}

TEST_F(HttpServerTest, AllAddressesAreBothFamilies) {
  Start(":0");
  EXPECT_THAT(Get("/a"), HasSubstr("you asked for /a"));
  if (!Peer(server_->port(), AF_INET6).is_connected()) GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_THAT(Get("/a", AF_INET6), HasSubstr("you asked for /a"));
}

TEST_F(HttpServerTest, APortInUseIsSaidOnceAndTakenWhenItIsFree) {
  // An address of this process alone: on another's, somebody else could take the port in between.
  const in_addr_t loopback = 0x7f400000 + static_cast<in_addr_t>(getpid()) % 0x400000;
  const in_addr in_network_order = {htonl(loopback)};
  char host[INET_ADDRSTRLEN];
  ASSERT_NE(inet_ntop(AF_INET, &in_network_order, host, sizeof(host)), nullptr);
  Start(std::string(host) + ":0");
  HttpServer::Limits often;
  often.next_try = milliseconds(5);
  const int port = server_->port();
  const std::string address = std::string(host) + ":" + std::to_string(port);
  const std::string line = "metrics: cannot serve on " + address + ": Address already in use";
  const auto second = Make(address, often);
  second->Start();
  EXPECT_TRUE(WaitFor([&] { return Said().find(line) != std::string::npos; })) << Said();
  const int tries = g_binds;
  EXPECT_TRUE(WaitFor([&] { return g_binds >= tries + 5; }));
  EXPECT_EQ(second->port(), 0);
  server_->Stop();
  EXPECT_TRUE(WaitFor([&] { return second->port() == port; }));
  EXPECT_TRUE(Peer(port, AF_INET, loopback).is_connected());
  second->Stop();
  const std::string said = Said();
  EXPECT_EQ(said.find(line), said.rfind(line)) << said;
  EXPECT_FALSE(Peer(port, AF_INET, loopback).is_connected());
  server_->Start();
  EXPECT_TRUE(WaitFor([&] { return server_->port() != 0; })) << "and again";
}

TEST_F(HttpServerTest, Malicious_WhoHangsIsHungUpOnAndKeepsNobodyOut) {
  HttpServer::Limits limits = Patient();
  limits.connections = 4;
  // Once with all the time in the world, for whoever else comes, and once without.
  for (const milliseconds limit : {milliseconds(600'000), milliseconds(200)}) {
    limits.request = limits.answer = limit;
    Start("127.0.0.1:0", limits);
    const size_t descriptors = Descriptors();
    // Says nothing; says a beginning; asks for much and reads nothing.
    const Peer silent(server_->port());
    const Peer half(server_->port());
    const Peer deaf(server_->port());
    const bool half_sent = half.Send("GET /metrics HTT");
    const bool deaf_sent = deaf.Send("GET /large HTTP/1.1\r\n\r\n");
    if (limit > milliseconds(1000)) {
      EXPECT_TRUE(half_sent && deaf_sent);
      EXPECT_THAT(Get("/a"), HasSubstr("you asked for /a"));
      server_->Stop();
      continue;
    }
    EXPECT_EQ(silent.Read(), "");
    EXPECT_EQ(half.Read(), "");
    // Both ends of the deaf one's connection are this process's.
    EXPECT_TRUE(WaitFor([&] { return Descriptors() == descriptors + 3; }));
    EXPECT_LT(deaf.Read().size(), kLargeBytes);
  }
}

TEST_F(HttpServerTest, Malicious_AFloodOfConnectionsKeepsNobodyOut) {
  HttpServer::Limits limits = Patient();
  limits.connections = 4;
  Start("127.0.0.1:0", limits);
  std::vector<std::unique_ptr<Peer>> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(std::make_unique<Peer>(server_->port()));
  EXPECT_THAT(Get("/a"), HasSubstr("you asked for /a"));
  for (size_t i = 0; i < 190; ++i) EXPECT_EQ(flood[i]->Read(), "") << "hung up on";
}

TEST_F(HttpServerTest, Malicious_DeafPeersAndAFloodKeepNobodyOut) {
  HttpServer::Limits limits = Patient();
  limits.connections = 4;
  Start("127.0.0.1:0", limits);
  std::vector<std::unique_ptr<Peer>> hostile;
  const auto connect = [&](const std::string& request) {
    hostile.push_back(std::make_unique<Peer>(server_->port()));
    EXPECT_TRUE(hostile.back()->Send(request));
  };
  for (int i = 0; i < 3; ++i) connect("GET /large HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(WaitFor([&] { return asked_for_large_ == 3; }));
  // Those that come while the server is busy are taken together.
  const Peer before(server_->port());
  EXPECT_TRUE(before.Send("GET /wait HTTP/1.1\r\n\r\n"));
  waits_.wait();
  const Peer honest(server_->port());
  EXPECT_TRUE(honest.Send("GET /a HTTP/1.1\r\n\r\n"));
  for (int i = 0; i < 4; ++i) connect("");
  go_on_.count_down();
  EXPECT_THAT(honest.Read(), HasSubstr("you asked for /a"));
  EXPECT_THAT(before.Read(), HasSubstr("you asked for /wait"));
}

TEST_F(HttpServerTest, Malicious_ManyDeafPeersKeepNobodyOut) {
  HttpServer::Limits limits = Patient();
  limits.connections = 4;
  Start("127.0.0.1:0", limits);
  std::vector<std::unique_ptr<Peer>> deaf;
  for (int i = 0; i < 40; ++i) {
    deaf.push_back(std::make_unique<Peer>(server_->port()));
    ASSERT_TRUE(deaf.back()->Send("GET /large HTTP/1.1\r\n\r\n"));
  }
  EXPECT_THAT(Get("/a"), HasSubstr("you asked for /a"));
  for (size_t i = 0; i < 30; ++i) EXPECT_LT(deaf[i]->Read().size(), kLargeBytes) << "hung up on";
}

TEST_F(HttpServerTest, Malicious_ARequestWithoutEndIsRefused) {
  Start();
  const Peer peer(server_->port());
  ASSERT_TRUE(peer.Send("GET / HTTP/1.1\r\n"));
  // Far more than is ever read; the server hangs up in between.
  for (int i = 0; i < 1000 && peer.Send("A: " + std::string(1000, 'b') + "\r\n"); ++i) continue;
  EXPECT_THAT(Get("/a"), HasSubstr("you asked for /a"));
}

}  // namespace
}  // namespace gpuloom
