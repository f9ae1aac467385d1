# SPDX-License-Identifier: Apache-2.0
"""PyTorch made repeatable, and small models with the shapes of the real ones. Weights and data come from fixed seeds."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

DEVICE = os.environ.get("GPULOOM_TEST_DEVICE", "cuda")


def repeatable():
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(0)


def data(*shape, seed=1, dtype=torch.float32):
    """Normal numbers, the same on every machine: drawn on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).to(DEVICE)


def labels(count, classes, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, classes, (count,), generator=generator).to(DEVICE)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = (nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
                         if stride != 1 or inputs != outputs else nn.Identity())

    def forward(self, x):
        y = F.relu(self.norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """The blocks of ResNet-18, at half their width, for images of 64 x 64."""

    def __init__(self, classes=10, width=32):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        self.blocks = nn.Sequential(*[Block(sizes[i], sizes[i + 1], 1 if i == 0 else 2) for i in range(4)])
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x, cache=None):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.inputs(x).chunk(3, -1))
        if cache is not None:
            if cache:
                k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
            cache[:] = [k, v]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.output(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.second_norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width),
                                  nn.Dropout(dropout))

    def forward(self, x, cache=None):
        x = x + self.attention(self.norm(x), cache)
        return x + self.feed(self.second_norm(x))


class Gpt(nn.Module):
    def __init__(self, words=1000, width=256, heads=4, layers=4, length=256, dropout=0.0):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(length, width)
        self.layers = nn.ModuleList([Layer(width, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens, caches=None, at=0):
        x = self.words(tokens) + self.positions(torch.arange(at, at + tokens.shape[1], device=tokens.device))
        for i, layer in enumerate(self.layers):
            x = layer(x, caches[i] if caches is not None else None)
        return self.head(self.norm(x))


def made(model, seed=0, dtype=torch.float32):
    """The model with weights from `seed`, on the device."""
    torch.manual_seed(seed)
    return model().to(DEVICE, dtype)
