// SPDX-License-Identifier: Apache-2.0
#include "shim/module/load_log.h"

#include <string.h>

#include <atomic>

#include "shim/process/log.h"

namespace gpuloom {
namespace {

// FNV-1a, never 0.
uint64_t HashOf(const char* text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (; *text != '\0'; ++text) hash = (hash ^ static_cast<uint8_t>(*text)) * 0x100000001b3;
  return hash | 1;
}

}  // namespace

// The text comes from a compiler that has read the tenant's code: control characters in it must not
// reach a terminal, and one line stays one line.
void LoadLog::Set(const char* text, size_t bytes) {
  size_t end = bytes < kTextBytes ? bytes : kTextBytes;
  while (end != 0 && (text[end - 1] == '\n' || text[end - 1] == '\0')) --end;
  for (size_t i = 0; i < end; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    text_[i] = byte == '\n' ? '|' : byte < ' ' || byte == 0x7f ? ' ' : text[i];
  }
  text_[end] = '\0';
}

void LoadLog::Print(const JitOptions& jit) const {
  // A program with a buffer of its own tells its user itself.
  if (text_[0] == '\0' || jit.errors.size_out != nullptr) return;
  static std::atomic<uint64_t> said{0};
  const uint64_t hash = HashOf(text_);
  if (said.exchange(hash, std::memory_order_relaxed) == hash) return;
  constexpr char kOurs[] = "gpuloom: ";
  const bool ours = strncmp(text_, kOurs, sizeof(kOurs) - 1) == 0;
  Log(LogLevel::kWarn, ours ? "%s" : "an image does not load: %s",
      ours ? text_ + sizeof(kOurs) - 1 : text_);
}

}  // namespace gpuloom
