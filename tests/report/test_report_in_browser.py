"""The report in a real browser: no scrolling sideways on a phone, no error on the console."""

import html
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import report_samples as samples

from convert.report.html import render_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PROBE = """<!doctype html><title>waiting</title><pre id="answer">waiting</pre>
<iframe id="page" style="border:0;width:{width}px;height:40000px" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const root = document.getElementById("page").contentDocument.documentElement;
  const wide = [...root.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > {width} + 1);
  document.getElementById("answer").textContent =
    "scroll " + root.scrollWidth + " wide " + wide.map(e => e.tagName + "." + e.className).join(" ");
}});
</script>"""


def chromium(page: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command += ["--enable-logging=stderr", "--virtual-time-budget=2000", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.fixture
def browser():
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have chromium: the report is looked at in a browser")
        pytest.skip("chromium is not installed")


@pytest.mark.usefixtures("browser")
@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("name", samples.ALL)
def test_nothing_is_wider_than_the_screen(name, width, tmp_path):
    page = tmp_path / "probe.html"
    page.write_text(PROBE.format(width=width, page=html.escape(render_report(samples.ALL[name]()))))
    answer = chromium(page, tmp_path, "--dump-dom", "--window-size=1400,1000").stdout
    told = answer.partition('<pre id="answer">')[2].partition("</pre>")[0]
    assert told == f"scroll {width} wide "


@pytest.mark.usefixtures("browser")
def test_the_page_logs_nothing_and_prints(tmp_path):
    page = tmp_path / "report.html"
    page.write_text(render_report(samples.hostile()))
    run = chromium(page, tmp_path, f"--print-to-pdf={tmp_path / 'report.pdf'}")
    assert "CONSOLE" not in run.stderr
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
