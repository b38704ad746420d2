"""The web: what pages and API tell, promotion with a token, and what no visitor gets."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from web_kit import HOSTILE, TOKEN, Web, fill, make_app, make_desk, serving, write_tokens

from artifacts.channels import channel_log
from artifacts.device_results import DeviceResult, attach_result
from artifacts.errors import RegistryError, UsageError
from artifacts.keys import generate_key, load_private_key
from artifacts.layout import Layout
from artifacts.signing import sign_ref
from artifacts.trust import Trust
from artifacts.web.app import create_app
from artifacts.web.desk import Desk
from artifacts.web.store import WebStore
from artifacts.web.texts import CHINESE, choose_language
from artifacts.web.tokens import read_tokens

PAGES = (
    "/",
    "/?q=net",
    "/model?name=net",
    "/model?name=group/other",
    "/version?ref=net:1.2.0",
    "/version?ref=net:prod",
    "/version?ref=net:1.0.0-ascend910b3",
    "/version?ref=group/other",
    "/history?model=net&channel=prod",
    "/version?ref=absent",
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    work = tmp_path_factory.mktemp("web")
    return fill(work / "reg", work)


@pytest.fixture(scope="module")
def shared_web(filled) -> Web:
    """One application for many requests; it keeps the cookies of one visitor."""
    return client(filled)


@pytest.fixture
def root(tmp_path):
    return fill(tmp_path / "reg", tmp_path)


def client(root, tokens=None) -> Web:
    return Web(make_app(root, tokens))


class Page(HTMLParser):
    """What a browser would see: text, links, and every tag with its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data) -> None:
        self.text += data


def test_the_overview_shows_models_targets_and_channels(filled) -> None:
    page = Page(client(filled).get("/").text)
    assert re.findall(r"(prod|staging) (\d\.\d\.\d)", page.text) == [("prod", "1.1.0"), ("staging", "1.2.0")] * 2
    labels = [attributes["data-label"] for tag, attributes in page.tags if tag == "td" and "data-label" in attributes]
    assert labels[-3:] == ["newest", "ascend910b3", "cpu"]


def test_a_filter_and_pages_narrow_the_list(filled, monkeypatch) -> None:
    answer = client(filled).get("/api/v1/models?q=o").json()
    assert [model["name"] for model in answer["models"]] == ["group/other", "lone"]
    monkeypatch.setattr("artifacts.web.store.PAGE", 1)
    second = client(filled).get("/api/v1/models?q=o&page=2").json()
    assert ([model["name"] for model in second["models"]], second["pages"]) == (["lone"], 2)
    assert 'rel="prev"' in client(filled).get("/?q=o&page=2").text


def test_a_version_tells_numbers_support_provenance_and_what_differs_from_prod(filled) -> None:
    page = Page(client(filled).get("/version?ref=net:1.2.0").text)
    for told in (
        "0.9999",
        "0.001",
        "passed",
        "device",
        "torchscript",
        "cann 8.2",
        "atc --model=model.onnx",
        "unsigned",
    ):
        assert told in page.text
    answer = client(filled).get("/api/v1/diff?ref=net:1.2.0").json()
    assert (answer["before"], answer["after"]) == ("net:1.1.0", "net:1.2.0")
    states = {target["target"]: target["state"] for target in answer["targets"]}
    assert states == {"Ascend910B3": "changed", "cpu": "same"}
    facts = {change["fact"]: (change["before"], change["after"]) for change in answer["targets"][0]["changes"]}
    assert facts["tool cann"] == ("8.1", "8.2")
    assert set(facts) == {"tool cann", "file", "stage compile"}
    assert client(filled).get("/api/v1/diff?ref=net:1.1.0").json() is None
    assert client(filled).get("/api/v1/diff?ref=net:1.1.0&against=1.0.0").json()["before"] == "net:1.0.0"


