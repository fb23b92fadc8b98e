"""As much of a Kubernetes API server as Spark's driver asks for: it keeps what is created, and runs each pod's command
as a process of this machine.

Rule: what a container gets, the process gets: the command, its arguments and its environment. Nothing else is played.
"""

import json
import os
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.worlds.spark.host_process import kill_group

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
Object = dict[str, Any]


@dataclass
class KubernetesApi:
    """`image` is what the pods' image holds: a path in it, and where that lies here. Close it in any case."""

    folder: Path
    image: tuple[str, str]
    pods: dict[str, Object] = field(default_factory=dict)
    asked: set[tuple[str, str]] = field(default_factory=set)
    processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def start(self) -> "KubernetesApi":
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for process in self.processes:
            kill_group(process)

    def create(self, resource: str, made: Object) -> Object:
        made["metadata"].setdefault("uid", f"uid-{made['metadata']['name']}")
        if resource == "pods":
            made["status"] = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": []}
            self.pods[made["metadata"]["name"]] = made
            self._run(made)
        return made

    def _run(self, pod: Object) -> None:
        (container,) = pod["spec"]["containers"]
        env = {each["name"]: self._value(each, pod) for each in container.get("env", [])}
        there, here = self.image
        command = [word.replace(there, here) for word in (*container["command"], *container["args"])]
        with (self.folder / f"{pod['metadata']['name']}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(command, env={**os.environ, **env}, stdout=log, stderr=log, start_new_session=True)
            )

    def _value(self, variable: Object, pod: Object) -> str:
        if "value" in variable or "valueFrom" not in variable:
            return str(variable.get("value") or "")
        path = variable["valueFrom"]["fieldRef"]["fieldPath"].split(".")
        found: Any = pod
        for name in path:
            found = found[name]
        return str(found)


class _Handler(BaseHTTPRequestHandler):
    api: KubernetesApi
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        _, _, rest = self._path()
        if "watch" in parse_qs(urlsplit(self.path).query):
            self._note("watch")
            self._answer({})  # an empty stream of events: Spark lists from time to time besides
        elif rest:
            self._note("get")
            self._answer(self.api.pods[rest])
        else:
            self._note("list")
            kind = {"pods": "PodList", "persistentvolumeclaims": "PersistentVolumeClaimList"}[self._path()[1]]
            self._answer({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": self._listed()})

    def do_POST(self) -> None:
        self._note(_VERBS[self.command])
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        self._answer(self.api.create(self._path()[1], body))

    do_PUT = do_PATCH = do_POST

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._note("delete" if self._path()[2] else "deletecollection")
        self._answer({"apiVersion": "v1", "kind": "Status", "status": "Success"})

    def _listed(self) -> list[Object]:
        """The pods that have the labels which are asked for; of anything else there is none."""
        (selector,) = parse_qs(urlsplit(self.path).query).get("labelSelector", [""])
        wanted = dict(each.split("=", 1) for each in selector.split(",") if "=" in each)
        pods = self.api.pods.values() if self._path()[1] == "pods" else ()
        return [pod for pod in pods if wanted.items() <= pod["metadata"].get("labels", {}).items()]

    def _path(self) -> tuple[str, str, str]:
        """Namespace, resource and name."""
        _, _, _, _, namespace, resource, *name = urlsplit(self.path).path.split("/")
        return namespace, resource, "/".join(name)

    def _note(self, verb: str) -> None:
        self.api.asked.add((verb, self._path()[1]))

    def _answer(self, body: Object) -> None:
        content = json.dumps(body).encode() if body else b""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None: ...
