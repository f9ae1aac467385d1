// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/pool_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

// No holder of the descriptor can shrink the memory while a kernel uses it.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// Followed by the device's ordinal, it is the memfd's name, by which an importer finds the device.
constexpr char kPrefix[] = "gpuloom-softgpu-pool-";
// The file is as large as the device's memory several times over, so that free room in pieces is
// none too few: only pages that are in use take memory.
constexpr uint64_t kTimesMemory = 4;
constexpr uint64_t kGranuleBytes = uint64_t{2} << 20;
// Beyond whole granules, so that nobody takes the file for physical memory (physical_memory.h).
constexpr uint64_t kOddBytes = 4096;

uint64_t RoundUp(uint64_t number, uint64_t step) { return (number + step - 1) / step * step; }

uint64_t PageBytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// The contents of CUDA's 64 opaque bytes. They travel through the program, and may be anything when
// they come back: Find checks every field.
struct PointerText {
  uint64_t magic;
  uint64_t file;
  uint64_t offset_bytes;
  uint64_t size_bytes;
};
constexpr uint64_t kPointerMagic = 0x6c6f6f7074666f73;  // "softpool"
static_assert(sizeof(PointerText) <= sizeof(CUmemPoolPtrExportData));

// The device in the name of the descriptor; nullptr when it has another name.
Device* DeviceOf(int fd) {
  char link[128];
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(path.c_str(), link, sizeof(link) - 1);
  if (length <= 0) return nullptr;
  link[length] = '\0';
  const std::string before = std::string("/memfd:") + kPrefix;
  int ordinal = 0;
  if (std::strncmp(link, before.c_str(), before.size()) != 0 ||
      std::sscanf(link + before.size(), "%d", &ordinal) != 1) {
    return nullptr;
  }
  return FindDevice(ordinal);
}

}  // namespace

FilePiece::FilePiece(std::shared_ptr<PoolFile> of, uint64_t offset, uint64_t size, bool is_ours)
    : file(std::move(of)), offset_bytes(offset), size_bytes(size), ours(is_ours) {}

// The pages go with the allocation that used them. An importer's piece is only a view of the
// maker's.
FilePiece::~FilePiece() {
  if (ours) file->Give(offset_bytes, size_bytes);
}

PoolFile::PoolFile(int fd, uint64_t size_bytes, uint64_t name)
    : fd_(fd), size_bytes_(size_bytes), name_(name) {}

PoolFile::~PoolFile() { close(fd_); }

std::shared_ptr<PoolFile> PoolFile::Make(const Device& device) {
  const std::string name = kPrefix + std::to_string(device.ordinal);
  const uint64_t size_bytes =
      RoundUp(device.memory_bytes * kTimesMemory, kGranuleBytes) + kOddBytes;
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return nullptr;
  struct stat status {};
  if (ftruncate(fd, static_cast<off_t>(size_bytes)) != 0 || fcntl(fd, F_ADD_SEALS, kSeals) != 0 ||
      fstat(fd, &status) != 0) {
    // Closed here because no PoolFile owns it yet.
    close(fd);
    return nullptr;
  }
  return std::make_shared<PoolFile>(fd, size_bytes, status.st_ino);
}

std::shared_ptr<PoolFile> PoolFile::Import(int fd, Device*& device) {
  struct stat status {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(fd, &status) != 0) return nullptr;
  // The seals and the name together show that this is a pool's file and not, for example, physical
  // memory.
  device = DeviceOf(fd);
  if (device == nullptr || status.st_size <= 0) return nullptr;
  const int ours = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (ours < 0) return nullptr;
  return std::make_shared<PoolFile>(ours, static_cast<uint64_t>(status.st_size), status.st_ino);
}

int PoolFile::Export() {
  const int fd = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd >= 0) exported_ = true;
  return fd;
}

// First fit among the pieces in use, in order of their offsets. Fragments do little harm: the file
// is larger than the device (kTimesMemory).
std::shared_ptr<FilePiece> PoolFile::Take(uint64_t size_bytes) {
  if (size_bytes > size_bytes_) return nullptr;
  const uint64_t rounded = RoundUp(size_bytes, PageBytes());
  const MutexLock lock(mutex_);
  uint64_t offset = 0;
  for (const auto& [begin, size] : used_) {
    if (begin - offset >= rounded) break;
    offset = begin + size;
  }
  if (rounded > size_bytes_ - offset) return nullptr;
  used_[offset] = rounded;
  return std::make_shared<FilePiece>(shared_from_this(), offset, rounded, /*is_ours=*/true);
}

void PoolFile::Give(uint64_t offset_bytes, uint64_t size_bytes) {
  // Gone before somebody else can have them; and zeros when they come again. Pages that cannot go
  // stay taken: they hold what the allocation held.
  int emptied = 0;
  do {
    emptied = fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        static_cast<off_t>(offset_bytes), static_cast<off_t>(size_bytes));
  } while (emptied != 0 && errno == EINTR);
  if (emptied != 0) return;
  const MutexLock lock(mutex_);
  used_.erase(offset_bytes);
}

std::shared_ptr<FilePiece> PoolFile::Find(const CUmemPoolPtrExportData& data,
                                          uint64_t& asked_bytes) {
  PointerText text;
  std::memcpy(&text, &data, sizeof(text));
  if (text.magic != kPointerMagic || text.file != name_ || text.size_bytes == 0 ||
      text.offset_bytes % PageBytes() != 0 || text.offset_bytes >= size_bytes_ ||
      text.size_bytes > size_bytes_ - text.offset_bytes) {
    return nullptr;
  }
  asked_bytes = text.size_bytes;
  // Whole pages, because mmap needs them; the program gets the size that the creator requested.
  return std::make_shared<FilePiece>(shared_from_this(), text.offset_bytes,
                                     RoundUp(text.size_bytes, PageBytes()), /*is_ours=*/false);
}

void PoolFile::Name(const FilePiece& piece, uint64_t asked_bytes,
                    CUmemPoolPtrExportData& data) const {
  const PointerText text = {kPointerMagic, name_, piece.offset_bytes, asked_bytes};
  std::memset(&data, 0, sizeof(data));
  std::memcpy(&data, &text, sizeof(text));
}

}  // namespace gpuloom::softgpu
