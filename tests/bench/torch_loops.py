# SPDX-License-Identifier: Apache-2.0
"""Loops in PyTorch: convolution, attention, training, many tiny kernels, one large product, a language model token by
token. Each step ends synchronised."""

import functools
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which repeatable results need

import torch  # noqa: E402
import torch.utils.deterministic  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import loop  # noqa: E402

DEVICE = "cuda"


def repeatable(wanted):
    """The same bits in every run. Not while time is measured: programs do not ask for it."""
    torch.backends.cudnn.deterministic = wanted
    torch.use_deterministic_algorithms(wanted, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False


class Synchronised:
    """A loop whose steps end when the device has done everything."""

    def finish(self, _):
        torch.cuda.synchronize()


def numbers(*shape, seed=1, dtype=torch.float16):
    """Normal numbers, the same on every machine: drawn on the CPU."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def hash_of(*tensors):
    return loop.hash_of(*(tensor.detach().float().cpu().numpy().tobytes() for tensor in tensors))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        blocks, inputs = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                blocks.append(Bottleneck(inputs, width, stride if i == 0 else 1))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, 1000)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


def device_s(program, steps):
    """Of a step, as CUPTI sees it. Everything is on one stream: nothing overlaps."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(steps):
            program.finish(program.issue())
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profiled.key_averages()) / 1e6 / steps


class Inference(Synchronised):
    """A model's answer to one input, eager, in half precision."""

    def __init__(self, model, *shape):
        torch.manual_seed(0)
        self.model = model().eval().to(DEVICE, torch.float16)
        self.input = numbers(*shape)

    def issue(self):
        with torch.inference_mode():
            self.model(self.input)

    def check(self):
        repeatable(True)
        with torch.inference_mode():
            result = hash_of(self.model(self.input))
        repeatable(False)
        return result

    def device_s(self, steps):
        return device_s(self, steps)


def encoder():
    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def projections(self, x):
        batch, length, _ = x.shape
        return (part.view(batch, length, self.heads, -1).transpose(1, 2)
                for part in self.inputs(self.norm(x)).chunk(3, -1))

    def rest(self, x, y):
        x = x + self.output(y.transpose(1, 2).reshape(x.shape))
        return x + self.feed(self.second_norm(x))

    def forward(self, x):
        q, k, v = self.projections(x)
        return self.rest(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))

    def next(self, x, keys, values, position, mask):
        """Of one token each, behind those whose keys and values these are; writes its own there."""
        q, k, v = self.projections(x)
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        return self.rest(x, F.scaled_dot_product_attention(q, keys, values, attn_mask=mask))


class Gpt(nn.Module):
    def __init__(self, words=8192, width=768, heads=12, layers=6, length=256):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.layers(x)))


class Training:
    """A small GPT in bfloat16 with AdamW, 8 sequences of 256 words a step; the loss is read after each."""

    def __init__(self):
        generator = torch.Generator().manual_seed(2)
        tokens = torch.randint(0, 8192, (8, 257), generator=generator).to(DEVICE)
        self.inputs, self.targets = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
        self.start()

    def start(self):
        torch.manual_seed(0)
        self.model = Gpt().to(DEVICE, torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def issue(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.model(self.inputs).flatten(0, 1), self.targets)
        loss.backward()
        self.optimizer.step()
        return loss

    def finish(self, loss):
        return loss.item()

    def check(self):
        """The losses of five steps from the beginning, and the weights behind them."""
        repeatable(True)
        self.start()
        losses = [self.finish(self.issue()) for _ in range(5)]
        repeatable(False)
        return f"{losses[-1]:.6f} {loop.hash_of(*losses)} {hash_of(*self.model.parameters())}"


class TinyKernels(Synchronised):
    """1000 element-wise kernels on 1024 numbers."""

    def __init__(self):
        self.x = numbers(1024, dtype=torch.float32)

    def issue(self):
        for _ in range(1000):
            self.x.mul_(1.0001)

    def check(self):
        self.x = numbers(1024, dtype=torch.float32)
        self.issue()
        result = hash_of(self.x)
        self.x.zero_()  # so that many steps overflow nothing
        return result


class Gemm(Synchronised):
    """Ten products of 4096 x 4096 matrices in half precision."""

    def __init__(self):
        self.a, self.b = numbers(4096, 4096), numbers(4096, 4096, seed=2)
        self.c = torch.empty_like(self.a)

    def issue(self):
        for _ in range(10):
            torch.matmul(self.a, self.b, out=self.c)

    def check(self):
        self.c.zero_()
        self.issue()
        return hash_of(self.c)


class PinnedCopies(Synchronised):
    """Four asynchronous copies of 64 MiB of pinned memory to the device."""

    def __init__(self):
        self.host = numbers(32 << 20).cpu().pin_memory()
        self.copy = torch.empty_like(self.host, device=DEVICE)

    def issue(self):
        for _ in range(4):
            self.copy.copy_(self.host, non_blocking=True)

    def check(self):
        self.copy.zero_()
        self.issue()
        torch.cuda.synchronize()
        return loop.hash_of(self.copy.cpu().numpy().tobytes())


class Decoder(nn.Module):
    """A decoder of which every call takes one token of each request, behind the cache of those before it."""

    def __init__(self, words=32000, width=1024, heads=16, layers=12):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens, cache, position, mask):
        x = self.words(tokens)
        for layer, (keys, values) in zip(self.layers, cache):
            x = layer.next(x, keys, values, position, mask)
        return self.head(self.norm(x)).argmax(-1)


