"""The signature of a model's inputs: from samples, from ``--input`` texts, or from the file, brought together.

Runs in the worker only (its callers import torch or numpy); itself it needs neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from convert.errors import UsageError
from convert.loading.inputs import InputText
from convert.values import Dim, DimRange, TensorSpec


def value_ranges(texts: Sequence[InputText], specs: Sequence[TensorSpec]) -> dict[str, tuple[float, float]]:
    """The ranges of values that ``--input`` texts give, by input name."""
    pairs = match_texts(texts, specs)
    return {
        spec.name: (text.low, text.high)
        for text, spec in pairs
        if text is not None and text.low is not None and text.high is not None
    }


def match_texts(texts: Sequence[InputText], specs: Sequence[TensorSpec]) -> list[tuple[InputText | None, TensorSpec]]:
    """Each input with the text about it: by name where a name is known, else in order.

    Raises :class:`UsageError` CNV-2017 where texts name inputs that are not there.
    """
    by_name = {text.name: text for text in texts if text.name}
    known = {spec.name for spec in specs}
    if by_name.keys() & known or not texts:
        unknown = [name for name in by_name if name not in known]
        if unknown or len(by_name) < len(texts):
            raise no_such_input(unknown or ["an input without a name"], specs)
        return [(by_name.get(spec.name), spec) for spec in specs]
    if len(texts) != len(specs):
        raise no_such_input([text.name or "an input without a name" for text in texts], specs)
    return list(zip(texts, specs, strict=True))


def no_such_input(names: Sequence[str], specs: Sequence[TensorSpec]) -> UsageError:
    """The error for inputs that the model does not have."""
    there = ", ".join(f"{spec.name} {spec.dtype}[{','.join(map(str, spec.shape))}]" for spec in specs)
    return UsageError(
        "CNV-2017",
        f"the model has no input {', '.join(names)}; its inputs: {there or 'none'}",
        hint="use the model's own names, or give all inputs in order without names",
    )


def renamed(specs: Sequence[TensorSpec], texts: Sequence[InputText]) -> tuple[TensorSpec, ...]:
    """The specs under the names that texts give them in order."""
    return tuple(
        msgspec.structs.replace(spec, name=text.name) if text is not None and text.name else spec
        for text, spec in match_texts(texts, specs)
    )


def specs_of_samples(samples: Sequence[Sequence[tuple[str, str, tuple[int, ...]]]]) -> tuple[TensorSpec, ...]:
    """Specs of samples, each a list of (name, dtype, shape); a size that differs becomes a symbolic dimension.

    Raises :class:`UsageError` CNV-2017 where samples differ in more than sizes.
    """
    first = samples[0]
    for index, sample in enumerate(samples[1:], start=1):
        kinds = [[(name, dtype, len(shape)) for name, dtype, shape in leaves] for leaves in (first, sample)]
        if kinds[0] != kinds[1]:
            raise UsageError(
                "CNV-2017",
                f"samples 0 and {index} differ in more than sizes: {_shown(first)} and {_shown(sample)}",
                hint="every sample needs the same inputs with the same dtypes and ranks",
            )
    return tuple(
        TensorSpec(name=leaf[0][0], dtype=leaf[0][1], shape=_common(leaf[0][0], [shape for _, _, shape in leaf]))
        for leaf in zip(*samples, strict=True)
    )


def _common(name: str, shapes: Sequence[tuple[int, ...]]) -> tuple[Dim, ...]:
    return tuple(
        sizes[0] if len(set(sizes)) == 1 else f"{name}_{axis}" for axis, sizes in enumerate(zip(*shapes, strict=True))
    )


def _shown(leaves: Iterable[tuple[str, str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name} {dtype}{list(shape)}" for name, dtype, shape in leaves) or "nothing"


def with_symbols(
    specs: Sequence[TensorSpec], texts: Sequence[InputText], *, sizes_of: Mapping[str, tuple[int, ...]]
) -> tuple[TensorSpec, ...]:
    """Specs of samples with the symbolic dimensions that texts name. ``sizes_of``: the shape in the first sample.

    Raises :class:`UsageError` CNV-2017 listing every contradiction between a text and the samples.
    """
    faults: list[str] = []
    found: list[TensorSpec] = []
    for text, spec in match_texts(texts, specs):
        if text is None:
            found.append(spec)
            continue
        faults += _contradictions(text, spec, sizes_of[spec.name])
        shape = tuple(dim if isinstance(dim, str) else own for dim, own in zip(text.shape, spec.shape, strict=False))
        found.append(TensorSpec(name=spec.name, dtype=spec.dtype, shape=shape))
    if faults:
        raise UsageError(
            "CNV-2017",
            f"--input and the samples do not agree: {'; '.join(faults)}",
            hint="correct the --input texts or the samples; a dimension that changes is a word, such as N",
        )
    return tuple(found)


def _contradictions(text: InputText, spec: TensorSpec, shape: tuple[int, ...]) -> list[str]:
    if text.dtype != spec.dtype:
        return [f"{spec.name} is {text.dtype} in --input and {spec.dtype} in the samples"]
    if len(text.shape) != len(shape):
        return [f"{spec.name} has {len(text.shape)} dimensions in --input and {len(shape)} in the samples"]
    return [
        f"dimension {axis} of {spec.name} is {dim} in --input and {own} in the samples"
        for axis, (dim, own) in enumerate(zip(text.shape, spec.shape, strict=True))
        if isinstance(dim, int) and dim != own
    ]


def words_and_sizes(
    texts: Sequence[InputText], specs: Sequence[TensorSpec]
) -> tuple[dict[str, str], dict[str, DimRange]]:
    """What texts say of the symbolic dimensions of a signature that the file states itself.

    Gives the user's word for each dimension that they name, and a range of one size for each that they fix. Raises
    :class:`UsageError` CNV-2017 listing every contradiction.
    """
    words: dict[str, str] = {}
    fixed: dict[str, DimRange] = {}
    faults: list[str] = []
    for text, spec in match_texts(texts, specs):
        if text is None:
            continue
        if text.dtype != spec.dtype or len(text.shape) != len(spec.shape):
            faults.append(
                f"{spec.name} is {text.dtype} with {len(text.shape)} dimensions in --input, "
                f"{spec.dtype} with {len(spec.shape)} in the model"
            )
            continue
        for axis, (said, own) in enumerate(zip(text.shape, spec.shape, strict=True)):
            if isinstance(own, int):
                faults += [f"dimension {axis} of {spec.name} is {said} in --input, {own} in the model"] * (said != own)
            elif isinstance(said, int):
                fixed[own] = DimRange(name=own, sizes=(said,), low=said, high=said)
            else:
                words[own] = said
    if faults:
        raise UsageError(
            "CNV-2017",
            f"--input and the model do not agree: {'; '.join(faults)}",
            hint="the model's own signature is known; leave --input out, or use it to fix or name dynamic dimensions",
        )
    return words, fixed


def narrowed(specs: Sequence[TensorSpec], texts: Sequence[InputText], dims: Sequence[DimRange]) -> tuple[DimRange, ...]:
    """The ``--dim`` ranges under the file's own names, with the sizes that texts fix."""
    words, fixed = words_and_sizes(texts, specs)
    own_names = {said: own for own, said in words.items()}
    asked = [msgspec.structs.replace(entry, name=own_names.get(entry.name, entry.name)) for entry in dims]
    return tuple({**{entry.name: entry for entry in asked}, **fixed}.values())


