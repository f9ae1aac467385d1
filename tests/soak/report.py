# SPDX-License-Identifier: Apache-2.0
"""What a soak has shown, as tables of Markdown."""

import datetime
import subprocess

COUNTED = ["pods", "pods that succeeded", "pods that failed", "pods that refused", "tenants killed", "executors killed",
           "schedulers killed", "agents replaced", "agents killed", "policies", "wrong policies", "GPUs drained", "traces", "looks",
           "events"]
CALLED = {"pods that failed": "of them failed, as those who die or are killed must",
          "pods that succeeded": "of them succeeded",
          "pods that refused": "of them refused, while an agent was killed or slots were drained or given to a pod of the other resource",
          "GPUs drained": "GPUs drained and given back",
          "looks": "looks at `/metrics`, `/` and `/api/v1/state`",
          "events": "posts of Kubernetes events that the API server took"}


def Span(values):
    return f"{values[0]} … {values[-1]}" if values[0] != values[-1] else str(values[0])


def Text(soak, seed):
    release = subprocess.run([soak.build / "bin/gpuloom", "--version"], capture_output=True, text=True, check=False).stdout.split(",")[0]
    seconds = getattr(soak, "seconds", 0)
    lines = [f"{release}, {datetime.date.today()}: {seconds:.0f} seconds, {soak.round} rounds, seed {seed}.", "",
             "| | |", "| --- | --- |"]
    lines += [f"| {CALLED.get(what, what)} | {soak.counts.get(what, 0)} |" for what in COUNTED]
    lines += ["", "| process | rounds | its own memory, KiB | descriptors | threads |", "| --- | --- | --- | --- | --- |"]
    for life in soak.lives.values():
        if len(life.looks) < 2:
            continue
        rounds = [number for number, _ in life.looks]
        looks = [look for _, look in life.looks]
        lines.append(f"| {life.name} | {rounds[0] + 1} to {rounds[-1] + 1} | {Span([look.memory_kib for look in looks])} | "
                     f"{Span([look.descriptors for look in looks])} | {Span([look.threads for look in looks])} |")
    if soak.recovery_seconds:
        lines += ["", "At the longest, until the next tenant had computed something, its own time included: " +
                  ", ".join(f"{seconds:.1f} s ({what})" for what, seconds in sorted(soak.recovery_seconds.items())) + "."]
    if soak.watcher:
        lines += ["", f"The slowest answer of an agent took {soak.watcher.slowest_seconds:.1f} s; at most {soak.watcher.most_series} series "
                  "were in one."]
    if soak.rests:
        lines += ["", f"Files and folders on the node at rest, after each round: {Span([len(files) for _, files in soak.rests])}."]
    if soak.wrong:
        lines += ["", "Wrong:", "", *(f"- {trouble}" for trouble in soak.wrong)]
    else:
        lines += ["", "Nothing went wrong, and nothing grew more than is allowed."]
    return "\n".join(lines) + "\n"
