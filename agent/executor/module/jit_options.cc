// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/module/jit_options.h"

#include <algorithm>
#include <cstring>

namespace gpuloom::executor {
namespace {

// Where the driver writes the time: behind the texts and their sizes.
constexpr size_t kWallTime = 4;

std::string_view TextIn(const std::vector<char>& buffer) {
  return {buffer.data(), strnlen(buffer.data(), buffer.size())};
}

}  // namespace

// Options whose value is a pointer are not among the known ones: the driver would follow a number
// of the tenant's.
bool ReadJitOptions(std::span<const uint8_t> payload_untrusted, std::vector<CUjit_option>* options,
                    std::vector<void*>* values) {
  for (size_t at = 0; at + sizeof(wire::LinkOption) <= payload_untrusted.size();
       at += sizeof(wire::LinkOption)) {
    wire::LinkOption option;
    std::memcpy(&option, payload_untrusted.data() + at, sizeof(option));
    if (option.option >= 64 || (wire::kLinkOptionsKnown >> option.option & 1) == 0) return false;
    // The driver (580.159.04) would divide by it.
    if (option.option == CU_JIT_THREADS_PER_BLOCK && option.value == 0) return false;
    options->push_back(static_cast<CUjit_option>(option.option));
    values->push_back(reinterpret_cast<void*>(uintptr_t{option.value}));
  }
  return true;
}

wire::Fatal JudgeTexts(const channel::Range& arena, wire::HostPtr texts_untrusted,
                       uint32_t info_capacity_bytes_untrusted,
                       uint32_t error_capacity_bytes_untrusted) {
  if (info_capacity_bytes_untrusted > wire::kMaxJitTextBytes ||
      error_capacity_bytes_untrusted > wire::kMaxJitTextBytes) {
    return wire::Fatal::kBadArgument;
  }
  const uint64_t bytes = uint64_t{info_capacity_bytes_untrusted} + error_capacity_bytes_untrusted;
  return bytes == 0 || arena.Contains(static_cast<uint64_t>(texts_untrusted), bytes)
             ? wire::Fatal::kNone
             : wire::Fatal::kBadRange;
}

JitOptions::JitOptions()
    : info_(wire::kMaxJitTextBytes),
      error_(wire::kMaxJitTextBytes),
      options_({CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_INFO_LOG_BUFFER,
                CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME}),
      wanted_({error_.data(), reinterpret_cast<void*>(error_.size()), info_.data(),
               reinterpret_cast<void*>(info_.size()), nullptr}),
      values_(wanted_) {}

// The tenant's options come behind ours, whose places values() and Report count on.
bool JitOptions::Add(std::span<const uint8_t> payload_untrusted) {
  const bool known = ReadJitOptions(payload_untrusted, &options_, &wanted_);
  values_ = wanted_;
  return known;
}

void** JitOptions::values() {
  std::copy(wanted_.begin(), wanted_.end(), values_.begin());
  return values_.data();
}

void** JitOptions::error_values() {
  std::copy_n(wanted_.begin(), kErrorOptions, error_values_);
  return error_values_;
}

std::string_view JitOptions::error() const { return TextIn(error_); }

void JitOptions::SetError(std::string_view text) {
  const size_t bytes = std::min(text.size(), error_.size() - 1);
  std::memcpy(error_.data(), text.data(), bytes);
  error_[bytes] = '\0';
}

// The driver answers in place of the options' values: the time, and for a maximum of threads what
// it compiled for. Only the values of the last values() have that; error_values() is a copy of its
// own.
wire::JitReport JitOptions::Report(const HostMemory& host, uint64_t texts,
                                   uint32_t info_capacity_bytes,
                                   uint32_t error_capacity_bytes) const {
  const std::string_view info = TextIn(info_).substr(0, info_capacity_bytes);
  const std::string_view error = TextIn(error_).substr(0, error_capacity_bytes);
  wire::JitReport report{};
  report.wall_time_bits = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(values_[kWallTime]));
  const auto threads = std::find(options_.begin(), options_.end(), CU_JIT_THREADS_PER_BLOCK);
  if (threads != options_.end()) {
    report.threads_per_block = static_cast<uint32_t>(
        reinterpret_cast<uintptr_t>(values_[static_cast<size_t>(threads - options_.begin())]));
  }
  if (host.Write(texts, info.data(), info.size())) {
    report.info_bytes = static_cast<uint32_t>(info.size());
  }
  if (host.Write(texts + info_capacity_bytes, error.data(), error.size())) {
    report.error_bytes = static_cast<uint32_t>(error.size());
  }
  return report;
}

}  // namespace gpuloom::executor
