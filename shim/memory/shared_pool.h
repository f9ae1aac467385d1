// SPDX-License-Identifier: Apache-2.0
// Pools that processes of the trust domain share. The owner names a pool to the executor when it is
// first exported, and puts a chunk under that name when an allocation in it is first exported. An
// importer maps the chunk and has the allocation in it as a piece of its own pool, until it frees
// it; the chunk is unmapped there with its last piece. Safe from any thread; pools.lock is taken
// inside. docs/design/memory.md
#pragma once

#include "shim/memory/pool.h"

namespace gpuloom {

// Makes a descriptor for a shareable pool, which the caller owns.
[[nodiscard]] CUresult ExportPool(Pool* pool, int* fd);
[[nodiscard]] CUresult ImportPool(int fd, Pool** pool);
[[nodiscard]] CUresult ExportPointer(uint64_t address, CUmemPoolPtrExportData* data);
[[nodiscard]] CUresult ImportPointer(Pool* pool, const CUmemPoolPtrExportData& data,
                                     CUdeviceptr* address);

}  // namespace gpuloom
