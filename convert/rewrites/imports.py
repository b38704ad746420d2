"""Opset imports that no node uses, and ONNX's own domain under its long name."""

from __future__ import annotations

from onnx import ModelProto

from convert.rewrites.base import Avoided, Rewrite
from convert.walking import walk


def run(model: ModelProto, argument: str) -> list[str]:
    """Drop unused imports and write ``ai.onnx`` as the empty name; says which domains changed."""
    changed = []
    for node in walk(model.graph):
        if node.domain == "ai.onnx":
            node.domain = ""
            changed.append("ai.onnx")
    used = {node.domain for node in walk(model.graph)} | {""}
    for function in model.functions:
        used |= {function.domain, *(entry.domain for entry in function.opset_import)}
    entries: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if domain != entry.domain or domain not in used or domain in entries:
            changed.append(entry.domain)
        if domain in used:
            entries.setdefault(domain, entry.version)
    if changed:
        del model.opset_import[:]
        for domain, version in entries.items():
            model.opset_import.add(domain=domain, version=version)
    return sorted(set(changed))


RULE = Rewrite(
    name="imports",
    title="unused opset imports",
    avoids=(Avoided(op="*", fact="extra-domains"),),
    run=run,
    repairs=True,
)
