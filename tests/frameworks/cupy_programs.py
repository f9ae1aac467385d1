# SPDX-License-Identifier: Apache-2.0
"""CuPy: kernels compiled by NVRTC, the libraries below it, streams, pools and managed memory."""

import os
import shutil
import tempfile

FOLDER = tempfile.mkdtemp(prefix="gpuloom-cupy-")
os.environ["CUPY_CACHE_DIR"] = FOLDER

from cases import case, expect, hash_of, main, need  # noqa: E402

try:
    import cupy as cp
except ImportError:
    cp = None

SOURCE = r"""
__constant__ float factors[4];
__device__ int counter;
extern "C" __global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { y[i] = x[i] * factors[i % 4]; atomicAdd(&counter, 1); }
}
extern "C" __global__ void sum(const float* x, float* y) {
  extern __shared__ float part[];
  part[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (int w = blockDim.x / 2; w > 0; w /= 2) {
    if (threadIdx.x < w) part[threadIdx.x] += part[threadIdx.x + w];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
template <typename T> __global__ void twice(T* x) { x[threadIdx.x] *= 2; }
"""


def numbers(*shape, seed=0, dtype="float32"):
    import numpy
    return cp.asarray(numpy.random.default_rng(seed).standard_normal(shape).astype(dtype))


@case("elementwise and reductions")
def _():
    need("cupy")
    x = numbers(1000, 300)
    return hash_of(cp.sin(x) * 2 + 1, (x > 1).sum(0), x.max(1), cp.sort(x.ravel()), cp.cumsum((x * 9).astype("int64")),
                   cp.argsort(x[0]), cp.unique((x * 3).astype("int32")), cp.where(x > 0, x, -x).mean())


@case("raw kernel")
def _():
    need("cupy")
    kernel = cp.RawKernel(r'extern "C" __global__ void k(float* x, int n, double s) { int i = threadIdx.x; if (i < n) x[i] = i * s; }',
                          "k")
    x = cp.zeros(100, "float32")
    kernel((1,), (128,), (x, cp.int32(100), cp.float64(0.5)))
    return hash_of(x)


@case("raw module with constants, variables and templates")
def _():
    need("cupy")
    import numpy
    module = cp.RawModule(code=SOURCE, options=("-std=c++17",), name_expressions=["twice<float>", "twice<int>"])
    factors = cp.ndarray(4, "float32", module.get_global("factors"))
    factors[...] = cp.asarray(numpy.array([1, 2, 3, 4], "float32"))
    counter = cp.ndarray(1, "int32", module.get_global("counter"))
    counter[...] = 0
    x, y = numbers(1000), cp.empty(1000, "float32")
    module.get_function("scale")((8,), (128,), (x, y, cp.int32(1000)))
    parts = cp.empty(4, "float32")
    module.get_function("sum")((4,), (128,), (x[:512], parts), shared_mem=512)
    whole = cp.arange(32, dtype="int32")
    module.get_function("twice<int>")((1,), (32,), (whole,))
    return int(counter[0]), hash_of(y, parts, whole)


@case("own elementwise, reduction and fused kernels")
def _():
    need("cupy")
    squared = cp.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "squared")
    norm = cp.ReductionKernel("float32 x", "float32 y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")

    @cp.fuse
    def fused(a, b):
        return cp.exp(a) - b * 2

    x, y = numbers(500), numbers(500, seed=1)
    return hash_of(squared(x, y), norm(x), fused(x, y))


@case("cuBLAS")
def _():
    need("cupy")
    a, b = numbers(200, 300), numbers(300, 100, seed=1)
    return hash_of(a @ b, cp.dot(a[0], a[1]), numbers(64, 64, dtype="float64") @ numbers(64, 64, dtype="float64"),
                   cp.einsum("ij,jk->ik", a[:16], b), cp.tensordot(a, b, 1), a.astype("float16") @ b.astype("float16"))


@case("cuFFT")
def _():
    need("cupy")
    x = numbers(8, 1024)
    back = cp.fft.irfft(cp.fft.rfft(x))
    expect(bool(cp.allclose(back, x, atol=1e-4)), "the inverse is wrong")
    return hash_of(cp.fft.fft(x), cp.fft.fft2(numbers(64, 48)), back, cp.fft.fftn(numbers(16, 8, 12)))


@case("cuSOLVER")
def _():
    need("cupy")
    a = numbers(40, 40, dtype="float64")
    s = a @ a.T + 40 * cp.eye(40)
    values, vectors = cp.linalg.eigh(s)
    expect(bool(cp.allclose(vectors * values @ vectors.T, s)), "the vectors are wrong")
    return hash_of(cp.linalg.solve(s, numbers(40, 2, dtype="float64")), cp.linalg.cholesky(s), values,
                   cp.linalg.svd(a, compute_uv=False), cp.linalg.qr(a), cp.linalg.inv(s))


@case("cuSPARSE")
def _():
    need("cupy")
    from cupyx.scipy import sparse
    dense = numbers(100, 80) * (numbers(100, 80, seed=1) > 1)
    matrix = sparse.csr_matrix(dense)
    x = numbers(80, 4, seed=2)
    expect(bool(cp.allclose(matrix @ x, dense @ x, atol=1e-4)), "the product is wrong")
    return hash_of(matrix.indices, matrix.toarray(), matrix.T.tocsr().indptr)


