// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/refused_calls.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "agent/scheduler/log.h"

namespace gpuloom::scheduler {
namespace {

// NVIDIA's driver looks for MPS and for links to its device nodes when it starts, and lives without either.
bool IsTriedByTheDriver(int number) {
#ifdef SYS_symlink
  if (number == SYS_symlink) return true;
#endif
  return number == SYS_connect || number == SYS_symlinkat;
}

}  // namespace

bool IsRefusedCallsDescriptor(int fd) {
  char target[64] = {};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return readlink(path.c_str(), target, sizeof(target) - 1) > 0 &&
         strcmp(target, "anon_inode:seccomp notify") == 0;
}

RefusedCalls::RefusedCalls(EventLoop* loop, channel::UniqueFd descriptor, std::string whose)
    : descriptor_(std::move(descriptor)), whose_(std::move(whose)) {
  seccomp_notif_sizes sizes{sizeof(seccomp_notif), sizeof(seccomp_notif_resp), 0};
  syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes);
  request_.resize(std::max<size_t>(sizes.seccomp_notif, sizeof(seccomp_notif)) / 8 + 1);
  answer_.resize(std::max<size_t>(sizes.seccomp_notif_resp, sizeof(seccomp_notif_resp)) / 8 + 1);
  watch_ = loop->WatchFd(descriptor_.get(), EPOLLIN, [this](uint32_t events) { OnEvents(events); });
}

void RefusedCalls::OnEvents(uint32_t events) {
  if ((events & EPOLLIN) == 0) {  // no process with the filter is left
    Close();
    return;
  }
  // One at a time, so that no executor keeps the others waiting. This does not block: there is a
  // notification, or there was one whose caller has been killed since.
  std::fill(request_.begin(), request_.end(), 0);
  if (ioctl(descriptor_.get(), SECCOMP_IOCTL_NOTIF_RECV, request_.data()) != 0) {
    if (errno != ENOENT && errno != EINTR) Close();
    return;
  }
  seccomp_notif request;
  memcpy(&request, request_.data(), sizeof(request));
  std::fill(answer_.begin(), answer_.end(), 0);
  seccomp_notif_resp answer{};
  answer.id = request.id;
  answer.error = -EPERM;
  memcpy(answer_.data(), &answer, sizeof(answer));
  // Fails when the caller is gone.
  ioctl(descriptor_.get(), SECCOMP_IOCTL_NOTIF_SEND, answer_.data());
  Note(request.data.nr);
  if (++answers_ >= kMostAnswers) {
    LogWarning(whose_ + " was refused " + std::to_string(kMostAnswers) +
               " system calls; further ones are no longer looked at");
    Close();
  }
}

void RefusedCalls::Note(int number) {
  const auto index = static_cast<size_t>(number);
  if (number < 0 || index >= kNumbers || named_.test(index)) return;
  if (named_.count() >= kMostNamed) return;
  named_.set(index);
  const std::string what = whose_ + " was refused system call " + std::to_string(number);
  if (IsTriedByTheDriver(number)) {
    LogInfo(what + ", which a driver tries when it starts and does not need");
    return;
  }
  LogWarning(what + (named_.count() == kMostNamed ? "; further ones are not named" : ""));
}

void RefusedCalls::Close() {
  watch_.End();
  descriptor_.Reset();
}

}  // namespace gpuloom::scheduler
