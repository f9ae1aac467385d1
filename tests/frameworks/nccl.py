# SPDX-License-Identifier: Apache-2.0
"""NCCL through torch.distributed: one rank, and two ranks on one GPU, which NCCL itself may refuse."""

import datetime
import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from cases import case, expect, hash_of, main, note
from torch_models import data, repeatable

WAIT = datetime.timedelta(seconds=30)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def join(rank, count, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # no multicast
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=count, timeout=WAIT)


@case("one rank")
def _():
    join(0, 1, free_port())
    try:
        x = data(1000)
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        gathered = [torch.empty_like(x)]
        dist.all_gather(gathered, x)
        out = torch.empty(1000, device="cuda")
        dist.reduce_scatter_tensor(out, x)
        dist.barrier()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10).cuda())
        model(data(4, 10)).sum().backward()
        torch.cuda.synchronize()
        return hash_of(x, gathered, out)
    finally:
        dist.destroy_process_group()


def rank_of_two(rank, port, answers):
    try:
        join(rank, 2, port)
        x = data(1000, seed=rank)
        dist.all_reduce(x)
        torch.cuda.synchronize()
        answers.put(("worked", hash_of(x)))
    except Exception as error:  # the other process wants to know which
        lines = [line for line in str(error).splitlines() if line.strip()]
        said = next((line for line in lines if "uplicate" in line), lines[-1] if lines else "")
        answers.put(("refused", f"{type(error).__name__}: {said}"))
    sys.stdout.flush()
    os._exit(0)  # a group that half exists is not worth an orderly end


@case("two ranks on one GPU")
def _():
    context = mp.get_context("spawn")
    answers = context.SimpleQueue()
    port = free_port()
    ranks = [context.Process(target=rank_of_two, args=(rank, port, answers), daemon=True) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    expect(not any(rank.is_alive() for rank in ranks), "a rank hangs")
    said = []
    while not answers.empty():
        said.append(answers.get())
    expect(len(said) == 2, f"only these ranks answered: {said}")
    note(said[0][1])
    expect(said[0][0] == said[1][0], f"the ranks differ: {said}")
    return said[0][0] if said[0][0] == "refused" else said[0][1]


if __name__ == "__main__":
    repeatable()
    main()