@case("cuRAND")
def _():
    need("cupy")
    cp.random.seed(3)
    return hash_of(cp.random.standard_normal(1000), cp.random.randint(0, 100, 1000), cp.random.permutation(100))


@case("streams and events")
def _():
    need("cupy")
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
    inputs = [numbers(200, 200, seed=i) for i in range(4)]
    cp.cuda.Device().synchronize()
    out, start, end = [], cp.cuda.Event(), cp.cuda.Event()
    for stream, x in zip(streams, inputs):
        with stream:
            start.record()
            for _ in range(5):
                x = cp.tanh(x @ x * 0.01)
            end.record()
            out.append(x)
    for stream in streams:
        stream.synchronize()
    expect(cp.cuda.get_elapsed_time(start, end) >= 0, "time runs backwards")
    return hash_of(out)


@case("callbacks of the host")
def _():
    need("cupy")
    seen = []
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        for i in range(5):
            cp.arange(1000).sum()
            stream.launch_host_func(seen.append, i)
    stream.synchronize()
    return seen


@case("captured graph")
def _():
    need("cupy")
    x, y = numbers(1000), cp.zeros(1000, "float32")
    stream = cp.cuda.Stream(non_blocking=True)
    kernel = cp.ElementwiseKernel("float32 x", "float32 y", "y = y + x * 2", "accumulate")
    kernel(x, y)
    y[...] = 0
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        kernel(x, y)
        kernel(x, y)
        graph = stream.end_capture()
    for _ in range(3):
        graph.launch(stream)
    stream.synchronize()
    return hash_of(y)


@case("asynchronous pool")
def _():
    need("cupy")
    before = cp.cuda.get_allocator()
    cp.cuda.set_allocator(cp.cuda.MemoryAsyncPool().malloc)
    try:
        seen = []
        for i in range(50):
            x = cp.full(10_000 + i * 1000, i, "int32")
            seen.append(int(x.sum()))
            del x
        return hash_of(seen)
    finally:
        cp.cuda.Device().synchronize()
        cp.cuda.set_allocator(before)


@case("managed memory")
def _():
    need("cupy")
    import numpy
    before = cp.cuda.get_allocator()
    cp.cuda.set_allocator(cp.cuda.MemoryPool(cp.cuda.malloc_managed).malloc)
    try:
        x = cp.arange(100_000, dtype="float32")
        x *= 2
        cp.cuda.Device().synchronize()
        import ctypes
        seen = numpy.ctypeslib.as_array(ctypes.cast(x.data.ptr, ctypes.POINTER(ctypes.c_float)), (100_000,)).copy()
        return hash_of(seen, x)
    finally:
        cp.cuda.set_allocator(before)


@case("texture")
def _():
    need("cupy")
    import numpy
    from cupy.cuda import runtime, texture
    kernel = cp.RawKernel(r"""
extern "C" __global__ void look(float* out, cudaTextureObject_t t, int w, int h) {
  int x = threadIdx.x, y = blockIdx.x;
  out[y * w + x] = tex2D<float>(t, x + 0.5f, y + 0.5f) + tex2D<float>(t, x + 0.25f, y + 0.5f);
}""", "look")
    width, height = 32, 16
    channel = texture.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
    array = texture.CUDAarray(channel, width, height)
    array.copy_from(numpy.arange(width * height, dtype="float32").reshape(height, width))
    resource = texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=array)
    how = texture.TextureDescriptor((runtime.cudaAddressModeClamp,) * 2, runtime.cudaFilterModeLinear,
                                    runtime.cudaReadModeElementType)
    out = cp.zeros((height, width), "float32")
    kernel((height,), (width,), (out, texture.TextureObject(resource, how), cp.int32(width), cp.int32(height)))
    return hash_of(out)


@case("copies from and to pinned memory, 2-D")
def _():
    need("cupy")
    import numpy
    memory = cp.cuda.alloc_pinned_memory(4000)
    host = numpy.frombuffer(memory, "float32", 1000)
    host[...] = numpy.arange(1000)
    x = cp.empty(1000, "float32")
    x.set(host)
    picture = numbers(100, 60)
    part = cp.ascontiguousarray(picture[10:50, 7:33])
    return hash_of(x * 2, part, cp.asnumpy(picture.T))


@case("cooperative grid")
def _():
    need("cupy")
    code = r"""
#include <cooperative_groups.h>
extern "C" __global__ void both(int* x, int n) {
  auto grid = cooperative_groups::this_grid();
  int i = grid.thread_rank();
  x[i] = i;
  grid.sync();
  int other = x[n - 1 - i];
  grid.sync();
  x[i] = other * 2;
}"""
    kernel = cp.RawKernel(code, "both", enable_cooperative_groups=True)
    x = cp.zeros(1024, "int32")
    kernel((8,), (128,), (x, cp.int32(1024)))
    return hash_of(x)


if __name__ == "__main__":
    try:
        main()
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
