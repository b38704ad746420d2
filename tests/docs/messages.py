"""What the source prints for a code: the message of every place that raises it, as a pattern."""

from __future__ import annotations

import ast
import re
from functools import cache

from pages import PACKAGES, ROOT

from convert.diagnosis.tables import KINDS, VENDORS, table

CODE = re.compile(r"CNV-\d{4}")
ANY = ".+?"
USAGE = re.compile(r"(Missing option|No such (option|command)|Got unexpected extra argument|Invalid value).*")
"""What click says of a wrong command line."""


def pattern_of(node: ast.expr) -> str:
    """A message as a pattern: what is put in may be anything, of two alternatives either may stand."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(pattern_of(value) for value in node.values)
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.IfExp):
        return pattern_of(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return pattern_of(node.left) + pattern_of(node.right)
    if isinstance(node, ast.IfExp):
        return f"(?:{pattern_of(node.body)}|{pattern_of(node.orelse)})"
    return ANY


def _messages(call: ast.Call) -> list[tuple[str, ast.expr]]:
    """(code, message) of a call that has both: ``X("CNV-1234", message)``, or as keywords of a diagnosis."""
    found = []
    for code, message in zip(call.args, call.args[1:], strict=False):
        if isinstance(code, ast.Constant) and CODE.fullmatch(str(code.value)):
            found.append((str(code.value), message))
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    code = named.get("code")
    if isinstance(code, ast.Constant) and CODE.fullmatch(str(code.value)):
        found += [(str(code.value), named[name]) for name in ("cause", "what") if name in named]
    return found


@cache
def _trees() -> tuple[ast.Module, ...]:
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in paths)


@cache
def templates() -> dict[str, set[str]]:
    """Per code the patterns of its messages, as far as the source says them where the code stands."""
    found: dict[str, set[str]] = {}
    for tree in _trees():
        for node in ast.walk(tree):
            for code, message in _messages(node) if isinstance(node, ast.Call) else []:
                found.setdefault(code, set()).add(pattern_of(message))
            if isinstance(node, ast.Dict):
                _of_dict(node, found)
    return found


def _of_dict(node: ast.Dict, found: dict[str, set[str]]) -> None:
    entries = {
        key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)
    }
    if "message" in entries and "code" in entries:
        for code in CODE.findall(ast.unparse(entries["code"])):
            found.setdefault(code, set()).add(pattern_of(entries["message"]))


BY_HELPERS: dict[str, str] = {
    "CNV-2000": USAGE.pattern,
    "CNV-2401": USAGE.pattern,
    "CNV-3005": r"\S+ is a git-lfs pointer: .+",
    "CNV-3006": r"\S+ is an HTML page, not a model: .+",
    "CNV-3011": r"\S+ is a PaddlePaddle program .+",
    "CNV-3012": r"\S+ is a MindSpore .+",
    **dict.fromkeys(("CNV-3090", "CNV-5090", "CNV-7090", "CNV-8090", "CNV-8103"), r"[a-z]+ ended its process: .+"),
    "CNV-6052": r"pip could not install .+: .+",
    "CNV-7002": r".+",
    "CNV-8001": r".+ differs from the reference beyond the gate: .+",
    "CNV-8002": r".+ differs from the reference beyond the gate: .+",
}  # fmt: skip
"""Codes whose message comes from a function that serves several codes, and what that function says."""


def is_printed(code: str, message: str) -> bool:
    """Whether the program can print this message with this code."""
    causes = {row.cause for kind in KINDS.values() if kind.code == code for name in VENDORS for row in table(name)
              if KINDS[row.kind].code == code}  # fmt: skip
    if causes:
        return any(message == cause or message.startswith((f"{cause} (", f"{cause}: ")) for cause in causes)
    patterns = set(templates().get(code, set()))
    if code in BY_HELPERS:
        patterns.add(BY_HELPERS[code])
    return any(re.fullmatch(rf"{pattern}(?:: {ANY})?", message) for pattern in patterns)
