# SPDX-License-Identifier: Apache-2.0
"""PyTorch: CUDA graphs, streams and events."""

import threading

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cases import case, expect, hash_of, losses, main, note
from torch_models import Gpt, ResNet, data, labels, made, repeatable


def warmed(body, rounds=3):
    """Runs `body` on another stream, as a capture wants it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(rounds):
            body()
    torch.cuda.current_stream().wait_stream(stream)


@case("graph of elementwise kernels")
def _():
    x = data(1000)
    out = torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    warmed(lambda: out.copy_(torch.sin(x) * 2))
    with torch.cuda.graph(graph):
        out.copy_(torch.sin(x) * 2)
    seen = []
    for i in range(4):
        x.copy_(data(1000, seed=i))
        graph.replay()
        seen.append(out.clone())
    return hash_of(seen)


@case("graph of inference")
def _():
    model = made(ResNet, dtype=torch.float16).eval()
    x = data(4, 3, 64, 64, dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        eager = model(x)
        warmed(lambda: model(x))
        with torch.cuda.graph(graph):
            out = model(x)
    graph.replay()
    torch.cuda.synchronize()
    expect(torch.equal(eager, out), "the graph differs from eager work")
    x.copy_(data(4, 3, 64, 64, seed=9, dtype=torch.float16))
    graph.replay()
    return hash_of(out)


@case("graph of a whole training step")
def _():
    model = made(Gpt)
    words = labels(2 * 65, 1000).view(2, 65)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with sdpa_kernel(SDPBackend.MATH):
            loss = F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    warmed(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    seen = []
    for _ in range(5):
        graph.replay()
        seen.append(loss.item())
    return f"{losses(seen)} {hash_of([p for p in model.parameters()])}"


@case("make_graphed_callables")
def _():
    model = made(lambda: torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)))
    x = data(16, 64)
    y = labels(16, 10)
    graphed = torch.cuda.make_graphed_callables(model, (x.clone(),))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen = []
    for i in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(graphed(data(16, 64, seed=i)), y)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return losses(seen)


@case("two graphs that share a pool")
def _():
    x = data(4096)
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    warmed(lambda: (x * 2 + 1).exp_())
    with torch.cuda.graph(first):
        a = (x * 2 + 1).tanh()
    with torch.cuda.graph(second, pool=first.pool()):
        b = a * 3
    for i in range(3):
        x.copy_(data(4096, seed=i))
        first.replay()
        second.replay()
    return hash_of(a, b)


@case("graph with random numbers")
def _():
    torch.cuda.manual_seed(11)
    x = torch.ones(10000, device="cuda")
    warmed(lambda: F.dropout(x, 0.5))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = F.dropout(x, 0.5)
    # PyTorch sets the graph's offset to 0 on the capture's stream, and for the first replay on this one, in no order
    # (seen natively on a busy device).
    torch.cuda.synchronize()
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(out.clone())
    expect(not torch.equal(seen[0], seen[1]), "two replays drew the same numbers")
    return hash_of(seen)


@case("graph over several streams")
def _():
    x = data(4096)
    side = torch.cuda.Stream()
    warmed(lambda: x.sin() + x.cos())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = x.sin()
        b = x.cos()
        torch.cuda.current_stream().wait_stream(side)
        out = a + b
    for _ in range(10):
        graph.replay()
    return hash_of(out)


@case("many streams")
def _():
    streams = [torch.cuda.Stream(priority=-(i % 2)) for i in range(8)]
    inputs = [data(256, 256, seed=i) for i in range(8)]
    torch.cuda.synchronize()
    out = []
    for x, stream in zip(inputs, streams):
        with torch.cuda.stream(stream):
            for _ in range(4):
                x = torch.tanh(x @ x * 0.01)
            out.append(x)
    for stream in streams:
        stream.synchronize()
    return hash_of(out)


@case("events order streams and measure time")
def _():
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    start, middle, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(a):
        start.record()
        torch.cuda._sleep(20_000_000)
        x.add_(1)
        middle.record()
    with torch.cuda.stream(b):
        middle.wait()
        x.mul_(3)
        end.record()
    expect(not end.query(), "an event is reached before its work")
    end.synchronize()
    ms = start.elapsed_time(end)
    expect(start.elapsed_time(middle) <= ms, "time runs backwards")
    expect(2 < ms < 2000, f"{ms} ms for a sleep of about 12 ms")
    note(f"{ms:.1f} ms")
    return hash_of(x)


@case("memory used on a second stream")
def _():
    side = torch.cuda.Stream()
    seen = []
    for i in range(20):
        x = data(1 << 16, seed=i)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
            x.record_stream(side)
        del x
        torch.cuda.current_stream().wait_stream(side)
        seen.append(y.sum())
    return hash_of(seen)


@case("threads with their own streams")
def _():
    out = [None] * 4

    def work(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            x = data(256, 256, seed=number)
            for _ in range(20):
                x = torch.sin(x @ x * 0.01)
            torch.cuda.current_stream().synchronize()
            out[number] = x

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return hash_of(out)


@case("what may not be captured says so")
def _():
    x = data(16)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            x.sum().item()  # a synchronisation
        raise AssertionError("a synchronisation was captured")
    except RuntimeError as error:
        note(str(error).splitlines()[0])
    torch.cuda.synchronize()
    return hash_of(x * 2)


if __name__ == "__main__":
    repeatable()
    main()
