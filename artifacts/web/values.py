"""What the web shows of a registry, as values: one set for the pages and the JSON API alike."""

from __future__ import annotations

from typing import Literal

import msgspec

from artifacts.device_results import FoundResult
from artifacts.digest import Digest
from artifacts.events import ChannelLog
from artifacts.listing import ListedModel, Shown
from artifacts.signing import SignatureCheck


class Models(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the models whose name contains a pattern. ``total`` counts all of them."""

    models: tuple[ListedModel, ...]
    total: int
    page: int
    pages: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One fact that differs between two artifacts, as text."""

    fact: str
    before: str
    after: str


class TargetDiff(msgspec.Struct, frozen=True, kw_only=True):
    """One target in two versions. ``same``: the very same artifact, byte by byte."""

    target: str
    state: Literal["same", "changed", "added", "removed"]
    changes: tuple[Change, ...] = ()


class VersionDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from one version to another."""

    before: str
    after: str
    targets: tuple[TargetDiff, ...]


class AttachedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was attached to a target or version."""

    tag: str
    artifact_type: str
    name: str
    sha256: Digest
    bytes: int


class VersionPage(msgspec.Struct, frozen=True, kw_only=True):
    """All that is told of a version or target. ``diff`` is against the version that ``prod`` has now."""

    shown: Shown
    signatures: tuple[SignatureCheck, ...]
    attachments: dict[str, tuple[AttachedFile, ...]]
    """By the digest of what they are attached to."""
    measured: dict[str, tuple[FoundResult, ...]] = {}
    """What devices measured after the artifact was published, by the digest of the target; oldest first."""
    diff: VersionDiff | None = None


class Signatures(msgspec.Struct, frozen=True, kw_only=True):
    """The signatures of a version and its targets, judged by the keys that this server trusts."""

    ref: str
    checks: tuple[SignatureCheck, ...]


class FetchText(msgspec.Struct, frozen=True, kw_only=True):
    """How to fetch a target with standard tools, by tool."""

    ref: str
    scripts: dict[str, str]


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """The commands that fetch each target of a version."""

    targets: tuple[FetchText, ...]


class PromotionAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``POST /api/v1/promotions`` takes. ``expect``: the version that the channel has now, ``none`` for none."""

    ref: str
    channel: str
    reason: str = ""
    expect: str = ""
    waive: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was refused, as ``convert explain CODE`` tells it."""

    code: str
    message: str
    hint: str
    exit_code: int


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer that is an error."""

    error: Problem


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``/healthz``."""

    status: str = "ok"


SCHEMAS = (Alive, Models, ListedModel, VersionPage, VersionDiff, ChannelLog, Signatures, Fetch, PromotionAsked, Refusal)
