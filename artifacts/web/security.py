"""What holds for every request: headers, the size of bodies, the names of this host, and counting."""

from __future__ import annotations

import time
from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from artifacts.errors import UsageError
from artifacts.web.metrics import Requests

BODY_BYTES = 64 << 10
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
"""The pages have no script at all, so none is allowed, from anywhere."""


class Guard:
    """Adds the headers, refuses unknown host names (another site that resolves to this machine), counts answers."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], requests: Requests) -> None:
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts)
        self.requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = time.monotonic()
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            if self._known(Request(scope)):
                await self.app(scope, receive, answer)
            else:
                await PlainTextResponse("this server has another name", 421)(scope, receive, answer)
        finally:
            route = scope.get("route")
            self.requests.count(getattr(route, "path", "other"), status, time.monotonic() - begun)

    def _known(self, request: Request) -> bool:
        if not self.hosts:
            return True
        host = request.headers.get("host", "").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        return name.strip("[]") in self.hosts


async def read_body(request: Request) -> bytes:
    """The body of a request, bounded.

    Raises:
        UsageError: CNV-2446, when it is too large.
    """
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES:
            raise UsageError(
                "CNV-2446", f"the request is larger than {BODY_BYTES} bytes", hint="a promotion needs a few hundred"
            )
    return bytes(data)
