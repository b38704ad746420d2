"""RNN, GRU and LSTM written out step by step, for attributes that a compiler passes over without a word.

``linear_before_reset`` (PyTorch writes it into every GRU), ``clip``, ``input_forget`` and other activations change the
numbers; written as primitives, nothing of them can be overlooked. The equations are those of the operators in ONNX.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import ModelProto

from convert.lowering.rules.recurrent import STATES
from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node
from convert.rewrites.rnn_defaults import ACTIVATIONS

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
MAX_STEPS = 128
"""Steps that are written out at most; each takes about ten nodes."""
DEFAULT_ALPHA = {"LeakyRelu": 0.01, "Elu": 1.0, "ThresholdedRelu": 1.0, "HardSigmoid": 0.2}
PLAIN = ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus", *DEFAULT_ALPHA)
SEQUENCE_LENGTHS, INITIAL_H, INITIAL_C, PEEPHOLES = 4, 5, 6, 7


@dataclass
class _Way:
    """One direction: its weights turned so that they multiply from the right, and its biases."""

    backwards: bool
    w: str
    r: str
    wb: list[str]
    rb: list[str]
    activations: list[str]


def _recurrent(site: Site) -> bool:
    return site.node.op_type in STATES


def _stepwise(site: Site) -> None:
    op = site.node.op_type
    if site.attr("layout", 0) or site.has(SEQUENCE_LENGTHS) or site.has(PEEPHOLES):
        raise Refuse("batch first, lengths of their own or peepholes are not written out")
    if site.attr("activation_alpha") or site.attr("activation_beta"):
        raise Refuse("activations with parameters are not written out")
    steps = site.fixed(site.inp(1))[0] * (site.dims(site.inp(0))[0] or MAX_STEPS + 1)
    if steps > MAX_STEPS:
        raise Refuse(f"the sequence is not of a known length of {MAX_STEPS} steps at most")
    outputs: list[str] = []
    last: list[list[str]] = []
    for number, way in enumerate(_ways(site, op)):
        rows, states = _run_way(site, op, number, way)
        outputs.append(site.unsqueeze(_stacked(site, rows), 1))
        last.append([site.unsqueeze(state, 0) for state in states])
    site.end_as(_joined(site, outputs, 1), 0)
    for index, parts in enumerate(zip(*last, strict=True), start=1):
        site.end_as(_joined(site, list(parts), 0), index)


def _ways(site: Site, op: str) -> list[_Way]:
    direction = site.attr("direction", "forward")
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    given = site.attr("activations")
    names = [name.decode() for name in given] if given else ACTIVATIONS[op] * len(backwards)
    each = len(ACTIVATIONS[op])
    if any(name not in PLAIN for name in names) or len(names) != each * len(backwards):
        raise Refuse(f"activations {', '.join(names)}")
    return [
        _Way(
            back,
            _turned(site, 1, number),
            _turned(site, 2, number),
            *_biases(site, number, GATES[op]),
            names[number * each : (number + 1) * each],
        )
        for number, back in enumerate(backwards)
    ]


def _turned(site: Site, index: int, number: int) -> str:
    """One direction's weights, transposed."""
    known = site.const(site.inp(index))
    if known is not None:
        return site.tensor(known[number].T)
    return site.op("Transpose", _part(site, site.inp(index), number), perm=[1, 0])


def _part(site: Site, name: str, number: int) -> str:
    return site.op("Gather", name, site.long(number), axis=0)


def _biases(site: Site, number: int, gates: int) -> tuple[list[str], list[str]]:
    """The biases of the input and of the state, per gate; empty where there are none."""
    if not site.has(3):
        return [], []
    hidden = site.fixed(site.inp(2))[2]
    known = site.const(site.inp(3))
    if known is not None:
        parts = [site.tensor(part) for part in np.split(known[number], 2 * gates)]
    else:
        parts = site.split(_part(site, site.inp(3), number), [hidden] * 2 * gates, 0)
    return parts[:gates], parts[gates:]


def _run_way(site: Site, op: str, number: int, way: _Way) -> tuple[list[str], list[str]]:
    """The state after each step, in the order of the sequence, and the states after the last one."""
    length, hidden = site.dims(site.inp(0))[0] or 0, site.fixed(site.inp(2))[2]
    drive = site.op("MatMul", site.inp(0), way.w)
    drives = [site.squeeze(part, 0) for part in site.split(drive, [1] * length, 0)] if length else []
    h, c = (_part(site, site.inp(index), number) if site.has(index) else "" for index in (INITIAL_H, INITIAL_C))
    rows = []
    for part in reversed(drives) if way.backwards else drives:
        gates = site.split(part, [hidden] * GATES[op], -1) if GATES[op] > 1 else [part]
        gates = [site.op("Add", gate, bias) for gate, bias in zip(gates, way.wb, strict=True)] if way.wb else gates
        h, c = STEPS[op](site, way, gates, h, c)
        rows.append(h)
    if not rows:
        raise Refuse("the sequence is empty")
    return (rows[::-1] if way.backwards else rows), [h, c] if op == "LSTM" else [h]


