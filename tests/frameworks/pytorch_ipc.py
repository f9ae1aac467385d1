# SPDX-License-Identifier: Apache-2.0
"""PyTorch: tensors of one process used by another (cudaIpc, or shared virtual memory)."""

import queue

import torch
import torch.multiprocessing as mp

from cases import case, expect, hash_of, main
from torch_models import data, repeatable


def serve(requests, answers):
    """The other process: doubles in place what it is sent, and sends back a tensor of its own."""
    while (tensor := requests.get()) is not None:
        tensor.mul_(2)
        own = tensor.sum().reshape(1) + 1
        torch.cuda.synchronize()
        answers.put((own, hash_of(tensor)))
        done = requests.get()  # until the receiver has copied ours
        expect(done == "copied", f"got {done}")
        del tensor, own


_peer = None


def peer():
    global _peer
    if _peer is None:
        context = mp.get_context("spawn")
        requests, answers = context.Queue(), context.Queue()
        process = context.Process(target=serve, args=(requests, answers), daemon=True)
        process.start()
        _peer = process, requests, answers
    return _peer


def send(tensor):
    process, requests, answers = peer()
    expect(process.is_alive(), "the other process has ended")
    torch.cuda.synchronize()
    requests.put(tensor)
    try:
        theirs, seen = answers.get(timeout=30)
    except queue.Empty:
        process.kill()
        raise AssertionError("the other process does not answer") from None
    copy = theirs.clone()
    torch.cuda.synchronize()
    del theirs
    requests.put("copied")
    expect(seen == hash_of(tensor), "the other process wrote something else than is here")
    return hash_of(tensor, copy)


@case("a tensor there and back")
def _():
    return send(data(1000))


@case("a part of a larger allocation")
def _():
    whole = data(1 << 20)
    before = hash_of(whole[: 1 << 19])
    value = send(whole[1 << 19:])
    expect(hash_of(whole[: 1 << 19]) == before, "the rest of the allocation changed")
    return value


@case("a second tensor of the same allocation")
def _():
    return send(data(300, 300))


@case("the other process ends")
def _():
    process, requests, _ = peer()
    requests.put(None)
    process.join(10)
    return process.exitcode


if __name__ == "__main__":
    repeatable()
    main()
