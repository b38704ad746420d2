"""Steps between tpu-mlir's own commands: python sophgo_steps.py lower|table|check SETTINGS.

Runs in tpu-mlir's environment, and knows nothing of the program that wrote it. Relative paths are relative to the
working folder.

    lower   the graph as tpu-mlir's front end takes it: the IR version, and outputs that it must not lose
    table   the operations that are computed in another type than the rest, one a line: ``NAME TYPE``
    check   whether those operations have that type in the graph that tpu-mlir lowered to the chip's types
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

STATEFUL = ("LSTM", "GRU", "RNN")
OPERATION = re.compile(r'^\s*(%.*) = "top\.(\w+)"\(([^)]*)\).*loc\((#loc\d*)\)\s*$', re.MULTILINE)
NAME = re.compile(r'^(#loc\d*) = loc\("(.*)"\)\s*$', re.MULTILINE)
FUSED = re.compile(r"^(#loc\d*) = loc\(fused\[(#loc\d*)[,\]]", re.MULTILINE)
TYPED = re.compile(r'^\s*%.* = "tpu\.\w+"\(.*-> \(?tensor<(.*) loc\((#loc\d*)\)\s*$', re.MULTILINE)
"""An operation of the lowered graph: what follows ``tensor<`` in its first result's type, and its place."""
ELEMENT = re.compile(r"(?:[\d?]+x)*(!quant\.(?:uniform|calibrated)<)?(\w+)")
LISTED = 8
NEAR = 3
"""How many nodes after a node its name is looked for: what is fused has the name of its last node."""


def say(text: str) -> None:
    """One line for the log."""
    sys.stdout.write("sophgo_steps: " + text + "\n")
    sys.stdout.flush()


def lower(settings: dict[str, Any]) -> None:
    """Write the graph for the front end. Weights in files of their own stay there, beside it."""
    model = onnx.load(settings["model"], load_external_data=False)
    model.ir_version = min(model.ir_version, settings["newest_ir"])
    if settings["calibrates"]:
        revive(model.graph)
    onnx.save(model, settings["lowered"])


def revive(graph: Any) -> None:
    """Let the last state of a recurrent node, where it is read, depend on its sequence, where that is not.

    The calibration asks for the sequence, and ends with the process where nothing reads it. max(h, min(h, y)) is h,
    whatever y is.
    """
    read = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    nodes = []
    for node in graph.node:
        nodes.append(node)
        names = list(node.output)
        if node.op_type not in STATEFUL or len(names) < 2 or not names[1]:
            continue
        if (names[0] and names[0] in read) or names[1] not in read:
            continue
        whole, last = names[0] or names[1] + "/sequence", names[1]
        alone, least, lower_one = (last + suffix for suffix in ("/alone", "/least", "/lower"))
        node.output[0], node.output[1] = whole, alone
        nodes.append(helper.make_node("ReduceMin", [whole], [least], axes=[0], keepdims=0))
        nodes.append(helper.make_node("Min", [alone, least], [lower_one]))
        nodes.append(helper.make_node("Max", [alone, lower_one], [last]))
    del graph.node[:]
    graph.node.extend(nodes)


class Operation:
    """One operation of tpu-mlir's graph: its name and type, the values that it makes and reads."""

    def __init__(self, name: str, kind: str, makes: list[str], reads: list[str]) -> None:
        self.name, self.kind, self.makes, self.reads = name, kind, makes, reads


def operations(text: str) -> list[Operation]:
    """The operations of an MLIR file, weights and inputs left out; several results have the name of the first."""
    names = dict(NAME.findall(text))
    names.update({fused: names[first] for fused, first in FUSED.findall(text) if first in names})
    found = []
    for makes, kind, reads, place in OPERATION.findall(text):
        if kind not in ("Input", "Weight", "None") and place in names:
            found.append(Operation(names[place], kind, makes.split(", "), reads.split(", ")))
    return found


