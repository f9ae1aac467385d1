# SPDX-License-Identifier: Apache-2.0
"""Who gets what of a GPU's time, from what tenants did in each window of 100 ms. Pure: no process, no clock.

Work is one list for each tenant: in each window, the microseconds of the device that its kernels take (kernels × length).
"""

import dataclasses
import re

PREDICTIONS = re.compile(r"(\d+) predictions of what ran alone then were wrong by (\d+) % at the median and by (\d+) % for nine of ten")
LAUNCHES = re.compile(r"launches in all: (.*)")
WINDOW_S = 0.1
SECOND = 10  # windows


@dataclasses.dataclass(frozen=True)
class Tenant:
    """What one process does all the time (tests/bench/lines.h, Work), and its terms where there are any."""

    kernel_us: int = 50
    queued: int = 16
    graph: int = 0  # kernels of a graph; 0: launches of single kernels
    changing: bool = False  # no launch has the shape of one of the thousand before it
    busy_percent: int = 0  # requests at random moments instead, which are so much work
    weight: int = 100
    priority: str = "normal"
    ceiling_percent: int = 100
    waves: int = 0  # blocks of a kernel for each of the device's multiprocessors, one after the other; 0: one block for each it sees
    sm_percent: int = 100
    second_domain: bool = False  # where the line is measured in two trust domains

    def work(self, iterations, multiprocessors=0):
        """Arguments of gpuloom-bench."""
        words = ["--work", str(self.kernel_us), "--iterations", str(iterations)]
        if self.busy_percent:
            return words + ["--busy", str(self.busy_percent), "--seed", "1"]
        words += ["--queued", str(self.queued)]
        words += ["--blocks", str(self.waves * multiprocessors)] if self.waves else []
        words += ["--changing"] if self.changing else []
        return words + (["--graph", str(self.graph)] if self.graph else [])

    def terms(self, domains):
        """Arguments of `gpuloom run`, in one trust domain or in two; what is not said is the default."""
        words = ["--weight", str(self.weight)] if self.weight != 100 else []
        words += ["--priority", self.priority] if self.priority != "normal" else []
        words += ["--time-share-max", f"{self.ceiling_percent}%"] if self.ceiling_percent != 100 else []
        words += ["--sm-percent", f"{self.sm_percent}%"] if self.sm_percent != 100 else []
        return words + (["--domain", "second"] if domains == 2 and self.second_domain else [])


def busy_us(answers, kernels_us):
    """Work, from the processes' answers and their kernels' lengths."""
    return [[count * kernel_us for count in answer["windows"]] for answer, kernel_us in zip(answers, kernels_us)]


def shares(work):
    """Each one's part of all that was done, 0 to 1."""
    together = sum(map(sum, work))
    if together <= 0:
        raise ValueError("nothing was done by any tenant")
    return [sum(one) / together for one in work]


def device_busy(work):
    """What was done by all of what the device can do, in per cent."""
    return 100 * sum(map(sum, work)) / (len(work[0]) * WINDOW_S * 1e6)


def seconds(work, windows=SECOND):
    """The work of spans of so many windows, one behind the other; at least one, shorter where there are fewer."""
    spans = max(1, len(work[0]) // windows)
    return [[one[span * windows:(span + 1) * windows] for one in work] for span in range(spans)]


def greatest_error(work, weights, windows=SECOND):
    """Over spans of so many windows: the most by which a tenant's share misses its weight's, in per cent of all that was
    done in the span. A span in which nothing was done is an error of 100."""
    worst = 0.0
    for parts in seconds(work, windows):
        if not sum(map(sum, parts)):
            return 100.0
        for share, weight in zip(shares(parts), weights):
            worst = max(worst, 100 * abs(share - weight / sum(weights)))
    return worst


def luckiest_to_unluckiest(work):
    least, most = min(map(sum, work)), max(map(sum, work))
    return most / least if least else float("inf")


def settled_s(work, weights, changed_s, within_percent=5):
    """How long after `changed_s`, counted from the first window's begin, the shares of whole windows are those of the
    new weights, so far as one window shows it: to the end of the first such window. None: not until the end."""
    first = -int(-changed_s // WINDOW_S)  # the first window that begins behind the change
    for window in range(first, len(work[0])):
        part = [[one[window]] for one in work]
        if sum(map(sum, part)) and greatest_error(part, weights, 1) <= within_percent:
            return (window + 1) * WINDOW_S - changed_s
    return None


def predictions(log):
    """(how many, median, nine of ten) of each executor that said at its end how wrong its predictions were, in per cent."""
    return [tuple(map(int, said.groups())) for said in PREDICTIONS.finditer(log)]


def launches(log):
    """How each executor launched that said so at its end: chunks replayed, updated, rewritten, and launches one by one."""
    return LAUNCHES.findall(log)
