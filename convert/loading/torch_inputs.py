"""Sample calls of a torch model and the signature that they show: given, made from texts, or from the file itself.

Runs in the worker only (imports torch).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from convert.errors import UsageError
from convert.loading.calls import Call, bind, dtype_name, to_tensor
from convert.loading.inputs import InputText
from convert.loading.opened import HALF, OpenModel
from convert.loading.samples import Given, random_samples
from convert.loading.specs import (
    check_sizes,
    known_dims,
    renamed,
    specs_of_samples,
    value_ranges,
    with_symbols,
    words_and_sizes,
)
from convert.values import DimRange, Note, TensorSpec


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Sample calls of a model, the specs of their tensors in call order, and the ranges of symbolic dimensions."""

    calls: list[Call]
    specs: tuple[TensorSpec, ...]
    dims: tuple[DimRange, ...]
    given: bool
    notes: tuple[Note, ...] = ()


def given_inputs(
    model: OpenModel, given: Sequence[Given], texts: Sequence[InputText], dims: Sequence[DimRange]
) -> Inputs:
    """Calls from the user's samples; ``--input`` texts name symbolic dimensions and inputs.

    Raises :class:`UsageError` CNV-2017 where they do not fit the model, the texts or each other.
    """
    notes: dict[str, None] = {}
    calls = [_call_of(sample, model, texts, notes) for sample in given]
    leaves = [[(name, dtype_name(leaf), tuple(leaf.shape)) for name, leaf in call.named()] for call in calls]
    specs, ranges = _given_specs(model, calls, leaves, texts, dims)
    shapes = [{spec.name: shape for spec, (_, _, shape) in zip(specs, sample, strict=True)} for sample in leaves]
    check_sizes(specs, ranges, shapes)
    return Inputs(calls, specs, ranges, True, tuple(Note(text=text) for text in notes))


def _given_specs(
    model: OpenModel,
    calls: Sequence[Call],
    leaves: Sequence[Sequence[tuple[str, str, tuple[int, ...]]]],
    texts: Sequence[InputText],
    dims: Sequence[DimRange],
) -> tuple[tuple[TensorSpec, ...], tuple[DimRange, ...]]:
    """Specs of given samples; an exported program keeps its own symbolic dimensions."""
    specs = specs_of_samples(leaves)
    if model.program is None:
        specs = renamed(specs, texts)
        shapes = {spec.name: shape for spec, (_, _, shape) in zip(specs, leaves[0], strict=True)}
        specs = with_symbols(specs, texts, sizes_of=shapes)
        return specs, known_dims(specs, dims)
    own, stated = _program_specs(model, calls[0])
    if [(spec.name, spec.dtype, len(spec.shape)) for spec in own] != [
        (spec.name, spec.dtype, len(spec.shape)) for spec in specs
    ]:
        raise UsageError(
            "CNV-2017",
            "the samples do not fit the exported program: "
            + "; ".join(
                f"{a.name} {a.dtype}{list(a.shape)} for {b.name} {b.dtype}{list(b.shape)}"
                for a, b in zip(specs, own, strict=False)
            ),
            hint="give samples with the dtypes and ranks that the program was exported with",
        )
    own, stated, asked = _with_words(own, stated, texts, dims)
    return own, known_dims(own, asked, stated)


def _call_of(sample: Given, model: OpenModel, texts: Sequence[InputText], notes: dict[str, None]) -> Call:
    def fitted(value: Any) -> Any:
        return _fitted(value, model, notes)

    if sample.named is None:
        args = tuple(_converted(arg, fitted) for arg in sample.args)
        kwargs = {name: _converted(arg, fitted) for name, arg in sample.kwargs.items()}
        return Call(args, kwargs, model.signature.positional)
    values = {name: _converted(value, fitted) for name, value in sample.named.items()}
    if not all(isinstance(value, torch.Tensor) for value in values.values()):
        return Call((), values, model.signature.positional)
    by_position = all(name.removeprefix("arr_").isdigit() for name in values)
    named_so = {text.name for text in texts} >= set(values)
    parameters = {parameter.name for parameter in model.signature.parameters}
    known = any(name.partition(".")[0] in parameters or name in parameters for name in values)
    if not known and not by_position and not named_so and len(values) > 1 and not model.signature.any_keyword:
        raise UsageError(
            "CNV-2017",
            f"the samples ({', '.join(values)}) do not fit the model's forward({model.signature.shown()})",
            hint="name the arrays as forward does, or arr_0, arr_1, … to give them in order",
        )
    if named_so and not known:
        values = {text.name: values[text.name] for text in texts if text.name in values}
    call, _ = bind(values, model.signature)
    return call