def test_a_forecast_is_called_one(filled) -> None:
    text = Page(client(filled).get("/version?ref=group/other").text).text
    assert "Nothing ran this artifact: the numbers are a forecast." in text
    assert "not supported" in text


def test_what_a_device_measured_later_is_shown(root) -> None:
    layout = Layout(root / "group" / "other")
    target = layout.find("2.0.0-rc1_b7-ascend910b3")
    result = DeviceResult(subject=target.digest, passed=True, device=HOSTILE, validation={"passed": True})
    attach_result(layout, target, result)
    text = Page(client(root).get("/version?ref=group/other").text).text
    assert "Measured on a device since: passed " + HOSTILE in text


def test_signatures_are_judged_by_the_keys_of_the_server(root, tmp_path) -> None:
    generate_key(tmp_path / "team")
    key = load_private_key(tmp_path / "team.key")
    sign_ref(root, "net:1.2.0", key)
    states = {}
    for keys in ((), (key.public,)):
        app = create_app(Desk(WebStore(root, Trust(keys, "none"))))
        checks = Web(app).get("/api/v1/signatures?ref=net:1.2.0").json()["checks"]
        states[bool(keys)] = {check["state"] for check in checks}
    assert states == {False: {"unknown-key"}, True: {"verified"}}


def test_the_history_tells_who_when_and_why(filled) -> None:
    answer = client(filled).get("/api/v1/history?model=net&channel=prod").json()
    assert [(item["event"]["version"], item["event"]["reason"]) for item in answer["events"]] == [
        ("1.1.0", "faster"),
        ("1.0.0", HOSTILE),
    ]
    assert "does not hold together" not in client(filled).get("/history?model=net&channel=prod").text


def test_a_history_that_was_cut_is_shown_as_such(root) -> None:
    with Layout(root / "net").edit() as edit:
        edit.set("prod", edit.find("1.0.0"))
    assert "does not hold together" in client(root).get("/history?model=net&channel=prod").text


def test_a_download_is_whole_checked_and_in_ranges(filled) -> None:
    web = client(filled)
    url = "/download?ref=net:1.2.0&target=Ascend910B3&file=net.om"
    whole = web.get(url)
    assert whole.content == b"npu 2"
    assert whole.headers["etag"] == f'"sha256:{hashlib.sha256(b"npu 2").hexdigest()}"'
    assert whole.headers["content-disposition"] == 'attachment; filename="net.om"'
    assert whole.headers["content-type"] == "application/octet-stream"
    part = web.get(url, headers={"Range": "bytes=1-3"})
    assert (part.status_code, part.content) == (206, b"pu ")
    rest = web.get(url, headers={"Range": "bytes=4-", "If-Range": whole.headers["etag"]})
    assert (rest.status_code, rest.content) == (206, b"2")
    assert web.get(url, headers={"Range": "bytes=4-", "If-Range": '"other"'}).content == b"npu 2"
    assert web.get(url, headers={"Range": "bytes=99-"}).status_code == 416
    assert web.head(url).headers["content-length"] == "5"


def test_what_is_attached_can_be_downloaded_and_never_runs_here(filled) -> None:
    answer = client(filled).get("/api/v1/version?ref=net:1.2.0").json()
    digest = answer["shown"]["targets"][0]["digest"]
    report = next(item for item in answer["attachments"][digest] if item["name"] == "report.html")
    got = client(filled).get(f"/download?ref=net:1.2.0&file=report.html&attachment={report['tag']}")
    assert got.content.startswith(b"<!doctype html>")
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-disposition"].startswith("attachment")


def test_a_damaged_file_is_never_handed_out(root) -> None:
    web = client(root)
    url = "/download?ref=net:1.2.0&target=Ascend910B3&file=net.om"
    assert web.get(url).status_code == 200
    path = Layout(root / "net").blob_path("sha256:" + hashlib.sha256(b"npu 2").hexdigest())
    path.chmod(0o644)
    path.write_bytes(b"npu X")
    got = web.get(url)
    assert (got.status_code, got.json()["error"]["code"]) == (500, "CNV-9007")
    path.unlink()
    assert web.get(url).json()["error"]["code"] == "CNV-9006"


