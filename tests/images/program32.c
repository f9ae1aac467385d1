// SPDX-License-Identifier: Apache-2.0
// A 32-bit program, built without headers and start files of 32-bit programs, which a development
// machine need not have.
extern int puts(const char* line);
extern int fflush(void* file);
extern void _exit(int status);

void _start(void) {
  puts("a 32-bit program");
  fflush((void*)0);
  _exit(0);
}
