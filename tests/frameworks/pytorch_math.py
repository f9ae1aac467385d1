# SPDX-License-Identifier: Apache-2.0
"""PyTorch: the libraries below it (cuBLAS, cuFFT, cuSOLVER, cuSPARSE, cuDNN) and its own larger kernels."""

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cases import Skip, case, expect, hash_of, main, note
from torch_models import data, labels, repeatable


@case("matrix products fp32, fp64, bf16, fp16")
def _():
    out = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for shape in ((64, 64, 64), (1000, 333, 77), (2048, 2048, 512)):
            m, k, n = shape
            out.append(data(m, k, dtype=dtype) @ data(k, n, seed=2, dtype=dtype))
    out.append(torch.bmm(data(8, 32, 48), data(8, 48, 16, seed=2)))
    out.append(torch.addmm(data(64), data(32, 48), data(48, 64, seed=2)))
    return hash_of(out)


@case("matrix products int8 and complex")
def _():
    a = (data(64, 128) * 20).to(torch.int8)
    b = (data(128, 64, seed=2) * 20).to(torch.int8)
    z = torch.complex(data(64, 64), data(64, 64, seed=3))
    return hash_of(torch._int_mm(a, b), z @ z)


@case("matrix products fp8")
def _():
    if torch.cuda.get_device_capability() < (8, 9):
        raise Skip("this GPU has no fp8")
    a = data(64, 128).to(torch.float8_e4m3fn)
    b = data(32, 128, seed=2).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device="cuda")
    return hash_of(torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16))


@case("convolutions 1-D, 3-D, transposed, grouped")
def _():
    return hash_of(F.conv1d(data(4, 8, 100), data(16, 8, 5, seed=2)),
                   F.conv3d(data(2, 4, 8, 16, 16), data(8, 4, 3, 3, 3, seed=2), padding=1),
                   F.conv_transpose2d(data(2, 8, 16, 16), data(8, 4, 3, 3, seed=2), stride=2),
                   F.conv2d(data(2, 32, 16, 16), data(32, 1, 3, 3, seed=2), groups=32, padding=1),
                   F.conv2d(data(2, 16, 16, 16, dtype=torch.float16), data(32, 16, 3, 3, seed=2, dtype=torch.float16)))


@case("fft")
def _():
    z = torch.complex(data(8, 1000), data(8, 1000, seed=2))
    return hash_of(torch.fft.fft(z), torch.fft.ifft(z), torch.fft.rfft(data(5, 4096)),
                   torch.fft.irfft(torch.fft.rfft(data(5, 1001)), n=1001), torch.fft.fft2(data(4, 128, 96)),
                   torch.fft.fftn(data(16, 32, 24)), torch.fft.fft(data(3, 1009)),  # a prime
                   torch.fft.rfft(data(4, 512, dtype=torch.float16)), torch.fft.fft(data(64, dtype=torch.float64)))


@case("spectrogram and its inverse")
def _():
    x = data(2, 16000)
    window = torch.hann_window(400, device="cuda")
    spectrum = torch.stft(x, 400, 160, window=window, return_complex=True)
    back = torch.istft(spectrum, 400, 160, window=window, length=16000)
    expect(torch.allclose(x, back, atol=1e-3), "the inverse is wrong")
    return hash_of(spectrum)


def spd(n, dtype=torch.float32):
    a = data(n, n, dtype=dtype)
    return a @ a.T + n * torch.eye(n, device="cuda", dtype=dtype)


@case("linalg solve, inv, det, lu, cholesky, qr")
def _():
    a, b = spd(96), data(96, 4, seed=2)
    x = torch.linalg.solve(a, b)
    expect(torch.allclose(a @ x, b, atol=1e-2), "the solution is wrong")
    lu, pivots = torch.linalg.lu_factor(a)
    return hash_of(x, torch.linalg.inv(a), torch.linalg.slogdet(a), lu, pivots, torch.linalg.cholesky(a),
                   torch.linalg.qr(data(96, 40)), torch.linalg.lstsq(data(96, 40), b).solution,
                   torch.linalg.solve(torch.stack([spd(16)] * 5), data(5, 16, 2)),
                   torch.cholesky_solve(b, torch.linalg.cholesky(a)), torch.linalg.solve_triangular(a.triu(), b, upper=True))


@case("linalg eigh, svd, fp32 and fp64")
def _():
    out = []
    for dtype in (torch.float32, torch.float64):
        a = spd(64, dtype)
        values, vectors = torch.linalg.eigh(a)
        expect(torch.allclose(vectors * values @ vectors.T, a, atol=1e-2), "the vectors are wrong")
        u, s, v = torch.linalg.svd(data(64, 48, dtype=dtype), full_matrices=False)
        expect(torch.allclose(u * s @ v, data(64, 48, dtype=dtype), atol=1e-3), "the factors are wrong")
        out += [values, s]
    return hash_of(out)


