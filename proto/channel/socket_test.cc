// SPDX-License-Identifier: Apache-2.0
#include "proto/channel/socket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace gpuloom::channel {
namespace {

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

class Socket : public ::testing::Test {
 protected:
  Socket() { EXPECT_TRUE(MakePair(SOCK_SEQPACKET, &a_, &b_)); }
  UniqueFd a_, b_;
};

TEST_F(Socket, AMessageArrivesWholeWithItsDescriptors) {
  const int fds[] = {0, 1, 2};
  ASSERT_TRUE(SendMessage(a_.get(), "hello", 5, fds, 3));
  ASSERT_TRUE(SendMessage(a_.get(), "x", 1));
  char data[16];
  UniqueFd received[4];
  size_t count = 0;
  EXPECT_EQ(ReceiveMessage(b_.get(), data, sizeof(data), received, 4, &count), 5);
  EXPECT_EQ(std::memcmp(data, "hello", 5), 0);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(fcntl(received[0].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(ReceiveMessage(b_.get(), data, sizeof(data), received, 4, &count), 1);
  EXPECT_EQ(count, 0u);
}

TEST_F(Socket, Malicious_SurplusDescriptorsAreClosed) {
  const size_t before = OpenDescriptors();
  const int fds[kMaxFds] = {0, 1, 2, 0, 1, 2, 0, 1};
  ASSERT_TRUE(SendMessage(a_.get(), "x", 1, fds, kMaxFds));
  char data[16];
  UniqueFd received[2];
  EXPECT_EQ(ReceiveMessage(b_.get(), data, sizeof(data), received, 2), -1);
  EXPECT_EQ(errno, EMSGSIZE);
  EXPECT_FALSE(received[0].valid());
  ASSERT_TRUE(SendMessage(a_.get(), "x", 1, fds, 1));
  EXPECT_EQ(ReceiveMessage(b_.get(), data, sizeof(data)), -1) << "none is expected";
  EXPECT_EQ(OpenDescriptors(), before);
  ASSERT_TRUE(SendMessage(a_.get(), "y", 1));
  EXPECT_EQ(ReceiveMessage(b_.get(), data, sizeof(data)), 1) << "the connection goes on";
}

TEST_F(Socket, Malicious_MoreDescriptorsThanWeCanTakeAreClosed) {
  const size_t before = OpenDescriptors();
  // As a peer that does not use our SendMessage.
  constexpr size_t kCount = 100;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kCount)] = {};
  char byte = 1;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * kCount);
  ASSERT_EQ(sendmsg(a_.get(), &message, 0), 1);
  char data[16];
  UniqueFd received[kMaxFds];
  EXPECT_EQ(ReceiveMessage(b_.get(), data, sizeof(data), received, kMaxFds), -1);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(Socket, Malicious_AMessageTooLargeIsAnError) {
  char data[64] = {};
  ASSERT_TRUE(SendMessage(a_.get(), data, sizeof(data)));
  EXPECT_EQ(ReceiveMessage(b_.get(), data, 63), -1);
  EXPECT_EQ(errno, EMSGSIZE);
}

TEST_F(Socket, TheEndOfTheConnectionIsAReset) {
  a_.Reset();
  char data[16];
  EXPECT_EQ(ReceiveMessage(b_.get(), data, sizeof(data)), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_FALSE(SendMessage(b_.get(), "x", 1)) << "and no SIGPIPE";
}

TEST_F(Socket, AFullSocketIsAgainNotBlocking) {
  const std::string data(4096, 'x');
  int sent = 0;
  while (SendMessage(a_.get(), data.data(), data.size(), nullptr, 0, MSG_DONTWAIT)) ++sent;
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_GT(sent, 4);
}

TEST(Listener, ConnectsOverShortAndLongPathsAndReplacesAStaleSocket) {
  char root[] = "/tmp/gpuloom-socket-test-XXXXXX";
  ASSERT_NE(mkdtemp(root), nullptr);
  for (const std::string& folder :
       {std::string(root),
        std::string(root) + "/" + std::string(200, 'a') + "/" + std::string(200, 'b')}) {
    std::filesystem::create_directories(folder);
    const std::string path = folder + "/gpuloom.sock";
    UniqueFd listener = ListenAt(path.c_str());
    ASSERT_TRUE(listener.valid()) << path << ": " << strerror(errno);
    listener.Reset();
    EXPECT_FALSE(ConnectTo(path.c_str()).valid()) << "nobody listens";
    listener = ListenAt(path.c_str());
    ASSERT_TRUE(listener.valid());
    struct stat status;
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0666u) << "the folder decides who gets there";
    const UniqueFd client = ConnectTo(path.c_str());
    ASSERT_TRUE(client.valid()) << strerror(errno);
    const UniqueFd server(accept(listener.get(), nullptr, nullptr));
    ASSERT_TRUE(server.valid());
    ASSERT_TRUE(SendMessage(client.get(), "x", 1));
    char byte;
    EXPECT_EQ(ReceiveMessage(server.get(), &byte, 1), 1);
  }
  EXPECT_FALSE(ConnectTo((std::string(root) + "/nothing").c_str()).valid());
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(
      ListenAt((std::string(root) + "/no/such/folder/" + std::string(200, 'x')).c_str()).valid());
  std::filesystem::remove_all(root);
}

TEST(Doorbell, WakesIsDrainedAndTellsHangUp) {
  UniqueFd a, b;
  ASSERT_TRUE(MakePair(SOCK_STREAM, &a, &b));
  EXPECT_TRUE(DrainDoorbell(b.get())) << "nothing to take is no hang-up";
  for (int i = 0; i < 1000; ++i) RingDoorbell(a.get());
  EXPECT_TRUE(DrainDoorbell(b.get()));
  char byte;
  EXPECT_EQ(recv(b.get(), &byte, 1, MSG_DONTWAIT), -1) << "all were taken";
  a.Reset();
  EXPECT_FALSE(DrainDoorbell(b.get()));
  RingDoorbell(b.get());  // no SIGPIPE
}

TEST(Doorbell, Malicious_ATenantThatNeverTakesItsBellsBlocksNobody) {
  UniqueFd a, b;
  ASSERT_TRUE(MakePair(SOCK_STREAM, &a, &b));
  for (int i = 0; i < 1'000'000; ++i) RingDoorbell(a.get());
  EXPECT_TRUE(DrainDoorbell(b.get()));
}

TEST(Doorbell, Malicious_AFloodIsNotFollowed) {
  UniqueFd a, b;
  ASSERT_TRUE(MakePair(SOCK_STREAM, &a, &b));
  constexpr int kBytes = 10'000;
  const std::vector<char> flood(kBytes, 1);
  ASSERT_EQ(send(a.get(), flood.data(), flood.size(), MSG_DONTWAIT), kBytes);
  EXPECT_TRUE(DrainDoorbell(b.get()));
  int left = 0;
  ASSERT_EQ(ioctl(b.get(), FIONREAD, &left), 0);
  EXPECT_GE(left, kBytes - static_cast<int>(kDoorbellBytes)) << "a tenant decides how long we read";
}

}  // namespace
}  // namespace gpuloom::channel
