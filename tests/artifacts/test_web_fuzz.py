"""The OpenAPI document against requests made from it: no server error, no answer that it doesn't describe."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import HealthCheck, settings
from web_kit import TOKEN, Web, fill, make_app, write_tokens

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
REFS = ("net:1.2.0", "net:prod", "net", "group/other", "net:1.0.0-cpu")

EXISTING = {
    "ref": REFS,
    "name": ("net", "lone"),
    "model": ("net",),
    "channel": ("prod", "staging"),
    "file": ("net.om",),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    work = tmp_path_factory.mktemp("fuzz")
    return fill(work / "reg", work), write_tokens(work / "tokens")


@pytest.fixture(scope="module")
def web(place) -> Web:
    return Web(make_app(*place))


@pytest.fixture(scope="module")
def document(web):
    return web.get("/api/openapi.json").json()


def fuzz(place, count: int) -> int:
    """Send ``count`` requests to each route; every third one asks for something that exists."""
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", make_app(*place))
    sent = 0
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        def check(case) -> None:
            nonlocal sent
            sent += 1
            for name in EXISTING.keys() & dict(case.query or {}).keys() if sent % 3 == 0 else ():
                case.query[name] = EXISTING[name][sent % len(EXISTING[name])]
            answer = case.call(headers={"Authorization": f"Bearer {TOKEN}"} if sent % 2 else {})
            case.validate_response(answer, checks=CHECKS)
            assert str(place[0]) not in answer.text
            assert "Traceback" not in answer.text

        from hypothesis import given

        given(case=operation.as_strategy())(check)()
    return sent


@pytest.mark.filterwarnings("ignore")
def test_requests_made_from_the_document_get_answers_that_it_describes(place) -> None:
    assert fuzz(place, 12) > 80


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_ten_thousand_requests_made_from_the_document(place) -> None:
    assert fuzz(place, 1300) >= 10_000


def test_every_route_and_value_is_described(document) -> None:
    assert set(document["paths"]) == {
        "/api/v1/models", "/api/v1/model", "/api/v1/version", "/api/v1/diff", "/api/v1/history", "/api/v1/signatures",
        "/api/v1/fetch-commands", "/api/v1/promotions", "/download", "/metrics", "/healthz",
    }  # fmt: skip
    names = set(document["components"]["schemas"])
    assert {"Models", "VersionPage", "ChannelLog", "Moved", "Refusal", "PromotionAsked"} <= names
    for path in document["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            assert operation["responses"]["200"]


@pytest.mark.parametrize("ref", REFS)
@pytest.mark.parametrize("route", ["version", "diff", "signatures", "fetch-commands"])
def test_what_exists_is_answered_as_described(web, document, route, ref) -> None:
    import jsonschema

    answer = web.get(f"/api/v1/{route}?ref={ref}")
    assert answer.status_code == 200
    told = document["paths"][f"/api/v1/{route}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(answer.json(), {**told, "components": document["components"]})
