// SPDX-License-Identifier: Apache-2.0
// What a container of another image runs: says how many libraries named libcuda its loader has
// loaded. Built for each C library that containers have.
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

static int Count(struct dl_phdr_info* info, size_t size, void* count) {
  (void)size;
  if (info->dlpi_name != NULL && strstr(info->dlpi_name, "libcuda") != NULL) ++*(int*)count;
  return 0;
}

int main(void) {
  int count = 0;
  dl_iterate_phdr(&Count, &count);
  printf("%s%d libraries of CUDA\n", getauxval(AT_SECURE) != 0 ? "secure, " : "", count);
  return 0;
}
