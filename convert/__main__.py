"""The ``convert`` command (``model-convert`` where ImageMagick's ``convert`` comes first on the path)."""

from __future__ import annotations

import sys

import click

from artifacts.cli import LazyGroup, run_boundary

COMMANDS = {
    "run": ("convert.commands.run:command", "MODEL --target T: convert, judge and publish (the default command)."),
    "check": ("convert.commands.check:command", "MODEL --target T: everything before the compiler."),
    "forecast": ("convert.commands.forecast:command", "MODEL --precision P: what a precision does to the numbers."),
    "diff": ("convert.commands.diff:diff", "A B: compare two models on the same inputs, or two .npz of outputs."),
    "matrix": ("convert.commands.matrix:command", "MODEL: every known target at once."),
    "targets": ("convert.commands.targets:command", "The cards and SoCs, with precisions and opsets."),
    "ops": ("convert.commands.ops:command", "Operator support: list, show, diff, coverage, learn."),
    "graph": ("convert.commands.graph:command", "lower, rewrite or lint an ONNX file by itself."),
    "gate": ("convert.commands.gate:gate", "REPORT: judge stored metrics again with other thresholds."),
    "resume": ("convert.commands.resume:command", "BUNDLE: go on with what was compiled and measured elsewhere."),
    "bench": ("convert.commands.bench:command", "ARTIFACT: are its outputs right, and how fast is it."),
    "soak": ("convert.commands.soak:command", "ARTIFACT --for 24h: does it stay right."),
    "accept": ("convert.commands.accept:command", "ARTIFACT: precision, stress, faults; one report to sign off on."),
    "doctor": (
        "convert.commands.doctor:command",
        "Is this machine fit: toolkits, versions that belong together, cards, space.",
    ),
    "explain": ("convert.commands.explain:command", "CODE or LOG: what an error means and what to do."),
    "toolchain": ("convert.commands.toolchain:command", "install, list or remove toolchains that come from PyPI."),
    "catalog": ("convert.commands.catalog:command", "check, plan or run the models of convert.toml."),
    "cache": ("convert.commands.cache:command", "Show or prune the stage cache."),
}


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    default="run",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="model-convert")
def cli() -> None:
    """Take a PyTorch model to an artifact that a deploy team can trust.

    \b
    convert model.pt --target cpu
    convert check model.pt --target Ascend910B
    """


def main() -> None:
    """The entry point of the ``convert`` command."""
    sys.exit(run_boundary(cli, sys.argv[1:], prog="convert", usage_code="CNV-2000"))


if __name__ == "__main__":
    main()
