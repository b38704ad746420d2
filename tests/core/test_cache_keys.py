"""Keys of the cache: every difference counts, and no order does."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from convert.cache import key_of
from convert.values import (
    AdaptOptions,
    CheckOptions,
    CompileOptions,
    ExportOptions,
    ForecastOptions,
    LoadOptions,
    QuantizeOptions,
    SimplifyOptions,
    ValidateOptions,
)

QUICK = settings(max_examples=150, deadline=None, derandomize=True)
WORDS = st.text("abcé:.=-, ", max_size=6)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), WORDS)
OPTIONS = st.dictionaries(WORDS, st.one_of(SCALARS, st.lists(SCALARS, max_size=3)), max_size=4)
TOOLS = st.dictionaries(WORDS, WORDS, max_size=4)
INPUTS = st.tuples(
    st.sampled_from(["load", "export", "check"]),
    st.integers(1, 3),
    st.lists(WORDS, max_size=3).map(tuple),
    OPTIONS,
    TOOLS,
)
Inputs = tuple[str, int, tuple[str, ...], dict[str, Any], dict[str, str]]


@QUICK
@given(one=INPUTS, other=INPUTS)
def test_keys_are_equal_exactly_where_all_that_counts_is(one: Inputs, other: Inputs) -> None:
    # Python takes True for 1; a key does not.
    same = msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
    assert (key_of(*one) == key_of(*other)) == same
    assert len(key_of(*one)) == 64


@QUICK
@given(inputs=INPUTS, seed=st.integers(0, 99))
def test_the_order_of_options_and_tools_does_not_count(inputs: Inputs, seed: int) -> None:
    def shuffled(table: dict[str, Any]) -> dict[str, Any]:
        items = list(table.items())
        random.Random(seed).shuffle(items)
        return dict(items)

    stage, version, parents, options, tools = inputs
    assert key_of(stage, version, parents, shuffled(options), shuffled(tools)) == key_of(*inputs)


@QUICK
@given(inputs=INPUTS, parent=WORDS, place=st.integers(0, 3))
def test_the_order_of_parents_and_their_number_count(inputs: Inputs, parent: str, place: int) -> None:
    stage, version, parents, options, tools = inputs
    more = (*parents[:place], parent, *parents[place:])
    assert key_of(stage, version, more, options, tools) != key_of(*inputs)
    if parents[::-1] != parents:
        assert key_of(stage, version, parents[::-1], options, tools) != key_of(*inputs)


OTHERS: dict[type, Any] = {str: "other", bool: True, int: 7, float: 7.5, tuple: ("other",), dict: {"other": 0.5}}
STARTS = (
    LoadOptions(path="m"),
    ExportOptions(),
    SimplifyOptions(),
    AdaptOptions(target="cpu"),
    CheckOptions(target="cpu"),
    ForecastOptions(precision="fp16"),
    QuantizeOptions(),
    CompileOptions(target="cpu", backend="onnxruntime", precision="fp32"),
    ValidateOptions(),
)


def test_every_field_of_every_stages_options_changes_the_key() -> None:
    for options in STARTS:
        keys = {key_of("stage", 1, (), options, {})}
        for name in options.__struct_fields__:
            value = OTHERS[type(getattr(options, name))]
            keys.add(key_of("stage", 1, (), msgspec.structs.replace(options, **{name: value}), {}))
        assert len(keys) == 1 + len(options.__struct_fields__), type(options).__name__
