// SPDX-License-Identifier: Apache-2.0
// The same product of matrices with its operands in every kind of memory, in turn: managed with and
// without hints, mapped, pageable and pinned with copies, waited for at once or queued behind a kernel
// that the host lets go. Each turn makes a stream and its memory anew and destroys them.
#include <cstring>
#include <vector>

#include "check.h"

namespace {

enum class Kind {
  kHinted,
  kHintedAsync,
  kManaged,
  kMapped,
  kPageable,
  kPageableAsync,
  kPinned,
  kPinnedAsync
};
constexpr Kind kKinds[] = {Kind::kHinted, Kind::kHintedAsync, Kind::kManaged,
                           Kind::kMapped, Kind::kPageable,    Kind::kPageableAsync,
                           Kind::kPinned, Kind::kPinnedAsync};
constexpr int kTile = 16;
constexpr int kTurns = 5;

__global__ void WaitForHost(volatile unsigned* open) {
  while (*open == 0) {
  }
}

__global__ void Multiply(int* product, const int* a, const int* b, int n) {
  __shared__ int tile_a[kTile][kTile];
  __shared__ int tile_b[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y;
  const int column = blockIdx.x * kTile + threadIdx.x;
  int sum = 0;
  for (int begin = 0; begin < n; begin += kTile) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * n + begin + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(begin + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  product[row * n + column] = sum;
}

struct Matrices {
  int* host[3];
  int* device[3];
};

class Run {
 public:
  Run(Program* program, int n) : program_(*program), n_(n), bytes_(sizeof(int) * n * n) {
    int device = 0;
    program_.Ok(cudaGetDevice(&device));
    program_.Ok(cudaDeviceGetAttribute(&concurrent_, cudaDevAttrConcurrentManagedAccess, device));
    device_place_.type = cudaMemLocationTypeDevice;
    device_place_.id = device;
    host_place_.type = cudaMemLocationTypeHost;
  }

  unsigned Do(Kind kind) {
    cudaDeviceProp properties;
    program_.Ok(cudaGetDeviceProperties(&properties, 0));
    program_.Ok(cudaStreamCreate(&stream_));
    Expected();
    program_.Ok(cudaMallocHost(&open_, sizeof(*open_)));
    Matrices m = Allocate(kind);
    for (int* matrix : m.host) std::memset(matrix, 0, bytes_);
    for (int turn = 0; turn < kTurns; ++turn) Turn(kind, m);
    Free(kind, m);
    program_.Ok(cudaStreamDestroy(stream_));
    program_.Ok(cudaFreeHost(const_cast<unsigned*>(open_)));
    unsigned sum = 0;
    for (const int element : product_) sum = sum * 31 + static_cast<unsigned>(element);
    return sum;
  }

 private:
  static bool IsHinted(Kind kind) { return kind == Kind::kHinted || kind == Kind::kHintedAsync; }
  static bool IsAsync(Kind kind) {
    return kind == Kind::kHintedAsync || kind == Kind::kPageableAsync || kind == Kind::kPinnedAsync;
  }
  static bool IsPinned(Kind kind) { return kind == Kind::kPinned || kind == Kind::kPinnedAsync; }
  static bool IsPageable(Kind kind) {
    return kind == Kind::kPageable || kind == Kind::kPageableAsync;
  }

  void Launch(int* product, const int* a, const int* b, cudaStream_t stream) const {
    const dim3 grid(n_ / kTile, n_ / kTile), block(kTile, kTile);
    Multiply<<<grid, block, 0, stream>>>(product, a, b, n_);
    program_.Ok(cudaGetLastError());
  }

  // By way of memory that is then freed.
  void Expected() {
    a_.resize(n_ * n_);
    b_.resize(n_ * n_);
    product_.assign(n_ * n_, 0);
    for (int i = 0; i < n_ * n_; ++i) {
      a_[i] = i % 17 - 8;
      b_[i] = i % 13 - 6;
    }
    int* memory[3];
    for (int*& each : memory) program_.Ok(cudaMalloc(&each, bytes_));
    program_.Ok(cudaMemcpyAsync(memory[0], a_.data(), bytes_, cudaMemcpyHostToDevice));
    program_.Ok(cudaMemcpyAsync(memory[1], b_.data(), bytes_, cudaMemcpyHostToDevice));
    Launch(memory[2], memory[0], memory[1], nullptr);
    program_.Ok(cudaMemcpyAsync(product_.data(), memory[2], bytes_, cudaMemcpyDeviceToHost));
    program_.Ok(cudaStreamSynchronize(nullptr));
    for (int* each : memory) program_.Ok(cudaFree(each));
  }

  Matrices Allocate(Kind kind) const {
    Matrices m = {};
    for (int i = 0; i < 3; ++i) {
      if (IsHinted(kind)) {
        program_.Ok(cudaMallocManaged(&m.device[i], bytes_,
                                      concurrent_ != 0 ? cudaMemAttachGlobal : cudaMemAttachHost));
        if (concurrent_ != 0) {
          program_.Ok(cudaMemPrefetchAsync(m.device[i], bytes_, host_place_, 0));
        }
        m.host[i] = m.device[i];
      } else if (kind == Kind::kManaged) {
        program_.Ok(cudaMallocManaged(&m.device[i], bytes_));
        m.host[i] = m.device[i];
      } else if (kind == Kind::kMapped) {
        program_.Ok(cudaMallocHost(&m.host[i], bytes_));
        program_.Ok(cudaHostGetDevicePointer(&m.device[i], m.host[i], 0));
      } else {
        if (IsPinned(kind)) {
          program_.Ok(cudaMallocHost(&m.host[i], bytes_));
        } else {
          m.host[i] = static_cast<int*>(std::malloc(bytes_));
        }
        program_.Ok(cudaMalloc(&m.device[i], bytes_));
      }
    }
    return m;
  }

  void Free(Kind kind, const Matrices& m) const {
    for (int i = 0; i < 3; ++i) {
      if (IsHinted(kind) || kind == Kind::kManaged) {
        program_.Ok(cudaFree(m.device[i]));
        continue;
      }
      if (IsPageable(kind)) {
        std::free(m.host[i]);
      } else {
        program_.Ok(cudaFreeHost(m.host[i]));
      }
      if (kind != Kind::kMapped) program_.Ok(cudaFree(m.device[i]));
    }
  }

  // To the device's side, or back.
  void Hint(const Matrices& m, bool to_device) const {
    for (int* matrix : m.device) {
      if (concurrent_ != 0) {
        program_.Ok(cudaMemPrefetchAsync(matrix, bytes_, to_device ? device_place_ : host_place_, 0,
                                         to_device ? stream_ : nullptr));
      } else {
        program_.Ok(cudaStreamAttachMemAsync(stream_, matrix, 0,
                                             to_device ? cudaMemAttachGlobal : cudaMemAttachHost));
      }
    }
  }

  void Turn(Kind kind, const Matrices& m) {
    const bool async = IsAsync(kind), copies = IsPageable(kind) || IsPinned(kind);
    std::memcpy(m.host[0], a_.data(), bytes_);
    std::memcpy(m.host[1], b_.data(), bytes_);
    const bool held = async && IsHinted(kind);
    if (held) {
      *open_ = 0;
      WaitForHost<<<1, 1, 0, stream_>>>(open_);
      program_.Ok(cudaGetLastError());
    }
    for (int i = 0; copies && i < 2; ++i) {
      if (async) {
        program_.Ok(
            cudaMemcpyAsync(m.device[i], m.host[i], bytes_, cudaMemcpyHostToDevice, stream_));
      } else {
        program_.Ok(cudaMemcpy(m.device[i], m.host[i], bytes_, cudaMemcpyHostToDevice));
      }
    }
    if (IsHinted(kind)) Hint(m, /*to_device=*/true);
    if (IsHinted(kind) && !async) program_.Ok(cudaStreamSynchronize(stream_));
    Launch(m.device[2], m.device[0], m.device[1], stream_);
    if (!async) program_.Ok(cudaStreamSynchronize(stream_));
    if (IsHinted(kind)) Hint(m, /*to_device=*/false);
    if (IsHinted(kind) && !async) program_.Ok(cudaStreamSynchronize(stream_));
    if (copies && async) {
      program_.Ok(cudaMemcpyAsync(m.host[2], m.device[2], bytes_, cudaMemcpyDeviceToHost, stream_));
    } else if (copies) {
      program_.Ok(cudaMemcpy(m.host[2], m.device[2], bytes_, cudaMemcpyDeviceToHost));
    }
    if (held) *open_ = 1;
    if (async) program_.Ok(cudaStreamSynchronize(stream_));
    program_.Expect(std::memcmp(m.host[2], product_.data(), bytes_) == 0, "another product");
  }

  Program& program_;
  const int n_;
  const size_t bytes_;
  int concurrent_ = 0;
  cudaMemLocation device_place_ = {};
  cudaMemLocation host_place_ = {};
  cudaStream_t stream_ = nullptr;
  volatile unsigned* open_ = nullptr;
  std::vector<int> a_, b_, product_;
};

}  // namespace

int main() {
  Program program("memory_kinds");
  unsigned sum = 0;
  for (int n = 16; n <= 64; n *= 2) {
    for (const Kind kind : kKinds) sum = sum * 7 + Run(&program, n).Do(kind);
  }
  return program.Finish("sum=%u", sum);
}
