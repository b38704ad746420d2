"""The HTML report: verdict first, whole, self-contained, and safe with names from strangers."""

import html
import re
from html.parser import HTMLParser

import msgspec
import pytest
import report_samples as samples

from convert.report.data import read_pictures, report_data, write_pictures
from convert.report.html import duration, render_report

VOID = {"meta", "link", "br", "img", "rect", "line", "circle", "path", "input"}


class Page(HTMLParser):
    """The tree as a list of (tag, attributes), and whether every tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(params=samples.ALL)
def page(request) -> Page:
    return Page(render_report(samples.ALL[request.param]()))


def test_every_tag_is_closed_in_order(page):
    assert page.open == []


def test_nothing_is_fetched_and_no_script_runs(page):
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "img", "iframe", "object", "embed", "base", "form", "video", "audio"}
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href", "srcset", "action", "data", "xlink:href"):
            value = attributes.get(name) or ""
            assert value == "" or value.startswith("#") or value == "data:,", (tag, value)


def test_the_style_sheet_reaches_for_nothing(page):
    text = render_report(samples.published())
    assert "url(" not in text and "@import" not in text and "http:" not in text and "https:" not in text


def test_ids_that_are_referred_to_exist(page):
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    wanted = {a["aria-labelledby"] for _, a in page.tags if "aria-labelledby" in a}
    wanted |= {a["href"][1:] for tag, a in page.tags if tag == "a"}
    assert wanted <= set(ids)


def test_headings_start_with_one_h1_and_pictures_have_words(page):
    assert [tag for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)].count("h1") == 1
    assert all(a.get("role") == "img" and a.get("aria-label") for tag, a in page.tags if tag == "svg")


def test_a_published_conversion_shows_verdict_metrics_steps_chain_and_fetch_command():
    words = Page(render_report(samples.published())).words
    places = [
        words.index(text)
        for text in (
            "published Published as resnet18:1.0.0. 2 outputs keep the fp16 gate over 4 samples.",
            "Accuracy",
            "relative L2 0.0013 ≤ 0.005 ✓",
            "exact match 4/4 ≥ 0.98 ✓",
            "What was done",
            "the dynamo exporter refuses a ScriptModule",
            "cached 35 ms",
            "Operators",
            "Conv 20",
            "artifacts pull resnet18:1.0.0 --target cpu",
            "Chain of digests",
            "made from the model file",
            "Model file and versions",
            "torch 2.13.0",
        )
    ]
    assert places == sorted(places)


def test_a_failed_gate_shows_code_hint_and_what_was_broken():
    page = Page(render_report(samples.failed_gate()))
    assert "CNV-8001" in page.words and "what to do the report shows where they differ" in page.words
    assert "output 'logits': relative L2 0.26 is above 0.005" in page.words
    assert "Nothing was published. Done before: load, export, simplify, check, compile, validate." in page.words
    assert "stopped here CNV-8001" in page.words


def test_a_conversion_that_failed_at_once_still_has_a_page():
    words = Page(render_report(samples.failed_early())).words
    assert "CNV-3004" in words and "run git lfs pull" in words
    assert "Accuracy" not in words and "Chain of digests" not in words


def test_hostile_names_are_text_wherever_they_stand():
    text = render_report(samples.hostile())
    assert "<script" not in text and "<img" not in text
    assert html.escape("<script>alert(") in text
    assert "\x1b" not in text and "\u202e" not in text
    assert r"\u202e" in text


def test_several_targets_are_each_linked_from_the_head():
    data = samples.hostile()
    page = Page(render_report(data))
    assert [a["href"] for tag, a in page.tags if tag == "a"][1:] == ["#target-0", "#target-1"]
    assert [a["id"] for tag, a in page.tags if tag == "article"] == ["target-0", "target-1"]


def test_a_page_stays_small():
    assert len(render_report(samples.published())) < 64_000


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0354, "35 ms"), (1.24, "1.2 s"), (99.9, "99.9 s"), (192, "3 min 12 s")]
)
def test_durations_are_readable(seconds, text):
    assert duration(seconds) == text


def test_pictures_are_read_from_the_folder_of_the_validation(tmp_path):
    conversion = samples.published().conversion
    report = msgspec.structs.replace(conversion.targets[0].report, folder=str(tmp_path))
    result = msgspec.structs.replace(conversion.targets[0], report=report)
    assert read_pictures(result) == ()
    write_pictures(tmp_path, [samples.PICTURE])
    assert report_data(conversion, [result]).targets[0].pictures == (samples.PICTURE,)
    (tmp_path / "pictures.json").write_text('{"not": "a list"}')
    assert read_pictures(result) == ()
