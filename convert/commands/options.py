"""Options that several commands share, and the request that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from artifacts.errors import UsageError, not_utf8
from convert.request import Request
from convert.values import ExportOptions, LoadOptions

F = TypeVar("F", bound=Callable[..., Any])

LOADING = (
    click.option(
        "--input", "inputs", multiple=True, metavar="SPEC", help="An input, such as 'x:float32[N,3,224,224]'."
    ),
    click.option("--dim", "dims", multiple=True, metavar="NAME=SIZES", help="A symbolic dimension: N=1..8 or N=1,4,8."),
    click.option("--samples", metavar="PATH", help="Sample inputs: .npz, .pt, a folder of them, or module:callable."),
    click.option(
        "--calibration", metavar="PATH", help="Inputs to calibrate int8 with, as --samples (default: the samples)."
    ),
    click.option(
        "--factory", metavar="WHERE", help="What builds the module: package.module:callable or file.py:callable."
    ),
    click.option("--factory-arg", "factory_args", multiple=True, metavar="K=V", help="An argument of the factory."),
    click.option(
        "--allow-pickle", is_flag=True, help="Run code that the model file brings along. Only if you trust it."
    ),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of random sample inputs."),
)
EXPORTING = (
    click.option(
        "--exporter",
        type=click.Choice(["auto", "both", "dynamo", "torchscript"]),
        default="auto",
        show_default=True,
        help="auto judges a second one where it can tell something, both always.",
    ),
    click.option(
        "--opset", type=click.IntRange(7, 28), help="The opset to export at (default: what serves the target)."
    ),
)
MODEL = (*LOADING, *EXPORTING)
TARGET = (
    click.option(
        "--target", "-t", "targets", multiple=True, required=True, metavar="NAME", help="A card or SoC; repeatable."
    ),
    click.option("--soc", metavar="NAME", help="The exact SoC, where the target is a family."),
    click.option("--toolchain-version", default="", metavar="V", help="Judge operators for this toolchain version."),
    click.option("--strict", is_flag=True, help="Refuse operators that are unknown or risky, too."),
)
RUN = (
    click.option("--no-simplify", is_flag=True, help="Leave the simplifier out."),
    click.option("--timeout", type=float, metavar="S", help="Seconds that one stage may take."),
    click.option("--memory", metavar="SIZE", help="Memory that one stage may use, such as 8GB."),
    click.option("--jobs", type=click.IntRange(1), metavar="N", help="Targets converted side by side."),
    click.option("--no-cache", is_flag=True, help="Neither read nor write the stage cache."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout, also on failure."),
    click.option("--quiet", "-q", is_flag=True, help="No progress on stderr."),
)


def add_options(*groups: tuple[Callable[[F], F], ...]) -> Callable[[F], F]:
    """A decorator that adds groups of options, in order."""

    def decorate(function: F) -> F:
        for group in reversed(groups):
            for option in reversed(group):
                function = option(function)
        return function

    return decorate


def require_utf8(*paths: str) -> None:
    """Refuse a path whose bytes are no UTF-8 (CNV-2063): no document of this program could name it."""
    if refused := not_utf8(paths):
        raise refused


def load_options(model: str, given: dict[str, Any]) -> LoadOptions:
    """The loading part of a request, paths made absolute. Raises :class:`UsageError` (CNV-2063)."""
    require_utf8(model, given["samples"] or "", given["calibration"] or "", given["factory"] or "")
    return LoadOptions(
        path=str(Path(model).absolute()),
        inputs=given["inputs"],
        dims=given["dims"],
        samples=absolute(given["samples"]),
        calibration=absolute(given["calibration"]),
        factory=_absolute_factory(given["factory"]),
        factory_args=given["factory_args"],
        allow_pickle=given["allow_pickle"],
        seed=given["seed"],
    )


def absolute(text: str | None) -> str:
    """A path made absolute; ``module:callable`` stays as it is."""
    if not text:
        return ""
    path = Path(text)
    return str(path.absolute()) if path.exists() or ":" not in text else _absolute_factory(text)


def _absolute_factory(text: str | None) -> str:
    """``path/file.py:callable`` with an absolute path; ``package.module:callable`` as it is."""
    if not text:
        return ""
    place, colon, name = text.rpartition(":")
    return f"{Path(place).absolute()}{colon}{name}" if place.endswith(".py") else text


def request_from(model: str, given: dict[str, Any], **more: Any) -> Request:
    """A request from the options of a command."""
    return Request(
        load=load_options(model, given),
        targets=given["targets"],
        soc=given["soc"] or "",
        strict=given["strict"],
        toolchain_version=given["toolchain_version"],
        export=ExportOptions(exporter=given["exporter"], opset=given["opset"] or 0),
        simplify=not given["no_simplify"],
        use_cache=not given["no_cache"],
        **more,
    )


def key_values(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """``KEY=VALUE`` texts as a dictionary. Raises :class:`UsageError` (CNV-2007) naming every bad one."""
    bad = [text for text in texts if "=" not in text or text.startswith("=")]
    if bad:
        raise UsageError(
            "CNV-2007",
            f"{option} takes KEY=VALUE, not {', '.join(map(repr, bad))}",
            hint=f"for example {option} level=off",
        )
    return dict(text.split("=", 1) for text in texts)
