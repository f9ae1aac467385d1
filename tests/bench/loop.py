# SPDX-License-Identifier: Apache-2.0
"""A program that does the same step again and again, as a process that does what a benchmark tells it.

    main({"name": make})       make() returns a loop: check() → text, the same wherever results are right; a step is
                               issue() → something, then finish(that), behind which its work has been done

The name is the command line's one word. Lines on standard input, each answered by one JSON object:

    prepare WARM               {"name":"ready","check":…,"pid":…}: made, checked, and run for WARM seconds
    run START WARM SECONDS     {"name":"ran","steps":…,"seconds":…,"p50_ms":…,"p99_ms":…,"issue_ms":…,"cpu_s":…,
                               "waits":…}: steps from START on, on the clock that all processes of the machine share;
                               those of the first WARM seconds are not counted; waits: how often a thread slept
    arrive START WARM SECONDS PER_SECOND SEED
                               the same for requests that arrive at random (Poisson), so many a second, and wait for each
                               other: p50_ms and p99_ms count from a request's arrival; without issue_ms, cpu_s, waits
    busy STEPS                 {"name":"busy","device_s":…}: for how long the GPU works in a step, of so many; only from
                               loops that have device_s(steps)
    check                      {"name":"checked","check":…}: still right

The first answer, {"name":"imported"}, comes unasked, before the GPU is touched. What fails is answered as
{"name":"failed","error":…}, and the process ends; it ends at the end of its input too.
"""

import hashlib
import json
import os
import random
import resource
import sys
import time


def say(**fields):
    print(json.dumps(fields), flush=True)


def hash_of(*parts):
    """16 hexadecimal digits of the SHA-256 of all these bytes and numbers."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else repr(part).encode())
    return digest.hexdigest()[:16]


def percentile(ordered, fraction):
    """Nearest rank; `ordered` is not empty."""
    return ordered[round(fraction * (len(ordered) - 1))]


def used():
    """(user and system time, how often a thread went to sleep) of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nvcsw


def step(loop):
    """When its work had been issued."""
    issued = loop.issue()
    issued_s = time.monotonic()
    loop.finish(issued)
    return issued_s


def measure(loop, start_s, warm_s, seconds):
    time.sleep(max(0.0, start_s - time.monotonic()))
    while time.monotonic() < start_s + warm_s:
        step(loop)
    durations_s, issues_s = [], []
    cpu_before_s, waits_before = used()
    began_s = last_s = time.monotonic()
    while last_s - began_s < seconds:
        issued_s = step(loop)
        now_s = time.monotonic()
        durations_s.append(now_s - last_s)
        issues_s.append(issued_s - last_s)
        last_s = now_s
    cpu_s, waits = used()
    durations_s.sort()
    issues_s.sort()
    say(name="ran", steps=len(durations_s), seconds=last_s - began_s, cpu_s=cpu_s - cpu_before_s, waits=waits - waits_before,
        p50_ms=percentile(durations_s, 0.5) * 1e3, p99_ms=percentile(durations_s, 0.99) * 1e3,
        issue_ms=percentile(issues_s, 0.5) * 1e3)


def arrivals(start_s, end_s, per_second, seed):
    """Moments between the two, the same from the same seed."""
    drawn = random.Random(seed)
    moment_s = start_s
    while (moment_s := moment_s + drawn.expovariate(per_second)) < end_s:
        yield moment_s


def measure_arrivals(loop, start_s, warm_s, seconds, per_second, seed):
    latencies_s = []
    for arrival_s in arrivals(start_s, start_s + warm_s + seconds, per_second, seed):
        time.sleep(max(0.0, arrival_s - time.monotonic()))
        step(loop)
        if arrival_s >= start_s + warm_s:
            latencies_s.append(time.monotonic() - arrival_s)
    if not latencies_s:
        raise ValueError(f"no request arrived in {seconds} s at {per_second} a second")
    latencies_s.sort()
    say(name="ran", steps=len(latencies_s), seconds=seconds, p50_ms=percentile(latencies_s, 0.5) * 1e3,
        p99_ms=percentile(latencies_s, 0.99) * 1e3)


def prepare(make, warm_s):
    loop = make()
    result = loop.check()
    warm_until_s = time.monotonic() + warm_s
    while time.monotonic() < warm_until_s:
        step(loop)
    say(name="ready", check=result, pid=os.getpid())
    return loop


def serve(make):
    say(name="imported")
    loop = None
    for line in iter(sys.stdin.readline, ""):
        words = line.split()
        if words[0] == "prepare":
            loop = prepare(make, float(words[1]))
        elif words == ["check"]:
            say(name="checked", check=loop.check())
        elif words[0] == "busy":
            say(name="busy", device_s=loop.device_s(int(words[1])))
        elif words[0] == "run":
            measure(loop, *(float(word) for word in words[1:]))
        elif words[0] == "arrive":
            measure_arrivals(loop, *(float(word) for word in words[1:5]), int(words[5]))
        else:
            raise ValueError(f"unknown request: {line!r}")


def main(loops):
    if len(sys.argv) != 2 or sys.argv[1] not in loops:
        print(f"usage: {sys.argv[0]} {'|'.join(loops)}", file=sys.stderr)
        return 2
    try:
        serve(loops[sys.argv[1]])
    except Exception as error:  # whatever ended it, the benchmark is told
        say(name="failed", error=f"{type(error).__name__}: {error}"[:500])
        raise
    return 0
