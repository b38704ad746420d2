"""The user's own code: importing a callable that an option names, and what it or torch raises as one clean line."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from artifacts.errors import ModelConvertError, disk_full
from convert.errors import LoadError, UsageError

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
NOISE = re.compile(
    r"^(Exception raised from|frame #\d|Traceback|The above exception|During handling|This is an internal)"
)
SAID = re.compile(r"^(?:[\w.]+(?:Error|Exception)): (.+)")
UNSAFE = re.compile(r"Unsupported (?:global|class): (?:GLOBAL )?([\w.]+)")
"""How ``torch.load(weights_only=True)`` says what it refuses to import."""
NO_MEMORY = "DefaultCPUAllocator: can't allocate memory"
"""How torch says so; it raises a RuntimeError."""
MAX_LINE = 400
MAKES_NAMES = frozenset({"*", "globals", "__getattr__", "exec", "setattr"})
"""What a file has that may make names which do not stand in its text."""


def one_line(error: BaseException) -> str:
    """What an exception says, in one line: no colours, no C++ stack, no TorchScript traceback."""
    lines = [line.strip() for line in ANSI.sub("", str(error)).splitlines()]
    lines = [line for line in lines if line and not NOISE.match(line)]
    said = lines[0] if lines else ""
    if said.startswith("The following operation failed in the TorchScript interpreter"):
        causes = [match[1] for line in lines if (match := SAID.match(line))]
        said = causes[-1] if causes else lines[-1]
    if (refused := UNSAFE.search(str(error))) is not None:
        return f"it would import {refused[1]}"
    if isinstance(error, KeyError):
        said = f"key {said} is missing"
    name = type(error).__name__
    text = f"{name}: {said}" if said and name not in ("RuntimeError", "KeyError", "Exception") else said or name
    return text if len(text) <= MAX_LINE else text[: MAX_LINE - 1] + "…"


class Guarded:
    """A context in which anything that the user's code or torch raises becomes a :class:`LoadError`.

    Our own errors pass. ``doing`` is the start of the message; what was raised follows it, after a colon. Warnings
    are kept quiet: they are about code that is not ours.
    """

    def __init__(self, code: str, doing: str, *, hint: str, error: type[ModelConvertError] = LoadError) -> None:
        self._code = code
        self._doing = doing
        self._hint = hint
        self._error = error
        self._warnings = warnings.catch_warnings()

    def __enter__(self) -> None:
        self._warnings.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._warnings.__exit__(kind, error, trace)
        if isinstance(error, ModelConvertError) or not isinstance(error, Exception):
            return
        if isinstance(error, MemoryError):
            return
        if NO_MEMORY in str(error):
            raise MemoryError(one_line(error)) from error
        if isinstance(error, OSError) and (full := disk_full(error, "the model's own code was writing")):
            raise full from error
        raise self._error(self._code, f"{self._doing}: {one_line(error)}", hint=self._hint) from error


def split_callable(text: str, option: str) -> tuple[str, str]:
    """``(module or file, callable)`` of a text. Raises :class:`UsageError` CNV-2018 where it has another form."""
    where, colon, name = text.rpartition(":")
    if not colon or not where or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(
            "CNV-2018",
            f"{option} {text!r} is not package.module:callable or path/file.py:callable",
            hint=f"for example {option} my_package.models:make_model or {option} ./models.py:make_model",
        )
    return where, name


def import_callable(text: str, option: str, *, beside: Path | None = None) -> Callable[..., Any]:
    """Import what ``--factory`` or ``--samples`` names; the current folder is searched like an installed package.

    Raises :class:`UsageError` CNV-2018 (no such form, file, module or name) and CNV-2019 (its import fails).
    ``beside``: a folder that is named in the hint where the file lies there.
    """
    where, name = split_callable(text, option)
    module = _import_file(where, option, beside) if where.endswith(".py") else _import_module(where, option)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        there = ", ".join(sorted(key for key, value in vars(module).items() if callable(value) and key[0] != "_")[:8])
        raise UsageError(
            "CNV-2018",
            f"{option}: {where} has no callable {name!r}",
            hint=f"callables in it: {there or 'none'}",
        )
    return found  # type: ignore[no-any-return]


def find_callable(text: str, option: str) -> None:
    """Look for what :func:`import_callable` would import, without running any of it.

    Raises :class:`UsageError` CNV-2018 where the file, the name in it, or the module's outermost package is not there.
    A name that a file may make in another way than by writing it down is left to the import, and so is a file that
    can't be parsed.
    """
    where, name = split_callable(text, option)
    if not where.endswith(".py"):
        search_also(Path.cwd())
        _known_module(where, where.partition(".")[0], option)
        return
    _existing_file(where, option, None)
    first = name.partition(".")[0]
    try:
        names = _written_names(ast.parse(Path(where).expanduser().read_bytes()))
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
        return
    if first not in names and not names & MAKES_NAMES:
        raise UsageError(
            "CNV-2018", f"{option}: {where} has no callable {first!r}", hint="check the name after the colon"
        )


def _written_names(tree: ast.Module) -> set[str]:
    """Every name that a file's text has, whether it is bound there or only read."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
    return names


def _import_file(where: str, option: str, beside: Path | None) -> ModuleType:
    path = _existing_file(where, option, beside)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError("CNV-2018", f"{option}: {path} is no Python file", hint="give a .py file")
    search_also(path.parent)
    module = importlib.util.module_from_spec(spec)
    with Guarded(
        "CNV-2019", f"{option}: importing {path} failed", hint="run the file alone to see why", error=UsageError
    ):
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    return module


def _existing_file(where: str, option: str, beside: Path | None) -> Path:
    path = Path(where).expanduser().absolute()
    if not path.is_file():
        near = beside / Path(where).name if beside is not None else None
        hint = f"did you mean {option} {near}:…?" if near is not None and near.is_file() else "check the path"
        raise UsageError("CNV-2018", f"{option}: there is no file {path}", hint=hint)
    return path


def _import_module(where: str, option: str) -> ModuleType:
    search_also(Path.cwd())
    _known_module(where, where, option)
    hint = "import the module in Python to see why"
    with Guarded("CNV-2019", f"{option}: importing {where} failed", hint=hint, error=UsageError):
        return importlib.import_module(where)
    raise AssertionError("unreachable")


def _known_module(where: str, looked_for: str, option: str) -> None:
    try:
        known = importlib.util.find_spec(looked_for) is not None
    except (ImportError, ValueError, AttributeError):
        known = False
    if not known:
        raise UsageError(
            "CNV-2018",
            f"{option}: there is no module {where!r} in this environment or in {Path.cwd()}",
            hint="install its package, set PYTHONPATH to its folder, or give the file: path/file.py:callable",
        )


def search_also(folder: Path) -> None:
    """Let Python find modules in a folder, after everything that is installed."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def parse_arguments(texts: tuple[str, ...]) -> dict[str, Any]:
    """``--factory-arg`` texts: ``key=value``, the value a Python literal or else a text.

    Raises :class:`UsageError` CNV-2020, naming every text that is not of this form.
    """
    bad = [text for text in texts if not text.partition("=")[0].strip().isidentifier() or "=" not in text]
    if bad:
        raise UsageError(
            "CNV-2020",
            f"--factory-arg can't be read: {', '.join(map(repr, bad))}",
            hint="write key=value, for example --factory-arg num_classes=10",
        )
    return {key.strip(): _literal(value) for key, _, value in (text.partition("=") for text in texts)}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
