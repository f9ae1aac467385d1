#include "agent/executor/sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "agent/executor/sanitized.h"

namespace gpuloom::executor {
namespace {

// Newer than the oldest kernel headers we build with; the numbers are the same on every
// architecture.
constexpr uint32_t kOpenTree = 428;
constexpr uint32_t kMoveMount = 429;
constexpr uint32_t kFsOpen = 430;
constexpr uint32_t kFsMount = 432;
constexpr uint32_t kPidfdGetfd = 438;
constexpr uint32_t kMountSetattr = 442;

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
};

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

sock_filter Load(uint32_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset); }
sock_filter SkipUnlessEqual(uint32_t value, uint8_t count) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count);
}
sock_filter Return(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }

std::vector<sock_filter> MakeFilter() {
  constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
  std::vector<sock_filter> filter;
  // Another architecture's numbers (32-bit calls) would slip through.
  filter.push_back(Load(offsetof(seccomp_data, arch)));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
  filter.push_back(Return(SECCOMP_RET_KILL_PROCESS));
  filter.push_back(Load(offsetof(seccomp_data, nr)));
#if defined(__x86_64__)
  constexpr uint32_t kX32Bit = 0x40000000;
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 1));
  filter.push_back(Return(kRefuse));
#endif
  for (const uint32_t number : kRefused) {
    filter.push_back(SkipUnlessEqual(number, 1));
    filter.push_back(Return(kRefuse));
  }
  // Sockets: Unix ones only.
  filter.push_back(SkipUnlessEqual(SYS_socket, 3));
  filter.push_back(Load(offsetof(seccomp_data, args)));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0));
  filter.push_back(Return(kRefuse));
  filter.push_back(Return(SECCOMP_RET_ALLOW));
  return filter;
}

bool Fail(const char* what, std::string* error) {
  *error = std::string("sandbox: ") + what + ": " + strerror(errno);
  return false;
}

}  // namespace

bool DropPrivileges(std::string* error) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Fail("PR_SET_NO_NEW_PRIVS", error);
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    // Only who has CAP_SETPCAP may, and who has not has nothing to drop from.
    prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) return Fail("dropping capabilities", error);
  return true;
}

bool RefuseSystemCalls(std::string* error) {
  if (kSanitized) return true;
  std::vector<sock_filter> filter = MakeFilter();
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  // With TSYNC a positive answer names a thread that could not be reached.
  const long result =
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
  if (result < 0) return Fail("the system call filter", error);
  if (result > 0) {
    errno = ESRCH;
    return Fail("the system call filter, in all threads", error);
  }
  return true;
}

}  // namespace gpuloom::executor
