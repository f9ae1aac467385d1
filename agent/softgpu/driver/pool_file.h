// SPDX-License-Identifier: Apache-2.0
// The memory of a pool that processes share (cuMemPoolExportToShareableHandle): one sealed, sparse
// memfd, which its creator cuts into allocations and importers map parts of. A descriptor of the
// file stands for the pool; an allocation is named to others by its offset in the file.
//
// The pages of an allocation are released when its creator frees it, which it must do last. Pieces
// share ownership of the file. Safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "agent/softgpu/driver/device.h"
#include "proto/cuda/cuda_all.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

class PoolFile;

// A part of the file that is in use. If this process has cut it, its pages are released with it.
struct FilePiece {
  FilePiece(std::shared_ptr<PoolFile> of, uint64_t offset, uint64_t size, bool is_ours);
  ~FilePiece();
  FilePiece(const FilePiece&) = delete;
  FilePiece& operator=(const FilePiece&) = delete;

  const std::shared_ptr<PoolFile> file;
  const uint64_t offset_bytes;
  const uint64_t size_bytes;
  const bool ours;
};

class PoolFile : public std::enable_shared_from_this<PoolFile> {
 public:
  // nullptr when the system has no descriptor or memory left.
  static std::shared_ptr<PoolFile> Make(const Device& device);
  // Opens a descriptor that Export gave, in this process or another; nullptr when it is not one.
  // The caller keeps the descriptor. `device` is the one whose memory it is.
  static std::shared_ptr<PoolFile> Import(int fd, Device*& device);

  PoolFile(int fd, uint64_t size_bytes, uint64_t name);
  ~PoolFile();
  PoolFile(const PoolFile&) = delete;
  PoolFile& operator=(const PoolFile&) = delete;

  // A new descriptor, close-on-exec; -1 when there is none left.
  [[nodiscard]] int Export();
  // Until the file has been exported, nothing in it can be named to others.
  [[nodiscard]] bool exported() const { return exported_; }

  // Whole pages, zeroed; nullptr when there is no room.
  std::shared_ptr<FilePiece> Take(uint64_t size_bytes);
  // Finds the piece that the creator's Name has described; nullptr when it cannot belong to this
  // pool.
  std::shared_ptr<FilePiece> Find(const CUmemPoolPtrExportData& data, uint64_t& asked_bytes);
  void Name(const FilePiece& piece, uint64_t asked_bytes, CUmemPoolPtrExportData& data) const;

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] uint64_t name() const { return name_; }

 private:
  friend struct FilePiece;
  void Give(uint64_t offset_bytes, uint64_t size_bytes);

  const int fd_;
  const uint64_t size_bytes_;
  const uint64_t name_;  // the file's number in the system
  std::atomic<bool> exported_{false};
  Mutex mutex_;
  // offset → size, of the creator's pieces
  std::map<uint64_t, uint64_t> used_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom::softgpu
