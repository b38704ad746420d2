"""Vendor backends: one file and one line of this table each. Third parties add theirs by an entry point.

A distribution outside this project declares, in the entry-point group ``convert.backends``,
``NAME = "package.module:ClassName"``. A name of the table can't be taken by another distribution.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import cast

from convert.backends.base import Backend
from convert.errors import UsageError

GROUP = "convert.backends"

BACKENDS: Mapping[str, str] = MappingProxyType(
    {
        "onnxruntime": "convert.backends.onnxruntime:OnnxRuntimeBackend",
        "tensorrt": "convert.backends.tensorrt:TensorrtBackend",
        "ixrt": "convert.backends.ixrt:IxrtBackend",
        "atc": "convert.backends.atc:AtcBackend",
        "magicmind": "convert.backends.magicmind:MagicmindBackend",
        "openvino": "convert.backends.openvino:OpenvinoBackend",
        "sophgo": "convert.backends.sophgo:SophgoBackend",
        "qnn": "convert.backends.qnn:QnnBackend",
        "rknn": "convert.backends.rknn:RknnBackend",
        "migraphx": "convert.backends.migraphx:MigraphxBackend",
    }
)


def backend_names() -> tuple[str, ...]:
    """Every backend that can be loaded: those of the table, then those of other distributions, by name."""
    return (*BACKENDS, *sorted(name for name in _others() if name not in BACKENDS))


def knows_backend(name: str) -> bool:
    """Whether a backend can be loaded; looks at other distributions only where the table doesn't have it."""
    return name in BACKENDS or name in _others()


def no_backend(targets: Sequence[str]) -> UsageError:
    """The error CNV-2006 for targets that nothing here compiles for."""
    return UsageError(
        "CNV-2006",
        f"this version has no compiler backend for {', '.join(targets)}",
        hint="`convert check MODEL --target …` tells what the card takes; the backends here are "
        + ", ".join(backend_names()),
    )


def load_backend(name: str) -> Backend:
    """The backend of that name.

    Raises :class:`UsageError`: CNV-2073 where there is none, CNV-2074 where another distribution's can't be loaded.
    """
    if name in BACKENDS:
        return _imported(BACKENDS[name])
    found = _others().get(name, [])
    if not found:
        near = difflib.get_close_matches(name, backend_names(), n=1)
        raise UsageError(
            "CNV-2073",
            f"there is no backend called {name!r}",
            hint=f"did you mean {near[0]}?" if near else f"backends: {', '.join(backend_names())}",
        )
    try:
        backend = _imported(found[0])
    except (ImportError, AttributeError, TypeError) as error:
        raise UsageError(
            "CNV-2074",
            f"the backend {name!r} can't be loaded from {found[0]}: {error}",
            hint="install or repair the distribution that declares it in the entry-point group convert.backends",
        ) from error
    if getattr(backend, "name", None) != name or not isinstance(backend, Backend):
        raise UsageError(
            "CNV-2074",
            f"{found[0]} is no backend called {name!r}",
            hint="it needs that name, and the methods plan, probe, compile, run and diagnose",
        )
    return backend


def _others() -> dict[str, list[str]]:
    """Backends of other distributions: where each is declared to be."""
    from importlib.metadata import entry_points

    found: dict[str, list[str]] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, []).append(entry.value)
    return found


def _imported(spec: str) -> Backend:
    module, _, attribute = spec.partition(":")
    return cast(Backend, getattr(import_module(module), attribute)())
