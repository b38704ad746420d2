"""Where reports of an acceptance go: into a folder under a number of their own, and to the artifact they speak of.

Nothing is ever overwritten: a second acceptance is a second report.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from artifacts.attach import Attached
from artifacts.registry import root_of
from convert.acceptance.page import render_acceptance
from convert.acceptance.values import Acceptance, Opened
from convert.guarding import guarded

TYPE = "acceptance.v1"
"""The attachment's type: ``application/vnd.io.model-convert.acceptance.v1``."""


def write_report(report: Acceptance, folder: Path) -> tuple[Path, Path]:
    """Write the JSON and the page under the next free number of their name."""
    stem = re.sub(r"[^a-z0-9.]+", "-", f"{report.name}-{report.soc or report.target}".lower()).strip("-.")
    with guarded("accept"):
        folder.mkdir(parents=True, exist_ok=True)
        number, document = _free(folder, stem)
        page = folder / f"{stem}-{number:03d}.html"
        page.write_text(render_acceptance(report), encoding="utf-8")
        document.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return document, page


def _free(folder: Path, stem: str) -> tuple[int, Path]:
    """The first number that nobody has; the file is made, so that nobody else takes it."""
    number = 1
    while True:
        path = folder / f"{stem}-{number:03d}.json"
        if not path.with_suffix(".html").exists():
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:
                number += 1
                continue
            return number, path
        number += 1


def attach_report(opened: Opened, files: tuple[Path, Path]) -> Attached:
    """Attach a report to the target that it speaks of. Raises :class:`RegistryError`, those of writing."""
    target = opened.artifact.soc or opened.artifact.target
    root = root_of(opened.registry)
    if root is not None:
        from artifacts.attach import attach

        return attach(root, opened.ref, files, artifact_type=TYPE, target=target)
    from artifacts.remote_moves import attach_remote

    return attach_remote(opened.registry, opened.ref, files, artifact_type=TYPE, target=target)
