"""From values and errors to answers: JSON for programs, pages for people; no traceback, no path of this machine."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from artifacts.errors import ModelConvertError, UsageError
from artifacts.web.values import Problem, Refusal

STATUS = {
    "CNV-9001": 404, "CNV-9002": 404, "CNV-9010": 404, "CNV-9074": 404,
    "CNV-9040": 409, "CNV-9041": 409, "CNV-9042": 409, "CNV-9012": 409, "CNV-9043": 403,
    "CNV-2446": 413, "CNV-2447": 401, "CNV-2448": 403, "CNV-2445": 500,
}  # fmt: skip
"""By code; a wrong request is 400, whatever else is wrong with the registry 500, a full disk 507."""


class Json(Response):
    """A msgspec value as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of the body."""
        return msgspec.json.encode(content)


def status_of(error: ModelConvertError) -> int:
    """The HTTP status of an expected failure."""
    if error.code in STATUS:
        return STATUS[error.code]
    return 400 if isinstance(error, UsageError) else 507 if error.exit_code == 10 else 500


def problem_of(error: ModelConvertError, root: str) -> Problem:
    """An expected failure as visitors see it: where the registry lies is nobody's business."""
    return Problem(
        code=error.code,
        message=error.message.replace(root, "REGISTRY"),
        hint=error.hint.replace(root, "REGISTRY"),
        exit_code=error.exit_code,
    )


def refusal(problem: Problem, status: int) -> Response:
    """An error as JSON."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return Json(Refusal(error=problem), status, headers=headers)


def wants_json(request: Request) -> bool:
    """Whether an error is told to a program."""
    return request.url.path.startswith(("/api/", "/download", "/metrics", "/healthz"))
