"""The JSON API: the same values as the pages, and promotion with a token."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, PlainTextResponse, Response

from artifacts.channels import Moved
from artifacts.errors import UsageError
from artifacts.web.answers import Json
from artifacts.web.desk import Desk
from artifacts.web.metrics import CONTENT_TYPE, metrics_text
from artifacts.web.security import read_body
from artifacts.web.values import SCHEMAS, Alive, PromotionAsked

MAX = 400
Text = Annotated[str, Query(max_length=MAX)]
Ref = Annotated[str, Query(max_length=MAX, description="NAME:VERSION, NAME:CHANNEL, NAME or NAME@sha256:…")]
Page = Annotated[int, Query(ge=1, le=1_000_000)]
REFERENCE = "#/components/schemas/"


def answers(name: str, *, media: str = "application/json") -> dict[int | str, dict[str, Any]]:
    """What a route answers, for OpenAPI: a value by name, and errors."""
    schema = {"$ref": REFERENCE + name} if name else {"type": "string"}
    told: dict[int | str, dict[str, Any]] = {200: {"description": "OK", "content": {media: {"schema": schema}}}}
    for status, text in ((400, "A wrong request"), (404, "Not there"), (422, "A parameter is wrong"), (500, "Damage")):
        told[status] = {
            "description": text, "content": {"application/json": {"schema": {"$ref": REFERENCE + "Refusal"}}},
        }  # fmt: skip
    return told


def api_router(desk: Desk) -> APIRouter:
    """The routes of the API that only read."""
    router = APIRouter(prefix="/api/v1", tags=["read"])
    store = desk.store

    def models(q: Text = "", page: Page = 1) -> Response:
        """The models whose name contains q, fifty on a page."""
        return Json(store.models(q, page))

    def model(name: Text) -> Response:
        """One model with all its versions and channels."""
        return Json(store.model(name))

    def version(ref: Ref) -> Response:
        """A version or target in full: gate numbers, support, provenance, signatures, attachments, diff to prod."""
        return Json(store.version(ref))

    def diff(ref: Ref, against: Text = "") -> Response:
        """What differs from another version (the one that prod has now) to this one; null where nothing does."""
        return Json(store.diff(ref, against))

    def history(model: Text, channel: Text) -> Response:
        """Who moved a channel, when and why; newest first."""
        return Json(store.log(model, channel))

    def signatures(ref: Ref) -> Response:
        """The state of all signatures, judged by the keys that this server trusts."""
        return Json(store.signatures(ref))

    def commands(request: Request, ref: Ref) -> Response:
        """The commands that fetch each target with standard tools."""
        return Json(store.fetch(ref, str(request.base_url)))

    for path, handler, name in (
        ("/models", models, "Models"),
        ("/model", model, "ListedModel"),
        ("/version", version, "VersionPage"),
        ("/diff", diff, "VersionDiff"),
        ("/history", history, "ChannelLog"),
        ("/signatures", signatures, "Signatures"),
        ("/fetch-commands", commands, "Fetch"),
    ):
        told = answers(name)
        if name == "VersionDiff":
            nullable = {"anyOf": [{"$ref": REFERENCE + name}, {"type": "null"}]}
            told[200]["content"] = {"application/json": {"schema": nullable}}
        router.add_api_route(path, handler, responses=told, response_model=None, response_class=Json)
    return router


def plain_router(desk: Desk) -> APIRouter:
    """Files, metrics and the sign of life."""
    router = APIRouter(tags=["read"])

    def download(ref: Ref, file: Text, target: Text = "", attachment: Text = "") -> Response:
        """One file of a target, or of something attached; hashed before it is handed out, with byte ranges."""
        path = desk.store.file(ref, target, file, attachment)
        headers = {"ETag": f'"sha256:{path.name}"', "Cache-Control": "private, max-age=31536000, immutable"}
        return FileResponse(path, media_type="application/octet-stream", filename=file, headers=headers)

    def metrics() -> Response:
        """Prometheus metrics."""
        return PlainTextResponse(metrics_text(desk.store.every_model(), desk.requests), media_type=CONTENT_TYPE)

    def healthz() -> Response:
        """Whether the server lives and its registry can be listed."""
        desk.store.registry.models()
        return Json(Alive())

    told = answers("", media="application/octet-stream")
    ranges: dict[int | str, dict[str, Any]] = {
        206: {**told[200], "description": "A range"},
        416: {"description": "No such range"},
    }
    told = {**told, **ranges}
    router.add_api_route("/download", download, responses=told, response_model=None, response_class=Response)
    router.add_api_route("/download", download, methods=["HEAD"], include_in_schema=False, response_model=None)
    router.add_api_route(
        "/metrics",
        metrics,
        response_model=None,
        response_class=PlainTextResponse,
        responses=answers("", media="text/plain"),
    )
    router.add_api_route("/healthz", healthz, responses=answers("Alive"), response_model=None, response_class=Json)
    return router


def promotion_router(desk: Desk) -> APIRouter:
    """Promotion, where the server was given tokens."""
    router = APIRouter(prefix="/api/v1", tags=["promote"])

    async def promotions(request: Request) -> Response:
        """Point a channel to a version, in the name of the token's holder."""
        try:
            asked = msgspec.json.decode(await read_body(request), type=PromotionAsked)
        except msgspec.DecodeError as error:
            raise UsageError(
                "CNV-2404", f"the body is no promotion: {error}", hint="see the OpenAPI document"
            ) from None
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else ""
        return Json(await run_in_threadpool(desk.promote, asked, given))

    told = answers("Moved")
    for status, text in (
        (401, "No token that is known"),
        (403, "Not this channel"),
        (409, "Moved, or refused by a rule"),
    ):
        told[status] = {**told[400], "description": text}
    told[413] = {**told[400], "description": "Too large"}
    body = {"content": {"application/json": {"schema": {"$ref": REFERENCE + "PromotionAsked"}}}, "required": True}
    router.add_api_route(
        "/promotions",
        promotions,
        methods=["POST"],
        responses=told,
        response_model=None,
        response_class=Json,
        openapi_extra={"requestBody": body, "security": [{"token": []}]},
    )
    return router


def with_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with the schemas of all values, and the way to log in."""
    _, components = msgspec.json.schema_components((*SCHEMAS, Moved), ref_template=REFERENCE + "{name}")
    held = document.setdefault("components", {})
    held["schemas"] = components
    held["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    for content in (told for operation in operations for told in _contents(operation)):
        schema = content.get("schema", {})
        if {"$ref", "anyOf"}.intersection(schema):
            schema.pop("type", None)  # FastAPI takes the class of an answer that isn't its own for plain text.
    return document


def _contents(operation: dict[str, Any]) -> list[dict[str, Any]]:
    answered = operation["responses"].values()
    return [content for answer in answered for content in answer.get("content", {}).values()]
