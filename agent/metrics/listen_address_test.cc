// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ListenAddress, Table) {
  struct Case {
    const char* text;
    const char* url;
    bool is_any;
  };
  for (const Case& c :
       {Case{":9464", "http://[::]:9464", true}, Case{"0.0.0.0:80", "http://0.0.0.0:80", false},
        Case{"127.0.0.1:0", "http://127.0.0.1:0", false},
        Case{"[::1]:65535", "http://[::1]:65535", false}}) {
    std::string error;
    const auto address = ParseListenAddress(c.text, &error);
    ASSERT_TRUE(address.has_value()) << error;
    EXPECT_EQ(UrlOf(address->address), c.url);
    EXPECT_EQ(address->is_any, c.is_any) << c.text;
  }
}

TEST(ListenAddress, WhatIsNoneIsNamedWithWhatIsExpected) {
  struct Case {
    const char* text;
    const char* why;
  };
  for (const Case& c :
       {Case{"", "there is no port"}, Case{"9464", "there is no port"},
        Case{"127.0.0.1:", "a number from 0 to 65535"}, Case{":65536", "a number from 0 to 65535"},
        Case{":94a", "a number from 0 to 65535"}, Case{":-1", "a number from 0 to 65535"},
        Case{": 1", "a number from 0 to 65535"}, Case{"node-1:9464", "'node-1' is no IP address"},
        Case{"256.0.0.1:1", "'256.0.0.1' is no IP address"},
        Case{"::1:9464", "an IPv6 address stands in brackets"},
        Case{"[::g]:9464", "'::g' is no IPv6 address"}}) {
    std::string error;
    EXPECT_FALSE(ParseListenAddress(c.text, &error).has_value()) << c.text;
    EXPECT_THAT(error, AllOf(HasSubstr(c.text), HasSubstr(c.why), HasSubstr("write ADDRESS:PORT")));
  }
}

}  // namespace
}  // namespace gpuloom
