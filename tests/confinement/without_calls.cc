// SPDX-License-Identifier: Apache-2.0
// Runs a program on a kernel that lacks some system calls, as far as the program can tell: the
// numbers in the first word, comma by comma, are answered as unknown, in it and in all it starts.
//
//   without_calls 444,445 /usr/bin/program argument …
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: without_calls NUMBER[,NUMBER…] PROGRAM [ARGUMENT…]\n");
    return 2;
  }
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  std::istringstream numbers(argv[1]);
  for (std::string number; std::getline(numbers, number, ',');) {
    filter.push_back(
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(atoi(number.c_str())), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) {
    perror("without_calls: the filter");
    return 1;
  }
  execv(argv[2], argv + 2);
  perror(argv[2]);
  return 1;
}
