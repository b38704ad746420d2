"""An OCI registry in memory whose answers a test can replace, to play what real registries and networks do wrong."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from artifacts.digest import sha256_bytes

Fault = Callable[["Handler"], bool]


class Server(ThreadingHTTPServer):
    """``faults`` are asked in order before each request; one that answers itself returns True."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[bytes, str]] = {}
        self.faults: list[Fault] = []
        self.seen: list[tuple[str, str, str]] = []
        self.keeps_subjects = False
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """Say nothing of connections that a test broke."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def requests(self, method: str, part: str) -> list[str]:
        """The ``Authorization`` headers of the requests seen so far."""
        return [auth for verb, path, auth in self.seen if verb == method and part in path]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        self.server.seen.append((self.command, self.path, self.headers.get("Authorization", "")))
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if any(fault(self) for fault in list(self.server.faults)):
            return
        path = urlsplit(self.path).path
        for pattern, handle in ROUTES:
            if match := re.fullmatch(pattern, path):
                handle(self, **match.groupdict())
                return
        self.answer(404)

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = _serve  # noqa: N815

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answer; header names with ``_`` for ``-``."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def drop(self) -> bool:
        """Break the connection."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
        return True

    def blob(self, digest: str) -> None:
        data = self.server.blobs.get(digest)
        if data is None:
            self.answer(404)
            return
        start = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        self.answer(206 if start else 200, data[int(start.group(1)) :] if start else data)

    def upload(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if query.get("mount", [""])[0] in self.server.blobs:
            self.answer(201)
        else:
            self.answer(202, Location="/v2/uploads/1?state=x")

    def upload_end(self) -> None:
        digest = parse_qs(urlsplit(self.path).query)["digest"][0]
        if sha256_bytes(self.body) != digest:
            self.answer(400)
            return
        self.server.blobs[digest] = self.body
        self.answer(201)

    def manifest(self, reference: str) -> None:
        if self.command == "PUT":
            stored = (self.body, self.headers["Content-Type"])
            self.server.manifests[reference] = self.server.manifests[sha256_bytes(self.body)] = stored
            subject = {"OCI_Subject": "yes"} if self.server.keeps_subjects else {}
            self.answer(201, **subject)
        elif reference in self.server.manifests:
            data, kind = self.server.manifests[reference]
            self.answer(200, data, Content_Type=kind)
        else:
            self.answer(404)

    def tags(self) -> None:
        import json

        names = sorted(name for name in self.server.manifests if not name.startswith("sha256:"))
        self.answer(200, json.dumps({"name": "x", "tags": names}).encode())


ROUTES: list[tuple[str, Callable[..., None]]] = [
    (r"/v2/.+/blobs/uploads/", Handler.upload),
    (r"/v2/uploads/1", Handler.upload_end),
    (r"/v2/.+/blobs/(?P<digest>sha256:[0-9a-f]{64})", Handler.blob),
    (r"/v2/.+/manifests/(?P<reference>[^/]+)", Handler.manifest),
    (r"/v2/.+/tags/list", Handler.tags),
]


def once(matches: str, action: Callable[[Handler], bool | None], *, times: int = 1) -> Fault:
    """A fault for the first requests whose ``METHOD path`` matches."""
    left = [times]

    def fault(handler: Handler) -> bool:
        if left[0] and re.search(matches, f"{handler.command} {handler.path}"):
            left[0] -= 1
            return action(handler) is not False
        return False

    return fault
