"""HTTP to an OCI registry: TLS, retries with a deadline, redirects, authentication. Knows nothing of manifests.

Retried are named faults only: no connection, a connection that broke, 429 and 5xx. A redirect to another host gets no
credentials; one from TLS to plain HTTP is refused.
"""

from __future__ import annotations

import functools
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from artifacts.errors import RegistryError, UsageError
from artifacts.http_options import HttpOptions
from artifacts.remote_auth import Credentials, find_credentials, is_loopback, may_send_to, parse_challenge
from artifacts.strictjson import parse_json

CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0
TRIES = 4
CONNECT_TRIES = 2
MAX_PAUSE = 30.0
MAX_REDIRECTS = 5
ANSWER_BYTES = 4 << 20
CLIENT = "model-convert"
RETRIED = (429, 500, 502, 503, 504)
Body = Callable[[], Iterator[bytes]]


class Transport:
    """Requests to one registry host."""

    def __init__(self, host: str, options: HttpOptions, credentials: Credentials | None = None) -> None:
        self.host = host
        self.plain = options.insecure_http or is_loopback(host)
        self.base = f"{'http' if self.plain else 'https'}://{host}"
        self._credentials = credentials or find_credentials(host)
        self._authorization: dict[str, str] = {}
        self._until = time.monotonic() + options.deadline if options.deadline else None
        timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        self._client = httpx.Client(
            verify=tls_context(options.ca), timeout=timeout, follow_redirects=False, trust_env=not is_loopback(host)
        )

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        method: str,
        url: str,
        *,
        scope: str,
        headers: dict[str, str] | None = None,
        body: Body | None = None,
        tries: int = TRIES,
    ) -> httpx.Response:
        """Send a request and return the answer, its body not yet read; whoever calls closes it.

        Args:
            method: The HTTP method.
            url: A path, or a URL that the registry gave.
            scope: The token scope, ``repository:<name>:pull``.
            headers: Headers beside ``Authorization``.
            body: Makes the body, once for each try.
            tries: How often to try; with 1, a broken connection is an ``httpx.TransportError``.

        Raises:
            RegistryError: CNV-9060 (can't be reached), CNV-9061 (access denied), CNV-9064 (deadline).
        """
        url = urljoin(self.base, url)
        for turn in range(tries):
            try:
                response = self._send_once(method, url, scope, headers or {}, body)
            except (httpx.InvalidURL, ValueError) as error:
                raise RegistryError(
                    "CNV-9062", f"{self.host} names an address that is none", hint="tell the owner of the registry"
                ) from error
            except httpx.TransportError as error:
                if tries == 1:
                    raise
                last = tries if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) else CONNECT_TRIES
                if turn + 1 >= last:
                    raise unreachable(self.host, error) from error
                self.pause(turn)
                continue
            if response.status_code not in RETRIED or turn + 1 == tries:
                return response
            wait = response.headers.get("Retry-After", "")
            response.close()
            self.pause(turn, wait)
        raise unreachable(self.host, None)

    def pause(self, turn: int, wait: str = "") -> None:
        """Wait before the next try, as long as the registry asks for, within limits.

        Raises:
            RegistryError: CNV-9064.
        """
        seconds = min(float(wait), MAX_PAUSE) if wait.isdecimal() else 0.5 * 2**turn
        self.check_deadline(seconds)
        time.sleep(seconds)

    def check_deadline(self, more: float = 0.0) -> None:
        """Raise CNV-9064 where the deadline is over, or would be in ``more`` seconds."""
        if self._until is not None and time.monotonic() + more > self._until:
            raise RegistryError(
                "CNV-9064",
                f"no end within the deadline: {self.host}",
                hint="give more time with --deadline, or try again",
            )

    def _send_once(
        self, method: str, url: str, scope: str, headers: dict[str, str], body: Body | None
    ) -> httpx.Response:
        for _ in range(MAX_REDIRECTS):
            self.check_deadline()
            response = self._request(method, url, scope, headers, body)
            if response.status_code == 401 and urlsplit(url).netloc == self.host:
                self._log_in(response, scope)
                response = self._request(method, url, scope, headers, body)
            if response.status_code in (401, 403):
                raise self._denied(response)
            if response.status_code not in (301, 302, 303, 307, 308) or method not in ("GET", "HEAD"):
                return response
            url = self._redirect(response, url)
        raise RegistryError("CNV-9062", f"{self.host} redirects in circles", hint="check the address of the registry")

    def _request(self, method: str, url: str, scope: str, headers: dict[str, str], body: Body | None) -> httpx.Response:
        sent = {"Accept-Encoding": "identity", "User-Agent": CLIENT, **headers}
        if urlsplit(url).netloc == self.host and (authorization := self._authorization.get(scope)):
            sent["Authorization"] = authorization
        request = self._client.build_request(method, url, headers=sent, content=body() if body else None)
        return self._client.send(request, stream=True)

    def _redirect(self, response: httpx.Response, url: str) -> str:
        response.close()
        target = urljoin(url, response.headers.get("Location", ""))
        scheme = urlsplit(target).scheme
        if scheme not in ("http", "https") or (scheme == "http" and not self.plain):
            raise RegistryError(
                "CNV-9062", f"{self.host} redirects to an insecure address", hint="tell the owner of the registry"
            )
        return str(target)

    def _log_in(self, response: httpx.Response, scope: str) -> None:
        challenge = parse_challenge(response.headers.get("WWW-Authenticate", ""))
        response.close()
        mine = self._credentials
        if challenge.scheme == "basic" and mine and mine.user:
            self._authorization[scope] = mine.basic
        elif challenge.scheme == "bearer" and mine and mine.token:
            self._authorization[scope] = f"Bearer {mine.token}"
        elif challenge.scheme == "bearer":
            parameters = {"service": challenge.service, "scope": challenge.scope or scope}
            self._authorization[scope] = f"Bearer {self._fetch_token(challenge.realm, parameters)}"
        else:
            raise self._denied(response)

    def _fetch_token(self, realm: str, parameters: dict[str, str]) -> str:
        allowed = may_send_to(realm, self.host, plain=self.plain)
        if not allowed:
            raise RegistryError(
                "CNV-9061",
                f"{self.host} sends to a token service without TLS; no credentials were sent",
                hint="the registry must name a token service with https",
            )
        mine = self._credentials or Credentials()
        headers = {"Accept-Encoding": "identity", **({"Authorization": mine.basic} if mine.user else {})}
        query = {key: value for key, value in parameters.items() if value}
        if mine.renewal:
            form = {"grant_type": "refresh_token", "client_id": CLIENT, "refresh_token": mine.renewal, **query}
            request = self._client.build_request("POST", realm, data=form, headers=headers)
        else:
            request = self._client.build_request("GET", realm, params=query, headers=headers)
        response = self._client.send(request, stream=True)
        if response.status_code != 200:
            raise self._denied(response)
        answer = parse_json(read_answer(response, "the token"), f"the token of {self.host}", code="CNV-9062")
        token = answer.get("token") or answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise RegistryError("CNV-9062", f"{self.host} gave no token", hint="check the address of the registry")
        return token

    def _denied(self, response: httpx.Response) -> RegistryError:
        response.close()
        mine = self._credentials or Credentials()
        given = bool(mine.user or mine.token or mine.renewal)
        known = "with the credentials that were found" if given else "without credentials; none were found"
        known += f" ({mine.problem})" if mine.problem else ""
        return RegistryError(
            "CNV-9061",
            f"{self.host} denies access {known} ({response.status_code})",
            hint=f"log in with `docker login {self.host}` or `skopeo login {self.host}`, or set CONVERT_REGISTRY_USER"
            " and CONVERT_REGISTRY_PASSWORD; check that the account may use this repository",
        )


