# SPDX-License-Identifier: Apache-2.0
"""Lines about several processes of gpuloom-bench at once: launches together, GPU memory and processor time when idle."""

import time

import node
import sharing
import sharing_lines
from processes import Failed, Holders, end_all


# Of one process, in one context.
THREADS = 8
WAITING_DOMAINS = 8
LONG_KERNEL_US = 20_000
SEEDS = 1000  # of a round


def measure_rate(run, name, side, count, seconds, number, *arguments):
    """Launches by several processes at the same time, all together. In a trust domain they share what has been learnt, so each of
    every round has a seed of its own."""
    before = sharing_lines.scheduler_log(run)
    with run.part(name, side):
        group = []
        try:
            for seed in range(number * SEEDS, number * SEEDS + count):
                group.append(run.sides.start(side, "--rate", str(seconds), "--seed", str(seed), *arguments, *run.tiny()))
            for bench in group:
                bench.wait_ready()
            for bench in group:
                bench.go()
            total = 0
            for bench in group:
                for line in bench.lines(timeout_s=seconds + 60):
                    if "error" in line:
                        raise Failed(line["error"])
                    total += line["median"]
            run.results.add(name, side, "1000 launches/s", total / 1e3)
        finally:
            for bench in group:
                bench.end(timeout_s=5)
    if side == "gpuloom":
        for launched in sharing.launches(sharing_lines.scheduler_log(run).removeprefix(before)):
            run.say(f"{name}: {launched}")


def measure_rates(run):
    seconds = run.options.rate_s
    sides = ("native", "mps", "gpuloom") if run.mps_environment else ("native", "gpuloom")
    counts = (1, 2) if not run.full else (1, 8) if run.options.quick else (1, 2, 4, 8)
    for number in range(1 if run.options.quick else min(run.options.rounds, 3)):
        for kind, arguments in (("launch_rate", []), ("launch_rate_changing", ["--changing"])):
            for count in counts:
                name = f"{kind}_{count}"
                taken = sides if count > 1 else ("native", "gpuloom")
                if not run.wants("rates", name) or run.no_time_for(name, len(taken) * (seconds + 3)):
                    continue
                for side in run.in_turn(number, taken):
                    measure_rate(run, name, side, count, seconds, number, *arguments)
        name = f"launch_rate_changing_threads_{THREADS if run.full else 2}"
        if run.wants("rates", name) and not run.no_time_for(name, 2 * (seconds + 3)):
            for side in run.in_turn(number, ("native", "gpuloom")):
                measure_rate(run, name, side, 1, seconds, number, "--changing", "--threads", name.rsplit("_", 1)[-1])


def measure_driver(run):
    """What the driver takes into one context natively."""
    if not run.selection.may_want("driver") or run.no_time_for("driver_…", 14 * run.options.rate_s + 10):
        return
    with run.part("driver_launches_1", "native"):
        bench = run.sides.start("native", "--driver-rates", str(run.options.rate_s), *run.selection.bench_arguments("driver"), *run.tiny())
        try:
            for line in bench.lines(timeout_s=14 * run.options.rate_s + 60):
                if "error" in line:
                    run.results.add_error(line["name"], "native", line["error"])
                else:
                    run.results.add(line["name"], "native", "1000 launches/s", line["median"] / 1e3)
        finally:
            bench.end(timeout_s=5)


def measure_memory(run, side):
    """GPU memory of idle processes that have a context, a stream, a module and one launch behind them."""
    with run.part("memory_next_tenant", side):
        used_mib = {0: run.memory_used_mib()}
        for count in (1, 2, 5):
            with Holders(run.sides, side, count, 120):
                time.sleep(0.5)
                used_mib[count] = run.memory_used_mib()
            if side == "gpuloom":
                run.wait_for_node_to_end()
        run.results.add("memory_first_tenant", side, "MiB", used_mib[1] - used_mib[0])
        run.results.add("memory_next_tenant", side, "MiB", used_mib[2] - used_mib[1])
        run.results.add("memory_next_tenant", side, "MiB", (used_mib[5] - used_mib[1]) / 4)


def measure_idle(run, side, count, seconds):
    """Processor time of everything while `count` connected tenants do nothing."""
    with run.part("idle_cpu_node", side):
        with Holders(run.sides, side, count, seconds + 60) as pids:
            time.sleep(2 if run.full else 0.2)
            tenants = set().union(*(node.descendants(pid) for pid in pids))
            ours = node.node_processes(run.state_dir)
            tenants -= ours
            if side == "gpuloom" and not ours:
                raise Failed("no scheduler and no executor is running beside connected tenants")
            before = node.processor_seconds(ours), node.processor_seconds(tenants)
            start_s = time.monotonic()
            time.sleep(seconds)
            passed_s = time.monotonic() - start_s
            node_share = (node.processor_seconds(ours) - before[0]) / passed_s
            tenant_share = (node.processor_seconds(tenants) - before[1]) / passed_s
            if side == "gpuloom":
                run.results.add("idle_cpu_node", side, "% of a core", 100 * node_share)
            run.results.add("idle_cpu_tenants", side, "% of a core", 100 * tenant_share)


def measure_waiting(run, count, seconds):
    """Processor time of scheduler and executors while tenants of so many trust domains wait for long kernels, one kernel
    each at a time."""
    with run.part("waiting_cpu_node", "gpuloom"):
        kernel = sharing_lines.calibrate(run, LONG_KERNEL_US if run.full else 1000)
        tenant = sharing.Tenant(kernel_us=kernel["kernel_us"], queued=1)
        group = []
        try:
            for number in range(count):
                group.append(run.sides.start("gpuloom", *tenant.work(kernel["iterations"]), *run.tiny(),
                                             terms=["--domain", f"waits-{number}"]))
            for bench in group:
                bench.wait_ready()
            start_s = time.monotonic() + sharing_lines.WARM_S + 0.05
            for bench in group:
                # Longer than is measured: an executor that has ended has no processor time.
                bench.go(f"run {round(start_s * 1e9)} {round((seconds + 1) / sharing.WINDOW_S)}")
            time.sleep(max(0.0, start_s - time.monotonic()))
            ours = node.node_processes(run.state_dir)
            before_s, began_s = node.processor_seconds(ours), time.monotonic()
            time.sleep(seconds)
            used_s, passed_s = node.processor_seconds(ours) - before_s, time.monotonic() - began_s
            kernels = sum(sum(list(bench.lines(timeout_s=60))[-1]["windows"]) for bench in group)
            run.say(f"waiting_cpu_node: {kernels} kernels in {seconds + 1:g} s, {len(ours)} processes of gpuloom")
            if not kernels:
                raise Failed("no kernel ended in this time")
            run.results.add("waiting_cpu_node", "gpuloom", "% of a core", 100 * used_s / passed_s)
        finally:
            end_all(group, timeout_s=5)


def measure(run):
    measure_rates(run)
    measure_driver(run)
    if run.full and run.wants("memory", "memory_next_tenant") and not run.no_time_for("memory_next_tenant", 20):
        for side in run.in_turn(0):
            measure_memory(run, side)
    if run.wants("idle", "idle_cpu_node") and not run.no_time_for("idle_cpu_node", 30 if run.full else 2):
        for side in run.in_turn(0):
            measure_idle(run, side, 4 if run.full else 2, run.options.idle_s)
    if run.wants("idle", "waiting_cpu_node") and not run.no_time_for("waiting_cpu_node", 20 if run.full else 2):
        measure_waiting(run, WAITING_DOMAINS if run.full else 2, 10 if run.full else 0.5)