def _converted(value: Any, fitted: Any) -> Any:
    """Arrays to tensors in any container."""
    if isinstance(value, (np.ndarray, np.generic)):
        return fitted(to_tensor(np.asarray(value)))
    if isinstance(value, torch.Tensor):
        return fitted(value.detach().cpu())
    if isinstance(value, dict):
        return {key: _converted(item, fitted) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_converted(item, fitted) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_converted(item, fitted) for item in value)
    return value


def _fitted(tensor: torch.Tensor, model: OpenModel, notes: dict[str, None]) -> torch.Tensor:
    """A sample in the precision of the model: widened with half weights, narrowed from numpy's default float64."""
    if model.was_half and tensor.dtype in HALF:
        notes[f"{dtype_name(tensor)} samples were widened to float32, as the weights were"] = None
        return tensor.float()
    if tensor.dtype == torch.float64 and _only_float32(model):
        notes["float64 samples were narrowed to float32, the precision of the weights"] = None
        return tensor.float()
    return tensor


def _only_float32(model: OpenModel) -> bool:
    holder = model.program if model.program is not None else model.module
    found = {value.dtype for value in holder.state_dict().values() if isinstance(value, torch.Tensor)}
    return {dtype for dtype in found if dtype.is_floating_point} == {torch.float32}


def made_inputs(model: OpenModel, texts: Sequence[InputText], dims: Sequence[DimRange], seed: int) -> Inputs:
    """Random calls from ``--input`` texts.

    Raises :class:`UsageError` CNV-2017 where they do not fit ``forward``, CNV-2021 for an integer without a range.
    """
    notes: tuple[Note, ...] = ()
    keys = [text.name or f"#{index}" for index, text in enumerate(texts)]
    if model.was_half and any(text.dtype in ("float16", "bfloat16") for text in texts):
        texts = [_wide(text) for text in texts]
        notes = (Note(text="half-precision inputs were widened to float32, as the weights were"),)
    by_key = dict(zip(keys, texts, strict=True))
    call, ordered = bind({key: torch.empty(0) for key in keys}, model.signature)
    in_order = [_called(by_key[ordered.get(path, path)], path) for path, _ in call.named()]
    specs = tuple(TensorSpec(name=text.name, dtype=text.dtype, shape=text.shape) for text in in_order)
    ranges = known_dims(specs, dims)
    made = random_samples(specs, value_ranges(in_order, specs), ranges, seed)
    return Inputs([_filled(call, specs, arrays) for arrays in made], specs, ranges, False, notes)


def _called(text: InputText, path: str) -> InputText:
    """The text under the name of its input: the user's own, else the path of the argument."""
    return text if text.name else msgspec.structs.replace(text, name=path)


def _wide(text: InputText) -> InputText:
    return msgspec.structs.replace(text, dtype="float32")


# --------------------------------------------------------------------------------------------------- exported programs