def table(settings: dict[str, Any]) -> None:
    """Write the operations that don't get the type of the rest: those of the nodes to keep, and the wide ones."""
    with open(settings["mlir"], encoding="utf-8") as stream:
        found = operations(stream.read())
    chosen = kept(settings, {one.name for one in found})
    if settings["products"]:
        narrow = narrow_of(settings, found, chosen)
        chosen |= {one.name for one in found if one.name not in narrow}
    with open(settings["table"], "w", encoding="utf-8") as stream:
        stream.writelines(f"{name} {settings['wide']}\n" for name in sorted(chosen))
    say(f"{len(chosen)} of {len(found)} operations in {settings['wide']}")


def check(settings: dict[str, Any]) -> None:
    """Say how many operations of the table have its type in the lowered graph, and name the others."""
    with open(settings["table"], encoding="utf-8") as stream:
        asked = dict(line.split() for line in stream if line.strip())
    lowered = list(Path().glob(settings["lowered_graph"]))
    if len(lowered) != 1:
        say("plan: not told, as there is no lowered graph")
        return
    types = lowered_types(lowered[0].read_text(encoding="utf-8"))
    fused = [name for name in asked if name not in types]
    other = [f"{name} ({types[name]})" for name in asked if name in types and types[name] != asked[name].lower()]
    there = len(asked) - len(fused)
    told = f"plan: {there - len(other)} of {there} operations are {settings['wide']}"
    for words, names in (("; not: ", other), ("; fused into others: ", fused)):
        told += words + ", ".join(names[:LISTED]) if names else ""
    say(told)


def lowered_types(text: str) -> dict[str, str]:
    """The element type of each operation's first result in a lowered graph: ``f32``, ``f16``, ``i8``, …"""
    names = dict(NAME.findall(text))
    names.update({fused: names[first] for fused, first in FUSED.findall(text) if first in names})
    found = {}
    for result, place in TYPED.findall(text):
        told = ELEMENT.match(result)
        if told and place in names:
            found[names[place]] = told.group(2)
    return found


def narrow_of(settings: dict[str, Any], found: list[Operation], wide: set[str]) -> set[str]:
    """What is computed in int8: products, and what stands between them and only moves, selects or adds values."""
    maker = {value: one.name for one in found for value in one.makes}
    logical = {value for one in found if one.kind in settings["logical"] for value in one.makes}
    products = {one.name for one in found if one.kind in settings["products"] and not logical & set(one.reads)} - wide
    narrow = products | ({one.name for one in found if one.kind in settings["between"]} - wide)
    readers: dict[str, set[str]] = {}
    for one in found:
        for value in one.reads:
            readers.setdefault(maker.get(value, ""), set()).add(one.name)
    around = {
        one.name: {maker[value] for value in one.reads if value in maker} | (readers.get(one.name) or {""})
        for one in found
    }
    while True:
        lost = {name for name in narrow - products if not around[name] <= narrow}
        if not lost:
            return narrow
        narrow -= lost


def kept(settings: dict[str, Any], known: set[str]) -> set[str]:
    """tpu-mlir's names of the nodes to keep; it calls an operation ``OUTPUT_TYPE``."""
    graph = onnx.load(settings["lowered"], load_external_data=False).graph
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    by_output = {name.rpartition("_")[0]: name for name in known}
    found = set()
    for node in graph.node:
        if node.name not in settings["keep"]:
            continue
        for _ in range(NEAR):
            hits = [by_output[name] for name in node.output if name in by_output]
            after = [reader for name in node.output for reader in readers.get(name, [])]
            if hits or len(after) != 1:
                found.update(hits)
                break
            node = after[0]
    return found


def main() -> int:
    """Do the step named on the command line; gives the exit code."""
    with open(sys.argv[2], encoding="utf-8") as stream:
        settings = json.load(stream)
    {"lower": lower, "table": table, "check": check}[sys.argv[1]](settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
