// Hints about managed memory. It never moves here, host and devices reach the same pages, so a hint
// that is well formed is taken and changes nothing.
#include "agent/softgpu/address_table.h"
#include "agent/softgpu/context.h"

using namespace gpuloom::softgpu;  // NOLINT: this file only defines CUDA's C functions

namespace {

CUresult Hint(CUdeviceptr pointer, size_t size_bytes) {
  Context* context = nullptr;
  const CUresult result = RequireContext(context);
  if (result != CUDA_SUCCESS) return result;
  const auto region = AddressTable::Instance().FindRegion(pointer);
  const bool managed = region && region->kind == RegionKind::kManaged &&
                       size_bytes <= region->end() - pointer && size_bytes > 0;
  return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

extern "C" {

CUresult cuMemAdvise(CUdeviceptr pointer, size_t size_bytes, CUmem_advise, CUdevice) {
  return Hint(pointer, size_bytes);
}
CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t size_bytes, CUmem_advise, CUmemLocation) {
  return Hint(pointer, size_bytes);
}
CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t size_bytes, CUdevice, CUstream) {
  return Hint(pointer, size_bytes);
}
CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t size_bytes, CUdevice, CUstream) {
  return Hint(pointer, size_bytes);
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t size_bytes, CUmemLocation, unsigned,
                               CUstream) {
  return Hint(pointer, size_bytes);
}
CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr pointer, size_t size_bytes, CUmemLocation, unsigned,
                                    CUstream) {
  return Hint(pointer, size_bytes);
}

}  // extern "C"
