"""Who may promote on the web: a file with one line for each person, ``NAME TOKEN [CHANNEL…]``."""

from __future__ import annotations

import hashlib
import hmac
import stat
from pathlib import Path

import msgspec

from artifacts.durable import reading
from artifacts.errors import UsageError

MIN_TOKEN = 20
MAX_BYTES = 1 << 20


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody with a token. ``channels``: those that it may move; empty for all."""

    name: str
    token: bytes
    """The SHA-256 of the token; the token itself is not kept."""
    channels: tuple[str, ...] = ()

    def may_move(self, channel: str) -> bool:
        """Whether the token is good for a channel."""
        return not self.channels or channel in self.channels


def read_tokens(path: Path) -> tuple[Holder, ...]:
    """The holders that a file names. Lines that begin with ``#`` are comments.

    Raises:
        UsageError: CNV-2445 (readable for others, a token that is too short, a line that is none).
        RegistryError: CNV-9004.
    """
    with reading(f"reading {path}"):
        if path.stat().st_mode & (stat.S_IRWXO | stat.S_IWGRP):
            raise _bad(path, "others may read it", "chmod 640 it, or stricter")
        text = path.read_bytes()[:MAX_BYTES].decode("utf-8", "replace")
    holders = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 2 or len(words[1]) < MIN_TOKEN:
            raise _bad(path, f"line {number} has no token of at least {MIN_TOKEN} characters", "openssl rand -hex 24")
        token = hashlib.sha256(words[1].encode()).digest()
        holders.append(Holder(name=words[0], token=token, channels=tuple(words[2:])))
    return tuple(holders)


def _bad(path: Path, why: str, hint: str) -> UsageError:
    return UsageError("CNV-2445", f"the token file {path} can't be used: {why}", hint=hint)


def holder_of(holders: tuple[Holder, ...], token: str) -> Holder | None:
    """Whose token it is; every one is compared, in constant time."""
    given = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    found = [holder for holder in holders if hmac.compare_digest(holder.token, given)]
    return found[0] if found else None
