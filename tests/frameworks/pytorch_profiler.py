# SPDX-License-Identifier: Apache-2.0
"""PyTorch under its profiler. What the profiler sees is not compared: it may see no kernels through gpuloom, and must
then say so and leave the program's results alone."""

import torch

from cases import case, hash_of, main, note
from torch_models import ResNet, data, made, repeatable


def work():
    model = made(ResNet).eval()
    with torch.inference_mode():
        return hash_of(model(data(4, 3, 64, 64)))


@case("without the profiler")
def _():
    return work()


@case("torch.profiler")
def _():
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        value = work()
        torch.cuda.synchronize()
    kernels = sum(1 for event in profiler.events() if "CUDA" in str(event.device_type))
    note(f"{len(profiler.events())} events, {kernels} of the device")
    return value


@case("emit_nvtx")
def _():
    with torch.autograd.profiler.emit_nvtx():
        return work()


@case("after the profiler")
def _():
    return work()


if __name__ == "__main__":
    repeatable()
    main()
