"""Whether a catalogue file makes sense: targets that exist, thresholds that mean something, schedules that fire.

Nothing here looks at a model's file; that is what planning does.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

from artifacts.channels import check_channel
from artifacts.names import check_name, check_version, parse_ref
from convert.catalog.cron import cron_fault
from convert.catalog.lines import Place
from convert.catalog.values import CatalogFile, Defaults, ModelEntry, TargetEntry
from convert.errors import ConvertError
from convert.gate import parse_gate
from convert.loading.inputs import parse_dims, parse_inputs
from op_registry.errors import RegistryDataError
from op_registry.targets import find_target
from op_registry.values import Target

STEM = "{stem}"
Found = tuple[Place, str]
"""A problem by the place of its key, before its line is known."""


def sense_of(file: CatalogFile) -> Iterator[Found]:
    """Every problem of a file whose shape is right."""
    yield from _of_defaults(file.catalog)
    names: dict[str, int] = {}
    for number, model in enumerate(file.model):
        for path, message in _of_model(model, file.catalog):
            yield ("model", number, *path), message
        if model.name and STEM not in model.name:
            first = names.setdefault(model.name, number)
            if first != number:
                yield ("model", number, "name"), f"the name {model.name} is taken by model {first + 1} of this file"


def _of_defaults(defaults: Defaults) -> Iterator[Found]:
    place: Place = ("catalog",)
    for name in defaults.targets:
        yield from _raised((*place, "targets"), partial(find_target, name))
    yield from _schedule((*place, "schedule"), defaults.schedule)
    zones = available_timezones()
    # A machine without time zone data knows of none; there Prefect's own word has to do.
    if zones and defaults.timezone and defaults.timezone not in zones:
        near = difflib.get_close_matches(defaults.timezone, zones, n=1)
        told = f"; near it: {near[0]}" if near else ""
        yield (*place, "timezone"), f"no time zone is called {defaults.timezone!r}{told}"
    if defaults.channel:
        yield from _raised((*place, "channel"), partial(check_channel, defaults.channel))
    if defaults.on_regression and not defaults.on_regression.startswith(("http://", "https://")):
        yield (*place, "on_regression"), "an address begins with http:// or https://"


def _of_model(model: ModelEntry, defaults: Defaults) -> Iterator[Found]:
    metrics = [text.rpartition(":")[2] for text in model.metrics]
    yield from _of_source(model)
    yield from _of_name(model)
    if model.version:
        yield from _raised(("version",), partial(check_version, model.version))
    if model.channel:
        yield from _raised(("channel",), partial(check_channel, model.channel))
    yield from _schedule(("schedule",), model.schedule or "")
    yield from _raised(("inputs",), partial(parse_inputs, model.inputs))
    yield from _raised(("dims",), partial(parse_dims, model.dims))
    yield from _raised(("gate",), partial(parse_gate, gate_texts(model.gate), metrics))
    if model.factory and ":" not in model.factory:
        yield ("factory",), "a factory is package.module:callable or path/file.py:callable"
    yield from _of_targets(model, defaults)
    for name, special in model.target.items():
        gate = gate_texts(special.gate or {})
        yield from _raised(("target", name, "gate"), partial(parse_gate, gate, metrics))


def _of_source(model: ModelEntry) -> Iterator[Found]:
    given = [name for name in ("path", "glob", "registry") if getattr(model, name)]
    if len(given) != 1:
        told = f"has {' and '.join(given)}" if given else "has none"
        yield (), f"a model needs exactly one of path, glob and registry; this one {told}"
    if model.glob and (Path(model.glob).is_absolute() or ".." in Path(model.glob).parts):
        yield ("glob",), "a pattern stays inside the catalogue's folder: no leading / and no .."
    if model.registry:
        yield from _raised(("registry",), partial(parse_ref, model.registry))


def _of_name(model: ModelEntry) -> Iterator[Found]:
    if not model.name:
        return
    if model.glob and STEM not in model.name:
        yield ("name",), f"the name of a pattern's models needs {STEM}, as in vision/{STEM}"
    elif STEM in model.name and not model.glob:
        yield ("name",), f"{STEM} is for models of a glob"
    else:
        yield from _raised(("name",), partial(check_name, model.name.replace(STEM, "x")))


def _of_targets(model: ModelEntry, defaults: Defaults) -> Iterator[Found]:
    if not (model.targets or defaults.targets):
        yield (), "a model needs targets, its own or those of [catalog]"
    for name in model.targets:
        yield from _raised(("targets",), partial(find_target, name))
    known = {target.name: target for target in _known(model.targets or defaults.targets)}
    for name in model.target:
        resolved = _known((name,))
        if not resolved or resolved[0].name not in known:
            yield ("target", name), f"{name} is none of this model's targets: {', '.join(known) or 'it has none'}"
    for target in known.values():
        yield from _of_precision(model, target)


def _of_precision(model: ModelEntry, target: Target) -> Iterator[Found]:
    name, special = override(model, target.name)
    precision = special.precision or model.precision
    # A mixed plan is made of fp16 and fp32; whether a backend can express it, the backend says.
    needed = "fp16" if precision == "mixed" else precision
    if needed and needed != "auto" and target.precisions.get(needed, "no") == "no":
        has = ", ".join(known for known, state in target.precisions.items() if state != "no")
        place: Place = ("target", name, "precision") if special.precision else ("precision",)
        yield place, f"{precision} is not a precision of {target.name}, which has {has}"


def override(model: ModelEntry, target: str) -> tuple[str, TargetEntry]:
    """The ``[model.target.NAME]`` of a target by its full name, with the name that the file gives it."""
    for name, special in model.target.items():
        if any(known.name == target for known in _known((name,))):
            return name, special
    return target, TargetEntry()


def gate_texts(gate: dict[str, float]) -> list[str]:
    """Thresholds as ``--gate`` takes them."""
    return [f"{name}={value!r}" for name, value in gate.items()]


def _known(names: tuple[str, ...]) -> list[Target]:
    found = []
    for name in names:
        try:
            found.append(find_target(name))
        except RegistryDataError:
            continue
    return found


def _schedule(place: Place, text: str) -> Iterator[Found]:
    fault = cron_fault(text) if text else ""
    if fault:
        yield place, fault


def _raised(place: Place, check: Callable[[], Any]) -> Iterator[Found]:
    try:
        check()
    except (ConvertError, RegistryDataError) as error:
        yield place, error.message + (f" ({error.hint})" if error.hint else "")
