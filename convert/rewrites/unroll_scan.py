"""A Scan over sequences of a known length, written out step by step."""

from __future__ import annotations

from onnx import GraphProto, ModelProto

from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.body import Round
from convert.rewrites.nodes import each_node

MAX_STEPS, MAX_NODES = 64, 4096


def _unrolled(site: Site) -> None:
    """Every step reads one slice of each sequence, forwards or backwards, and adds one to each result."""
    body: GraphProto = site.attr("body")
    count = site.attr("num_scan_inputs")
    states, sequences = list(site.node.input[:-count]), list(site.node.input[-count:])
    results = len(body.output) - len(states)
    axes, out_axes = (site.attr(f"scan_{k}_axes") or [0] * n for k, n in (("input", count), ("output", results)))
    ways, out_ways = (site.attr(f"scan_{k}_directions") or [0] * n for k, n in (("input", count), ("output", results)))
    length = site.dims(sequences[0])[axes[0]]
    if length is None or not 0 < length <= MAX_STEPS or length * len(body.node) > MAX_NODES:
        raise Refuse("the length of the sequences is not known, or too great")
    collected: list[list[str]] = [[] for _ in range(results)]
    for step in range(length):
        places = [length - 1 - step if way else step for way in ways]
        items = [
            site.op("Gather", name, site.long(place), axis=axis)
            for name, place, axis in zip(sequences, places, axes, strict=True)
        ]
        names = dict(zip((info.name for info in body.input), [*states, *items], strict=True))
        made = Round(site, body, names).results()
        states = made[: len(states)]
        for parts, name, axis in zip(collected, made[len(states) :], out_axes, strict=True):
            parts.append(site.unsqueeze(name, axis))
    for index, name in enumerate(states):
        site.end_as(name, index)
    for index, (parts, way, axis) in enumerate(zip(collected, out_ways, out_axes, strict=True), start=len(states)):
        if site.wants(index):
            site.emit("Concat", parts[::-1] if way else parts, [site.node.output[index]], axis=axis)


def run(model: ModelProto, argument: str) -> list[str]:
    """Write out every Scan of at most 64 steps; says which."""
    return each_node(model, _unrolled, lambda site: site.node.op_type == "Scan")


RULE = Rewrite(
    name="unroll-scan",
    title="a Scan of known length written out",
    avoids=(Avoided(op="Scan", attribute="body", fact="constant-trip-count"),),
    run=run,
)
