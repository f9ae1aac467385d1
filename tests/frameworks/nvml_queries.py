# SPDX-License-Identifier: Apache-2.0
"""NVML as programs use it: by ctypes, through PyTorch, through nvidia-smi. What it says must agree with CUDA."""

import ctypes
import shutil
import subprocess

import torch

from cases import Skip, case, expect, main, note
from torch_models import repeatable

MIB = 1 << 20


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


_nvml = None


def nvml():
    global _nvml
    if _nvml is None:
        _nvml = ctypes.CDLL("libnvidia-ml.so.1")
        check(_nvml.nvmlInit_v2(), "nvmlInit")
    return _nvml


def check(status, what):
    expect(status == 0, f"{what}: NVML status {status}")


def device(index=0):
    handle = ctypes.c_void_p()
    check(nvml().nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)), "nvmlDeviceGetHandleByIndex")
    return handle


def text(function, *arguments):
    buffer = ctypes.create_string_buffer(96)
    check(function(*arguments, buffer, 96), function.__name__)
    return buffer.value.decode()


@case("devices")
def _():
    count = ctypes.c_uint()
    check(nvml().nvmlDeviceGetCount_v2(ctypes.byref(count)), "nvmlDeviceGetCount")
    expect(count.value == torch.cuda.device_count(), f"{count.value} devices, CUDA has {torch.cuda.device_count()}")
    return count.value


@case("name, driver version, capability")
def _():
    name = text(nvml().nvmlDeviceGetName, device())
    expect(name == torch.cuda.get_device_name(0), f"{name} is not CUDA's {torch.cuda.get_device_name(0)}")
    note(text(nvml().nvmlSystemGetDriverVersion))
    major, minor = ctypes.c_int(), ctypes.c_int()
    check(nvml().nvmlDeviceGetCudaComputeCapability(device(), ctypes.byref(major), ctypes.byref(minor)), "capability")
    expect((major.value, minor.value) == torch.cuda.get_device_capability(), "another capability than CUDA's")
    return name, major.value, minor.value


@case("UUID is CUDA's")
def _():
    uuid = text(nvml().nvmlDeviceGetUUID, device())
    ours = str(torch.cuda.get_device_properties(0).uuid)
    note(uuid)
    expect(ours in uuid, f"{uuid} is not CUDA's {ours}")
    return "same"


def number(name, *arguments):
    value = ctypes.c_uint()
    check(getattr(nvml(), name)(device(), *arguments, ctypes.byref(value)), name)
    return value.value


@case("PCIe link")
def _():
    generation, width = number("nvmlDeviceGetCurrPcieLinkGeneration"), number("nvmlDeviceGetCurrPcieLinkWidth")
    most = number("nvmlDeviceGetMaxPcieLinkGeneration"), number("nvmlDeviceGetMaxPcieLinkWidth")
    note(f"generation {generation} of {most[0]}, width {width} of {most[1]}")
    expect(1 <= generation <= most[0] and 1 <= width <= most[1], f"{generation} x{width}, at most {most[0]} x{most[1]}")
    return most, number("nvmlDeviceGetGpuMaxPcieLinkGeneration")


@case("clocks, power limits, ECC")
def _():
    # Graphics, multiprocessors, memory, video.
    clocks = [number("nvmlDeviceGetMaxClockInfo", kind) for kind in range(4)]
    expect(all(clocks), f"clocks {clocks}")
    least, most, now, pending = (ctypes.c_uint() for _ in range(4))
    check(nvml().nvmlDeviceGetPowerManagementLimitConstraints(device(), ctypes.byref(least), ctypes.byref(most)), "limits")
    default = number("nvmlDeviceGetPowerManagementDefaultLimit")
    expect(0 < least.value <= default <= most.value, f"{default} mW is not in {least.value} … {most.value}")
    check(nvml().nvmlDeviceGetEccMode(device(), ctypes.byref(now), ctypes.byref(pending)), "nvmlDeviceGetEccMode")
    return clocks, default, least.value, most.value, now.value, number("nvmlDeviceGetMemoryBusWidth")


@case("memory")
def _():
    memory = Memory()
    check(nvml().nvmlDeviceGetMemoryInfo(device(), ctypes.byref(memory)), "nvmlDeviceGetMemoryInfo")
    total = torch.cuda.get_device_properties(0).total_memory
    note(f"NVML {memory.total / MIB:.0f} MiB, CUDA {total / MIB:.0f} MiB, used {memory.used / MIB:.0f} MiB")
    expect(abs(memory.total - total) < total * 0.05, "another total than CUDA's")
    before = memory.used
    kept = torch.zeros(256 * MIB, device="cuda", dtype=torch.uint8)
    torch.cuda.synchronize()
    check(nvml().nvmlDeviceGetMemoryInfo(device(), ctypes.byref(memory)), "nvmlDeviceGetMemoryInfo")
    more = memory.used - before
    del kept
    # The first allocation natively makes the context, too.
    expect(256 * MIB <= more < 1500 * MIB, f"{more / MIB:.0f} MiB more for 256 MiB")
    return "agrees"


@case("its own processes")
def _():
    count = ctypes.c_uint(64)
    torch.zeros(1, device="cuda")

    class Process(ctypes.Structure):
        _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu", ctypes.c_uint),
                    ("compute", ctypes.c_uint)]

    processes = (Process * 64)()
    check(nvml().nvmlDeviceGetComputeRunningProcesses_v3(device(), ctypes.byref(count), processes), "processes")
    note(f"{count.value} processes")
    return "answered"


@case("torch's own NVML queries")
def _():
    counted = torch.cuda._device_count_nvml()
    note(f"_device_count_nvml {counted}")
    return counted == torch.cuda.device_count() or counted == -1


@case("nvidia-smi")
def _():
    if shutil.which("nvidia-smi") is None:
        raise Skip("nvidia-smi is not here")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    expect(listed.returncode == 0, f"status {listed.returncode}: {listed.stdout} {listed.stderr}")
    asked = subprocess.run(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"],
                           capture_output=True, text=True, timeout=20, check=False)
    expect(asked.returncode == 0, f"status {asked.returncode}: {asked.stdout} {asked.stderr}")
    note(asked.stdout)
    return len(listed.stdout.strip().splitlines())


if __name__ == "__main__":
    repeatable()
    main()
