// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/system_calls.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>
#include <vector>

#include "agent/executor/process/sanitized.h"

namespace gpuloom::executor {
namespace {

// Newer than the oldest kernel headers we build with; the numbers are the same on every
// architecture.
constexpr uint32_t kClone3 = 435;
constexpr uint32_t kOpenat2 = 437;
constexpr uint32_t kEpollPwait2 = 441;
constexpr uint32_t kFutexWaitv = 449;
constexpr uint32_t kCachestat = 451;
constexpr uint32_t kFutexWake = 454;
constexpr uint32_t kFutexWait = 455;
constexpr uint32_t kFutexRequeue = 456;
// System calls with higher numbers fail with ENOSYS, as on a kernel that does not have them.
constexpr uint32_t kNewestKnown = 469;

// The calls that a busy executor makes most often stand first, for kernels that go through the list
// each time.
constexpr uint32_t kAllowed[] = {
    SYS_futex,
    SYS_epoll_pwait,
    kEpollPwait2,
    SYS_recvfrom,
    SYS_sendto,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_read,
    SYS_write,
    SYS_sched_yield,
    SYS_ppoll,
    SYS_madvise,
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    // Descriptors and files; which files, Landlock and the user decide.
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_close,
    SYS_lseek,
    SYS_openat,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_getcwd,
    SYS_statfs,
    SYS_fstatfs,
    SYS_flock,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fsync,
    SYS_fdatasync,
    SYS_fadvise64,
    SYS_dup,
    SYS_dup3,
    SYS_pipe2,
    SYS_mkdirat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_fchmod,
    SYS_utimensat,
    SYS_umask,
    SYS_memfd_create,
    SYS_close_range,
    // Memory.
    SYS_mremap,
    SYS_brk,
    SYS_mlock,
    SYS_mlock2,
    SYS_munlock,
    SYS_msync,
    SYS_mincore,
    kCachestat,
    SYS_mbind,
    SYS_get_mempolicy,
    SYS_set_mempolicy,
    // Threads. Calls that take a thread's number reach other processes of the same user, too.
    SYS_membarrier,
    kFutexWaitv,
    kFutexWake,
    kFutexWait,
    kFutexRequeue,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_rseq,
    SYS_sched_getaffinity,
    SYS_sched_setaffinity,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_setscheduler,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_getpriority,
    SYS_exit,
    SYS_exit_group,
    SYS_restart_syscall,
    // Time.
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_times,
    SYS_timer_create,
    SYS_timer_settime,
    SYS_timer_gettime,
    SYS_timer_getoverrun,
    SYS_timer_delete,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_timerfd_gettime,
    // Waiting and sockets that are there already.
    SYS_pselect6,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_eventfd2,
    SYS_bind,
    SYS_listen,
    SYS_shutdown,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_getsockname,
    SYS_getpeername,
    // Signals to itself.
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigtimedwait,
    SYS_rt_sigpending,
    SYS_sigaltstack,
    // Who and where it is.
    SYS_getpid,
    SYS_gettid,
    SYS_getppid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getresuid,
    SYS_getresgid,
    SYS_getgroups,
    SYS_getpgid,
    SYS_getsid,
    SYS_getrusage,
    SYS_getcpu,
    SYS_getrandom,
    SYS_sysinfo,
    SYS_uname,
    SYS_capget,
#if defined(__x86_64__)
    SYS_arch_prctl,
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_dup2,
    SYS_pipe,
    SYS_mkdir,
    SYS_rmdir,
    SYS_unlink,
    SYS_rename,
    SYS_chmod,
    SYS_poll,
    SYS_select,
    SYS_epoll_wait,
    SYS_epoll_create,
    SYS_eventfd,
    SYS_time,
    SYS_getrlimit,
    SYS_alarm,
#elif defined(__aarch64__)
    // What the C library makes chmod and alarm of, which are no calls there.
    SYS_fchmodat,
    SYS_setitimer,
#endif
};

// The numbers of these calls, too, are newer than the oldest headers, and the same everywhere.
constexpr uint32_t kIoUringSetup = 425;
constexpr uint32_t kOpenTree = 428;
constexpr uint32_t kMoveMount = 429;
constexpr uint32_t kFsOpen = 430;
constexpr uint32_t kFsMount = 432;
constexpr uint32_t kPidfdGetfd = 438;
constexpr uint32_t kMountSetattr = 442;

// Calls that no driver needs.
constexpr uint32_t kRefused[] = {
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    kPidfdGetfd,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    kOpenTree,
    kMoveMount,
    kFsOpen,
    kFsMount,
    kMountSetattr,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_bpf,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_unshare,
    SYS_setns,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    kIoUringSetup,
};

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "which numbers do this architecture's system calls have?"
#endif

constexpr uint32_t kUnknown = SECCOMP_RET_ERRNO | ENOSYS;

// One filter program, put together call by call.
class Filter {
 public:
  explicit Filter(uint32_t refuse) : refuse_(refuse) {
    // Another architecture's numbers (32-bit calls) would slip through.
    Add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
    Add(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0);
    Return(SECCOMP_RET_KILL_PROCESS);
    LoadNumber();
  }

