// SPDX-License-Identifier: Apache-2.0
// Byte sizes as people write them: "8GiB", "512Mi". Policies, command lines and settings share this grammar. Pure
// functions, safe from any thread. Units are binary (KiB, MiB, GiB, TiB, or Kubernetes' Ki, Mi, Gi, Ti); a decimal
// unit is refused with the binary one in the message, because the two differ by 7 % at GiB and a quota must not be
// guessed. A number without a unit is bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpuloom {

// The unit of quota: the driver creates physical memory in granules of 2 MiB.
inline constexpr uint64_t kQuotaGranuleBytes = uint64_t{2} << 20;

// nullopt with a message that names the text and what to write instead.
[[nodiscard]] std::optional<uint64_t> ParseSize(std::string_view text, std::string* error);

// Exact and short: 8589934592 is "8GiB", 1572864 "1536KiB".
std::string FormatSize(uint64_t size_bytes);

}  // namespace gpuloom
