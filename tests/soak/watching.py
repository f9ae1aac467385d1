# SPDX-License-Identifier: Apache-2.0
"""Who watches a soak's node as a Prometheus and browsers do: asks its agent for all that it serves, again and again, and judges
the answers."""

import contextlib
import http.client
import json
import threading
import time

PAGES = ("/metrics", "/api/v1/state", "/")
COUNTERS = ("_total", "_bucket", "_count", "_sum")
# Counters that begin anew with each agent.
OF_AN_AGENT = ("gpuloom_kubelet_", "gpuloom_events_")


def Samples(text):
    """The figures of Prometheus' text format, by name and labels."""
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            samples[series] = float(value)
    return samples


def WentBack(before, now):
    """Of two looks' samples those counters that a Prometheus would take for a restart, as text."""
    return [f"{series} went from {before[series]:.17g} to {value:.17g}" for series, value in sorted(now.items())
            if series.partition("{")[0].endswith(COUNTERS) and value < before.get(series, 0)]


class Watcher:
    """`port` of 127.0.0.1. Look and Gap may be called from any thread; the rest is read after Stop, or between two looks."""

    def __init__(self, port, patience):
        self.port, self.patience = port, patience
        self.mutex = threading.Lock()  # from a look's beginning to its end
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.Run, daemon=True)
        self.in_gap = True  # until it is asked for the first time
        self.samples = {}  # of the last look
        self.state = {"gpus": [], "tenants": []}
        self.looks = self.most_series = self.slowest_seconds = 0
        self.wrong = []

    def Start(self, pause):
        self.pause = pause
        self.thread.start()

    def Stop(self):
        self.is_over.set()
        if self.thread.ident is not None:
            self.thread.join()

    def Run(self):
        while not self.is_over.wait(self.pause):
            self.Look()

    def Get(self, page):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.patience)
        with contextlib.closing(connection):
            connection.request("GET", page)
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status != 200:
            raise ValueError(f"status {answer.status}: {text}")
        return text

    def Look(self):
        """At all pages. False: there was no answer."""
        with self.mutex:
            page = ""
            try:
                texts = {}
                for page in PAGES:
                    begin = time.monotonic()
                    texts[page] = self.Get(page)
                    self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - begin)
                self.Judge(texts)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as trouble:
                if not self.in_gap:
                    self.wrong.append(f"{page}: {trouble!r}")
                return False
            return True

    def Judge(self, texts):
        samples, self.state = Samples(texts["/metrics"]), json.loads(texts["/api/v1/state"])
        self.looks += 1
        self.most_series = max(self.most_series, len(samples))
        if "</html>" not in texts["/"]:
            raise ValueError("no page")
        before = self.samples
        if self.in_gap:
            before = {series: value for series, value in before.items() if not series.startswith(OF_AN_AGENT)}
        self.wrong += WentBack(before, samples)
        self.samples = samples

    @contextlib.contextmanager
    def Gap(self):
        """Meanwhile there may be no answer, and then another agent, whose own counters begin again. Ends with an answer."""
        self.in_gap = True
        yield
        begin = time.monotonic()
        while not self.Look():
            if time.monotonic() - begin > self.patience:
                raise TimeoutError("the agent's metrics are not served")
            time.sleep(0.05)
        self.in_gap = False

    def Busy(self, gpu):
        """Seconds of all its engines."""
        return sum(value for series, value in self.samples.items()
                   if series.startswith("gpuloom_gpu_busy_seconds_total{") and f'"{gpu}"' in series)

    def Gpu(self, gpu):
        """What the state says of it, or nothing."""
        return next((one for one in self.state["gpus"] if one["gpu"] == gpu), {})