def known_dims(
    specs: Sequence[TensorSpec], dims: Sequence[DimRange], stated: Sequence[DimRange] = ()
) -> tuple[DimRange, ...]:
    """One range for each symbolic dimension: from ``--dim``, else as the file states it, else 1 and more.

    Raises :class:`UsageError` CNV-2022 for a ``--dim`` that no input has, or that leaves what the file allows.
    """
    names = list(dict.fromkeys(dim for spec in specs for dim in spec.shape if isinstance(dim, str)))
    asked = {entry.name: entry for entry in dims}
    allowed = {entry.name: entry for entry in stated}
    unknown = [name for name in asked if name not in names]
    if unknown:
        raise UsageError(
            "CNV-2022",
            f"--dim names {', '.join(unknown)}, which no input has; symbolic dimensions: {', '.join(names) or 'none'}",
            hint="name it in an input: --input 'x:float32[N,3,224,224]' --dim N=1..8",
        )
    outside = [
        name
        for name, entry in asked.items()
        if name in allowed and (entry.low < allowed[name].low or 0 < allowed[name].high < (entry.high or 1 << 62))
    ]
    if outside:
        shown = ", ".join(f"{name} ({allowed[name].low}..{allowed[name].high or ''})" for name in outside)
        raise UsageError("CNV-2022", f"--dim asks for sizes that the model does not allow: {shown}", hint="stay inside")
    return tuple(asked.get(name) or allowed.get(name) or DimRange(name=name) for name in names)


def check_sizes(
    specs: Sequence[TensorSpec], dims: Sequence[DimRange], shapes: Sequence[Mapping[str, tuple[int, ...]]]
) -> None:
    """Check that given samples keep to the fixed sizes and to the ranges. Raises CNV-2017 listing every fault."""
    ranges = {entry.name: entry for entry in dims}
    faults: dict[str, None] = {}
    for shape_of in shapes:
        seen: dict[str, int] = {}
        for spec in specs:
            for axis, (dim, size) in enumerate(zip(spec.shape, shape_of[spec.name], strict=True)):
                where = f"dimension {axis} of {spec.name}"
                if isinstance(dim, int):
                    if dim != size:
                        faults[f"{where} is {size} where the model has {dim}"] = None
                elif seen.setdefault(dim, size) != size:
                    faults[f"{dim} is {seen[dim]} in one input and {size} in {where}"] = None
                elif not _allowed(ranges[dim], size):
                    faults[f"{dim} is {size} in {where}, which --dim does not allow"] = None
    if faults:
        raise UsageError(
            "CNV-2017",
            f"the samples do not fit: {'; '.join(list(faults)[:12])}",
            hint="give samples of the sizes that the inputs have, or widen --dim",
        )


def _allowed(entry: DimRange, size: int) -> bool:
    if entry.sizes:
        return size in entry.sizes
    return size >= entry.low and (not entry.high or size <= entry.high)
