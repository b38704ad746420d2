"""The inputs that an artifact is run with. Runs in the worker (imports numpy).

The user's own (``--samples``), else those kept with the artifact, else random ones by the shapes of the inputs.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from artifacts.digest import file_entries, file_entry
from convert.acceptance.opening import ONNXRUNTIME
from convert.acceptance.stored import is_kept, unpack_kept
from convert.acceptance.values import Prepared, Sampled, SampleOptions, StoredArtifact
from convert.arrays import load_npz, save_npz
from convert.loading.inputs import parse_dims, parse_inputs
from convert.loading.onnx_files import OnnxValue, outline_onnx
from convert.loading.onnx_inputs import onnx_feeds, onnx_specs
from convert.loading.sniff import identify
from convert.stages.load import developed_samples
from convert.values import CompiledArtifact, DimRange, OnnxGraph, Plan, TensorSpec


def prepare_samples(graph: OnnxGraph, options: SampleOptions, folder: Path) -> Prepared:
    """Write the inputs, and the reference outputs where there are some, into ``folder``.

    Raises :class:`UsageError` CNV-2281 for kept samples that can't be read, CNV-2011 to CNV-2022 for given ones.
    """
    given = Path(options.given) if options.given else None
    references, sampled = 0, _sampled(options)
    if given is not None and given.is_file() and is_kept(given):
        references = unpack_kept(given, folder)
    elif given is None and options.kept:
        references = unpack_kept(Path(options.kept), folder)
    else:
        _write_feeds(graph, options, folder)
    paths = sorted(path for part in folder.iterdir() for path in part.iterdir())
    samples = [path for path in paths if path.parent.name == "samples"]
    return Prepared(
        graph=msgspec.structs.replace(
            graph,
            folder=str(folder),
            sample_count=len(samples),
            files=file_entries(folder, [str(path.relative_to(folder)) for path in paths]),
        ),
        sampled=sampled,
        references=references,
        sample_bytes=max(sum(array.nbytes for array in load_npz(path).values()) for path in samples),
    )


def _sampled(options: SampleOptions) -> Sampled:
    if options.given:
        return "given"
    return "kept" if options.kept else "random"


def _write_feeds(graph: OnnxGraph, options: SampleOptions, folder: Path) -> None:
    known = {entry.name: entry for entry in graph.dims}
    asked: dict[str, DimRange] = {**known, **{entry.name: entry for entry in parse_dims(options.dims)}}
    samples = developed_samples(options.given, options.preprocess)
    found = onnx_feeds(graph.inputs, samples, parse_inputs(options.inputs), tuple(asked.values()), options.seed)
    for number, feed in enumerate(found.feeds):
        save_npz(folder / "samples" / f"{number:03d}.npz", feed)


def outline_file(path: Path) -> StoredArtifact:
    """What an ``.onnx`` says of itself. Raises :class:`LoadError` where it is no ONNX model, or a damaged one."""
    file = identify(path)
    outline = outline_onnx(Path(file.path), file.bytes)
    main = file_entry(path.parent, path.name)
    artifact = CompiledArtifact(
        parent=main.sha256,
        target="cpu",
        backend=ONNXRUNTIME,
        precision="fp32",
        plan=Plan(backend=ONNXRUNTIME, argv=(), output=path.name),
        files=(main, *file.external),
        folder=str(path.parent),
    )
    return StoredArtifact(
        artifact=artifact,
        inputs=onnx_specs(path, outline.inputs, (), ()),
        outputs=tuple(map(_output, outline.outputs)),
        opset=outline.opsets.get("", 0),
    )


def _output(value: OnnxValue) -> TensorSpec:
    shape = tuple(f"{value.name}_{axis}" if dim is None else dim for axis, dim in enumerate(value.shape or ()))
    return TensorSpec(name=value.name, dtype=value.dtype, shape=shape)
