# SPDX-License-Identifier: Apache-2.0
"""PyTorch: data loading by worker processes into pinned memory, with fork and with spawn."""

import torch
from torch.utils.data import DataLoader, Dataset

from cases import case, expect, hash_of, losses, main
from torch_models import DEVICE, made, repeatable


class Numbers(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 16, 16, generator=generator), index % 10


def epoch(start_method, cuda_first):
    if cuda_first:
        torch.zeros(1, device=DEVICE)
    model = made(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 10)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(Numbers(), 32, num_workers=2, pin_memory=True, multiprocessing_context=start_method,
                        persistent_workers=True)
    seen = []
    for x, y in loader:
        expect(x.is_pinned(), "the batch is not pinned")
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x.to(DEVICE, non_blocking=True)),
                                                 y.to(DEVICE, non_blocking=True))
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    del loader
    return f"{losses(seen)} {hash_of([p for p in model.parameters()])}"


@case("fork workers, after CUDA was used")
def _():
    return epoch("fork", True)


@case("spawn workers")
def _():
    return epoch("spawn", True)


@case("a forked child that touches CUDA is told")
def _():
    context = torch.multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def child():
        try:
            torch.zeros(1, device=DEVICE)
            queue.put("it worked")
        except RuntimeError as error:
            queue.put(str(error).splitlines()[0])

    process = context.Process(target=child)
    process.start()
    process.join(20)
    expect(process.exitcode == 0, f"the child ended with {process.exitcode}")
    said = queue.get()
    expect("forked" in said, said)
    return hash_of(torch.ones(10, device=DEVICE))


if __name__ == "__main__":
    repeatable()
    main()
