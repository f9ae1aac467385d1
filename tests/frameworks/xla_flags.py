# SPDX-License-Identifier: Apache-2.0
"""The flags that JAX's programs run with: which operations XLA puts into command buffers, which are CUDA graphs.

GPULOOM_TEST_COMMAND_BUFFERS:
    (empty)    as XLA does it by itself
    none       nothing is put into a command buffer
    every      every kind of operation, from a single one on
    unrolled   the same, and loops of a known count are unrolled into the graph
    KIND,…     these kinds, from a single one on
"""

import os
import subprocess
import sys

ALWAYS = ("--xla_gpu_deterministic_ops=true", "--xla_gpu_autotune_level=0")
KINDS = ("FUSION", "CUBLAS", "CUBLASLT", "CUDNN", "CUSTOM_CALL", "COLLECTIVES", "CONDITIONAL", "WHILE", "DYNAMIC_SLICE_FUSION")
# Of some versions only.
MORE_KINDS = ("CONVOLUTION", "DYNAMIC_SLICE_COPY_FUSION", "HOST_EXECUTE")
UNROLL = "--xla_gpu_command_buffer_unroll_loops=true"


def _of_kinds(kinds):
    return "--xla_gpu_enable_command_buffer=" + ",".join(kinds)


def _accepted(flags):
    """Those of `flags` that this version of XLA knows: a process ends when it is given another."""
    tries = [(flag, subprocess.Popen([sys.executable, "-c", "import jax; jax.jit(lambda x: x + 1)(1.0)"],
                                     env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flag},
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)) for flag in flags]
    return [flag for flag, process in tries if process.wait() == 0]


def xla_flags(command_buffers, accepted=_accepted):
    if not command_buffers:
        return " ".join(ALWAYS)
    if command_buffers == "none":
        return " ".join((*ALWAYS, _of_kinds(())))
    flags = [*ALWAYS, "--xla_gpu_graph_min_graph_size=1"]
    if command_buffers not in ("every", "unrolled"):
        return " ".join((*flags, "--xla_gpu_enable_command_buffer=" + command_buffers))
    kinds = [*KINDS]
    more = {_of_kinds((kind,)): kind for kind in MORE_KINDS}
    asked = [*more, *([UNROLL] if command_buffers == "unrolled" else [])]
    for flag in accepted(asked):
        if flag == UNROLL:
            flags.append(flag)
        else:
            kinds.append(more[flag])
    return " ".join((*flags, _of_kinds(kinds)))
