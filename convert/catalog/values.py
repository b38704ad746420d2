"""READ FIRST: what ``convert.toml`` may say of models, and what is planned and done about them.

The structs of the first half are the only definition of the file: the reader checks against them, and the JSON schema
for editors (``schema.json``) is made of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from artifacts.digest import Digest
from convert.settings import Settings
from convert.values import Precision

Text = Annotated[str, msgspec.Meta(min_length=1)]
Require = Literal["all", "passed"]


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of everything that a catalogue file says."""


class TargetEntry(Strict, frozen=True, kw_only=True):
    """``[model.target.NAME]``: what differs for one target. What is left out is the model's."""

    precision: Precision | Literal["auto"] | None = None
    soc: Text | None = None
    options: dict[str, str] | None = None
    gate: dict[str, float] | None = None


class Defaults(Strict, frozen=True, kw_only=True):
    """``[catalog]``: what holds for every model that doesn't say otherwise."""

    targets: tuple[Text, ...] = ()
    owner: str = ""
    schedule: str = ""
    """Five cron fields; the machine's local time unless ``timezone`` says otherwise."""
    timezone: str = ""
    require: Require = "all"
    """``all``: a version appears when all of its targets passed. ``passed``: with those that did."""
    channel: str = ""
    """The channel that a new version is promoted to, where the channel's rules allow it."""
    device: bool = False
    """Have flows measure what they publish on its card, where it was published without a word of one."""
    on_regression: str = ""
    """An ``http(s)://`` address that gets each regression as JSON."""


class ModelEntry(Strict, frozen=True, kw_only=True):
    """``[[model]]``: one model, or with ``glob`` several alike. Exactly one of ``path``, ``glob`` and ``registry``."""

    path: Text | None = None
    glob: Text | None = None
    """Files, relative to the catalogue; each becomes a model named after its file."""
    registry: Text | None = None
    """A published artifact in a format that can be loaded (ONNX): ``NAME[:VERSION|:CHANNEL][-TARGET]``."""
    name: Text | None = None
    version: Text | None = None
    """A fixed version. Left out: the next patch when something changed."""
    owner: str | None = None
    schedule: str | None = None
    require: Require | None = None
    channel: str | None = None
    device: bool | None = None
    enabled: bool = True
    targets: tuple[Text, ...] = ()
    target: dict[str, TargetEntry] = {}
    inputs: tuple[Text, ...] = ()
    dims: tuple[Text, ...] = ()
    samples: Text | None = None
    calibration: Text | None = None
    factory: Text | None = None
    factory_args: tuple[Text, ...] = ()
    allow_pickle: bool = False
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    precision: Precision | Literal["auto"] | None = None
    soc: Text | None = None
    options: dict[str, str] = {}
    gate: dict[str, float] = {}
    metrics: tuple[Text, ...] = ()
    argmax: bool = False
    preprocess: str = ""
    """A JSON object, for compilers that prepare images themselves."""
    gate_on: str = ""
    """A target that judges the graph beforehand."""
    exporter: Literal["auto", "both", "dynamo", "torchscript"] = "auto"
    opset: Annotated[int, msgspec.Meta(ge=7, le=28)] | None = None
    simplify: bool = True
    strict: bool = False


class CatalogFile(Strict, frozen=True, kw_only=True):
    """The whole of ``convert.toml``."""

    settings: Settings = Settings()
    catalog: Defaults = Defaults()
    model: tuple[ModelEntry, ...] = ()


# ------------------------------------------------------------------------------------------------------- what was read


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong with the file: the line (from 1; 0 where there is none), the key, and what is wrong."""

    line: int
    key: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.key}: {self.message}"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A ``[[model]]`` with the line that it begins in."""

    line: int
    model: ModelEntry


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """A catalogue that holds together. ``path`` is absolute; paths in it are relative to its folder."""

    path: str
    defaults: Defaults = Defaults()
    entries: tuple[Entry, ...] = ()

    @property
    def folder(self) -> Path:
        """What relative paths start from."""
        return Path(self.path).parent


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One model for one target: the unit that is rebuilt, or not."""

    name: str
    path: str
    """The model's file; empty for a model of the registry."""
    registry: str = ""
    target: str
    backend: str
    soc: str = ""
    entry: ModelEntry
    owner: str = ""
    require: Require = "all"
    channel: str = ""
    device: bool = False
    line: int = 0

    @property
    def label(self) -> str:
        """How the pair is spoken of."""
        return f"{self.name}@{self.target}"

    @property
    def key(self) -> str:
        """What its artifact is called among the targets of a version, as far as that is known before it exists."""
        return (self.soc or self.target).lower()


# --------------------------------------------------------------------------------------------------- plan and outcome

Recipe = dict[str, str]
"""What a pair's result depends on: facts by name (``model``, ``option level``, ``toolchain``, ``torch``, …)."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One fact that is not what it was. ``was`` is empty for what is new, ``now`` for what is gone."""

    fact: str
    was: str = ""
    now: str = ""

    def __str__(self) -> str:
        return f"{self.fact}: {_short(self.was)} → {_short(self.now)}"


def _short(text: str) -> str:
    plain = text.removeprefix("sha256:")
    return f"{plain[:12]}…" if plain != text or len(text) > 60 else text or "–"


Action = Literal["build", "keep", "known failure", "blocked"]


class PairPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about a pair, and why.

    ``blocked``: its model can't be read; ``error`` says why. ``known failure``: it failed with exactly this recipe.
    """

    pair: Pair
    action: Action
    why: str
    changes: tuple[Change, ...] = ()
    recipe: Recipe = {}
    published: str = ""
    """The reference of what the registry has now; empty where it has nothing."""
    error: dict[str, Any] | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a pair ended. ``status``: as of a conversion, ``unchanged`` where nothing was to be done.

    ``was`` holds the facts of the last time that ``change`` speaks about.
    """

    name: str
    target: str
    status: Literal["published", "drafted", "handoff", "failed", "unchanged", "planned", "cancelled"]
    verdict: str = ""
    """``passed`` or ``failed`` where the gate has spoken; with what the numbers were computed on."""
    change: str = ""
    """What is different from last time, in words."""
    regression: str = ""
    """What got worse, in words; empty where nothing did."""
    ref: str = ""
    version: str = ""
    """The version that the reference belongs to, once it is published."""
    digest: Digest = ""
    report: str = ""
    owner: str = ""
    seconds: float = 0.0
    error: dict[str, Any] | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of this pair alone."""
        return int(self.error["exit_code"]) if self.error else 0


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What the registry has of a pair: its recipe where it is recorded, its verdict and numbers, and its cost."""

    ref: str
    digest: Digest
    recipe: Recipe = {}
    seconds: dict[str, float] = {}
    verdict: str = ""
    cosine: float | None = None
    rel_l2: float | None = None
    toolchain: dict[str, str] = {}
    drafted: bool = False
