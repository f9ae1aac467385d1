// SPDX-License-Identifier: Apache-2.0
// What every test program shares: collecting checks and printing the one closing line
// `PASS <name> …` or `FAIL <name> …` that tests and the demo read. One Program per process, used
// from one thread. After a failed CUDA call nothing behind it can be trusted, so Ok ends the
// process.
#pragma once

#include <cuda_runtime.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <source_location>

class Program {
 public:
  explicit Program(const char* name) : name_(name) {}

  // A CUDA call that must succeed.
  void Ok(cudaError_t result,
          const std::source_location& where = std::source_location::current()) const {
    if (result == cudaSuccess) return;
    std::printf("FAIL %s line %u: %s: %s\n", name_, where.line(), cudaGetErrorName(result),
                cudaGetErrorString(result));
    std::fflush(stdout);
    std::exit(1);
  }

  // A CUDA call that must fail in exactly this way. The last error is taken back.
  void Fails(cudaError_t result, cudaError_t wanted,
             const std::source_location& where = std::source_location::current()) {
    cudaGetLastError();
    if (result == wanted) return;
    std::printf("%s line %u: expected %s, got %s\n", name_, where.line(), cudaGetErrorName(wanted),
                cudaGetErrorName(result));
    ++failures_;
  }

  void Expect(bool holds, const char* what,
              const std::source_location& where = std::source_location::current()) {
    if (holds) return;
    if (++failures_ <= kPrintedFailures) {
      std::printf("%s line %u: %s\n", name_, where.line(), what);
    }
  }

  // Prints the closing line; returns main's exit status.
  __attribute__((format(printf, 2, 3))) int Finish(const char* details, ...) const {
    std::printf("%s %s ", failures_ == 0 ? "PASS" : "FAIL", name_);
    va_list arguments;
    va_start(arguments, details);
    std::vprintf(details, arguments);
    va_end(arguments);
    if (failures_ != 0) std::printf(" failures=%d", failures_);
    std::printf("\n");
    std::fflush(stdout);
    return failures_ == 0 ? 0 : 1;
  }

 private:
  static constexpr int kPrintedFailures = 10;
  const char* name_;
  int failures_ = 0;
};

// The first argument as a number, or a default.
inline double NumberArgument(int argc, char** argv, double otherwise) {
  return argc > 1 ? std::strtod(argv[1], nullptr) : otherwise;
}
