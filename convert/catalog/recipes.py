"""A pair's recipe: everything that its result depends on, as facts by name, found without importing torch or onnx.

Two recipes are compared fact by fact, so that a plan can say which file, option or tool version changed. The facts are
those of the stage cache's keys, with contents instead of paths, and of what decides the verdict.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from artifacts.digest import canonical_json, sha256_bytes, sha256_file
from convert.backends import knows_backend, load_backend, no_backend
from convert.backends.base import Missing
from convert.catalog.pairs import request_of
from convert.catalog.values import Change, Pair, Recipe
from convert.loading.sniff import identify, unreadable
from convert.request import Request
from convert.settings import Settings
from convert.stage import code_digest, library_versions
from op_registry.overlay import overlay_digest
from op_registry.targets import find_target

TORCH = ("torch", "onnx", "onnxscript", "onnxruntime", "onnxsim", "numpy")
ONNX = ("onnx", "onnxscript", "onnxruntime", "onnxsim", "numpy")
TOOLCHAIN = "toolchain"
MAX_SOURCES = 2000
"""How many source files beside a factory are hashed."""


class Facts:
    """What several pairs share, found once: digests of files, and the toolchains of this machine.

    ``elsewhere``: toolchains of other machines by backend, for those that are not here.
    """

    def __init__(self, settings: Settings, elsewhere: Mapping[str, str] | None = None) -> None:
        self.settings = settings
        self._elsewhere = dict(elsewhere or {})
        self._toolchains: dict[tuple[str, str], str] = {}
        self._contents: dict[str, str] = {}
        self._overlay = overlay_digest()

    def toolchain(self, backend: str, target: str) -> str:
        """Name and version of the toolchain that serves a target; empty where nothing is known of one."""
        key = (backend, target)
        if key not in self._toolchains:
            self._toolchains[key] = _probed(backend, target) or self._elsewhere.get(backend, "")
        return self._toolchains[key]

    def content(self, text: str) -> str:
        """The digest of a file or of a folder's files; a text that is no path as it is."""
        if text not in self._contents:
            self._contents[text] = _content(text)
        return self._contents[text]

    def recipe(self, pair: Pair, path: str = "") -> Recipe:
        """The recipe of a pair. ``path``: where a model of the registry lies, or its digest.

        Raises:
            LoadError: CNV-3xxx, where the model's file can't be read or is none.
        """
        request = request_of([pair], pair.path)
        facts = {
            **(_model(pair) if pair.path else {"model": path}),
            **dict(self._loading(request)),
            **dict(_request_facts(request)),
            "soc": pair.soc or self.settings.soc,
            "target": pair.target,
            TOOLCHAIN: self.toolchain(pair.backend, pair.target),
            "support data of this site": self._overlay,
        }
        libraries = library_versions(ONNX if facts.get("format") == "onnx" else TORCH)
        facts.update({f"library {name}": version for name, version in libraries.items() if name != "model-convert"})
        facts["model-convert"] = f"{libraries['model-convert']} {code_digest()[7:19]}"
        return {name: facts[name] for name in sorted(facts) if facts[name]}

    def _loading(self, request: Request) -> Iterator[tuple[str, str]]:
        load = request.load
        for name in ("samples", "calibration"):
            if text := getattr(load, name):
                yield name, self.content(text)
        if load.factory:
            yield "factory", load.factory.rpartition(":")[2]
            yield "factory's sources", self.content(f"sources {load.factory}")
        for metric in request.metrics:
            yield f"metric {metric.rpartition(':')[2]}", self.content(f"sources {metric}")


def _model(pair: Pair) -> Recipe:
    file = identify(Path(pair.path))
    facts = {"model": file.sha256, "format": file.format}
    if file.external:
        facts["model's external data"] = sha256_bytes(canonical_json(file.external))
    return facts


def _request_facts(request: Request) -> Iterator[tuple[str, str]]:
    load, export = request.load, request.export
    yield "inputs", " ".join(load.inputs)
    yield "dims", " ".join(load.dims)
    yield "factory arguments", " ".join(load.factory_args)
    yield "seed", str(load.seed or "")
    yield "allow_pickle", "yes" if load.allow_pickle else ""
    yield "precision", request.precision
    yield "exporter", export.exporter if export.exporter != "auto" else ""
    yield "opset", str(export.opset or "")
    yield "simplify", "" if request.simplify else "off"
    yield "strict", "yes" if request.strict else ""
    yield "argmax", "yes" if request.argmax else ""
    yield "version", request.version
    yield "preprocess", request.preprocess
    yield "gate_on", request.gate_on
    for name, value in request.options.items():
        yield f"option {name}", value
    for metric, threshold in request.gate.items():
        yield f"gate {metric}", repr(threshold)


def _probed(backend: str, target: str) -> str:
    if not knows_backend(backend):
        raise no_backend([target])
    found = load_backend(backend).probe(find_target(target), os.environ)
    return "" if isinstance(found, Missing) else f"{found.name} {found.version}"


def _content(text: str) -> str:
    if text.startswith("sources "):
        return _sources(text.removeprefix("sources "))
    path = Path(text)
    try:
        if path.is_file():
            return sha256_file(path)
        if path.is_dir():
            listed = [(item.name, sha256_file(item)) for item in sorted(path.iterdir()) if item.is_file()]
            return sha256_bytes(canonical_json(listed))
    except OSError as error:
        raise unreadable(path, error) from error
    return _sources(text) if ":" in text else f"missing: {text}"


def _sources(where: str) -> str:
    """The digest of the Python files that stand with a ``module:callable`` or ``file.py:callable``."""
    place = where.rpartition(":")[0]
    folder = Path(place).parent if place.endswith(".py") else _package(place)
    if folder is None:
        return f"missing: {place}"
    if folder.is_file():
        return sha256_file(folder)
    files = sorted(folder.glob("*.py") if place.endswith(".py") else folder.rglob("*.py"))[:MAX_SOURCES]
    try:
        return sha256_bytes(canonical_json([(str(path.relative_to(folder)), sha256_file(path)) for path in files]))
    except OSError as error:
        raise unreadable(folder, error) from error


def _package(module: str) -> Path | None:
    """The folder or file of a module's top package; found without importing it."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin


def digest_of(recipe: Recipe) -> str:
    """The digest of a recipe: 64 hexadecimal digits."""
    return sha256_bytes(canonical_json(recipe)).removeprefix("sha256:")


def differences(was: Recipe, now: Recipe) -> tuple[Change, ...]:
    """The facts that differ. A toolchain that nothing is known of now counts as the one that was."""
    known = {**now, TOOLCHAIN: now.get(TOOLCHAIN) or was.get(TOOLCHAIN, "")}
    return tuple(
        Change(fact=fact, was=was.get(fact, ""), now=known.get(fact, ""))
        for fact in sorted({*was, *known})
        if was.get(fact, "") != known.get(fact, "")
    )


def with_toolchain(recipe: Recipe, toolchain: Mapping[str, str]) -> Recipe:
    """A recipe with the toolchain that a conversion really used."""
    if not toolchain:
        return recipe
    return {**recipe, TOOLCHAIN: " ".join(f"{name} {version}" for name, version in sorted(toolchain.items()))}