def _state_parts(site: Site, way: _Way, h: str, gates: int) -> list[str]:
    """What the state adds to each gate, biases included; empty strings where it adds nothing."""
    parts = [""] * gates
    if h:
        hidden = site.fixed(site.inp(2))[2]
        product = site.op("MatMul", h, way.r)
        parts = site.split(product, [hidden] * gates, -1) if gates > 1 else [product]
    return [_sum(site, part, bias) for part, bias in zip(parts, way.rb or [""] * gates, strict=True)]


def _sum(site: Site, one: str, other: str) -> str:
    return site.op("Add", one, other) if one and other else one or other


def _act(site: Site, name: str, value: str) -> str:
    bound = site.attr("clip")
    if bound is not None:
        kind = site.dtype(site.inp(0))
        value = site.op("Clip", value, site.scalar(-bound, kind), site.scalar(bound, kind))
    if name == "HardSigmoid":
        return site.op(name, value, alpha=0.2, beta=0.5)
    return site.op(name, value, alpha=DEFAULT_ALPHA[name]) if name in DEFAULT_ALPHA else site.op(name, value)


def _rnn(site: Site, way: _Way, gates: list[str], h: str, c: str) -> tuple[str, str]:
    (state,) = _state_parts(site, way, h, 1)
    return _act(site, way.activations[0], _sum(site, gates[0], state)), ""


def _gru(site: Site, way: _Way, gates: list[str], h: str, c: str) -> tuple[str, str]:
    sigma, tanh = way.activations
    parts = _state_parts(site, way, h, 3)
    z, r = (_act(site, sigma, _sum(site, gates[place], parts[place])) for place in (0, 1))
    if site.attr("linear_before_reset", 0):
        added = site.op("Mul", r, parts[2]) if parts[2] else ""
    else:
        added = _reset_first(site, way, r, h)
    new = _act(site, tanh, _sum(site, gates[2], added))
    one = site.scalar(1.0, site.dtype(site.inp(0)))
    fresh = site.op("Mul", site.op("Sub", one, z), new)
    return _sum(site, fresh, site.op("Mul", z, h) if h else ""), ""


def _reset_first(site: Site, way: _Way, r: str, h: str) -> str:
    """The candidate's share of the state, where the reset gate works before the product."""
    product = ""
    if h:
        hidden = site.fixed(site.inp(2))[2]
        weights = site.slice(way.r, site.longs(2 * hidden), site.longs(3 * hidden), 1)
        product = site.op("MatMul", site.op("Mul", r, h), weights)
    return _sum(site, product, way.rb[2] if way.rb else "")


def _lstm(site: Site, way: _Way, gates: list[str], h: str, c: str) -> tuple[str, str]:
    sigma, tanh, out = way.activations
    i, o, f, g = (_sum(site, gate, part) for gate, part in zip(gates, _state_parts(site, way, h, 4), strict=True))
    i = _act(site, sigma, i)
    if site.attr("input_forget", 0):
        f = site.op("Sub", site.scalar(1.0, site.dtype(site.inp(0))), i)
    else:
        f = _act(site, sigma, f)
    fresh = site.op("Mul", i, _act(site, tanh, g))
    c = _sum(site, fresh, site.op("Mul", f, c) if c else "")
    return site.op("Mul", _act(site, sigma, o), _act(site, out, c)), c


STEPS = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


def _stacked(site: Site, rows: list[str]) -> str:
    return _joined(site, [site.unsqueeze(row, 0) for row in rows], 0)


def _joined(site: Site, parts: list[str], axis: int) -> str:
    return parts[0] if len(parts) == 1 else site.op("Concat", *parts, axis=axis)


def run(model: ModelProto, argument: str) -> list[str]:
    """Write out every recurrent node of a known, short length; says which."""
    return each_node(model, _stepwise, _recurrent)


RULE = Rewrite(
    name="rnn-to-primitives",
    title="recurrent nodes of known length written out",
    avoids=(
        *(Avoided(op=op, attribute=name) for op in STATES for name in ("activations", "clip")),
        Avoided(op="GRU", attribute="linear_before_reset", values=(1,)),
        Avoided(op="LSTM", attribute="input_forget", values=(1,)),
    ),
    run=run,
)
