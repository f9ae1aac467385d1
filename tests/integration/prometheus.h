// SPDX-License-Identifier: Apache-2.0
// A real Prometheus that scrapes one agent, for tests. It listens on this machine's loopback only.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "agent/metrics/testing/http.h"
#include "proto/channel/unique_fd.h"
#include "tests/integration/process.h"

namespace gpuloom::testing {

// One that is free, below those that the kernel gives to connections: other tests make them all the time. The same port of
// 127.0.0.2 is this process's until it ends, so that no other test is given it before it is used, or between two users.
inline int FreePort() {
  static int next = 20'000 + getpid() % 10'000;
  static std::vector<channel::UniqueFd> reserved;
  const auto taken = [](in_addr_t host) {
    channel::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(next));
    address.sin_addr.s_addr = htonl(host);
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      fd.Reset();
    }
    return fd;
  };
  for (; next < 32'000; ++next) {
    channel::UniqueFd reservation = taken(INADDR_LOOPBACK + 1);
    if (!reservation.valid() || !taken(INADDR_LOOPBACK).valid()) continue;
    reserved.push_back(std::move(reservation));
    return next++;
  }
  ADD_FAILURE() << "no port is free";
  return 0;
}

class Prometheus {
 public:
  // `folder` is made, and its own. What is in folder()/assets, it serves under /user.
  Prometheus(std::string folder, int agent_port) : folder_(std::move(folder)) {
    std::filesystem::create_directories(assets());
    std::ofstream(folder_ + "/prometheus.yml")
        << "global: {scrape_interval: 1s}\n"
        << "scrape_configs:\n"
        << "  - job_name: gpuloom\n"
        << "    honor_labels: true\n"
        << "    static_configs: [{targets: ['127.0.0.1:" << agent_port << "']}]\n";
    process_ = Process({"/usr/bin/prometheus", "--config.file=" + folder_ + "/prometheus.yml",
                        "--storage.tsdb.path=" + folder_ + "/data", "--log.level=error",
                        "--web.user-assets=" + assets(),
                        "--web.listen-address=127.0.0.1:" + std::to_string(port_)});
  }

  int port() const { return port_; }
  std::string assets() const { return folder_ + "/assets"; }

  // The API's answer, of now or of a time as answers have it; null when there is none.
  nlohmann::json Query(const std::string& promql, const nlohmann::json& time = nullptr) const {
    const std::string at = time.is_null() ? "" : "&time=" + time.dump();
    const std::string answer = HttpGet(port_, "/api/v1/query?query=" + UrlEscaped(promql) + at);
    const size_t end = answer.find("\r\n\r\n");
    return end == answer.npos ? nlohmann::json()
                              : nlohmann::json::parse(answer.substr(end + 4), nullptr, false);
  }
  // Its series; null when it has failed.
  nlohmann::json Results(const std::string& promql, const nlohmann::json& time = nullptr) const {
    const nlohmann::json answer = Query(promql, time);
    return answer.is_object() && answer.value("status", "") == "success" ? answer["data"]["result"]
                                                                         : nlohmann::json();
  }

 private:
  static std::string UrlEscaped(const std::string& text) {
    std::string escaped;
    for (const char c : text) {
      char hex[4];
      snprintf(hex, sizeof(hex), "%%%02x", static_cast<unsigned char>(c));
      escaped += isalnum(static_cast<unsigned char>(c)) ? std::string(1, c) : hex;
    }
    return escaped;
  }

  const std::string folder_;
  const int port_ = FreePort();
  Process process_;
};

// The expressions of a dashboard's panels, as they are asked for all namespaces and GPUs and the time since the test began.
inline std::vector<std::string> ExpressionsOf(const nlohmann::json& dashboard) {
  const std::pair<std::string, std::string> variables[] = {
      {"$__rate_interval", "1m"}, {"$__range", "1h"}, {"$namespace", ".*"}, {"$gpu", ".*"}};
  std::vector<std::string> expressions;
  for (const nlohmann::json& panel : dashboard["panels"]) {
    for (const nlohmann::json& target : panel.value("targets", nlohmann::json::array())) {
      std::string expression = target["expr"];
      for (const auto& [name, value] : variables) {
        for (size_t at; (at = expression.find(name)) != expression.npos;) {
          expression.replace(at, name.size(), value);
        }
      }
      expressions.push_back(expression);
    }
  }
  return expressions;
}

}  // namespace gpuloom::testing