def test_a_file_that_several_targets_have_needs_a_target(filled) -> None:
    got = client(filled).get("/download?ref=net:1.2.0&file=net.om")
    assert (got.status_code, got.json()["error"]["code"]) == (404, "CNV-9074")


def test_the_fetch_commands_of_a_page_run(filled, tmp_path) -> None:
    with serving(make_app(filled)) as base:
        script = Web(make_app(filled), base).get("/api/v1/fetch-commands?ref=net:1.2.0").json()
        for target in script["targets"]:
            subprocess.run(["sh", "-ec", target["scripts"]["curl"]], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "net-ascend910b3" / "net.om").read_bytes() == b"npu 2"
    assert str(filled) not in json.dumps(script)


@pytest.mark.parametrize("url", [*PAGES, "/api/v1/model?name=net", "/metrics", "/style.css", "/nothing"])
def test_every_answer_carries_the_headers(filled, url) -> None:
    headers = client(filled).get(url).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "script" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("url", PAGES)
def test_no_text_of_a_stranger_becomes_markup(filled, url, language) -> None:
    answer = client(filled, None).get(url, headers={"Accept-Language": language})
    page = Page(answer.text)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "iframe", "object", "embed", "style", "img", "base"})
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        place = attributes.get("href") or attributes.get("action") or "#"
        assert place.startswith(("/", "#", "?")) and not place.startswith("//")
    assert str(7919 * 7927) not in page.text
    assert str(filled) not in answer.text


@pytest.mark.parametrize("url", ["/version?ref=group/other", "/history?model=net&channel=prod"])
def test_a_strangers_text_is_shown_as_it_is(filled, url) -> None:
    assert HOSTILE in Page(client(filled).get(url).text).text


@pytest.mark.parametrize(
    ("url", "status", "code"),
    [
        ("/api/v1/model?name=../../etc", 400, "CNV-2402"),
        ("/api/v1/model?name=net%00", 400, "CNV-2402"),
        ("/api/v1/model?name=/etc", 400, "CNV-2402"),
        ("/api/v1/model?name=blobs", 400, "CNV-2402"),
        ("/api/v1/model?name=absent", 404, "CNV-9001"),
        ("/api/v1/model", 422, "CNV-2404"),
        ("/api/v1/version?ref=net:9.9.9", 404, "CNV-9002"),
        ("/api/v1/version?ref=net@sha256:00", 400, "CNV-2404"),
        ("/api/v1/diff?ref=net:1.0.0&against=../x", 400, "CNV-2404"),
        ("/api/v1/history?model=net&channel=../x", 400, "CNV-2420"),
        ("/api/v1/history?model=net&channel=canary", 404, "CNV-9002"),
        ("/api/v1/models?page=0", 422, "CNV-2404"),
        ("/api/v1/models?q=" + "x" * 401, 422, "CNV-2404"),
        ("/download?ref=net:1.0.0&target=cpu&file=../../../index.json", 404, "CNV-9074"),
        ("/download?ref=net:1.0.0&file=run.json&attachment=../x", 404, "CNV-9074"),
        ("/api/v1/nothing", 404, ""),
    ],
)
def test_a_wrong_request_gets_a_clear_refusal(filled, url, status, code) -> None:
    got = client(filled).get(url)
    assert (got.status_code, got.json()["error"]["code"]) == (status, code)
    assert str(filled) not in got.text


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/style.css/../../registry.json",
        "//evil.example/",
        "/..%2fregistry.json",
        "/net/index.json",
        "/registry.json",
        "/static/style.css",
        "/templates/base.html.j2",
        "/%00",
        "/docs",
        "/redoc",
    ],
)
def test_no_path_leads_to_a_file(filled, path) -> None:
    got = client(filled).get(path)
    assert got.status_code in (200, 404) and "root:" not in got.text and "imageLayout" not in got.text
    assert got.status_code == 404 or "<h1>Models</h1>" in got.text or got.headers["content-type"].startswith("text/css")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(
        ["Accept-Language", "Cookie", "Range", "If-Range", "Accept", "Authorization", "X-Forwarded-Host", "Origin"]
    ),
    value=st.binary(max_size=60).filter(lambda data: not set(data) & {0, 10, 13}),
)
def test_no_header_of_a_visitor_breaks_an_answer(filled, shared_web, name, value) -> None:
    for url in ("/", "/download?ref=net:1.2.0&target=cpu&file=net.om"):
        got = shared_web.get(url, headers={name: value})
        assert got.status_code in (200, 206, 400, 416)
        assert "default-src 'none'" in got.headers["content-security-policy"]
        assert str(filled) not in got.text


