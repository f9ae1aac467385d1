// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/pod_resources.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>

#include "agent/cat.h"
#include "proto/channel/unique_fd.h"
#include "proto/kubelet/podresources/v1/api.grpc.pb.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kResource[] = "gpuloom.io/gpu";

// Says whatever it is told to.
class Kubelet : public v1::PodResourcesLister::Service {
 public:
  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* response) override {
    *response = answer;
    return status;
  }
  v1::ListPodResourcesResponse answer;
  grpc::Status status;
};

class PodResourcesTest : public ::testing::Test {
 protected:
  PodResourcesTest() {
    std::string name = ::testing::TempDir() + "podsXXXXXX";
    directory_ = mkdtemp(name.data());
    path_ = directory_ + "/kubelet.sock";
  }
  ~PodResourcesTest() override {
    if (server_ != nullptr) server_->Shutdown();
    fs::remove_all(directory_);
  }

  void Serve() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + path_, grpc::InsecureServerCredentials());
    builder.RegisterService(&kubelet_);
    server_ = builder.BuildAndStart();
  }
  void AddPod(const std::string& pod_namespace, const std::string& pod,
              const std::string& container, const std::vector<std::string>& ids,
              const char* resource = kResource) {
    v1::PodResources* added = kubelet_.answer.add_pod_resources();
    added->set_namespace_(pod_namespace);
    added->set_name(pod);
    v1::ContainerResources* of = added->add_containers();
    of->set_name(container);
    v1::ContainerDevices* devices = of->add_devices();
    devices->set_resource_name(resource);
    for (const std::string& id : ids) devices->add_device_ids(id);
  }
  absl::StatusOr<std::vector<ContainerDevices>> List(int timeout_ms = 10'000) const {
    return MakePodResourcesClient(path_, kResource, std::chrono::milliseconds(timeout_ms))->List();
  }
  // Bound and listening, and nobody takes what comes.
  channel::UniqueFd Listen() const {
    channel::UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd.get(), 4), 0);
    return fd;
  }

  std::string directory_;
  std::string path_;
  Kubelet kubelet_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(PodResourcesTest, ContainersThatHoldOursAreListed) {
  Serve();
  AddPod("a", "p.with-all_1", "main", {"gpu-1::0", "gpu-1::1"});
  AddPod("b", "q", "main", {"cpu"}, "other.io/thing");
  const auto held = List();
  ASSERT_TRUE(held.ok()) << held.status();
  ASSERT_THAT(*held, SizeIs(1));
  EXPECT_EQ(held->front().owner, (PodContainer{"a", "p.with-all_1", "main"}));
}

// Names become trust domains ("namespace/pod"), labels and lines of logs.
TEST_F(PodResourcesTest, Malicious_NamesThatNoClusterHasAreNotBelieved) {
  Serve();
  const std::string longest(254, 'n');
  const PodContainer bad[] = {{"a/p", "q", "main"},  {"a", "p/q", "main"}, {"a", "p", "main\nok"},
                              {"", "p", "main"},     {"a", "", "main"},    {longest, "p", "main"},
                              {"a", "p\x1b[2J", "m"}};
  for (const PodContainer& owner : bad) {
    kubelet_.answer.Clear();
    AddPod("good", "pod", "main", {"gpu-1::1"});
    AddPod(owner.pod_namespace, owner.pod, owner.container, {"gpu-1::0"});
    const auto held = List();
    ASSERT_FALSE(held.ok()) << owner.pod_namespace << " " << owner.pod;
    EXPECT_THAT(held.status().message(), AllOf(HasSubstr("kubelet:"), HasSubstr("cannot be"),
                                               Not(HasSubstr("\n")), Not(HasSubstr("\x1b"))));
    EXPECT_LT(held.status().message().size(), 600u);
  }
  // Those who hold nothing of ours are no matter.
  kubelet_.answer.Clear();
  AddPod("a/p", "q", "main", {"x"}, "other.io/thing");
  EXPECT_TRUE(List().ok());
}

TEST_F(PodResourcesTest, Malicious_DevicesThatAreNotOursAreNotBelieved) {
  Serve();
  for (const std::string& id :
       {std::string("gpu-1::0\nfaked line"), std::string(), std::string(1 << 20, 'x')}) {
    kubelet_.answer.Clear();
    AddPod("a", "p", "main", {"gpu-1::1", id});
    const auto held = List();
    ASSERT_FALSE(held.ok());
    EXPECT_LT(held.status().message().size(), 600u);
  }
  kubelet_.answer.Clear();
  AddPod("a", "p", "main", std::vector<std::string>(200'000, "gpu-1::0"));
  EXPECT_FALSE(List().ok());
}

TEST_F(PodResourcesTest, Malicious_AnAnswerWithoutEndIsRefused) {
  Serve();
  for (int i = 0; i < 20; ++i) AddPod("a", "p", "main", {std::string(1 << 20, 'x')}, "other.io/x");
  const auto held = List();
  ASSERT_FALSE(held.ok());
  EXPECT_EQ(held.status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(PodResourcesTest, Malicious_WhatAKubeletSaysOfItsTroubleIsOneShortLine) {
  Serve();
  kubelet_.status =
      grpc::Status(grpc::StatusCode::INTERNAL, "no\n[info] faked " + std::string(6000, 'x'));
  const auto held = List();
  ASSERT_FALSE(held.ok());
  EXPECT_THAT(held.status().message(), AllOf(HasSubstr("no\\n[info]"), Not(HasSubstr("\n"))));
  EXPECT_LT(held.status().message().size(), 1000u);
}

TEST_F(PodResourcesTest, Malicious_ASocketThatTakesAndNeverAnswersCostsTheTimeoutOnly) {
  const channel::UniqueFd listening = Listen();
  const auto held = List(300);
  EXPECT_EQ(held.status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(PodResourcesTest, Malicious_WhatIsNoSocketIsRefused) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(List(2000).status().code(), absl::StatusCode::kUnavailable);
  fs::remove(path_);
  std::ofstream(path_) << "a file";
  EXPECT_EQ(List(2000).status().code(), absl::StatusCode::kUnavailable);
  fs::remove(path_);
  fs::create_symlink(path_, path_);
  EXPECT_EQ(List(2000).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace gpuloom
