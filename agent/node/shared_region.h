// SPDX-License-Identifier: Apache-2.0
// Memory shared with another process on the node or with a tenant: a mapping of a descriptor, by Boost.Interprocess.
// Mappings at a given address, or that must never leave a hole, are made by proto/channel/region.h.
//
// Owns the mapping, not the descriptor, which may be closed after Map. Move-only; one thread maps and unmaps; the
// contents' own rules say who reads and writes them. Uses neither gRPC nor absl.
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

  // Maps the first `size_bytes` (not 0) of `memory`, whose size cannot shrink (channel::IsSealedMemory), and unmaps
  // any earlier mapping. Returns false with errno on failure.
  [[nodiscard]] bool Map(int memory, size_t size_bytes, Access access);

  // Null and 0 when nothing is mapped.
  uint8_t* data() const;
  size_t size() const;

 private:
  std::unique_ptr<boost::interprocess::mapped_region> region_;
};

}  // namespace gpuloom
