// SPDX-License-Identifier: Apache-2.0
// What bodies that run in a process of their own share (children.cc, shared_pool_children.cc), and what
// a test tells them. Used from the child's first thread.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {

// What was not as expected so far: the child's exit status.
extern int wrong;
extern CUdevice device;
extern CUcontext context;

void Want(CUresult got, CUresult wanted, const char* what);
// The primary context of device 0, current.
void Begin();
// Expects 0x21 everywhere and leaves 0x42.
void ReadAndWrite(CUdeviceptr memory, size_t size, CUstream stream);

// The bodies of shared_pool_children.cc.
int ImportsPool();
int ImportsPoolAndDies();
int ExportsPoolAndDies();
int FreesBehindAGate();

// For children to come; they find it with FromParent.
template <typename T>
void PassToChild(const char* name, const T& value) {
  std::string text;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
  for (size_t i = 0; i < sizeof(value); ++i) {
    char digits[3];
    snprintf(digits, sizeof(digits), "%02x", bytes[i]);
    text += digits;
  }
  setenv(name, text.c_str(), 1);
}

// What the test has told in the environment.
template <typename T>
T FromParent(const char* name) {
  T value = {};
  const char* text = std::getenv(name);
  auto* bytes = reinterpret_cast<unsigned char*>(&value);
  for (size_t i = 0; text != nullptr && i < sizeof(value) && text[2 * i] != 0; ++i) {
    unsigned byte = 0;
    std::sscanf(text + 2 * i, "%2x", &byte);
    bytes[i] = static_cast<unsigned char>(byte);
  }
  return value;
}

}  // namespace gpuloom::conformance
