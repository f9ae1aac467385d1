// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/allowed_hosts.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

TEST(AllowedHosts, AddressesAndTheClustersNamesAreAllowed) {
  const AllowedHosts hosts;
  for (const char* host :
       {"", "10.0.0.1", "10.0.0.1:9464", "[::1]", "[2001:db8::1]:9464", "localhost",
        "LocalHost:8080", "localhost.:9464", "node.localhost", "gpuloom-metrics",
        "gpuloom-metrics:9464", "gpuloom-metrics.gpuloom-system.svc:9464",
        "gpuloom-metrics.gpuloom-system.svc.cluster.local:9464",
        "gpuloom-metrics.gpuloom-system.svc.cluster.local."}) {
    EXPECT_TRUE(hosts.Allow(host)) << host;
  }
}

TEST(AllowedHosts, Malicious_NamesOfSitesAreNot) {
  const AllowedHosts hosts({"gpus.example.com", "*.svc.example.org"});
  const std::string long_name = std::string(300, 'a');
  for (const std::string& host : {std::string("site.example.net"),
                                  std::string("site.example.net:9464"),
                                  std::string("10.0.0.1.example.net"),
                                  std::string("localhost.example.net"),
                                  std::string("a.svc.example.net"),
                                  std::string("a.cluster.local.example.net"),
                                  std::string("x.gpus.example.com"),
                                  std::string("gpus.example.com.example.net"),
                                  std::string("xgpus.example.com"),
                                  std::string("svc.example.org"),
                                  std::string("10.0.0.1:9464:9464"),
                                  std::string("::1"),
                                  std::string("[::g]"),
                                  std::string("a b"),
                                  std::string("[::1].example.net"),
                                  std::string("user@10.0.0.1.example.net"),
                                  std::string("10.0.0.1:9464x"),
                                  std::string(":"),
                                  std::string("."),
                                  long_name}) {
    EXPECT_FALSE(hosts.Allow(host)) << host;
  }
}

TEST(AllowedHosts, AreThoseThatAnOperatorNames) {
  const AllowedHosts hosts({"GPUs.example.com", "*.svc.example.org"});
  for (const char* host : {"gpus.example.com", "gpus.EXAMPLE.com:80", "gpus.example.com.",
                           "a.b.svc.example.org:9464"}) {
    EXPECT_TRUE(hosts.Allow(host)) << host;
  }
}

TEST(AllowedHosts, WhatIsNoNameIsSaid) {
  std::string error;
  for (const char* name : {"gpus.example.com", "*.example.com", "node_1", "a-b.c"}) {
    EXPECT_TRUE(IsAllowedHostName(name, &error)) << name;
  }
  for (const char* name : {"", "*", "*.", "a:80", "http://a", "a.*", ".a", "a.", "a b"}) {
    EXPECT_FALSE(IsAllowedHostName(name, &error)) << name;
    EXPECT_NE(error.find("write names without ports"), error.npos) << error;
  }
}

}  // namespace
}  // namespace gpuloom
