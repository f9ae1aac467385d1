#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whoever watches a soak: what goes back, is missing or is not served is found, and another agent is none of that."""

import http.server
import json
import threading
import unittest

import watching


class Agent(http.server.BaseHTTPRequestHandler):
    """Serves what a test says."""
    pages = {}

    def do_GET(self):
        text = self.pages.get(self.path)
        self.send_response(200 if text is not None else 404)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *_):
        pass


class Watching(unittest.TestCase):
    def setUp(self):
        server = http.server.HTTPServer(("127.0.0.1", 0), Agent)
        self.addCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.Serve(kernels=7, requests=5)
        self.watcher = watching.Watcher(server.server_address[1], 60)
        with self.watcher.Gap():
            pass

    def Serve(self, kernels, requests):
        gpu = {"gpu": "GPU-1", "slots_allocated": 2}
        Agent.pages = {
            "/": "<html></html>", "/api/v1/state": json.dumps({"gpus": [gpu], "tenants": []}),
            "/metrics": "# HELP x y\n" f'gpuloom_namespace_kernels_total{{namespace="a b"}} {kernels}\n'
                        f'gpuloom_kubelet_requests_total{{call="Allocate"}} {requests}\ngpuloom_gpu_slots{{gpu="GPU-1"}} {30 - kernels}\n'
                        'gpuloom_gpu_busy_seconds_total{gpu="GPU-1",engine="compute"} 0.5\n'
                        'gpuloom_gpu_busy_seconds_total{gpu="GPU-2",engine="compute"} 4\n'}

    def test_what_rises_is_good(self):
        self.Serve(kernels=8, requests=5)
        self.assertTrue(self.watcher.Look())
        self.assertEqual(self.watcher.wrong, [])
        self.assertEqual(self.watcher.Busy("GPU-1"), 0.5)
        self.assertEqual(self.watcher.Gpu("GPU-1")["slots_allocated"], 2)
        self.assertEqual(self.watcher.looks, 2)

    def test_a_counter_that_goes_back_is_found(self):
        self.Serve(kernels=6, requests=5)
        self.watcher.Look()
        (said,) = self.watcher.wrong
        self.assertIn('kernels_total{namespace="a b"} went from 7 to 6', said)

    def test_what_is_not_served_is_found(self):
        for page in watching.PAGES:
            self.Serve(kernels=7, requests=5)
            self.watcher.wrong.clear()
            del Agent.pages[page]
            self.assertFalse(self.watcher.Look())
            self.assertIn(page + ": ", self.watcher.wrong[0])

    def test_another_agent_counts_on_what_tenants_used_and_only_that(self):
        with self.watcher.Gap():
            Agent.pages = {}
            self.assertFalse(self.watcher.Look())
            self.Serve(kernels=7, requests=1)
        self.assertEqual(self.watcher.wrong, [])
        with self.watcher.Gap():
            self.Serve(kernels=3, requests=1)
        (said,) = self.watcher.wrong
        self.assertIn("went from 7 to 3", said)

    def test_it_looks_by_itself(self):
        looks = self.watcher.looks
        self.watcher.Start(0.001)
        while self.watcher.looks < looks + 3:
            threading.Event().wait(0.001)
        self.watcher.Stop()
        self.assertEqual(self.watcher.wrong, [])


if __name__ == "__main__":
    unittest.main()
