// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/http_request.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuloom {
namespace {

TEST(HttpRequest, WhatIsAskedFor) {
  const HttpRequest get = ReadRequest("GET /metrics?name=x HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(get.status, 200);
  EXPECT_EQ(get.path, "/metrics");
  EXPECT_FALSE(get.is_head);
  const HttpRequest head = ReadRequest("HEAD / HTTP/1.0\r\n\r\nwhatever follows");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.path, "/");
  EXPECT_TRUE(head.is_head);
}

TEST(HttpRequest, MoreIsWaitedForUntilTheEndOfTheHeaders) {
  const std::string whole = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_EQ(ReadRequest(whole.substr(0, bytes)).status, 0) << bytes;
  }
  EXPECT_EQ(ReadRequest(whole).status, 200);
}

TEST(HttpRequest, TheHostIsWhatTheHeaderSays) {
  const auto host = [](const std::string& headers) {
    const std::string text = "GET / HTTP/1.1\r\n" + headers + "\r\nHost: behind\r\n\r\n";
    const HttpRequest request = ReadRequest(text);
    EXPECT_EQ(request.status, 200) << headers;
    return std::string(request.host_untrusted);
  };
  EXPECT_EQ(host("Host: a:9464\r\n"), "a:9464");
  EXPECT_EQ(host("Accept: x\r\nhOsT:\t[::1] \r\nB: Host: c\r\n"), "[::1]");
  EXPECT_EQ(host("Host:\r\n"), "");
  EXPECT_EQ(host("X-Host: a\r\n"), "");
  EXPECT_EQ(host(""), "");
}

TEST(HttpRequest, Malicious_TwoHostsAreRefused) {
  EXPECT_EQ(ReadRequest("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n").status, 400);
}

TEST(HttpRequest, Malicious_WhatIsNoneIsRefusedAtOnce) {
  for (const char* text :
       {"\r\n", "\x16\x03\x01 a TLS hello", "GET\r\n\r\n", "GET  HTTP/1.1\r\n\r\n",
        "GET /metrics\r\n\r\n", "GET metrics HTTP/1.1\r\n\r\n", "GET http://a/ HTTP/1.1\r\n\r\n",
        "GET /a b HTTP/1.1\r\n\r\n", "GET /\x1b[2J HTTP/1.1\r\n\r\n", "GET / HTTP/2.0\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\n"}) {
    EXPECT_EQ(ReadRequest(text).status, 400) << text;
  }
  EXPECT_EQ(ReadRequest("POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n").status, 405);
  EXPECT_EQ(ReadRequest("DELETE / HTTP/1.1\r\n").status, 405) << "its headers change nothing";
}

TEST(HttpRequest, Malicious_HeadersWithoutEndAreRefused) {
  const std::string line = "GET /" + std::string(kMaxRequestBytes, 'a');
  EXPECT_EQ(ReadRequest(line).status, 431);
  std::string headers = "GET / HTTP/1.1\r\n";
  while (headers.size() < kMaxRequestBytes) headers += "A: b\r\n";
  EXPECT_EQ(ReadRequest(headers).status, 431);
  EXPECT_EQ(ReadRequest(headers + "\r\n").status, 431) << "the end comes too late";
}

}  // namespace
}  // namespace gpuloom