@pytest.mark.parametrize(("method", "status"), [("POST", 405), ("PUT", 405), ("DELETE", 405), ("PATCH", 405)])
def test_nothing_else_is_done_to_what_is_read(filled, method, status) -> None:
    assert client(filled).request(method, "/api/v1/models").status_code == status


def test_another_host_name_is_refused(filled) -> None:
    web = Web(make_app(filled, hosts=("127.0.0.1", "::1")), "http://evil.example")
    assert web.get("/").status_code == 421
    for host in ("127.0.0.1:8642", "127.0.0.1", "[::1]:8642"):
        assert web.get("/", headers={"Host": host}).status_code == 200


def test_a_registry_that_is_not_there_yet_is_empty(tmp_path) -> None:
    assert "no model" in client(tmp_path / "none").get("/").text
    assert not (tmp_path / "none").exists()


def test_a_damaged_model_is_shown_and_hides_no_other(root) -> None:
    (root / "lone" / "index.json").write_text("{")
    text = client(root).get("/").text
    assert "CNV-9005" in text
    assert "staging 1.2.0" in text
    assert str(root) not in text


def test_a_list_is_read_anew_when_a_version_comes(root, tmp_path) -> None:
    from store_kit import make_request

    from artifacts.publish import publish

    web = client(root)
    assert len(web.get("/api/v1/model?name=lone").json()["versions"]) == 1
    publish(root, make_request(tmp_path / "more", name="lone", content=b"more"))
    assert len(web.get("/api/v1/model?name=lone").json()["versions"]) == 2


# ---------------------------------------------------------------------------------------------------------- promotion


def promotion(**fields: object) -> dict[str, object]:
    return {"ref": "net:1.2.0", "channel": "staging", "expect": "1.2.0", "reason": "good", **fields}


def bearer(token: str) -> dict[str, bytes]:
    return {"Authorization": f"Bearer {token}".encode()}


def test_without_a_token_file_nothing_can_be_changed(root) -> None:
    web = client(root)
    assert web.post("/api/v1/promotions", json=promotion()).status_code == 404
    assert web.post("/promote", data={"ref": "net:1.2.0"}).status_code == 404
    assert "Read-only" in web.get("/version?ref=net:1.2.0").text
    assert "/api/v1/promotions" not in web.get("/api/openapi.json").json()["paths"]


def test_a_token_promotes_in_the_name_of_its_holder(root, tmp_path) -> None:
    web = client(root, write_tokens(tmp_path / "tokens"))
    got = web.post("/api/v1/promotions", json=promotion(ref="net:1.1.0"), headers=bearer(TOKEN))
    assert (got.status_code, got.json()["version"], got.json()["seq"]) == (200, "1.1.0", 2)
    event = channel_log(root, "net", "staging").events[0].event
    assert (event.actor, event.reason, event.version) == ("li (web)", "good", "1.1.0")


