# SPDX-License-Identifier: Apache-2.0
"""PyTorch: torch.compile, which writes Triton kernels, compiles them and loads them. Its caches begin empty."""

import os
import shutil
import tempfile

FOLDER = tempfile.mkdtemp(prefix="gpuloom-compile-")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = FOLDER + "/inductor"
os.environ["TRITON_CACHE_DIR"] = FOLDER + "/triton"
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no worker processes: they start slowly

import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from cases import case, expect, hash_of, losses, main  # noqa: E402
from torch_models import data, labels, made, repeatable  # noqa: E402


@case("elementwise work and a reduction")
def _():
    @torch.compile
    def body(x, y):
        return torch.softmax(torch.tanh(x) * y + 1, -1).sum(0), (x.exp() - y).amax(1)

    x, y = data(512, 300), data(512, 300, seed=2)
    out = body(x, y)
    expect(torch.allclose(out[1], (x.exp() - y).amax(1), atol=1e-4), "the compiled function is wrong")
    return hash_of(*out)


@case("training a small network")
def _():
    model = made(lambda: torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256),
                                             torch.nn.Linear(256, 10)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compiled = torch.compile(model)
    x, y, seen = data(32, 64), labels(32, 10), []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return losses(seen)


@case("reduce-overhead: compiled and in graphs")
def _():
    @torch.compile(mode="reduce-overhead")
    def body(x):
        return torch.relu(x @ x.T).mean(0)

    seen = []
    for i in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        seen.append(body(data(128, 64, seed=i)).clone())
    return hash_of(seen)


if __name__ == "__main__":
    repeatable()
    try:
        main()
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
