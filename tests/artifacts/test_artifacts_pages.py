"""Every code that the registry raises has a page, and every page of the registry's codes is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "convert/explain"
SOURCES = [path for path in (ROOT / "artifacts").rglob("*.py") if path.name not in ("runner.py", "host.py", "guard.py")]
CODE = re.compile(r'"(CNV-(?:90\d\d|24[0-4]\d))"')
USED = sorted({code for path in SOURCES for code in CODE.findall(path.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("code", USED)
def test_every_code_has_a_page_with_its_sections(code):
    text = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {code}: ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["What happened", "What to do", "Example"]


def test_no_page_of_ours_is_about_a_code_that_nothing_raises():
    written = {path.stem for pattern in ("CNV-90*.md", "CNV-24[0-4]*.md") for path in PAGES.glob(pattern)}
    assert written == set(USED)
