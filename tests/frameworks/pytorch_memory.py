# SPDX-License-Identifier: Apache-2.0
"""PyTorch's caching allocator in all its forms, against a limit: its own natively, the tenant's quota through gpuloom.

PYTORCH_ALLOC_CONF (PYTORCH_CUDA_ALLOC_CONF) chooses the form. GPULOOM_TEST_MEMORY_GIB says what the limit is.
"""

import gc
import os

import torch

from cases import case, expect, hash_of, main, note
from torch_models import Gpt, data, labels, made, repeatable

GIB = 1 << 30
MIB = 1 << 20
LIMIT_GIB = int(os.environ.get("GPULOOM_TEST_MEMORY_GIB", "4"))


def limit_memory():
    total = torch.cuda.get_device_properties(0).total_memory
    if total > LIMIT_GIB * GIB * 1.1:
        torch.cuda.set_per_process_memory_fraction(LIMIT_GIB * GIB / total)


def block(size_bytes, fill=1):
    return torch.full((size_bytes // 4,), fill, device="cuda", dtype=torch.int32)


def clean():
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()


@case("the allocator's form")
def _():
    note(os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "default"))
    return torch.cuda.get_allocator_backend()


@case("many sizes")
def _():
    kept, seen = [], []
    for i in range(300):
        kept.append(block(4 * (1 + (i * 7919) % 500_000), i))
        if i % 3 == 0:
            seen.append(kept.pop((i * 31) % len(kept)).sum())
    return hash_of(seen, [x.sum() for x in kept])


@case("what is allocated, reserved and at the peak")
def _():
    clean()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    x = [block(10 * MIB) for _ in range(10)]
    now, peak = torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before
    del x
    expect(torch.cuda.memory_reserved() >= torch.cuda.memory_allocated(), "less reserved than allocated")
    return now, peak, torch.cuda.memory_allocated() - before


@case("mem_get_info follows allocations")
def _():
    clean()
    free, total = torch.cuda.mem_get_info()
    expect(0 < free <= total, "more free than there is")
    x = block(1 * GIB)
    torch.cuda.synchronize()
    less = free - torch.cuda.mem_get_info()[0]
    del x
    clean()
    back = torch.cuda.mem_get_info()[0]
    note(f"total {total / GIB:.2f} GiB, free {free / GIB:.2f}, {less / MIB:.0f} MiB less for 1 GiB")
    expect(GIB <= less <= GIB + 64 * MIB, f"{less} bytes less free for 1 GiB")
    expect(abs(free - back) <= 64 * MIB, f"{free - back} bytes are not back")
    return "follows"


@case("out of memory, and on")
def _():
    clean()
    kept, refused = [], None
    try:
        for i in range(LIMIT_GIB * 4):
            kept.append(block(256 * MIB, i))
        kept.append(block(256 * MIB, 0))
    except torch.OutOfMemoryError as error:
        refused = str(error).splitlines()[0]
    count = len(kept)
    expect(refused is not None, f"{count} blocks of 256 MiB came out of {LIMIT_GIB} GiB")
    expect(count >= LIMIT_GIB * 4 - 4, f"only {count} blocks of 256 MiB in {LIMIT_GIB} GiB")
    note(f"{count} blocks; {refused}")
    right = all(int(x[-1]) == i for i, x in enumerate(kept))
    expect(right, "a block lost its contents")
    del kept[: count // 2]
    x = block(512 * MIB, 77)
    value = int(x[0]) + int(x[-1])
    del x, kept
    clean()
    return value


@case("cached blocks are given back to make a larger one")
def _():
    clean()
    small = [block(200 * MIB, i) for i in range(LIMIT_GIB * 4)]
    del small  # all of it stays in the cache, in pieces
    retries = torch.cuda.memory_stats().get("num_alloc_retries", 0)
    large = block((LIMIT_GIB - 1) * GIB, 5)
    note(f"{torch.cuda.memory_stats().get('num_alloc_retries', 0) - retries} retries")
    value = int(large[-1])
    del large
    clean()
    return value


@case("out of memory inside of training, then a smaller batch")
def _():
    clean()
    model = made(Gpt)
    filler = block((LIMIT_GIB - 1) * GIB)
    result = None
    for batch in (256, 128, 64, 32, 16, 8, 4, 2):
        words = labels(batch * 256, 1000).view(batch, 256)
        try:
            loss = model(words).float().square().mean()
            loss.backward()
            torch.cuda.synchronize()
            result = batch
            break
        except torch.OutOfMemoryError:
            pass  # what the exception holds is freed behind this block
        loss = None
        model.zero_grad(set_to_none=True)
        clean()
    note(f"a batch of {result} fitted")
    expect(result is not None, "nothing fitted")
    expect(result < 256, "the largest batch fitted: the limit does not bind")
    del filler, model, loss
    clean()
    return "went on"


@case("a request beyond everything")
def _():
    try:
        torch.empty(1 << 45, device="cuda", dtype=torch.uint8)
    except torch.OutOfMemoryError as error:
        note(str(error).splitlines()[0])
        return hash_of(data(100) * 2)
    raise AssertionError("32 TiB were allocated")


@case("memory freed on one stream and used on another")
def _():
    side = torch.cuda.Stream()
    seen = []
    for i in range(30):
        with torch.cuda.stream(side if i % 2 else torch.cuda.default_stream()):
            x = block(8 * MIB, i)
            seen.append(x.sum())
            del x
    torch.cuda.synchronize()
    return hash_of(seen)


@case("graph's private pool")
def _():
    graph = torch.cuda.CUDAGraph()
    x = data(1 << 18)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = (x * 2).cumsum(0)
        z = y.sin() + y.cos()
    for _ in range(3):
        graph.replay()
    value = hash_of(z)
    del graph, y, z
    clean()
    return value


@case("memory's history and snapshot")
def _():
    torch.cuda.memory._record_memory_history()
    x = block(4 * MIB)
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    del x
    return len(snapshot["segments"]) > 0


@case("pinned memory")
def _():
    host = torch.arange(1 << 22, dtype=torch.int32).pin_memory()
    expect(host.is_pinned(), "not pinned")
    on_device = host.to("cuda", non_blocking=True)
    back = torch.empty_like(host, pin_memory=True)
    back.copy_(on_device * 2, non_blocking=True)
    torch.cuda.synchronize()
    return hash_of(back)


@case("pageable memory that is overwritten at once")
def _():
    seen = []
    for i in range(20):
        host = torch.full((1 << 18,), i, dtype=torch.int32)
        on_device = host.to("cuda", non_blocking=True)
        host.fill_(-1)
        seen.append(on_device.sum())
    return hash_of(seen)


if __name__ == "__main__":
    repeatable()
    limit_memory()
    main()
