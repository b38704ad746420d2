"""The pictures of the documentation: each is shown, each that is shown is there, and the script makes all of them."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pages import PAGES, ROOT

FOLDER = ROOT / "docs" / "pictures"
PICTURES = sorted(path.name for path in FOLDER.iterdir())
SHOWN = re.compile(r"\]\(([^)\s]*pictures/[^)\s]+)\)")
TOTAL = 1_500_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def shown() -> set[Path]:
    return {
        (page.parent / link).resolve() for page in PAGES for link in SHOWN.findall(page.read_text(encoding="utf-8"))
    }


def size_of(path: Path) -> tuple[int, int]:
    """Width and height of a PNG."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_every_picture_is_shown_and_every_shown_one_is_there() -> None:
    assert shown() == {FOLDER / name for name in PICTURES}


def test_the_pictures_are_small() -> None:
    assert sum((FOLDER / name).stat().st_size for name in PICTURES) < TOTAL


def test_the_pictures_ask_nobody_and_tell_no_path() -> None:
    text = (FOLDER / "convert.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert re.findall(r"https?://(?!www\.w3\.org/|www\.textualize\.io)", text) == []
    assert "/tmp" not in text


@pytest.mark.long
def test_the_script_makes_every_picture(tmp_path: Path) -> None:
    if not any(map(shutil.which, BROWSERS)):
        if os.environ.get("CI"):
            pytest.fail("CI must have chromium: the pictures are made with it")
        pytest.skip("chromium is not installed")
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "screenshots", tmp_path], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == PICTURES
    pages = [name for name in PICTURES if name.endswith(".png")]
    assert {name: size_of(tmp_path / name) for name in pages} == {name: size_of(FOLDER / name) for name in pages}
