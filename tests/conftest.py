"""Fixtures that every test may use."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write what is given as the new expectation")


@pytest.fixture(autouse=True)
def _own_places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache and registry of a test never are the user's."""
    base = tmp_path_factory.getbasetemp() / "places"
    monkeypatch.setenv("CONVERT_CACHE_DIR", str(base / "cache"))
    monkeypatch.setenv("CONVERT_REGISTRY", str(base / "registry"))
    monkeypatch.setenv("CONVERT_OUT", str(base / "out"))


@pytest.fixture
def counted() -> Callable[..., tuple[Any, int]]:
    """``counted(function, *args)``: its value, and how many functions Python called for it: work without a clock."""

    def run(function: Callable[..., Any], *args: Any) -> tuple[Any, int]:
        calls = 0

        def seen(_: object, event: str, __: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(seen)
        try:
            value = function(*args)
        finally:
            sys.setprofile(None)
        return value, calls

    return run


@pytest.fixture
def card_machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``card_machine("910b3", "l20")`` puts stand-ins of the vendors' card tools on PATH: this machine has those cards.

    The names are those of ``tests/doubles/cards/outputs/<tool>/``; without one, every tool is there and finds no card.
    """

    def install(*cards: str, fault: str = "") -> None:
        doubles = ROOT / "tests" / "doubles" / "cards"
        wanted = {path.parent.name for path in (doubles / "outputs").glob("*/*") if path.stem in cards or not cards}
        folder = tmp_path_factory.mktemp("card-tools")
        for tool in wanted:
            (folder / tool).symlink_to(doubles / "card_tool.py")
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("DOUBLE_CARDS", ",".join(cards))
        monkeypatch.setenv("DOUBLE_FAULT", fault)

    return install


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of hard inputs beside the project, where there is one."""
    folder = ROOT.parent / "shared" / "cases"
    if not folder.is_dir():
        pytest.skip("the folder of hard inputs is not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def trained() -> Path:
    """The folder of small trained models, which ``scripts/trained-models`` fills; always there in CI."""
    folder = Path(sys.prefix) / "models"
    if not (folder / ".ready").exists() and not os.environ.get("CI"):
        pytest.skip("`make models` fetches the trained models")
    return folder


def needs(program: str) -> pytest.MarkDecorator:
    """Skip where a program is missing, but never in continuous integration, which installs it."""
    missing = shutil.which(program) is None and not os.environ.get("CI")
    return pytest.mark.skipif(missing, reason=f"{program} is not installed")
