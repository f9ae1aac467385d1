# SPDX-License-Identifier: Apache-2.0
"""Triton: kernels compiled here, loaded and launched by Triton's own launcher, with TMA descriptors of both kinds."""

import os
import shutil
import tempfile

FOLDER = tempfile.mkdtemp(prefix="gpuloom-triton-")
os.environ["TRITON_CACHE_DIR"] = FOLDER

import torch  # noqa: E402

from cases import Skip, case, expect, hash_of, main  # noqa: E402
from torch_models import data, repeatable  # noqa: E402

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton:
    @triton.jit
    def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = at < n
        tl.store(out + at, tl.load(x + at, mask) + tl.load(y + at, mask), mask)

    @triton.jit
    def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        at = tl.arange(0, BLOCK)
        mask = at < columns
        values = tl.load(x + row * columns + at, mask, other=-float("inf"))
        values = tl.exp(values - tl.max(values, 0))
        tl.store(out + row * columns + at, values / tl.sum(values, 0), mask)

    @triton.jit
    def product_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        columns = tl.program_id(1) * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            inner = k + tl.arange(0, BK)
            left = tl.load(a + rows[:, None] * K + inner[None, :], (rows[:, None] < M) & (inner[None, :] < K), other=0.0)
            right = tl.load(b + inner[:, None] * N + columns[None, :], (inner[:, None] < K) & (columns[None, :] < N), other=0.0)
            total = tl.dot(left, right, total)
        tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16), (rows[:, None] < M) & (columns[None, :] < N))

    @triton.jit
    def device_descriptor_kernel(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
        source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
        target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
        i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
        target.store([i, j], source.load([i, j]) * 2)

    @triton.jit
    def host_descriptor_kernel(source, target, BM: tl.constexpr, BN: tl.constexpr):
        i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
        target.store([i, j], source.load([i, j]) + 1)

    @triton.jit
    def count_kernel(counter, out, n):
        number = tl.program_id(0)
        tl.atomic_add(counter, 1)
        tl.store(out + number, number * number)


def triton_or_skip():
    if triton is None:
        raise Skip("triton is not here")


@case("vector add")
def _():
    triton_or_skip()
    x, y = data(98_765), data(98_765, seed=2)
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    expect(torch.equal(out, x + y), "the sum is wrong")
    return hash_of(out)


@case("softmax")
def _():
    triton_or_skip()
    x = data(256, 781)
    out = torch.empty_like(x)
    softmax_kernel[(256,)](x, out, 781, BLOCK=1024)
    expect(torch.allclose(out, torch.softmax(x, 1), atol=1e-6), "the softmax is wrong")
    return hash_of(out)


@case("matrix product, fp16")
def _():
    triton_or_skip()
    a, b = data(300, 200, dtype=torch.float16), data(200, 150, seed=2, dtype=torch.float16)
    c = torch.empty(300, 150, device="cuda", dtype=torch.float16)
    product_kernel[(triton.cdiv(300, 64), triton.cdiv(150, 64))](a, b, c, 300, 150, 200, BM=64, BN=64, BK=32)
    expect(torch.allclose(c, a @ b, atol=5e-2, rtol=1e-2), "the product is wrong")
    return hash_of(c)


@case("atomics")
def _():
    triton_or_skip()
    counter = torch.zeros(1, device="cuda", dtype=torch.int32)
    out = torch.empty(5000, device="cuda", dtype=torch.int32)
    count_kernel[(5000,)](counter, out, 5000)
    return int(counter), hash_of(out)


@case("tensor descriptors made on the device")
def _():
    triton_or_skip()
    if not hasattr(tl, "make_tensor_descriptor"):
        raise Skip("this Triton has no make_tensor_descriptor")
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    x = data(128, 256)
    out = torch.empty_like(x)
    device_descriptor_kernel[(4, 4)](x, out, 128, 256, BM=32, BN=64)
    expect(torch.equal(out, x * 2), "the copy is wrong")
    return hash_of(out)


@case("tensor descriptors made on the host")
def _():
    triton_or_skip()
    try:
        from triton.tools.tensor_descriptor import TensorDescriptor
    except ImportError as error:
        raise Skip(str(error)) from error
    x = data(128, 256)
    out = torch.empty_like(x)
    host_descriptor_kernel[(4, 4)](TensorDescriptor.from_tensor(x, [32, 64]), TensorDescriptor.from_tensor(out, [32, 64]),
                                   BM=32, BN=64)
    expect(torch.equal(out, x + 1), "the copy is wrong")
    return hash_of(out)


@case("autotuning")
def _():
    triton_or_skip()
    tuned = triton.autotune([triton.Config({"BLOCK": size}) for size in (256, 1024)], key=["n"])(add_kernel)
    x, y = data(50_000), data(50_000, seed=2)
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
    return hash_of(out)


if __name__ == "__main__":
    repeatable()
    try:
        main()
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