  void Add(uint16_t code, uint32_t value, uint8_t if_true = 0, uint8_t if_false = 0) {
    program_.push_back(sock_filter{code, if_true, if_false, value});
  }
  void Return(uint32_t action) { Add(BPF_RET | BPF_K, action); }

  // For a call's number or an argument, whichever was loaded last.
  void Answer(uint32_t number, uint32_t action) {
    Add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
    Return(action);
  }
  // Only the lower half of argument `index` counts: the kernel takes these arguments as ints. A
  // call is allowed, or refused, if the argument under `mask` is one of `values`; otherwise the
  // opposite.
  enum class Those { kAllowed, kRefused };
  void Judge(uint32_t number, int index, uint32_t mask, Those those,
             std::initializer_list<uint32_t> values) {
    const auto count = static_cast<uint8_t>(values.size());
    // Counts the load, the mask, two instructions for each value, and the last return.
    Add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, static_cast<uint8_t>(2 + 2 * count + 1));
    LoadArgument(index);
    Add(BPF_ALU | BPF_AND | BPF_K, mask);
    const bool allowed = those == Those::kAllowed;
    for (const uint32_t value : values) Answer(value, allowed ? SECCOMP_RET_ALLOW : refuse_);
    Return(allowed ? refuse_ : SECCOMP_RET_ALLOW);
  }
  // Refuses the call unless the argument is `value`; otherwise the instructions that follow decide.
  void Require(uint32_t number, int index, uint32_t value) {
    Add(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4);
    LoadArgument(index);
    Add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    Return(refuse_);
    LoadNumber();
  }

  const std::vector<sock_filter>& program() const { return program_; }

 private:
  void LoadNumber() { Add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)); }
  void LoadArgument(int index) {
    Add(BPF_LD | BPF_W | BPF_ABS,
        static_cast<uint32_t>(offsetof(seccomp_data, args) + sizeof(uint64_t) * index));
  }

  uint32_t refuse_;
  std::vector<sock_filter> program_;
};

