"""Which failures are worth another try: those of the surroundings, by name. Never a gate's or a compiler's."""

from __future__ import annotations

from typing import Any

TRANSIENT = {
    "CNV-1004": "the guard of a compiler was killed",
    "CNV-1005": "no free place for a compiler",
    "CNV-1006": "a stage was killed from outside",
    "CNV-9012": "the registry is locked",
    "CNV-9060": "the registry can't be reached",
    "CNV-9062": "the registry gave an unexpected answer",
    "CNV-9064": "no end within the deadline",
    "CNV-9066": "another client keeps overwriting a list of attachments",
}
RETRIES = 2
RETRY_SECONDS = 30


class TransientFault(Exception):
    """A failure that may not come again, with the error as ``--json`` prints it."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"[{error['code']}] {error['message']}")
        self.error = error


def raise_transient(error: dict[str, Any] | None) -> None:
    """Raise an error that may not come again; any other stays a result."""
    if error is not None and error.get("code") in TRANSIENT:
        raise TransientFault(error)


def is_transient(task: Any, run: Any, state: Any) -> bool:
    """Prefect's ``retry_condition_fn``: only a :class:`TransientFault` is tried again."""
    return isinstance(state.result(raise_on_failure=False), TransientFault)
