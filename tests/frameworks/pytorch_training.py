# SPDX-License-Identifier: Apache-2.0
"""PyTorch: training and inference of convolutional and transformer models in every precision."""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cases import case, expect, hash_of, losses, main
from torch_models import DEVICE, Gpt, ResNet, data, labels, made, repeatable

STEPS = 5


def weights(model):
    return hash_of([p for p in model.parameters()])


def train(model, inputs, targets, autocast=None, scaler=None, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    seen = []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, autocast) if autocast else contextlib.nullcontext():
            out = model(inputs)
            loss = F.cross_entropy(out.flatten(0, -2), targets)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        seen.append(loss.item())
    return f"{losses(seen)} {weights(model)}"


def train_conv(dtype=torch.float32, autocast=None, scaler=None, channels_last=False):
    model = made(ResNet, dtype=dtype)
    images = data(16, 3, 64, 64, dtype=dtype)
    if channels_last:
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    return train(model, images, labels(16, 10), autocast, scaler)


def train_gpt(dtype=torch.float32, autocast=None, optimizer=None, dropout=0.0):
    model = made(lambda: Gpt(dropout=dropout), dtype=dtype)
    words = labels(4 * 129, 1000).view(4, 129)
    torch.manual_seed(3)  # for dropout
    with sdpa_kernel(SDPBackend.MATH):  # the only one whose gradients are repeatable in every precision
        return train(model, words[:, :-1], words[:, 1:].flatten(), autocast,
                     optimizer=(optimizer or torch.optim.AdamW)(model.parameters(), lr=1e-3))


@case("conv training fp32")
def _():
    return train_conv()


@case("conv training tf32")
def _():
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return train_conv()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


@case("conv training bf16")
def _():
    return train_conv(torch.bfloat16)


@case("conv training fp16 autocast")
def _():
    return train_conv(autocast=torch.float16, scaler=torch.amp.GradScaler(DEVICE))


@case("conv training bf16 autocast, channels last")
def _():
    return train_conv(autocast=torch.bfloat16, channels_last=True)


@case("conv inference fp32, bf16, fp16")
def _():
    out = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model = made(ResNet, dtype=dtype).eval()
        with torch.inference_mode():
            out.append(model(data(8, 3, 64, 64, dtype=dtype)))
    return hash_of(out)


@case("transformer training fp32")
def _():
    return train_gpt()


@case("transformer training bf16")
def _():
    return train_gpt(torch.bfloat16)


@case("transformer training fp16 autocast")
def _():
    return train_gpt(autocast=torch.float16)


@case("transformer training bf16 autocast, dropout")
def _():
    return train_gpt(autocast=torch.bfloat16, dropout=0.1)


@case("transformer training fused AdamW")
def _():
    return train_gpt(optimizer=lambda p, lr: torch.optim.AdamW(p, lr=lr, fused=True))


@case("decoding with a growing cache, bf16")
def _():
    model = made(Gpt, dtype=torch.bfloat16).eval()
    tokens = labels(2 * 8, 1000).view(2, 8)
    caches = [[] for _ in model.layers]
    words = []
    with torch.inference_mode():
        out = model(tokens, caches)
        for i in range(32):
            tokens = out[:, -1:].argmax(-1)
            words.append(tokens)
            out = model(tokens, caches, 8 + i)
    return hash_of(words, out)


@case("PyTorch's own encoder, inference fp16")
def _():
    layer = lambda: nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, norm_first=True)  # noqa: E731
    model = made(lambda: nn.TransformerEncoder(layer(), 3, enable_nested_tensor=False), dtype=torch.float16).eval()
    with torch.inference_mode():
        return hash_of(model(data(4, 64, 256, dtype=torch.float16)))


@case("LSTM training")
def _():
    model = made(lambda: nn.LSTM(64, 128, 2, batch_first=True))
    head = made(lambda: nn.Linear(128, 10))
    both = list(model.parameters()) + list(head.parameters())
    optimizer = torch.optim.Adam(both, lr=1e-3)
    x, y, seen = data(8, 32, 64), labels(8, 10), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(head(model(x)[0][:, -1]), y)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return f"{losses(seen)} {hash_of(both)}"


@case("random numbers")
def _():
    torch.manual_seed(5)
    out = [torch.randn(1000, device=DEVICE), torch.rand(1000, device=DEVICE, dtype=torch.float64),
           torch.randint(0, 1 << 30, (1000,), device=DEVICE), torch.randperm(5000, device=DEVICE),
           F.dropout(torch.ones(5000, device=DEVICE), 0.3),
           torch.multinomial(torch.ones(100, device=DEVICE), 20, True)]
    return hash_of(out)


@case("gradients checked against numbers")
def _():
    x = data(4, 5, dtype=torch.float64).requires_grad_()
    w = data(5, 3, dtype=torch.float64, seed=4).requires_grad_()
    expect(torch.autograd.gradcheck(lambda a, b: torch.tanh(a @ b).sum(1), (x, w)), "wrong gradient")
    return "right"


if __name__ == "__main__":
    repeatable()
    main()
