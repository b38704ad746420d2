"""What a server works with: the registry, who may promote, the key that signs, and what was asked so far."""

from __future__ import annotations

from pathlib import Path

from artifacts.channels import Move, Moved
from artifacts.errors import UsageError
from artifacts.keys import PrivateKey
from artifacts.web.metrics import Requests
from artifacts.web.store import WebStore
from artifacts.web.tokens import holder_of, read_tokens
from artifacts.web.values import PromotionAsked


class Desk:
    """One server's state."""

    def __init__(self, store: WebStore, *, tokens: Path | None = None, key: PrivateKey | None = None) -> None:
        self.store = store
        self.tokens = tokens
        self.key = key
        self.requests = Requests()

    @property
    def may_promote(self) -> bool:
        """Whether anybody may promote here."""
        return self.tokens is not None

    def promote(self, asked: PromotionAsked, token: str) -> Moved:
        """Point a channel to a version in the name of a token's holder. The token file is read each time.

        Raises:
            UsageError: CNV-2447 (no token that is known), CNV-2448 (not this channel), CNV-2444 (no ``expect``).
        """
        holders = read_tokens(self.tokens) if self.tokens else ()
        holder = holder_of(holders, token) if token else None
        if holder is None:
            raise UsageError("CNV-2447", "the token is missing or unknown", hint="ask the owner of this server for one")
        if not holder.may_move(asked.channel):
            raise UsageError(
                "CNV-2448",
                f"the token of {holder.name} is not for the channel {asked.channel}",
                hint=f"it is for: {', '.join(holder.channels)}",
            )
        move = Move(
            channel=asked.channel,
            actor=f"{holder.name} (web)",
            reason=asked.reason,
            expect=asked.expect,
            waive=asked.waive,
        )
        return self.store.promote(asked.ref, move, self.key)
