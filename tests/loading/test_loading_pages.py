"""Every code of loading has a page, and every page of loading has a code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "convert"
SOURCES = [*sorted((ROOT / "loading").glob("*.py")), ROOT / "stages" / "load.py"]


def test_every_code_has_a_page_of_the_usual_form() -> None:
    codes = {code for source in SOURCES for code in re.findall(r'"(CNV-\d{4})"', source.read_text())}
    assert len(codes) > 40
    for code in sorted(codes):
        lines = (ROOT / "explain" / f"{code}.md").read_text().splitlines()
        assert lines[0].startswith(f"# {code}: ")
        assert [line for line in lines if line.startswith("## ")] == ["## What happened", "## What to do", "## Example"]


def test_every_page_of_loading_is_used() -> None:
    text = "".join(source.read_text() for source in SOURCES)
    pages = {page.stem for page in (ROOT / "explain").glob("CNV-*.md")}
    of_loading = {page for page in pages if "CNV-2011" <= page <= "CNV-2022" or "CNV-3001" <= page <= "CNV-3041"}
    assert {page for page in of_loading if page not in text} == set()
    assert len(of_loading) == 12 + 41
