// SPDX-License-Identifier: Apache-2.0
// An HTTP server for a few pages that are the same for all clients: one thread, one request per connection; nothing
// that a peer sends is kept beyond its connection. A client may be hostile (any pod can reach the port unless a
// network policy forbids it), so connections, bytes and time are bounded, and nothing waits for a peer. A new
// connection is read at once. If there are too many, it replaces the oldest that is not being answered or, once most
// are, the oldest that is. So peers that send nothing or do not read cannot keep others out.
//
// Not cpp-httplib: in Debian's release a peer that sends a byte a second keeps one of its threads for hours, and an
// endless header takes endless memory, in a process that is root (docs/design/decisions.md).
//
// If the port is in use, the server tries again until it is free, and logs that once. Owned by Exporter. Start and Stop
// are called from one thread; `port` is safe from any; the handler is called on the server's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "agent/metrics/http_request.h"
#include "agent/metrics/listen_address.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {

// Without a body it is no answer yet: the handler is asked again at the next CheckAgain, until Limits::answer is over.
struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> body;
  std::string content_security_policy = "default-src 'none'";
};

class HttpServer {
 public:
  using Handler =
      std::function<HttpAnswer(const HttpRequest& request)>;  // for requests with status 200
  struct Limits {
    // A Prometheus and a few browsers need two or three at a time.
    size_t connections = 32;
    // From the connection to the end of its request.
    std::chrono::milliseconds request{5000};
    // From there to the last byte of the answer; a page for some hundred tenants has about a MiB.
    std::chrono::milliseconds answer{15000};
    // From there until the peer hangs up, so that it can read the whole answer.
    std::chrono::milliseconds farewell{1000};
    std::chrono::milliseconds next_try{2000};  // the pause if the port is in use
  };

  HttpServer(ListenAddress address, Handler handler, Limits limits);
  HttpServer(ListenAddress address, Handler handler)
      : HttpServer(std::move(address), std::move(handler), Limits()) {}
  ~HttpServer() { Stop(); }

  void Start();
  // The port is free afterwards.
  void Stop();
  // What could not be answered before may be so now. Safe from any thread, but not while Start or Stop is called.
  void CheckAgain();
  // 0 while it has no port.
  int port() const { return port_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct Connection {
    enum class State { kRequest, kLater, kAnswer, kFarewell };
    channel::UniqueFd fd;
    State state = State::kRequest;
    Time deadline;
    std::string request_untrusted;
    std::string head;                         // of the answer
    std::shared_ptr<const std::string> body;  // null: none
    size_t sent = 0;                          // of both
  };

  void Run();
  void Listen();
  void Accept();
  // Makes room for one more connection.
  void MakeRoom();
  // Reads or writes as much as is possible without waiting. False: the connection is over.
  bool GoOn(Connection* connection, Time now);
  bool ReadMore(Connection* connection, Time now);
  // False: not yet.
  bool Answer(Connection* connection, Time now);
  bool SendMore(Connection* connection, Time now);

  const ListenAddress address_;
  const Handler handler_;
  const Limits limits_;
  std::thread thread_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<int> port_ = 0;
  channel::UniqueFd wake_;  // an eventfd
  // The server's thread only.
  channel::UniqueFd listener_;
  Time next_listen_;
  Time next_accept_;
  std::string last_trouble_;
  std::list<Connection> connections_;  // the oldest first
};

}  // namespace gpuloom