@pytest.mark.parametrize(
    ("fields", "token", "status", "code"),
    [
        ({}, "", 401, "CNV-2447"),
        ({}, TOKEN + "x", 401, "CNV-2447"),
        ({}, "中文\udc80".encode("utf-8", "replace").decode(), 401, "CNV-2447"),
        ({"channel": "prod", "expect": "1.1.0"}, TOKEN, 403, "CNV-2448"),
        ({"expect": ""}, TOKEN, 400, "CNV-2444"),
        ({"expect": "1.0.0"}, TOKEN, 409, "CNV-9042"),
        ({"waive": ["passed"], "reason": ""}, TOKEN, 400, "CNV-2421"),
        ({"waive": ["nothing"]}, TOKEN, 400, "CNV-2421"),
        ({"ref": "net:9.9.9"}, TOKEN, 404, "CNV-9002"),
        ({"ref": 7}, TOKEN, 400, "CNV-2404"),
        ({"more": 1}, TOKEN, 400, "CNV-2404"),
        ({"channel": "candidate", "expect": "none", "ref": "net@sha256:" + "0" * 64}, TOKEN, 404, "CNV-9002"),
    ],
)
def test_a_promotion_that_may_not_be_is_refused(root, tmp_path, fields, token, status, code) -> None:
    before = (root / "net" / "index.json").read_bytes()
    web = client(root, write_tokens(tmp_path / "tokens"))
    got = web.post("/api/v1/promotions", json=promotion(**fields), headers=bearer(token))
    assert (got.status_code, got.json()["error"]["code"]) == (status, code)
    assert (root / "net" / "index.json").read_bytes() == before
    assert (got.headers.get("www-authenticate") == "Bearer") is (status == 401)


def test_gates_hold_on_the_web(root, tmp_path) -> None:
    web = client(root, write_tokens(tmp_path / "tokens"))
    asked = {"ref": "group/other", "channel": "prod", "expect": "none"}
    got = web.post("/api/v1/promotions", json=asked, headers=bearer(TOKEN[::-1]))
    assert (got.status_code, got.json()["error"]["code"]) == (409, "CNV-9040")
    waived = {**asked, "waive": ["passed", "device"], "reason": "a trial"}
    assert web.post("/api/v1/promotions", json=waived, headers=bearer(TOKEN[::-1])).status_code == 200


def test_the_form_of_a_page_promotes_and_shows_the_history(root, tmp_path) -> None:
    web = client(root, write_tokens(tmp_path / "tokens"))
    page = Page(web.get("/version?ref=net:1.0.0").text)
    forms = [attributes for tag, attributes in page.tags if tag == "form"]
    assert {form["action"] for form in forms} == {"/promote"}
    inputs = [attributes for tag, attributes in page.tags if tag == "input" and attributes.get("type") == "hidden"]
    staging = next(n for n, field in enumerate(inputs) if field == {**field, "name": "channel", "value": "staging"})
    fields = {str(item["name"]): str(item["value"]) for item in inputs[staging - 1 : staging + 2]}
    assert fields["expect"] == "1.2.0"
    got = web.post("/promote", data={**fields, "token": TOKEN, "reason": "back"})
    assert (got.status_code, got.headers["location"]) == (303, "/history?model=net&channel=staging")
    assert "back" in web.get(got.headers["location"]).text
    again = web.post("/promote", data={**fields, "token": TOKEN})
    assert again.status_code == 409
    assert "CNV-9042" in again.text


def test_a_form_without_its_token_is_refused(root, tmp_path) -> None:
    web = client(root, write_tokens(tmp_path / "tokens"))
    got = web.post("/promote", data={"ref": "net:1.0.0", "channel": "staging", "expect": "1.2.0"})
    assert (got.status_code, "CNV-2447" in got.text) == (401, True)


@pytest.mark.parametrize("path", ["/api/v1/promotions", "/promote"])
def test_a_large_body_is_not_read_to_its_end(root, tmp_path, path) -> None:
    web = client(root, write_tokens(tmp_path / "tokens"))
    read = 0

    async def endless():
        nonlocal read
        while read < 50 << 20:
            read += 1 << 16
            yield b"x" * (1 << 16)

    assert web.post(path, content=endless(), headers=bearer(TOKEN)).status_code == 413
    assert read < 1 << 20