@case("linalg eig of a general matrix")
def _():
    values = torch.linalg.eigvals(data(48, 48, dtype=torch.float64))
    return hash_of(values.abs().sort().values.round(decimals=9))


@case("sparse matrices")
def _():
    dense = data(200, 300) * (data(200, 300, seed=2) > 1)
    other = data(300, 16, seed=3)
    coo = dense.to_sparse_coo()
    csr = dense.to_sparse_csr()
    out = [torch.sparse.mm(coo, other), csr @ other, coo.coalesce().values(), csr.crow_indices(),
           csr @ data(300, 1, seed=4), torch.sparse.softmax(coo, 1).to_dense(), csr.to_dense()]
    expect(torch.allclose(out[0], dense @ other, atol=1e-3), "the product is wrong")
    expect(torch.allclose(out[1], dense @ other, atol=1e-3), "the CSR product is wrong")
    # cuSPARSE adds in any order: the products themselves differ in their last digits from run to run.
    return hash_of(out[2:4], out[5:])


@case("semi-structured sparsity")
def _():
    mask = torch.tensor([0, 0, 1, 1], device="cuda", dtype=torch.bool).tile((128, 32))
    a = data(128, 128, dtype=torch.float16) * mask
    b = data(128, 64, seed=2, dtype=torch.float16)
    try:
        sparse = torch.sparse.to_sparse_semi_structured(a)
        return hash_of(torch.mm(sparse, b))
    except (NotImplementedError, RuntimeError) as error:
        if "not" in str(error) and "support" in str(error):
            raise Skip(str(error)) from error
        raise


def attention_case(backend, dtype, gradient):
    q, k, v = (data(2, 4, 128, 64, seed=i, dtype=dtype).requires_grad_(gradient) for i in range(3))
    with sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    if not gradient:
        return hash_of(out)
    out.float().sum().backward()
    return hash_of(out, q.grad, k.grad, v.grad)


for _backend in ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"):
    for _dtype in ((torch.float32, torch.float16, torch.bfloat16) if _backend in ("MATH", "EFFICIENT_ATTENTION")
                   else (torch.float16, torch.bfloat16)):
        def _body(backend=_backend, dtype=_dtype):
            if not hasattr(SDPBackend, backend):
                raise Skip(f"this PyTorch has no {backend}")
            try:
                return attention_case(getattr(SDPBackend, backend), dtype, backend == "MATH")
            except RuntimeError as error:
                if "No available kernel" in str(error):
                    note(error)
                    return "no kernel"
                raise
        case(f"attention {_backend.lower()} {str(_dtype).split('.')[1]}")(_body)


@case("sort, topk, cumsum, unique, histogram")
def _():
    x = data(100_000)
    whole = (x * 100).to(torch.int64)
    return hash_of(torch.sort(x).values, torch.topk(x, 50).values, torch.cumsum(whole, 0), torch.unique(whole),
                   torch.bincount(whole - whole.min()), torch.argsort(whole, stable=True), torch.kthvalue(x, 1000).values,
                   torch.searchsorted(torch.sort(x).values, data(100, seed=2)), torch.nonzero(x > 3), x[x > 2])


@case("reductions and elementwise functions")
def _():
    x = data(1 << 20)
    return hash_of(x.sum(), x.mean(), x.std(), x.max(), x.argmax(), x.norm(), torch.erf(x), torch.special.i0(x),
                   torch.lgamma(x.abs() + 1), torch.softmax(x.view(1024, 1024), 1), torch.logsumexp(x.view(1024, 1024), 0),
                   torch.einsum("ij,kj->ik", x.view(1024, 1024)[:64], x.view(1024, 1024)[:32]), x.half().sum(),
                   torch.var_mean(x.view(64, -1), 1), x.to(torch.bfloat16).cumsum(0)[::1000])


@case("gather, scatter, embedding, pooling, resizing")
def _():
    x = data(64, 128)
    index = labels(64 * 16, 128).view(64, 16)
    total = torch.zeros(64, 128, device="cuda", dtype=torch.int64).scatter_add_(1, index, torch.ones_like(index))
    picture = data(2, 3, 33, 47)
    return hash_of(x.gather(1, index), total, F.embedding(index, data(128, 32)),
                   F.embedding_bag(index, data(128, 32), mode="mean"), F.max_pool2d(picture, 3, 2),
                   F.adaptive_avg_pool2d(picture, 7), F.interpolate(picture, scale_factor=2, mode="bilinear"),
                   F.grid_sample(picture, torch.tanh(data(2, 20, 20, 2)), align_corners=False), F.pad(picture, (3, 2)),
                   torch.roll(picture, 5, -1), F.layer_norm(x, (128,)), F.group_norm(picture, 3), F.one_hot(index, 128))


if __name__ == "__main__":
    repeatable()
    main()
