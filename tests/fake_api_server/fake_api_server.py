#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes API server, as far as gpuloom needs one: HTTPS with a CA of its own, bearer tokens, pods that can be read and
events that can be created and patched; beside these, objects that can be got. A pod is an object, or a table of its metadata
and where it is, as the request wants it. Looks anew at each request at FOLDER/state.json:
{"token", "pods": {"NAMESPACE/POD": {"uid", "node", "spec_bytes", "metadata_bytes"}}, "status": one that every request is answered
with, "statuses": {NAMESPACE: the same of its requests}, "forgets": events are not found by PATCH, "event_bytes": as many more
has each event that is answered, "objects": {PATH with its query: the answer, text as it is}}.

usage: fake_api_server.py FOLDER

Makes FOLDER/account/{ca.crt,token}, listens on a port of 127.0.0.1, which it writes to FOLDER/port, and writes each request as
a line of JSON to FOLDER/log: {"method", "path", "status", "body"}."""

import http.server
import json
import pathlib
import re
import ssl
import subprocess
import sys

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
# What a server checks of a new event, beside its object's namespace.
WANTED = ("involvedObject", "reason", "message", "type", "source", "firstTimestamp", "lastTimestamp", "count")


def MakeCertificates(folder):
    def Run(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    Run("req", "-x509", *curve, "-keyout", "ca.key", "-out", "account/ca.crt", "-subj", "/CN=fake cluster", "-days", "2")
    Run("req", *curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=fake API server")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    Run("x509", "-req", "-in", "server.csr", "-CA", "account/ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.crt",
        "-days", "2", "-extfile", "names")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder = None
    events = {}

    def Judge(self, state, body):
        """The status, and the answer."""
        if self.headers.get("Authorization") != "Bearer " + state["token"]:
            return 401, {"message": "Unauthorized"}
        whose = re.match(r"/api/v1/namespaces/([^/]+)/", self.path)
        if whose and whose[1] in state.get("statuses", {}):
            return state["statuses"][whose[1]], {"message": "as the test wants it"}
        if state.get("status"):
            return state["status"], {"message": "as the test wants it"}
        if self.command == "GET" and self.path in state.get("objects", {}):
            return 200, state["objects"][self.path]
        pod = re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)", self.path)
        if self.command == "GET" and pod:
            known = state["pods"].get(pod[1] + "/" + pod[2])
            if known is None:
                return 404, {"message": "pods not found"}
            metadata = {"name": pod[2], "namespace": pod[1], "uid": known["uid"], "annotations": {"a": "x" * known.get("metadata_bytes", 0)}}
            if "as=Table" in self.headers["Accept"]:
                return 200, {"kind": "Table", "columnDefinitions": [{"name": "Name", "type": "string"}, {"name": "Node", "type": "string"}],
                             "rows": [{"cells": [pod[2], known["node"]], "object": {"metadata": metadata}}]}
            environment = [{"name": "E", "value": "x" * known.get("spec_bytes", 0)}]
            return 200, {"metadata": metadata, "spec": {"nodeName": known["node"], "containers": [{"env": environment}]}}
        events = re.fullmatch(r"/api/v1/namespaces/([^/]+)/events(?:/([^/]+))?", self.path)
        if not events:
            return 404, {"message": "no such resource"}
        if self.command == "POST" and not events[2]:
            if self.headers["Content-Type"] != "application/json":
                return 415, {"message": "Unsupported Media Type"}
            name, about = body["metadata"]["name"], body["involvedObject"]
            wrong = [key for key in WANTED if not body.get(key)]
            if wrong or not NAME.match(name) or len(name) > 253 or len(body["message"]) > 1024:
                return 422, {"message": f"Invalid: {wrong} {name}"}
            if body["metadata"]["namespace"] != events[1] or about.get("namespace", "default") != events[1]:
                return 422, {"message": "involvedObject.namespace: does not match event.namespace"}
            if (events[1], name) in self.events:
                return 409, {"message": "AlreadyExists"}
            self.events[events[1], name] = body
            return 201, body | {"inflated": "x" * state.get("event_bytes", 0)}
        if self.command == "PATCH" and events[2]:
            if self.headers["Content-Type"] != "application/merge-patch+json":
                return 415, {"message": "Unsupported Media Type"}
            if state.get("forgets") or (events[1], events[2]) not in self.events:
                return 404, {"message": "events not found"}
            self.events[events[1], events[2]].update(body)
            return 200, body | {"inflated": "x" * state.get("event_bytes", 0)}
        return 405, {"message": "Method Not Allowed"}

    def Answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        state = json.loads((self.folder / "state.json").read_text())
        status, answer = self.Judge(state, body)
        with open(self.folder / "log", "a", encoding="utf-8") as log:
            log.write(json.dumps({"method": self.command, "path": self.path, "status": status, "body": body}) + "\n")
        is_text = isinstance(answer, str)
        text = answer.encode() if is_text else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if is_text else "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PATCH = Answer

    def log_message(self, *_):
        pass


def Main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    (folder / "account").mkdir(parents=True, exist_ok=True)
    MakeCertificates(folder)
    state = folder / "state.json"
    if not state.exists():
        state.write_text(json.dumps({"token": "first", "pods": {}}))
    (folder / "account/token").write_text(json.loads(state.read_text())["token"] + "\n")
    Handler.folder = folder
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    # Whole or not at all: who waits for it reads it at once.
    (folder / "port.new").write_text(str(server.server_address[1]))
    (folder / "port.new").rename(folder / "port")
    server.serve_forever()


Main()
