// SPDX-License-Identifier: Apache-2.0
// For control_fuzz.cc: an executor that lends its end of the control socket to whoever listens at $GPULOOM_EXECUTOR_LENDER,
// and lives until the scheduler hangs up. Nothing of ours is linked: it starts for every input, and is not what is tested.
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int main() {
  constexpr int kControl = 3;
  const char* lender = getenv("GPULOOM_EXECUTOR_LENDER");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (lender == nullptr || strlen(lender) >= sizeof(address.sun_path)) return 1;
  strcpy(address.sun_path, lender);
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return 1;
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &kControl, sizeof(kControl));
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != 1) return 1;
  pollfd until_hung_up = {kControl, POLLRDHUP, 0};
  poll(&until_hung_up, 1, -1);
  return 0;
}
