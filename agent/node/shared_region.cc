// SPDX-License-Identifier: Apache-2.0
#include "agent/node/shared_region.h"

#include <errno.h>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>

namespace gpuloom {
namespace {

namespace ipc = boost::interprocess;

// Gives Boost.Interprocess the descriptor of what it is to map.
class Mappable {
 public:
  explicit Mappable(int descriptor) : descriptor_(descriptor) {}
  ipc::mapping_handle_t get_mapping_handle() const {
    return ipc::ipcdetail::mapping_handle_from_file_handle(descriptor_);
  }

 private:
  const int descriptor_;
};

}  // namespace

SharedRegion::SharedRegion() = default;
SharedRegion::SharedRegion(SharedRegion&&) noexcept = default;
SharedRegion& SharedRegion::operator=(SharedRegion&&) noexcept = default;
SharedRegion::~SharedRegion() = default;

bool SharedRegion::Map(int memory, size_t size_bytes, Access access) {
  // The earlier mapping goes first, also if the new one cannot be made.
  region_ = nullptr;
  // To Boost.Interprocess, 0 bytes would mean the whole file.
  if (size_bytes == 0) return errno = EINVAL, false;
  try {
    region_ = std::make_unique<ipc::mapped_region>(
        Mappable(memory), access == Access::kReadOnly ? ipc::read_only : ipc::read_write, 0,
        size_bytes);
  } catch (const ipc::interprocess_exception& failure) {
    errno = failure.get_native_error();
    return false;
  }
  return true;
}

uint8_t* SharedRegion::data() const {
  return region_ == nullptr ? nullptr : static_cast<uint8_t*>(region_->get_address());
}

size_t SharedRegion::size() const { return region_ == nullptr ? 0 : region_->get_size(); }

}  // namespace gpuloom