@functools.cache
def tls_context(ca: Path | None) -> ssl.SSLContext:
    """The certificates to trust; reading them takes longer than many a request, so it is done once."""
    try:
        return ssl.create_default_context(cafile=str(ca) if ca else None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            "CNV-2432", f"can't use the CA bundle {ca}: {error}", hint="name a file of certificates in PEM"
        ) from error


def read_answer(response: httpx.Response, what: str, limit: int = ANSWER_BYTES) -> bytes:
    """The whole body of an answer, closed afterwards.

    Raises:
        RegistryError: CNV-9062, when it is larger than ``limit`` or the connection broke.
    """
    data = bytearray()
    try:
        for chunk in response.iter_raw(1 << 16):
            data += chunk
            if len(data) > limit:
                raise RegistryError("CNV-9062", f"{what} is larger than {limit} bytes", hint="check the registry")
    except httpx.TransportError as error:
        raise RegistryError("CNV-9060", f"the connection broke while reading {what}", hint="try again") from error
    finally:
        response.close()
    return bytes(data)


def failed(response: httpx.Response, what: str) -> RegistryError:
    """The error for an answer that is none of those expected; closes it."""
    host = response.request.url.host
    try:
        answer: Any = parse_json(read_answer(response, "the answer", 1 << 16), "the answer")
        first = answer["errors"][0]
        told = f": {str(first.get('code', ''))[:60]} {str(first.get('message', ''))[:200]}"
    except (RegistryError, KeyError, IndexError, TypeError, AttributeError):
        told = ""
    return RegistryError(
        "CNV-9062",
        f"{host} answered {response.status_code} to {what}{told}",
        hint="the registry's log tells more; a proxy in between may have limits of its own",
    )


def unreachable(host: str, error: httpx.TransportError | None) -> RegistryError:
    """The error for a host that doesn't answer."""
    why = f": {error}" if error and str(error) else ""
    return RegistryError(
        "CNV-9060",
        f"can't reach the registry {host}{why}",
        hint="check the address, the network and HTTPS_PROXY; a certificate of your own goes into --ca",
    )
