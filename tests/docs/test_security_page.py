"""What the page on security claims is there: the files that hold it, and the tests that show it."""

from __future__ import annotations

import re

from pages import ROOT

TEXT = (ROOT / "docs/concepts/security.md").read_text(encoding="utf-8")
HELD = TEXT.partition("\n## Not trusted\n")[2].partition("\n## ")[0]
ROWS = [line for line in HELD.splitlines() if re.match(r"\| (?!what|---)", line)]


def test_each_row_names_what_holds_it_and_what_shows_it() -> None:
    assert len(ROWS) > 10
    for row in ROWS:
        _, _, held, shown = row.strip("| ").split(" | ")
        assert re.search(r"`(convert|artifacts)/[\w/]+\.py`", held), row
        assert re.search(r"`(test_\w+|tests/[\w/.]+)`", shown), row


def test_what_is_named_exists() -> None:
    files = set(re.findall(r"`((?:convert|artifacts|tests|scripts)/[\w/.-]+)`", TEXT))
    assert {name for name in files if not (ROOT / name).exists()} == set()
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert set(re.findall(r"`(test_\w+)`", TEXT)) - defined == set()
