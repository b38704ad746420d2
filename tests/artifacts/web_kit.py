"""A registry to look at in the web tests, with names and texts that try to break pages."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
from store_kit import make_release, make_request

from artifacts.channels import Move, promote
from artifacts.publish import PublishRequest, publish
from artifacts.trust import Trust
from artifacts.web.app import create_app
from artifacts.web.desk import Desk
from artifacts.web.store import WebStore

HOSTILE = "<script>alert(1)</script>'\"&{{7919*7927}}"
TOKEN = "0123456789abcdef0123456789"
CPU = {"target": "cpu", "soc": "", "backend": "onnxruntime"}


def fill(root: Path, work: Path) -> Path:
    """net with three versions of two targets, prod and staging; group/other with one and texts that are hostile."""
    for number, version in enumerate(("1.0.0", "1.1.0", "1.2.0")):
        npu = make_release(work / f"npu{number}", content=b"npu %d" % number, toolchain={"cann": f"8.{number}"})
        cpu = make_release(work / f"cpu{number}", content=b"cpu", **CPU)
        publish(root, PublishRequest(name="net", version=version, targets=(npu, cpu)))
    hostile = make_release(
        work / "hostile",
        plan=("atc", HOSTILE),
        options={HOSTILE: HOSTILE},
        libraries={"onnx": HOSTILE},
        support={
            "supported": False,
            "judged": [{"op": HOSTILE, "node": HOSTILE, "state": "refused", "reason": HOSTILE}, 3],
        },
        validation={"passed": False, "outputs": [{"name": HOSTILE, "cosine": "x"}, None, {"rel_l2": 0.5}]},
        ran_on="forecast",
    )
    publish(root, PublishRequest(name="group/other", version="2.0.0-rc1+b7", targets=(hostile,)))
    promote(root, "net:1.0.0", Move(channel="prod", actor="wei", reason=HOSTILE))
    promote(root, "net:1.1.0", Move(channel="prod", actor=HOSTILE, reason="faster"))
    promote(root, "net:1.2.0", Move(channel="staging", actor="wei"))
    publish(root, make_request(work / "many", name="lone"))
    return root


def make_desk(root: Path, tokens: Path | None = None, **rest: object) -> Desk:
    return Desk(WebStore(root, Trust((), "none")), tokens=tokens, **rest)  # type: ignore[arg-type]


def make_app(root: Path, tokens: Path | None = None, hosts: tuple[str, ...] = ()):
    return create_app(make_desk(root, tokens), hosts=hosts)


def write_tokens(path: Path, text: str = f"li {TOKEN} staging candidate\nboss {TOKEN[::-1]}\n") -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


class Web:
    """Requests to an application without a network, with the cookies of one visitor."""

    def __init__(self, app: object, base_url: str = "http://127.0.0.1:8642") -> None:
        self.app = app
        self.base_url = base_url
        self.cookies = httpx.Cookies()

    def request(self, method: str, url: str, **rest: object) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)  # type: ignore[arg-type]
            async with httpx.AsyncClient(
                transport=transport, base_url=self.base_url, cookies=self.cookies, follow_redirects=False
            ) as client:
                answer = await client.request(method, url, **rest)  # type: ignore[arg-type]
                self.cookies = client.cookies
                return answer

        return asyncio.run(send())

    def get(self, url: str, **rest: object) -> httpx.Response:
        return self.request("GET", url, **rest)

    def head(self, url: str, **rest: object) -> httpx.Response:
        return self.request("HEAD", url, **rest)

    def post(self, url: str, **rest: object) -> httpx.Response:
        return self.request("POST", url, **rest)


@contextlib.contextmanager
def serving(app: object) -> Iterator[str]:
    """The application on a free port of this machine; its address."""
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="critical", lifespan="off", server_header=False)  # type: ignore[arg-type]
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
