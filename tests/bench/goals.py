# SPDX-License-Identifier: Apache-2.0
"""What each line of the benchmark is to reach, in words and as a judgement. Pure."""

import dataclasses
import re
import typing


@dataclasses.dataclass
class Goal:
    words: str
    # judge(native, gpuloom, mps) → met. native or mps is None where it was not measured.
    judge: typing.Callable


def times_native(least, mps_least=None):
    """A rate: at least so many times native's (several native processes are time-sliced), and MPS's where there is one."""
    words = f"≥ {least:g}x native"
    if mps_least:
        words += f", ≥ {mps_least:g}x MPS"

    def judge(native, ours, mps):
        if native is None or ours < least * native:
            return False
        return not mps_least or mps is None or ours >= mps_least * mps

    return Goal(words, judge)


def times_mps(least):
    return Goal(f"≥ {least:g}x MPS", lambda _native, ours, mps: mps is not None and ours >= least * mps)


def of_native_time(most):
    return Goal(f"≤ {most:g}x native time", lambda native, ours, _: native is not None and ours <= most * native)


def at_most(limit, unit):
    return Goal(f"≤ {limit:g} {unit}", lambda _native, ours, _mps: ours <= limit)


def at_least(limit, unit):
    return Goal(f"≥ {limit:g} {unit}", lambda _native, ours, _mps: ours >= limit)


def between(least, most, unit):
    return Goal(f"{least:g} … {most:g} {unit}", lambda _native, ours, _mps: least <= ours <= most)


# The first pattern that matches a line's whole name counts. A line without one is reported only.
GOALS = [
    (r"launch_call", Goal("≤ 150 ns and ≤ 5 % of native", lambda native, ours, _: (
        native is not None and ours <= 150 and ours <= 0.05 * native))),
    (r"launch_sync", of_native_time(0.9)),
    (r"launch_sustained", times_native(4)),
    (r"launch_sustained_changing", times_native(1.2)),
    (r"launch_event_older_\d+", of_native_time(1)),
    (r"launch_event_older_\d+_\d+us", of_native_time(1.01)),  # the device is the limit
    (r"wait_\d+(us|ms)", Goal("≤ native + 5 us", lambda native, ours, _: native is not None and ours <= native + 5)),
    (r"launch_fresh_50", of_native_time(1)),
    (r"launch_rate_8", times_native(3, 1.5)),
    (r"launch_rate_changing_8", times_mps(1)),
    (r"copy_(h2d|d2h)_pinned_.*", times_native(0.98)),
    (r"copy_(h2d|d2h)_pageable_(4|64)KiB", times_native(1)),
    (r"copy_(h2d|d2h)_pageable_\d+(MiB|GiB)", times_native(1.2)),
    (r"copy_(h2d|d2h)_registered(_shared)?_call", at_most(50, "us")),
    (r"copy_(h2d|d2h)_registered_shared_.*", times_native(0.4)),
    (r"copy_(h2d|d2h)_registered_.*", times_native(0.95)),
    (r"managed_(kernels|variable)_.*", times_native(0.95)),
    (r"managed_(first_pass|read_back)_.*", times_native(1)),
    (r"library_load_first", of_native_time(1.5)),
    (r"mem_alloc_free_.*", of_native_time(1)),
    (r"start_up", of_native_time(0.5)),
    (r"domain_start", of_native_time(1.1)),
    (r"domain_start_spare", of_native_time(0.3)),
    (r"domain_start_x6(_spare)?", of_native_time(1)),
    (r"memory_next_tenant", at_most(20, "MiB")),
    (r"idle_cpu_node", Goal("< 1 % of a core", lambda _native, ours, _mps: ours < 1)),
    (r"waiting_cpu_node", at_most(20, "% of a core")),
    (r"tiny_kernels_1000", times_native(1.5)),
    (r"resnet50_b1", times_native(1.25)),
    (r"transformer_training", times_native(1.05)),
    (r"gemm_4096", times_native(0.99)),
    (r"resnet50_b1_x4", times_native(1.5, 1.2)),
    (r"resnet50_b1_x8", times_mps(1.5)),
    (r"(gemm_4096|resnet50_b32)_cpu", of_native_time(1.2)),  # the device is the limit
    (r"[a-z0-9_]+_cpu", of_native_time(1.5)),
    (r"sharing_short_beside_long(_domains)?", between(47, 53, "%")),
    (r"sharing_error_.*", at_most(3, "%")),
    (r"sharing_alone_.*", at_least(0.99, "× sharing off")),
    (r"sharing_busy_x(2|4)_on_off", at_least(0.98, "× sharing off")),
    (r"sharing_busy_x40_on_off", at_least(0.99, "× sharing off")),
    (r"sharing_spread_x40", at_most(1.1, "× the unluckiest")),
    (r"sharing_longest_wait", at_most(5100, "us")),
    (r"sharing_inference_p99_beside_training", at_most(1.1, "× alone")),
    (r"sharing_inference_p99_beside_gemm", at_most(1.15, "× alone")),
    (r"sharing_training_beside_inference", at_least(0.8, "× what is left")),
    (r"sharing_language_\d+(_domains)?", at_least(0.9, "× alone natively")),
    (r"sharing_(copies_beside_gemm|gemm_beside_copies)(_domains)?", at_least(0.9, "× alone natively")),
    (r"sharing_change", at_most(1, "s")),
    (r"sharing_ceiling_25", between(23, 25, "%")),
    (r"sharing_sm_25(_beside_70)?", between(23, 27, "%")),
]


def goal_of(name):
    for pattern, goal in GOALS:
        if re.fullmatch(pattern, name):
            return goal
    return None
