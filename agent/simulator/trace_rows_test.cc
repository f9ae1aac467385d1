// SPDX-License-Identifier: Apache-2.0
#include "agent/simulator/trace_rows.h"

#include <gtest/gtest.h>

namespace gpuloom::simulator {
namespace {

Arguments TwoTenants() {
  Arguments arguments;
  std::string error;
  EXPECT_TRUE(AddTenant("name=server,namespace=a", &arguments, &error)) << error;
  EXPECT_TRUE(AddTenant("name=server,namespace=b", &arguments, &error)) << error;
  EXPECT_TRUE(AddTenant("name=train,namespace=b", &arguments, &error)) << error;
  EXPECT_TRUE(AddTenant("name=busy,namespace=b,requests=1ms", &arguments, &error)) << error;
  return arguments;
}

TEST(TraceRows, EachTenantLaunchesItsRowsAtTheirTimes) {
  Arguments arguments = TwoTenants();
  std::string error;
  ASSERT_TRUE(AddTrace("t.csv",
                       "at_us,tenant,kernel_us,count\n"
                       "# later rows may be earlier\n"
                       "\n"
                       "20000,b/server,500,2\r\n"
                       "1000.5,b/server,0.5,1\n"
                       "0,train,100,40\n",
                       &arguments, &error))
      << error;
  EXPECT_TRUE(arguments.gpu.tenants[0].trace.empty());
  const std::vector<Arrival>& trace = arguments.gpu.tenants[1].trace;
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].at_ns, 1'000'500u);
  EXPECT_EQ(trace[0].kernel_ns, 500u);
  EXPECT_EQ(trace[1].kernels, 2u);
  EXPECT_EQ(arguments.gpu.tenants[2].trace.size(), 1u);

  // The first tenant has no rows, and would always want the device.
  arguments.gpu.tenants[0].begins_ns = UINT64_MAX;
  Gpu gpu(arguments.gpu, 1);
  gpu.RunTo(100'000'000);
  const TenantResult server = gpu.Result(1);
  EXPECT_EQ(server.requests, 2u);
  EXPECT_EQ(server.kernels, 3u);
  EXPECT_EQ(server.charged_ns, 1'000'500u) << "nobody else is there then";
  EXPECT_EQ(gpu.Result(2).kernels, 40u);
}

TEST(TraceRows, AWrongRowIsNamedByItsLine) {
  for (const auto& [row, wrong] : std::vector<std::pair<std::string, std::string>>{
           {"0,train,100", "a row is at_us,tenant,kernel_us,count"},
           {"0,train,100,1,", "a row is at_us,tenant,kernel_us,count"},
           {"-1,train,100,1", "at_us -1: not a time"},
           {",train,100,1", "at_us : not a time"},
           {"1e3,train,100,1", "at_us 1e3: not a time"},
           {"0,train,0,1", "kernel_us 0: not a length"},
           {"0,train,1.2.3,1", "kernel_us 1.2.3: not a length"},
           {"0,train,100,0", "count 0: not a number from 1 to 100000"},
           {"0,train,100,1.5", "count 1.5: not a number from 1 to 100000"},
           {"0,nobody,100,1", "tenant nobody: there is none of this name"},
           {"0,server,100,1", "tenant server: several have this name; say NAMESPACE/NAME"},
           {"0,busy,100,1", "tenant busy: it has requests=, on= or off= already"},
           {"at_us,tenant,kernel_us,count", "at_us at_us: not a time"}}) {
    Arguments arguments = TwoTenants();
    std::string error;
    EXPECT_FALSE(AddTrace("t.csv", "0,train,100,1\n" + row + "\n", &arguments, &error)) << row;
    EXPECT_EQ(error, "t.csv:2: " + wrong);
  }
}

}  // namespace
}  // namespace gpuloom::simulator
