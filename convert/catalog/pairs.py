"""From a catalogue to pairs of model and target, and from a pair to the request that converts it."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from artifacts.names import default_name, parse_ref
from convert.catalog.reader import wrong
from convert.catalog.sense import STEM, override
from convert.catalog.values import Catalog, Entry, ModelEntry, Pair, Problem
from convert.errors import UsageError
from convert.request import Request
from convert.values import ExportOptions, LoadOptions
from op_registry.targets import find_target

MAX_FILES = 10_000


def expand(catalog: Catalog) -> tuple[Pair, ...]:
    """Every pair of a catalogue, in its order; models that are not ``enabled`` are left out.

    A file that is missing is no fault of the catalogue: its pairs are there, and planning says so of each.

    Raises:
        UsageError: CNV-2352 (a pattern that no file matches, or two models of one name; all of them).
    """
    problems: list[Problem] = []
    pairs: list[Pair] = []
    taken: dict[str, int] = {}
    for entry in catalog.entries:
        if not entry.model.enabled:
            continue
        for name, path in _models(catalog.folder, entry, problems):
            line = taken.setdefault(name, entry.line)
            if any(pair.name == name for pair in pairs):
                problems.append(_twice(entry, name, line))
                continue
            pairs += _pairs(catalog, entry, name, path)
    if problems:
        raise wrong(Path(catalog.path), tuple(problems))
    return tuple(pairs)


def _twice(entry: Entry, name: str, line: int) -> Problem:
    told = f"two models are called {name}; the other is that of line {line}"
    return Problem(line=entry.line, key="model", message=f"{told}. Give one a name")


def _models(folder: Path, entry: Entry, problems: list[Problem]) -> list[tuple[str, str]]:
    """The names and absolute paths of an entry's models; the path of one from the registry is empty."""
    model = entry.model
    if model.registry:
        return [(model.name or parse_ref(model.registry).name, "")]
    if model.path:
        path = folder / Path(model.path).expanduser()
        return [(model.name or default_name(path.stem), str(path))]
    pattern = model.glob or ""
    files = [path for path in sorted(folder.glob(pattern))[:MAX_FILES] if path.is_file()]
    if not files:
        problems.append(Problem(line=entry.line, key="model.glob", message=f"no file matches {pattern}"))
    name = model.name or STEM
    return [(name.replace(STEM, default_name(path.stem)), str(path)) for path in files]


def _pairs(catalog: Catalog, entry: Entry, name: str, path: str) -> list[Pair]:
    model, defaults = entry.model, catalog.defaults
    found: dict[str, Pair] = {}
    for text in model.targets or defaults.targets:
        target = find_target(text)
        special = override(model, target.name)[1]
        found[target.name] = Pair(
            name=name,
            path=path,
            registry=model.registry or "",
            target=target.name,
            backend=target.backend,
            soc=special.soc or model.soc or "",
            entry=_resolved(catalog.folder, model),
            owner=model.owner if model.owner is not None else defaults.owner,
            require=model.require or defaults.require,
            channel=model.channel if model.channel is not None else defaults.channel,
            device=model.device if model.device is not None else defaults.device,
            line=entry.line,
        )
    return list(found.values())


def _resolved(folder: Path, model: ModelEntry) -> ModelEntry:
    """The entry with the paths of its parts made absolute, so that a pair means the same in any folder."""
    factory = model.factory
    if factory and factory.rpartition(":")[0].endswith(".py"):
        place, _, name = factory.rpartition(":")
        factory = f"{folder / place}:{name}"
    return msgspec.structs.replace(
        model,
        samples=_absolute(folder, model.samples),
        calibration=_absolute(folder, model.calibration),
        factory=factory,
    )


def _absolute(folder: Path, text: str | None) -> str | None:
    """A path made absolute; ``module:callable`` as it is."""
    if not text:
        return text
    path = folder / Path(text).expanduser()
    return str(path) if path.exists() or ":" not in text else text


def select(pairs: Sequence[Pair], models: Sequence[str], targets: Sequence[str]) -> tuple[Pair, ...]:
    """The pairs of models whose name one of the patterns matches, and of those targets; all where nothing is said.

    Raises:
        UsageError: CNV-2353 (a pattern or target that no pair has; all of them).
    """
    wanted = [find_target(name).name for name in targets]
    lost = [text for text in models if not any(fnmatchcase(pair.name, text) for pair in pairs)]
    lost += [name for name in wanted if not any(pair.target == name for pair in pairs)]
    if lost:
        raise UsageError(
            "CNV-2353",
            f"the catalogue has no {', '.join(lost)}",
            hint="`convert catalog plan` lists its models and targets; patterns take * and ?",
        )
    return tuple(
        pair
        for pair in pairs
        if (not models or any(fnmatchcase(pair.name, text) for text in models))
        and (not wanted or pair.target in wanted)
    )


def request_of(pairs: Sequence[Pair], path: str, *, out: str = "", use_cache: bool = True) -> Request:
    """The request that converts pairs of one model that differ in nothing but their target. Publishes nothing itself.

    ``path`` is where the model's file lies on this machine.
    """
    first = pairs[0]
    model = first.entry
    special = override(model, first.target)[1]
    return Request(
        load=LoadOptions(
            path=path,
            inputs=model.inputs,
            dims=model.dims,
            samples=model.samples or "",
            calibration=model.calibration or "",
            factory=model.factory or "",
            factory_args=model.factory_args,
            allow_pickle=model.allow_pickle,
            seed=model.seed,
        ),
        targets=tuple(pair.target for pair in pairs),
        soc=first.soc,
        precision=special.precision or model.precision or "",
        export=ExportOptions(exporter=model.exporter, opset=model.opset or 0),
        simplify=model.simplify,
        strict=model.strict,
        gate=special.gate if special.gate is not None else model.gate,
        metrics=model.metrics,
        argmax=model.argmax,
        preprocess=model.preprocess,
        gate_on=model.gate_on,
        options=special.options if special.options is not None else model.options,
        name=first.name,
        version=model.version or "",
        out=out,
        publish=False,
        use_cache=use_cache,
    )


def alike(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs in groups that one request can convert together, in order."""
    groups: list[tuple[Request, list[Pair]]] = []
    for pair in pairs:
        request = msgspec.structs.replace(request_of([pair], pair.path), targets=())
        for known, group in groups:
            if known == request and group[0].name == pair.name:
                group.append(pair)
                break
        else:
            groups.append((request, [pair]))
    return [group for _, group in groups]
