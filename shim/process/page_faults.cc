// SPDX-License-Identifier: Apache-2.0
#include "shim/process/page_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/process/log.h"
#include "shim/process/thread.h"

// Newer than some headers.
#ifndef UFFD_FEATURE_MINOR_SHMEM
#define UFFD_FEATURE_MINOR_SHMEM (1 << 10)
#endif
#ifndef UFFDIO_CONTINUE
#define UFFDIO_REGISTER_MODE_MINOR (uint64_t{1} << 2)
#define UFFDIO_CONTINUE_MODE_DONTWAKE (uint64_t{1} << 0)
#define UFFDIO_CONTINUE _IOWR(UFFDIO, 0x07, struct uffdio_continue)
struct uffdio_continue {
  struct uffdio_range range;
  uint64_t mode;
  int64_t mapped;
};
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

namespace gpuloom {
namespace {

constexpr uint64_t kPage = 4096;

// Both written once, before the thread starts and anything is watched.
int faults = -1;
PageFaultHandler handle = nullptr;

// The system call first, which needs no file, and without UFFD_USER_MODE_ONLY, as system calls must
// wait for pages, too; where the kernel or a seccomp profile forbids it, the device, for which
// opening is the permission (Linux 6.1). Not O_NONBLOCK: our thread waits in read. On failure errno
// is the system call's where there is no such device.
int Open() {
  const auto fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  if (fd >= 0) return fd;
  const int why = errno;
  const int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (device < 0) {
    errno = why;
    return -1;
  }
  const int opened = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
  const int failure = errno;
  close(device);
  errno = failure;
  return opened;
}

// The handshake that the interface requires before anything else; it fails where the feature is
// unknown.
bool SpeaksMinorFaults(int fd) {
  uffdio_api api = {UFFD_API, UFFD_FEATURE_MINOR_SHMEM, 0};
  return ioctl(fd, UFFDIO_API, &api) == 0;
}

void Run() {
  for (;;) {
    constexpr int kAtATime = 16;
    uffd_msg told[kAtATime];
    const ssize_t bytes = read(faults, told, sizeof(told));
    if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (bytes <= 0) {
      Log(LogLevel::kError,
          "the kernel tells of no page faults any more (%s): whoever touches managed memory that "
          "is "
          "at the device waits for ever",
          strerror(errno));
      return;
    }
    for (size_t i = 0; i < static_cast<size_t>(bytes) / sizeof(uffd_msg); ++i) {
      // No other events were asked for.
      if (told[i].event == UFFD_EVENT_PAGEFAULT) handle(told[i].arg.pagefault.address);
    }
  }
}

}  // namespace

bool StartPageFaults(PageFaultHandler handler) {
  const int fd = Open();
  if (fd < 0) return false;
  faults = fd;
  handle = handler;
  if (SpeaksMinorFaults(fd) && StartThread("gpuloom-pages", nullptr, &Run)) return true;
  // If the thread could not be started, errno may not be set.
  const int why = errno == 0 ? ENOSYS : errno;
  close(fd);
  faults = -1;
  errno = why;
  return false;
}

bool WatchPages(uint64_t begin, uint64_t size_bytes) {
  uffdio_register watched = {{begin, size_bytes}, UFFDIO_REGISTER_MODE_MINOR, 0};
  return ioctl(faults, UFFDIO_REGISTER, &watched) == 0;
}

void UnwatchPages(uint64_t begin, uint64_t size_bytes) {
  uffdio_range range = {begin, size_bytes};
  ioctl(faults, UFFDIO_UNREGISTER, &range);
  // The kernel does this by itself for another kind of fault only.
  ioctl(faults, UFFDIO_WAKE, &range);
}

// In a shared mapping this only takes the pages out of the page table; the memfd keeps them.
bool HidePages(uint64_t begin, uint64_t size_bytes) {
  constexpr int kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED; newer than some headers
  void* const pages = reinterpret_cast<void*>(begin);
  return madvise(pages, size_bytes, MADV_DONTNEED) == 0 ||
         madvise(pages, size_bytes, kDontNeedLocked) == 0;
}

void AdmitPages(uint64_t begin, uint64_t size_bytes) {
  const uint64_t end = begin + size_bytes;
  for (uint64_t at = begin; at < end;) {
    uffdio_continue admitted = {{at, end - at}, UFFDIO_CONTINUE_MODE_DONTWAKE, 0};
    if (ioctl(faults, UFFDIO_CONTINUE, &admitted) == 0) break;
    if (admitted.mapped > 0) {
      at += static_cast<uint64_t>(admitted.mapped);
    } else if (errno == EEXIST) {
      at += kPage;  // it is mapped already
    } else if (errno != EAGAIN) {
      break;  // whoever waits tries again
    }
  }
  uffdio_range range = {begin, size_bytes};
  // Once for all, and also after a failure: who finds the page still hidden faults again.
  ioctl(faults, UFFDIO_WAKE, &range);
}

}  // namespace gpuloom
