"""The web application: routes, errors and what every answer carries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from artifacts.errors import ModelConvertError
from artifacts.web.answers import problem_of, refusal, status_of, wants_json
from artifacts.web.api import api_router, plain_router, promotion_router, with_schemas
from artifacts.web.desk import Desk
from artifacts.web.pages import Pages, pages_router
from artifacts.web.security import Guard
from artifacts.web.values import Problem


def create_app(desk: Desk, *, hosts: Iterable[str] = ()) -> FastAPI:
    """The application of one registry.

    Args:
        desk: The registry, and who may promote.
        hosts: The names by which this server may be called; any where empty.
    """
    pages = Pages(desk)
    app = FastAPI(
        title="model-convert registry",
        version="1",
        description="Converted models, their channels, and the proof that they are right. Read-only without a token.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    for router in (pages_router(pages), api_router(desk), plain_router(desk)):
        app.include_router(router)
    if desk.may_promote:
        app.include_router(promotion_router(desk))
    _handle_errors(app, desk, pages)
    plain = app.openapi
    app.openapi = lambda: app.openapi_schema or with_schemas(plain())  # type: ignore[method-assign]
    app.add_middleware(Guard, hosts=tuple(hosts), requests=desk.requests)
    return app


def _handle_errors(app: FastAPI, desk: Desk, pages: Pages) -> None:
    root = str(desk.store.registry.root)

    def tell(request: Request, problem: Problem, status: int) -> Response:
        return refusal(problem, status) if wants_json(request) else pages.problem(request, problem, status)

    def expected(request: Request, error: Any) -> Response:
        return tell(request, problem_of(error, root), status_of(error))

    def invalid(request: Request, error: Any) -> Response:
        faults = "; ".join(f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg']}" for item in error.errors()[:5])
        return tell(request, Problem(code="CNV-2404", message=faults, hint="see /api/openapi.json", exit_code=2), 422)

    def http(request: Request, error: Any) -> Response:
        problem = Problem(code="", message=str(error.detail), hint="see /api/openapi.json", exit_code=2)
        answer = tell(request, problem, error.status_code)
        for name, value in (error.headers or {}).items():
            answer.headers[name] = value
        return answer

    app.add_exception_handler(ModelConvertError, expected)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
