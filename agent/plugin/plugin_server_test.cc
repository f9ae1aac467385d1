// SPDX-License-Identifier: Apache-2.0
// What a kubelet's requests leave in the log and among the refusals. The service itself: tests/integration.
#include "agent/plugin/plugin_server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <sstream>

#include "agent/node/line_budget.h"
#include "agent/plugin/device_board.h"
#include "agent/plugin/testing/allocator_fixture.h"
#include "proto/kubelet/deviceplugin/v1beta1/api.grpc.pb.h"

namespace gpuloom {
namespace {

using ::testing::HasSubstr;

// Containers of a namespace whose scheduler refuses them, and a kubelet that tries each again and again.
class PluginServerTest : public AllocatorTest {
 protected:
  PluginServerTest() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "", std::make_shared<spdlog::sinks::ostream_sink_mt>(said_)));
  }
  ~PluginServerTest() override { spdlog::set_default_logger(before_); }

  void SetUp() override {
    AllocatorTest::SetUp();
    server_.emplace(PluginServer::Options{&board_, &*allocator_, &refusals_});
    const std::string socket = state_ + "/plugin.sock";
    ASSERT_TRUE(server_->Start(socket).ok());
    kubelet_ = v1beta1::DevicePlugin::NewStub(
        grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()));
    scheduler_->refuse = true;
  }
  void TearDown() override {
    server_->Stop();
    AllocatorTest::TearDown();
  }

  void Hold(const char* pod_namespace, int slot) {
    ASSERT_TRUE(allocator_->Allocate(Ids({slot})).ok());
    Holds(pod_namespace, "p", Ids({slot}));
  }
  void ExpectRefused(int slot) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1beta1::PreStartContainerRequest request;
    for (const std::string& id : Ids({slot})) request.add_devices_ids(id);
    v1beta1::PreStartContainerResponse response;
    const grpc::Status status = kubelet_->PreStartContainer(&context, request, &response);
    EXPECT_THAT(status.error_message(), HasSubstr("scheduler: no"));
  }
  uint32_t Lines() const {
    const std::string said = said_.str();
    uint32_t lines = 0;
    for (size_t at = 0; (at = said.find("refused: ", at)) != std::string::npos; ++at) ++lines;
    return lines;
  }

  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  std::ostringstream said_;
  DeviceBoard board_{{}, 1};
  RefusedRequests refusals_{PluginServer::RefusableCalls()};
  std::optional<PluginServer> server_;
  std::unique_ptr<v1beta1::DevicePlugin::Stub> kubelet_;
};

TEST_F(PluginServerTest, ARefusedStartIsOfThePodsNamespace) {
  Hold("team-a", 3);
  ExpectRefused(3);
  ASSERT_EQ(refusals_.Latest().size(), 1u);
  EXPECT_EQ(refusals_.Latest()[0].pod_namespace, "team-a");
  EXPECT_EQ(refusals_.Latest()[0].call, "PreStartContainer");
}

TEST_F(PluginServerTest, Malicious_ANamespaceThatIsRefusedWithoutEndHidesNobodyElsesRefusal) {
  Hold("loud", 1);
  Hold("quiet", 2);
  for (uint32_t i = 0; i < 4 * LineBudget::kAtOnce; ++i) ExpectRefused(1);
  const uint32_t before = Lines();
  EXPECT_GE(before, LineBudget::kAtOnce);
  EXPECT_LT(before, 4 * LineBudget::kAtOnce);
  // All that its own budget has at once: one that were the loud one's too would have a line each two seconds again.
  for (uint32_t i = 0; i < LineBudget::kAtOnce; ++i) ExpectRefused(2);
  EXPECT_GE(Lines(), before + LineBudget::kAtOnce);
}

}  // namespace
}  // namespace gpuloom