def program_inputs(model: OpenModel, texts: Sequence[InputText], dims: Sequence[DimRange], seed: int) -> Inputs:
    """Calls of an exported program, whose signature is known.

    Without integer inputs the samples are random, at two sizes. With some, the example inputs in the file are the
    first sample, and its floats are random in the second: an index must not be guessed.
    """
    example = _example_call(model)
    specs, stated = _program_specs(model, example)
    specs, stated, asked = _with_words(specs, stated, texts, dims)
    ranges = value_ranges(texts, specs)
    bounds = known_dims(specs, asked, stated)
    made = [spec for spec in specs if "int" not in spec.dtype or spec.dtype == "uint8" or spec.name in ranges]
    simple = all(isinstance(dim, int) or dim.isidentifier() for spec in specs for dim in spec.shape)
    if len(made) == len(specs) and simple:
        arrays = random_samples(specs, ranges, bounds, seed)
        return Inputs([_filled(example, specs, found) for found in arrays], specs, bounds, False)
    sizes = {spec.name: leaf.shape for spec, leaf in zip(specs, example.tensors(), strict=True)}
    static = [TensorSpec(name=spec.name, dtype=spec.dtype, shape=tuple(sizes[spec.name])) for spec in made]
    (second,) = random_samples(static, ranges, (), seed)
    note = Note(text="the example inputs in the file are the first sample")
    return Inputs([example, _filled(example, specs, second)], specs, bounds, True, (note,))


def _filled(example: Call, specs: Sequence[TensorSpec], arrays: dict[str, Any]) -> Call:
    remaining = iter(specs)

    def fill(own: torch.Tensor) -> torch.Tensor:
        name = next(remaining).name
        return to_tensor(arrays[name]) if name in arrays else own

    return example.mapped(fill)


def _example_call(model: OpenModel) -> Call:
    program: Any = model.program
    if program.example_inputs is None:
        raise UsageError(
            "CNV-2013",
            "the exported program was saved without example inputs",
            hint="give sample inputs (--samples FILE.pt holding (args, kwargs))",
        )
    args, kwargs = program.example_inputs
    return Call(tuple(args), dict(kwargs), model.signature.positional).mapped(lambda leaf: leaf.detach())


def _program_specs(model: OpenModel, example: Call) -> tuple[tuple[TensorSpec, ...], tuple[DimRange, ...]]:
    """Specs from the placeholders of a program (symbols kept) and the ranges of its symbols."""
    program: Any = model.program
    wanted = {name for name in program.graph_signature.user_inputs if isinstance(name, str)}
    placeholders = [
        node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in wanted
    ]
    values = [value for value in placeholders if isinstance(value, torch.Tensor)]
    leaves = example.named()
    if len(values) != len(leaves):
        values = [leaf for _, leaf in leaves]
    specs = tuple(
        TensorSpec(
            name=name,
            dtype=dtype_name(value),
            shape=tuple(map(_dim, value.shape)),
        )
        for (name, _), value in zip(leaves, values, strict=True)
    )
    stated = tuple(
        DimRange(name=str(symbol), low=max(_finite(bounds.lower, 1), 1), high=_finite(bounds.upper, 0))
        for symbol, bounds in program.range_constraints.items()
    )
    return specs, stated


def _dim(size: Any) -> int | str:
    """A size, or the text of a symbolic one."""
    return size if isinstance(size, int) else str(size)


def _finite(bound: Any, otherwise: int) -> int:
    try:
        value = int(bound)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return otherwise
    return value if abs(value) < 1 << 48 else otherwise


def _with_words(
    specs: Sequence[TensorSpec], stated: Sequence[DimRange], texts: Sequence[InputText], dims: Sequence[DimRange]
) -> tuple[tuple[TensorSpec, ...], tuple[DimRange, ...], tuple[DimRange, ...]]:
    """The specs with the user's words for the program's symbols; a size fixes a symbol to that size."""
    words, fixed = words_and_sizes(texts, specs)
    named = tuple(
        TensorSpec(name=spec.name, dtype=spec.dtype, shape=tuple(words.get(str(dim), dim) for dim in spec.shape))
        for spec in specs
    )
    asked = {**{entry.name: entry for entry in dims}, **fixed}
    return named, _moved(stated, words), _moved(asked.values(), words)


def _moved(entries: Iterable[DimRange], words: dict[str, str]) -> tuple[DimRange, ...]:
    return tuple(msgspec.structs.replace(entry, name=words.get(entry.name, entry.name)) for entry in entries)
