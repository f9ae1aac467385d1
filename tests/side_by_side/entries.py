# SPDX-License-Identifier: Apache-2.0
"""What run.py runs: programs, the environment each needs, how long each may take, and what of its output is compared."""

import dataclasses
import pathlib
import re
import sys


@dataclasses.dataclass
class Entry:
    name: str
    command: list
    # "cases": lines of frameworks/cases.py, compared case by case. "output": all of standard output and the exit status.
    # "answers": lines "what<TAB>code" of gpuloom-wrong-calls, shown as one row and those that differ.
    kind: str = "output"
    limit_s: float = 60
    environment: dict = dataclasses.field(default_factory=dict)
    run_arguments: list = dataclasses.field(default_factory=list)  # of gpuloom run, beside those given to run.py
    without: str = ""     # pattern of what in the output may differ: measured times, sizes that are a tenant's own
    accepted: str = ""    # file of accepted differences, for "answers"
    alone: bool = False   # takes all of the GPU's memory natively, or measures it: nothing may run beside it

    def comparable(self, output):
        return re.sub(self.without, "*", output) if self.without else output


# Programs whose lines hold what differs by design.
WITHOUT = {"events": r"elapsed_ms=[0-9.]+", "oom": r"(total|taken)_mib=[0-9]+"}
ALONE = ("oom", "jax_programs/preallocating", "pytorch_memory", "pytorch_memory/expandable", "pytorch_memory/async",
         "nvml_queries")
ARGUMENTS = {"spin": ["0.3"], "exit_inflight": ["0.5"]}

MEMORY_GIB = "4"
MEMORY = {"GPULOOM_TEST_MEMORY_GIB": MEMORY_GIB}
FRAMEWORKS = [
    # file, name behind it, environment, arguments of gpuloom run, limit
    ("driver_ctypes", "", {}, [], 60),
    ("pytorch_training", "", {}, [], 120),
    ("pytorch_math", "", {}, [], 120),
    ("pytorch_graphs", "", {}, [], 120),
    # These measure the GPU's free memory, so they run alone.
    ("pytorch_memory", "", MEMORY, ["--memory", MEMORY_GIB + "GiB"], 120),
    ("pytorch_memory", "expandable", {**MEMORY, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
     ["--memory", MEMORY_GIB + "GiB"], 120),
    ("pytorch_memory", "async", {**MEMORY, "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
     ["--memory", MEMORY_GIB + "GiB"], 120),
    ("pytorch_compile", "", {}, [], 180),
    ("triton_programs", "", {}, [], 120),
    ("pytorch_data", "", {}, [], 120),
    ("pytorch_ipc", "", {}, [], 120),
    ("pytorch_ipc", "expandable", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, [], 120),
    ("nccl", "", {}, [], 120),
    ("nvml_queries", "", {}, [], 90),
    ("jax_programs", "", {}, [], 240),
    ("jax_programs", "preallocating", {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, [], 240),
    ("jax_programs", "no_command_buffers", {"GPULOOM_TEST_COMMAND_BUFFERS": "none"}, [], 240),
    ("jax_programs", "command_buffers", {"GPULOOM_TEST_COMMAND_BUFFERS": "every"}, [], 240),
    ("jax_programs", "command_buffers_unrolled", {"GPULOOM_TEST_COMMAND_BUFFERS": "unrolled"}, [], 240),
    ("jax_programs", "loops_in_command_buffers", {"GPULOOM_TEST_COMMAND_BUFFERS": "WHILE,CONDITIONAL,FUSION"}, [], 240),
    ("cupy_programs", "", {}, [], 180),
    ("onnx_cuda", "", {}, [], 90),
    ("transformers_models", "", {}, [], 120),
    ("pytorch_profiler", "", {}, [], 90),
]


def framework_entries(folder):
    for file, variant, environment, run_arguments, limit_s in FRAMEWORKS:
        name = f"{file}/{variant}" if variant else file
        yield Entry(name=f"frameworks/{name}", alone=name in ALONE,
                    command=[sys.executable, str(pathlib.Path(folder) / f"{file}.py")], kind="cases", limit_s=limit_s,
                    environment=environment, run_arguments=run_arguments)


def program_entries(folder):
    """CUDA C++ programs as they lie in `folder`: NAME_static and NAME_shared."""
    for path in sorted(pathlib.Path(folder).glob("*_*")):
        name, _, runtime = path.name.rpartition("_")
        if runtime in ("static", "shared") and path.is_file():
            yield Entry(name=f"programs/{path.name}", command=[str(path), *ARGUMENTS.get(name, [])],
                        without=WITHOUT.get(name, ""), alone=name in ALONE)


def wrong_call_entries(program, accepted):
    if pathlib.Path(program).is_file():
        yield Entry(name="wrong_calls", command=[str(program)], kind="answers", limit_s=300, accepted=str(accepted))
