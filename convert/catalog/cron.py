"""Cron schedules of five fields: whether a text is one. When it fires is the scheduler's business."""

from __future__ import annotations

FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
NAMES = {
    "month": ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    "weekday": ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
}


def cron_fault(text: str) -> str:
    """What is wrong with a cron text; empty where nothing is."""
    words = text.split()
    if len(words) != len(FIELDS):
        return f"a schedule has five fields (minute hour day month weekday), {text!r} has {len(words)}"
    for word, (name, low, high) in zip(words, FIELDS, strict=True):
        for part in word.split(","):
            if not _holds(part, name, low, high):
                return f"{part!r} is no {name} ({low} to {high})"
    return ""


def _holds(part: str, name: str, low: int, high: int) -> bool:
    span, slash, step = part.partition("/")
    if slash and not (step.isascii() and step.isdigit() and 0 < int(step) <= high):
        return False
    if span == "*":
        return True
    ends = [_number(text, name) for text in span.split("-")]
    if len(ends) > 2 or any(end is None or not low <= end <= high for end in ends):
        return False
    return len(ends) == 1 or (ends[0] or 0) <= (ends[1] or 0)


def _number(text: str, name: str) -> int | None:
    names = NAMES.get(name, ())
    if text.lower() in names:
        return names.index(text.lower()) + (1 if name == "month" else 0)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else None