Filter MakeFilter(uint32_t refuse) {
  constexpr uint32_t kAll = 0xffffffff;
  constexpr auto kAllowed = Filter::Those::kAllowed;
  constexpr auto kRefused = Filter::Those::kRefused;
  const auto self = static_cast<uint32_t>(getpid());
  Filter filter(refuse);
  // These calls are judged by an argument, so the kernel goes through them each time: they stand
  // first. ioctl and fcntl are refused where they would type into a terminal, or name another
  // process to be signalled when a descriptor is ready.
  filter.Judge(SYS_ioctl, 1, kAll, kRefused, {TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP});
  filter.Judge(SYS_fcntl, 1, kAll, kRefused, {F_SETOWN, F_SETOWN_EX, F_SETSIG});
  // Only threads may be created, in no namespace of their own.
  constexpr uint32_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                   CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
  filter.Judge(SYS_clone, 0, CLONE_THREAD | kNamespaces, kAllowed, {CLONE_THREAD});
  // Only the number of this process is allowed: 0, -1 and negative numbers name groups of
  // processes.
  filter.Judge(SYS_kill, 0, kAll, kAllowed, {self});
  filter.Judge(SYS_tgkill, 0, kAll, kAllowed, {self});
  filter.Judge(SYS_prlimit64, 0, kAll, kAllowed, {0, self});
  // The domain does not matter: besides Unix there is only TIPC. A datagram socket can send to any
  // address, even one of a pair.
  constexpr uint32_t kType = 0xf;
  filter.Judge(SYS_socketpair, 1, kType, kAllowed, {SOCK_STREAM, SOCK_SEQPACKET});
  // cuInit listens on an abstract Unix socket, "cuda-uvmfd-NAMESPACE-PID", and fails where it
  // cannot (driver 580). Without connect and accept nothing goes through it.
  filter.Require(SYS_socket, 0, AF_UNIX);
  filter.Judge(SYS_socket, 1, kType, kAllowed, {SOCK_SEQPACKET});
  filter.Judge(SYS_prctl, 0, kAll, kAllowed,
               {PR_SET_NAME, PR_GET_NAME, PR_SET_VMA, PR_GET_DUMPABLE, PR_GET_NO_NEW_PRIVS,
                PR_GET_SECCOMP, PR_GET_PDEATHSIG, PR_GET_TIMERSLACK, PR_CAPBSET_READ,
                PR_GET_TID_ADDRESS, PR_GET_THP_DISABLE});
  for (const uint32_t number : executor::kAllowed) filter.Answer(number, SECCOMP_RET_ALLOW);
  // The filter cannot look into their structures, and the C library has older forms.
  filter.Answer(kClone3, kUnknown);
  filter.Answer(kOpenat2, kUnknown);
  filter.Add(BPF_JMP | BPF_JGT | BPF_K, kNewestKnown, 0, 1);
  filter.Return(kUnknown);
  filter.Return(refuse);
  return filter;
}

// Everything is allowed except what is listed. The numbers of the x32 interface name the same calls
// again, so all of them are refused.
Filter MakeLenientFilter() {
  constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
  constexpr uint32_t kAll = 0xffffffff;
  Filter filter(kRefuse);
#if defined(__x86_64__)
  constexpr uint32_t kX32Bit = 0x40000000;
  filter.Add(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 1);
  filter.Return(kRefuse);
#endif
  for (const uint32_t number : kRefused) filter.Answer(number, kRefuse);
  filter.Answer(kClone3, kUnknown);
  const auto self = static_cast<uint32_t>(getpid());
  filter.Judge(SYS_kill, 0, kAll, Filter::Those::kAllowed, {self});
  filter.Judge(SYS_tgkill, 0, kAll, Filter::Those::kAllowed, {self});
  filter.Judge(SYS_clone, 0, CLONE_NEWUSER, Filter::Those::kAllowed, {0});
  filter.Judge(SYS_socket, 0, kAll, Filter::Those::kAllowed, {AF_UNIX});
  filter.Return(SECCOMP_RET_ALLOW);
  return filter;
}

// Needs no privilege: PR_SET_NO_NEW_PRIVS is set (GiveUpPrivileges).
long Install(const Filter& filter, unsigned long flags) {
  const sock_fprog program = {static_cast<unsigned short>(filter.program().size()),
                              const_cast<sock_filter*>(filter.program().data())};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

bool InstallInAllThreads(const Filter& filter, std::string* error) {
  // A positive answer names a thread that could not be reached.
  const long result = Install(filter, SECCOMP_FILTER_FLAG_TSYNC);
  if (result > 0) errno = ESRCH;
  if (result == 0) return true;
  *error = std::string("confinement: the system call filter: ") + strerror(errno);
  return false;
}

}  // namespace

bool RestrictSystemCalls(channel::UniqueFd* listener, std::string* error) {
  if (kSanitized) return true;
  if (listener != nullptr) {
    const long fd = Install(MakeFilter(SECCOMP_RET_USER_NOTIF),
                            SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH |
                                SECCOMP_FILTER_FLAG_NEW_LISTENER);
    if (fd >= 0) {
      listener->Reset(static_cast<int>(fd));
      return true;
    }
    // The kernel is older than 5.7, or a process outside has such a descriptor of this process
    // already.
  }
  return InstallInAllThreads(MakeFilter(SECCOMP_RET_ERRNO | EPERM), error);
}

bool RefuseSystemCalls(std::string* error) {
  return kSanitized || InstallInAllThreads(MakeLenientFilter(), error);
}

}  // namespace gpuloom::executor
