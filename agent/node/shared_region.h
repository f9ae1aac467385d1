// SPDX-License-Identifier: Apache-2.0
// Memory that this process shares with another one on the node or with a tenant: a mapping of a descriptor, by
// Boost.Interprocess. What must lie at a given address, or must never leave a hole, maps itself (proto/channel/region.h).
//
// Owns the mapping, not the descriptor, which may be closed behind Map. Move-only; one thread maps and unmaps, the bytes'
// own rules say who reads and writes them. Free of gRPC and absl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace boost::interprocess {
class mapped_region;
}

namespace gpuloom {

class SharedRegion {
 public:
  enum class Access { kReadOnly, kReadWrite };

  SharedRegion();
  SharedRegion(SharedRegion&&) noexcept;
  SharedRegion& operator=(SharedRegion&&) noexcept;
  ~SharedRegion();

  // Maps the first `size_bytes` (not 0) of `memory`, whose size cannot shrink (channel::IsSealedMemory). What was mapped
  // before is unmapped. False with errno on failure.
  [[nodiscard]] bool Map(int memory, size_t size_bytes, Access access);

  // Null and 0 when nothing is mapped.
  uint8_t* data() const;
  size_t size() const;

 private:
  std::unique_ptr<boost::interprocess::mapped_region> region_;
};

}  // namespace gpuloom
