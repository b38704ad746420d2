"""Credentials for OCI registries: environment, Docker's and Podman's files, credential helpers; the answers to a 401.

Credentials go to the registry's own host and to the token service that it names over TLS, to nobody else, and never
into a message.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from artifacts.errors import UsageError
from artifacts.runner import ask_program

USER_VARIABLE = "CONVERT_REGISTRY_USER"
PASSWORD_VARIABLE = "CONVERT_REGISTRY_PASSWORD"
TOKEN_VARIABLE = "CONVERT_REGISTRY_TOKEN"
TOKEN_FILE_VARIABLE = "CONVERT_REGISTRY_TOKEN_FILE"
HELPER_SECONDS = 20.0
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PARAMETER = re.compile(r'([a-z_]+)="([^"]*)"', re.IGNORECASE)


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """How to log in. ``token`` is sent as it is; else user and password."""

    user: str = ""
    password: str = ""
    token: str = ""
    renewal: str = ""
    """An identity token, for which the registry's token service gives tokens (OAuth 2 refresh token)."""
    problem: str = ""
    """Why a credential helper that is set up gave nothing; told when the registry denies access."""

    def __repr__(self) -> str:
        return "Credentials(…)"

    @property
    def basic(self) -> str:
        """The value of a Basic ``Authorization`` header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """What ``WWW-Authenticate`` asks for."""

    scheme: str
    realm: str = ""
    service: str = ""
    scope: str = ""


def find_credentials(host: str) -> Credentials | None:
    """The credentials for a registry's host (with port, where it has one); None to go without.

    The environment comes first (``CONVERT_REGISTRY_TOKEN``, ``…_TOKEN_FILE``, ``…_USER`` with ``…_PASSWORD``), then
    ``credHelpers``, ``credsStore`` and ``auths`` of the file that ``REGISTRY_AUTH_FILE`` names, of Docker's
    ``config.json`` and of Podman's ``auth.json``.

    Raises:
        UsageError: CNV-2431, for a file that is there and can't be read.
    """
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token and (token_file := os.environ.get(TOKEN_FILE_VARIABLE)):
        token = _read(Path(token_file)).strip()
    if token:
        return Credentials(token=token)
    if user := os.environ.get(USER_VARIABLE):
        return Credentials(user=user, password=os.environ.get(PASSWORD_VARIABLE, ""))
    problem = None
    for path in _files():
        found = _from_file(path, host) if path.is_file() else None
        if found is not None and not found.problem:
            return found
        problem = problem or found
    return problem


def _files() -> list[Path]:
    docker = Path(os.environ.get("DOCKER_CONFIG") or "~/.docker").expanduser() / "config.json"
    found = [docker]
    if chosen := os.environ.get("REGISTRY_AUTH_FILE"):
        found.insert(0, Path(chosen))
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        found.append(Path(runtime) / "containers" / "auth.json")
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("CNV-2431", f"can't read {path}", hint="check that file, or remove it") from error


def _from_file(path: Path, host: str) -> Credentials | None:
    try:
        document = json.loads(_read(path))
    except ValueError as error:
        raise UsageError("CNV-2431", f"{path} is no JSON", hint="log in again with docker or skopeo login") from error
    document = document if isinstance(document, dict) else {}
    asked = ask_helper(document, host)
    if asked is not None and not asked.problem:
        return asked
    auths = document.get("auths")
    for name, entry in auths.items() if isinstance(auths, dict) else ():
        if _host_of(name) == host and isinstance(entry, dict) and (found := _from_entry(entry)):
            return found
    return asked


def ask_helper(document: dict[str, Any], host: str) -> Credentials | None:
    """What the credential helper that a ``config.json`` names says of a host: ``credHelpers``, else ``credsStore``.

    None where no helper is named or it knows nothing of the host. A helper that isn't there, hangs or answers oddly
    is a ``problem`` and no error: the registry may let everybody in.
    """
    helpers = document.get("credHelpers")
    name = helpers.get(host) if isinstance(helpers, dict) else None
    name = name or document.get("credsStore")
    if not isinstance(name, str) or not name:
        return None
    program = f"docker-credential-{name}"
    if not _HELPER.fullmatch(name) or (path := shutil.which(program)) is None:
        return Credentials(problem=f"the credential helper {program[:80]} is not on PATH")
    try:
        code, answer = ask_program([path, "get"], host.encode(), timeout=HELPER_SECONDS)
    except UsageError as error:
        return Credentials(problem=error.message)
    if code:
        known_nothing = b"credentials not found" in answer
        return None if known_nothing else Credentials(problem=f"the credential helper {program} failed ({code})")
    return _from_answer(answer) or Credentials(problem=f"the credential helper {program} gave no credentials")


def _from_answer(answer: bytes) -> Credentials | None:
    try:
        told = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    user, secret = (told.get("Username"), told.get("Secret")) if isinstance(told, dict) else (None, None)
    if not isinstance(user, str) or not isinstance(secret, str) or not secret:
        return None
    return Credentials(renewal=secret) if user in ("<token>", "") else Credentials(user=user, password=secret)


def _host_of(name: str) -> str:
    return (urlsplit(name).netloc if "://" in name else name).split("/", 1)[0]


def _from_entry(entry: dict[str, Any]) -> Credentials | None:
    if isinstance(renewal := entry.get("identitytoken"), str) and renewal:
        return Credentials(renewal=renewal)
    user, password = entry.get("username"), entry.get("password")
    if isinstance(entry.get("auth"), str):
        try:
            user, _, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
    if isinstance(user, str) and isinstance(password, str) and user:
        return Credentials(user=user, password=password)
    return None


def parse_challenge(header: str) -> Challenge:
    """Read ``WWW-Authenticate``."""
    scheme, _, rest = header.strip().partition(" ")
    values = {key.lower(): value for key, value in _PARAMETER.findall(rest[:4096])}
    return Challenge(
        scheme=scheme.lower(),
        realm=values.get("realm", ""),
        service=values.get("service", ""),
        scope=values.get("scope", ""),
    )


def may_send_to(realm: str, registry: str, *, plain: bool) -> bool:
    """Whether credentials may go to a token service: over TLS, or to the registry's host where that is plain too."""
    place = urlsplit(realm)
    if place.scheme == "https":
        return True
    return place.scheme == "http" and plain and place.hostname == urlsplit(f"//{registry}").hostname


def is_loopback(host: str) -> bool:
    """Whether a host (with or without port) is this machine."""
    return (urlsplit(f"//{host}").hostname or "") in LOOPBACK
