// SPDX-License-Identifier: Apache-2.0
// Asks this machine's HTTP servers, for tests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "proto/channel/unique_fd.h"

namespace gpuloom {

// A connection to 127.0.0.1; invalid when nobody listens.
inline channel::UniqueFd ConnectTo(int port) {
  channel::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience = {60, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fd.Reset();
  return fd;
}

inline bool SendRequest(int fd, const std::string& path, const std::string& host = "localhost") {
  const std::string request = "GET " + path + " HTTP/1.0\r\nHost: " + host + "\r\n\r\n";
  return send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(request.size());
}

// The whole answer, headers and all.
inline std::string ReadAnswer(int fd) {
  std::string all;
  char buffer[65536];
  for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
    all.append(buffer, static_cast<size_t>(n));
  }
  return all;
}

// Empty when nobody listens.
inline std::string HttpGet(int port, const std::string& path,
                           const std::string& host = "localhost") {
  const channel::UniqueFd fd = ConnectTo(port);
  return fd.valid() && SendRequest(fd.get(), path, host) ? ReadAnswer(fd.get()) : "";
}

}  // namespace gpuloom
