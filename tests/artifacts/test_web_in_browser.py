"""The pages in a real browser: no scrolling sideways on a phone, no error on the console, keyboard, dark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from web_kit import fill, make_app, serving, write_tokens

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PROBE = """<!doctype html><title>probe</title><body><script>
const told = [];
const next = (pages) => {{
  if (!pages.length) {{
    const pre = document.createElement("pre");
    pre.id = "answer"; pre.textContent = told.join("\\n");
    document.body.append(pre);
    return;
  }}
  const frame = document.createElement("iframe");
  frame.style = "border:0;width:{width}px;height:3000px"; frame.src = pages[0];
  frame.onload = () => {{
    const root = frame.contentDocument.documentElement;
    const inside = e => e.closest(".scroll, pre, .skip, thead");
    const over = e => !inside(e) && e.getBoundingClientRect().right > {width} + 1;
    const wide = [...root.querySelectorAll("body *")].filter(over);
    const loose = [...root.querySelectorAll("input:not([type=hidden])")].filter(e => !e.labels.length);
    const scripts = root.querySelectorAll("script").length;
    told.push([pages[0], root.scrollWidth <= {width} ? "fits" : "scrolls " + root.scrollWidth,
      "wide " + wide.map(e => e.tagName + "." + e.className).join(" "), "unlabelled " + loose.length,
      "scripts " + scripts, "headings " + root.querySelectorAll("h1").length, "lang " + root.lang].join(" | "));
    frame.remove(); next(pages.slice(1));
  }};
  document.body.append(frame);
}};
next({pages});
</script>"""
PAGES = [
    "/",
    "/model?name=net",
    "/version?ref=net%3A1.2.0",
    "/version?ref=group%2Fother",
    "/history?model=net&channel=prod",
    "/version?ref=absent",
]


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have chromium: the pages are looked at in a browser")
        pytest.skip("chromium is not installed")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    work = tmp_path_factory.mktemp("browser")
    return fill(work / "reg", work), write_tokens(work / "tokens")


class Framed:
    """The application with one page more, of the same origin, that looks at the others in frames.

    Framing is what the server's headers forbid, so the probe takes those two headers away; all else is as served.
    """

    def __init__(self, app, width: int, pages: list[str]) -> None:
        self.app = app
        self.page = PROBE.format(width=width, pages=pages).encode()

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http" and scope["path"] == "/probe":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
            await send({"type": "http.response.body", "body": self.page})
            return

        async def open_send(message) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message["headers"] if name != b"x-frame-options"]
                message = {**message, "headers": [
                    (name, value.replace(b"frame-ancestors 'none'", b"frame-ancestors 'self'")) for name, value in kept
                ]}  # fmt: skip
            await send(message)

        await self.app(scope, receive, open_send)


def chromium(url: str, folder, *options: str) -> subprocess.CompletedProcess[str]:
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command += ["--enable-logging=stderr", "--virtual-time-budget=8000", *options, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.mark.usefixtures("browser")
@pytest.mark.parametrize(("width", "language"), [(360, "zh-CN"), (1200, "en-US")])
def test_every_page_fits_the_screen_and_labels_its_fields(place, tmp_path, width, language) -> None:
    with serving(Framed(make_app(*place), width, PAGES)) as base:
        run = chromium(f"{base}/probe", tmp_path, "--dump-dom", "--window-size=1400,1000", f"--accept-lang={language}")
    answer = re.search(r'<pre id="answer">(.*?)</pre>', run.stdout, re.DOTALL)
    assert answer, run.stdout[-2000:]
    lines = answer[1].replace("&amp;", "&").splitlines()
    lang = language[:2]
    assert lines == [f"{page} | fits | wide  | unlabelled 0 | scripts 0 | headings 1 | lang {lang}" for page in PAGES]


@pytest.mark.usefixtures("browser")
def test_no_page_logs_an_error_or_asks_another_host(place, tmp_path) -> None:
    asked: list[str] = []
    app = make_app(*place)

    async def watched(scope, receive, send) -> None:
        if scope["type"] == "http":
            asked.append(scope["path"])
        await app(scope, receive, send)

    with serving(watched) as base:
        run = chromium(
            f"{base}/version?ref=group%2Fother",
            tmp_path,
            "--dump-dom",
            "--host-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        )
    assert "CONSOLE" not in run.stderr
    assert set(asked) <= {"/version", "/style.css", "/icon.svg"}
    assert "/style.css" in asked


@pytest.mark.usefixtures("browser")
def test_dark_and_light_differ(place, tmp_path) -> None:
    with serving(make_app(*place)) as base:
        shots = []
        for name, options in (("light", ()), ("dark", ("--blink-settings=preferredColorScheme=0",))):
            shot = tmp_path / f"{name}.png"
            chromium(f"{base}/", tmp_path, f"--screenshot={shot}", "--window-size=800,600", *options)
            shots.append(shot.read_bytes())
    assert shots[0] != shots[1]
