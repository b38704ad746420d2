"""The ``artifacts`` command: the registry of converted models."""

from __future__ import annotations

import sys

import click

from artifacts.cli import LazyGroup, run_boundary

COMMANDS = {
    "list": ("artifacts.commands.list:command", "The models and versions in the registry."),
    "show": ("artifacts.commands.show:command", "One version in full, or how to fetch it with standard tools."),
    "pull": ("artifacts.commands.pull:command", "Fetch one target's files, every byte checked."),
    "verify": ("artifacts.commands.verify:command", "Check a version, a target, or a pulled folder."),
    "push": ("artifacts.commands.push:command", "Push a version or channel to an OCI registry."),
    "copy": ("artifacts.commands.copy:command", "Copy between registry folder, OCI registry and archive."),
    "import": ("artifacts.commands.import_files:command", "Register an artifact that was built elsewhere."),
    "attach": ("artifacts.commands.attach:command", "Attach a result or report to what is published."),
    "seal": ("artifacts.commands.seal:command", "Publish a draft although targets are missing."),
    "promote": ("artifacts.commands.promote:command", "Point a channel to a version."),
    "rollback": ("artifacts.commands.rollback:command", "Point a channel back to a version that it had."),
    "log": ("artifacts.commands.log:command", "Who moved a channel, when and why."),
    "keygen": ("artifacts.commands.keygen:command", "Make a signing key."),
    "sign": ("artifacts.commands.sign:command", "Sign a version with all its targets."),
    "mirror": ("artifacts.commands.mirror:command", "Tell an MLflow model registry what is here."),
    "serve": ("artifacts.commands.serve:command", "The registry as a web page and a JSON API."),
    "gc": ("artifacts.commands.gc:command", "Remove what nothing refers to any more."),
    "fsck": ("artifacts.commands.fsck:command", "Check the whole registry."),
}


@click.group(
    cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
def cli() -> None:
    """The registry of converted models: versions, targets, and the proof that they are right."""


def main() -> None:
    """The entry point of the ``artifacts`` command."""
    sys.exit(run_boundary(cli, sys.argv[1:], prog="artifacts", usage_code="CNV-2401"))


if __name__ == "__main__":
    main()
