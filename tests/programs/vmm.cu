// SPDX-License-Identifier: Apache-2.0
// Virtual memory: one range of addresses over several pieces of memory, grown while it is used,
// pieces exchanged, the same memory at two addresses.
#include <cuda.h>

#include <vector>

#include "check.h"

__global__ void Fill(int* values, size_t n, int value) {
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i < n) values[i] = value + static_cast<int>(i % 7);
}

int main() {
  Program program("vmm");
  program.Ok(cudaFree(nullptr));  // the runtime's context
  const auto driver = [&](CUresult result, const char* what) {
    program.Expect(result == CUDA_SUCCESS, what);
  };
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  size_t granule = 0;
  driver(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
         "cuMemGetAllocationGranularity");
  constexpr int kPieces = 4;
  CUdeviceptr range = 0;
  driver(cuMemAddressReserve(&range, 2 * kPieces * granule, 0, 0, 0), "cuMemAddressReserve");
  CUmemGenericAllocationHandle pieces[kPieces] = {};
  for (int i = 0; i < kPieces; ++i) {
    driver(cuMemCreate(&pieces[i], granule, &prop, 0), "cuMemCreate");
    driver(cuMemMap(range + i * granule, granule, 0, pieces[i], 0), "cuMemMap");
    driver(cuMemSetAccess(range + i * granule, granule, &access, 1), "cuMemSetAccess");
    // Everything up to here is one range now.
    const size_t n = (i + 1) * granule / sizeof(int);
    Fill<<<static_cast<unsigned>((n + 255) / 256), 256>>>(reinterpret_cast<int*>(range), n, 10 * i);
    program.Ok(cudaDeviceSynchronize());
  }
  const size_t words = granule / sizeof(int);
  std::vector<int> host(kPieces * words);
  driver(cuMemcpyDtoH(host.data(), range, kPieces * granule), "cuMemcpyDtoH over all pieces");
  for (size_t i = 0; i < host.size(); i += 1009) {
    program.Expect(host[i] == 10 * (kPieces - 1) + static_cast<int>(i % 7), "wrong element");
  }

  // The first piece at a second address.
  driver(cuMemMap(range + kPieces * granule, granule, 0, pieces[0], 0), "cuMemMap a second time");
  driver(cuMemSetAccess(range + kPieces * granule, granule, &access, 1), "cuMemSetAccess there");
  driver(cuMemsetD32(range + kPieces * granule, 4711, words), "cuMemsetD32 there");
  driver(cuMemcpyDtoH(host.data(), range, granule), "cuMemcpyDtoH here");
  program.Expect(host[0] == 4711 && host[words - 1] == 4711, "the two addresses are two memories");

  // A piece exchanged for another one keeps the first's contents where it goes.
  driver(cuCtxSynchronize(), "cuCtxSynchronize");
  driver(cuMemUnmap(range + granule, granule), "cuMemUnmap");
  driver(cuMemMap(range + 5 * granule, granule, 0, pieces[1], 0), "cuMemMap elsewhere");
  driver(cuMemSetAccess(range + 5 * granule, granule, &access, 1), "cuMemSetAccess elsewhere");
  driver(cuMemcpyDtoH(host.data(), range + 5 * granule, granule), "cuMemcpyDtoH elsewhere");
  program.Expect(host[0] == 10 * (kPieces - 1) + static_cast<int>(words % 7),
                 "the moved piece lost its contents");
  CUmemAllocationProp seen{};
  driver(cuMemGetAllocationPropertiesFromHandle(&seen, pieces[2]), "its properties");
  program.Expect(seen.type == prop.type && seen.location.id == 0, "other properties");
  unsigned long long flags = 0;
  driver(cuMemGetAccess(&flags, &prop.location, range), "cuMemGetAccess");
  program.Expect(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "another access");

  // Handles may go before what they are mapped to.
  for (CUmemGenericAllocationHandle piece : pieces) driver(cuMemRelease(piece), "cuMemRelease");
  driver(cuMemsetD32(range, 1, words), "cuMemsetD32 after the release");
  driver(cuCtxSynchronize(), "cuCtxSynchronize");
  for (int i : {0, 2, 3, 4, 5})
    driver(cuMemUnmap(range + i * granule, granule), "cuMemUnmap at last");
  driver(cuMemAddressFree(range, 2 * kPieces * granule), "cuMemAddressFree");
  return program.Finish("granule=%zu pieces=%d", granule, kPieces);
}