def test_a_token_that_is_removed_stops_working_at_once(root, tmp_path) -> None:
    tokens = write_tokens(tmp_path / "tokens")
    web = client(root, tokens)
    asked = promotion(ref="net:1.1.0")
    write_tokens(tokens, "# nobody\n")
    assert web.post("/api/v1/promotions", json=asked, headers=bearer(TOKEN)).status_code == 401


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("li short\n", 0o600, "line 1 has no token"),
        ("# x\n\nli\n", 0o600, "line 3 has no token"),
        (f"li {TOKEN}\n", 0o644, "others may read it"),
    ],
)
def test_a_token_file_that_is_not_safe_is_refused(tmp_path, text, mode, why) -> None:
    path = write_tokens(tmp_path / "tokens", text)
    path.chmod(mode)
    with pytest.raises(UsageError, match=why) as caught:
        read_tokens(path)
    assert caught.value.code == "CNV-2445"


def test_a_token_file_that_is_not_there_is_an_error(tmp_path) -> None:
    with pytest.raises(RegistryError):
        read_tokens(tmp_path / "none")


# ------------------------------------------------------------------------------------------------ languages, metrics


def test_every_word_of_the_pages_has_a_chinese_one() -> None:
    from artifacts.web.pages import HERE

    used = set()
    for path in (HERE / "templates").glob("*.j2"):
        used |= {a or b for a, b in re.findall(r"""\bt\((?:"([^"]+)"|'([^']+)')\)""", path.read_text())}
        used |= {name for group in re.findall(r"for name in \(([^)]*)\) %}<th", path.read_text())
                 for name in re.findall(r'"([^"]+)"', group)}  # fmt: skip
    assert used - set(CHINESE) == set()


@pytest.mark.parametrize(
    ("asked", "cookie", "accepted", "chosen"),
    [
        ("", "", "", "en"),
        ("", "", "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("", "", "fr, en;q=0.5, zh;q=0.4", "en"),
        ("", "zh", "en", "zh"),
        ("en", "zh", "zh", "en"),
        ("xx", "'\"", "*", "en"),
    ],
)
def test_a_visitor_gets_his_language(asked, cookie, accepted, chosen) -> None:
    assert choose_language(asked, cookie, accepted) == chosen


def test_the_choice_of_a_language_is_kept(filled) -> None:
    web = client(filled)
    assert 'lang="zh"' in web.get("/?lang=zh").text
    assert "<h1>模型</h1>" in web.get("/").text
    assert "<h1>Models</h1>" in web.get("/?lang=en").text


def test_metrics_are_in_prometheus_form(filled) -> None:
    web = client(filled)
    web.get("/")
    web.get("/nothing")
    lines = web.get("/metrics").text.splitlines()
    assert "model_convert_models 3" in lines
    assert 'model_convert_versions{model="net"} 3' in lines
    assert 'model_convert_channel_version{model="net",channel="prod",version="1.1.0"} 1' in lines
    assert 'model_convert_http_requests_total{route="/",status="200"} 1' in lines
    assert 'model_convert_http_requests_total{route="other",status="404"} 1' in lines
    assert all(re.fullmatch(r'#.*|[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+-]+', line) for line in lines)


def test_the_server_lives(filled) -> None:
    assert client(filled).get("/healthz").json() == {"status": "ok"}


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_registry_that_may_not_be_read_is_told(root) -> None:
    (root / "net").chmod(0)
    try:
        assert client(root).get("/healthz").status_code in (200, 500)
    finally:
        (root / "net").chmod(0o755)


def test_a_desk_without_tokens_lets_nobody_promote(filled) -> None:
    assert make_desk(filled).may_promote is False