class LanguageModel:
    """A server's loop in half precision: a step is the next token of each request in flight, by a CUDA graph for each
    PIECE of the cache, read by the server, and HOST_S for what else a server does (choosing, text, answers). After LENGTH
    tokens, all requests are done, and the next ones begin."""

    PIECE, LENGTH, CHECKED = 64, 256, 80
    HOST_S = 0.0015

    def __init__(self, requests):
        torch.manual_seed(0)
        self.model = Decoder().eval().to(DEVICE, torch.float16)
        layer = self.model.layers[0]
        shape = (requests, layer.heads, self.LENGTH, layer.inputs.in_features // layer.heads)
        self.cache = [tuple(torch.zeros(shape, dtype=torch.float16, device=DEVICE) for _ in range(2))
                      for _ in self.model.layers]
        self.first = torch.arange(requests, device=DEVICE).unsqueeze(1)
        self.tokens = self.first.clone()
        self.position = torch.zeros(1, dtype=torch.long, device=DEVICE)
        self.places = torch.arange(self.LENGTH, device=DEVICE)
        self.graphs = [self.captured(length) for length in range(self.PIECE, self.LENGTH + 1, self.PIECE)]
        self.begin()

    def next(self, length):
        """The next tokens of all, from so much of the cache."""
        cache = [(keys[:, :, :length], values[:, :, :length]) for keys, values in self.cache]
        self.tokens.copy_(self.model(self.tokens, cache, self.position, (self.places[:length] <= self.position)[None]))
        self.position += 1

    def captured(self, length):
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.inference_mode():
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # libraries prepare themselves outside of the capture
                self.next(length)
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                self.next(length)
        return graph

    def begin(self):
        self.done = 0
        self.position.zero_()
        self.tokens.copy_(self.first)

    def issue(self):
        if self.done == self.LENGTH:
            self.begin()
        self.graphs[self.done // self.PIECE].replay()
        self.done += 1

    def finish(self, _):
        chosen = self.tokens.tolist()
        time.sleep(self.HOST_S)
        return chosen

    def check(self):
        """The first tokens of all requests."""
        self.begin()
        return loop.hash_of(*(self.finish(self.issue()) for _ in range(self.CHECKED)))

    def device_s(self, steps):
        return device_s(self, steps)


LOOPS = {
    "resnet50_b1": lambda: Inference(ResNet50, 1, 3, 224, 224),
    "resnet50_b32": lambda: Inference(ResNet50, 32, 3, 224, 224),
    "transformer_b1": lambda: Inference(encoder, 1, 128, 768),
    "transformer_training": Training,
    "tiny_kernels_1000": TinyKernels,
    "gemm_4096": Gemm,
    "pinned_copies": PinnedCopies,
    **{f"language_model_{n}": functools.partial(LanguageModel, n) for n in (2, 8, 32)},
}

if __name__ == "__main__":
    sys.exit(loop.main(LOOPS))
