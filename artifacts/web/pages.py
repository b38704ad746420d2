"""The pages: rendered on the server, without any script, in English or Chinese."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, urlencode

import jinja2
from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from artifacts.errors import UsageError
from artifacts.listing import ListedModel
from artifacts.render import number_text, size_text
from artifacts.rules import RULES
from artifacts.web.desk import Desk
from artifacts.web.security import read_body
from artifacts.web.texts import LANGUAGES, choose_language, translate
from artifacts.web.values import Problem, PromotionAsked

HERE = Path(__file__).parent
FIRST_CHANNELS = ("prod", "staging", "candidate")
COOKIE = "lang"
Text = Annotated[str, Query(max_length=400)]


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(size=size_text, number=number_text, query=urlencode, short=_short)
    return environment


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


class Pages:
    """Renders templates in the language of the visitor."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.environment = _environment()
        self.style = (HERE / "static" / "style.css").read_bytes()
        self.icon = (HERE / "static" / "icon.svg").read_bytes()

    def render(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
        """One page."""
        asked = request.query_params.get("lang", "")
        language = choose_language(asked, request.cookies.get(COOKIE, ""), request.headers.get("accept-language", ""))
        text = self.environment.get_template(template).render(
            t=functools.partial(translate, language),
            language=language,
            languages=[(code, self._link(request, code)) for code in LANGUAGES],
            may_promote=self.desk.may_promote,
            **values,
        )
        response = HTMLResponse(text, status, headers={"Vary": "Accept-Language, Cookie"})
        if asked in LANGUAGES:
            response.set_cookie(COOKIE, asked, max_age=31536000, httponly=True, samesite="lax")
        return response

    @staticmethod
    def _link(request: Request, language: str) -> str:
        kept = [(key, value) for key, value in request.query_params.multi_items() if key != "lang"]
        return "?" + urlencode([*kept, ("lang", language)])

    def problem(self, request: Request, problem: Problem, status: int) -> Response:
        """The page of an error."""
        return self.render(request, "error.html.j2", status=status, problem=problem, number=status)


def pages_router(pages: Pages) -> APIRouter:
    """The routes of the pages."""
    router = APIRouter(include_in_schema=False)
    store = pages.desk.store

    def overview(request: Request, q: Text = "", page: int = 1) -> Response:
        found = store.models(q, page)
        columns = sorted({target for model in found.models for item in _all(model) for target in item.targets})
        cells = {model.name: _cells(model) for model in found.models}
        return pages.render(request, "overview.html.j2", found=found, q=q, columns=columns, cells=cells)

    def model(request: Request, name: Text) -> Response:
        return pages.render(request, "model.html.j2", model=store.model(name), channels=_channels(store.model(name)))

    def version(request: Request, ref: Text) -> Response:
        found = store.version(ref)
        listed = store.model(found.shown.name)
        values: dict[str, Any] = {
            "page": found,
            "shown": found.shown,
            "fetch": store.fetch(ref, str(request.base_url)),
            "rules": RULES,
        }
        states = {check.name: check.state for check in found.signatures}
        return pages.render(request, "version.html.j2", **values, states=states, now=_now(listed))

    def history(request: Request, model: Text, channel: Text) -> Response:
        log = store.log(model, channel)
        return pages.render(request, "history.html.j2", log=log, model=model, channel=channel)

    def style() -> Response:
        return Response(pages.style, media_type="text/css", headers={"Cache-Control": "max-age=3600"})

    def icon() -> Response:
        return Response(pages.icon, media_type="image/svg+xml", headers={"Cache-Control": "max-age=86400"})

    routes: tuple[tuple[str, Callable[..., Response]], ...] = (
        ("/", overview), ("/model", model), ("/version", version), ("/history", history), ("/style.css", style),
        ("/icon.svg", icon),
    )  # fmt: skip
    for path, handler in routes:
        router.add_api_route(path, handler, response_model=None)
    if pages.desk.may_promote:
        router.add_api_route("/promote", functools.partial(_promote, pages), methods=["POST"], response_model=None)
    return router


async def _promote(pages: Pages, request: Request) -> Response:
    """The form of a version's page. The token is part of the form, so no other site can send it for somebody."""
    try:
        fields = parse_qs((await read_body(request)).decode(), keep_blank_values=True, max_num_fields=30)
    except ValueError as error:
        raise UsageError("CNV-2404", "the form can't be read", hint="use the form of the version's page") from error
    first = {name: values[0] for name, values in fields.items()}
    asked = PromotionAsked(
        ref=first.get("ref", ""),
        channel=first.get("channel", "").strip(),
        reason=first.get("reason", ""),
        expect=first.get("expect", "").strip(),
        waive=tuple(fields.get("waive", ())),
    )
    moved = await run_in_threadpool(pages.desk.promote, asked, first.get("token", "").strip())
    place = urlencode({"model": moved.model, "channel": moved.channel})
    return RedirectResponse(f"/history?{place}", status_code=303)


def _all(model: ListedModel) -> tuple[Any, ...]:
    return (*model.versions[:1], *(version for version in model.versions if version.channels))


def _channels(model: ListedModel) -> list[str]:
    names = {channel for version in model.versions for channel in version.channels}
    return [*(name for name in FIRST_CHANNELS if name in names), *sorted(names.difference(FIRST_CHANNELS))]


def _now(model: ListedModel) -> dict[str, str]:
    """What each channel has now; the usual ones also where they have nothing."""
    now = dict.fromkeys(FIRST_CHANNELS, "")
    now.update({channel: version.version for version in model.versions for channel in version.channels})
    return now


def _cells(model: ListedModel) -> dict[str, list[tuple[str, str, str]]]:
    """By target: channel, version and reference of each channel that has it; the newest version where none has."""
    cells: dict[str, list[tuple[str, str, str]]] = {}
    for channel in _channels(model):
        for version in model.versions:
            if channel in version.channels:
                for target in version.targets:
                    cells.setdefault(target, []).append((channel, version.version, version.ref))
    for version in model.versions[:1]:
        for target in version.targets:
            cells.setdefault(target, [("", version.version, version.ref)])
    return cells
