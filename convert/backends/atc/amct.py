"""int8 for atc: AMCT's ``amct_onnx`` calibrates the graph on the data of the run, and atc compiles what it leaves.

Pure, but for :func:`write_data`.

    amct/data/0/000.bin, …  one folder for each input, one file for each sample (raw, in C order)
    calibrate.sh            the call, the same here and in a bundle: model/model.onnx ─▶ amct/model_deploy_model.onnx

Sources: AMCT manuals of CANN 7.0 to 9.0, pages of the command line (``--data_dir``, ``--data_types``, ``--batch_num``,
``--input_shape``, ``--calibration_config``) and calibration_config_onnx.proto; the help text of amct_onnx of CANN 7.0;
examples of Ascend/ModelZoo-PyTorch. The manual's table of versions: opset 8 to 14, with onnx 1.14 up to 16, with onnx
1.18 up to 18; ONNX Runtime 1.6 to 1.20.
"""

from __future__ import annotations

import ast
import json
import math
import shlex
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from convert.backends.base import MODEL_IN
from convert.backends.children import calibration_names
from convert.backends.preprocess import sized_inputs
from convert.errors import UsageError
from convert.loading.zips import DAMAGE
from convert.values import CompileOptions, Note, OnnxGraph

SCRIPT = "calibrate.sh"
CONFIG = "amct.cfg"
CONFIG_OPTION = "calibration_config"
"""An option of ours: the content of a ``--calibration_config`` of AMCT."""
DATA = "amct/data"
DEPLOYED = "amct/model_deploy_model.onnx"
QUANTIZED = ("AscendQuant", "AscendQuantV2", "Int8Quantize", "NPUAscendQuantV2", "NPUQuantize", "AscendDequant")
"""Operators of a graph that AMCT (or torch_npu) quantized, as the plug-ins of hicann/ops-nn register them."""
QUANTIZABLE = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "AveragePool"})
"""What AMCT quantizes in an ONNX graph (manual, layers of post-training quantization)."""
TYPES = frozenset({"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"})
PROMISED_OPSET, NEWEST_OPSET = 14, 16
MISSING = 6
"""What the script ends with where AMCT is not there."""
LONGEST = 64 * 1024
LOWER_IR = (
    "import onnx, sys; m = onnx.load(sys.argv[1], load_external_data=False); "
    "m.ir_version = min(m.ir_version, 7 if max(one.version for one in m.opset_import if not one.domain) < 15 else 8); "
    "onnx.save(m, sys.argv[2])"
)
"""The oldest ONNX Runtime that AMCT works with reads up to IR version 7, the one for opset 15 and 16 up to 8."""


def wants_amct(graph: OnnxGraph, options: CompileOptions) -> bool:
    """Whether a request needs AMCT's calibration: int8 of a graph that is not quantized, and atc is not to call it."""
    return (
        options.precision == "int8"
        and not any(graph.ops.get(op) for op in QUANTIZED)
        and "compression_optimize_conf" not in options.options
    )


def amct_files(graph: OnnxGraph, options: CompileOptions) -> tuple[dict[str, str], tuple[Note, ...]]:
    """The script, and its configuration where there is one.

    Raises :class:`UsageError` CNV-2206 listing what AMCT can't do with this graph or this data.
    """
    config = _config(graph, options)
    if faults := _faults(graph, options):
        raise UsageError(
            "CNV-2206",
            f"AMCT can't make int8 of this: {'; '.join(faults)}",
            hint="give --calibration FOLDER with inputs by name, one size for each dimension (--dim NAME=SIZE), and a"
            " float graph or one that AMCT quantized; or take fp16 or mixed",
        )
    files = {CONFIG: config} if config else {}
    return {SCRIPT: _script(graph, with_config=bool(config)), **files}, _notes(graph)


def _faults(graph: OnnxGraph, options: CompileOptions) -> list[str]:
    faults = []
    if graph.ops.get("QuantizeLinear") or graph.ops.get("DynamicQuantizeLinear"):
        faults.append("the graph is quantized in ONNX's own way (QuantizeLinear), which atc does not take")
    if not QUANTIZABLE & graph.ops.keys():
        faults.append(f"it has none of {', '.join(sorted(QUANTIZABLE))}")
    if not calibration_names(graph):
        faults.append("there are neither calibration inputs nor samples")
    inputs = sized_inputs(graph.inputs, graph.dims)
    open_dims = sorted({dim for spec in inputs for dim in spec.shape if isinstance(dim, str)})
    if open_dims:
        faults.append(f"it takes one size for each dimension, and {', '.join(open_dims)} may be of several")
    faults += [f"{spec.name} is {spec.dtype}" for spec in inputs if spec.dtype not in TYPES]
    if CONFIG_OPTION in options.options and len(options.options[CONFIG_OPTION]) > LONGEST:
        faults.append(f"{CONFIG_OPTION} is longer than {LONGEST} characters")
    return faults


def _config(graph: OnnxGraph, options: CompileOptions) -> str:
    """The user's own, or one that keeps nodes out; empty: none is needed. It excludes ``--batch_num``."""
    own = options.options.get(CONFIG_OPTION, "")
    if own or not options.keep:
        return own if not own or own.endswith("\n") else f"{own}\n"
    kept = "".join(f"skip_layers: {json.dumps(name)}\n" for name in dict.fromkeys(options.keep))
    return f"batch_num: {len(calibration_names(graph))}\n{kept}"


def _script(graph: OnnxGraph, *, with_config: bool) -> str:
    inputs = sized_inputs(graph.inputs, graph.dims)
    count = len(calibration_names(graph))
    words = [
        "amct_onnx",
        "calibration",
        "--model=model/lowered.onnx",
        f"--save_path={DEPLOYED.removesuffix('_deploy_model.onnx')}",
        "--input_shape=" + ";".join(f"{spec.name}:{','.join(map(str, spec.shape))}" for spec in inputs),
        "--data_dir=" + ";".join(f"{DATA}/{place}/" for place in range(len(inputs))),
        "--data_types=" + ";".join(spec.dtype for spec in inputs),
        f"--calibration_config={CONFIG}" if with_config else f"--batch_num={count}",
    ]
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"# AMCT calibrates the graph on the {count} samples of {DATA}; atc compiles {DEPLOYED}.",
            "set -eu",
            'if ! command -v amct_onnx >/dev/null; then echo "amct_onnx is not on PATH" >&2; exit 6; fi',
            # Beside the weights, which external data must be.
            f"python3 -c {shlex.quote(LOWER_IR)} {MODEL_IN} model/lowered.onnx",
            shlex.join(words),
            f'if [ ! -s {DEPLOYED} ]; then echo "amct_onnx left no {DEPLOYED}" >&2; exit 7; fi',
            "",
        ]
    )


def _notes(graph: OnnxGraph) -> tuple[Note, ...]:
    notes = [Note(text=f"int8 by AMCT, calibrated on {len(calibration_names(graph))} samples ({SCRIPT})")]
    if not graph.calibration_count:
        text = f"calibrated on the {graph.sample_count} samples of the run: give real inputs with --calibration"
        notes.append(Note(level="warning", text=text))
    if graph.opset > PROMISED_OPSET:
        need = "onnx 1.14 beside it" if graph.opset <= NEWEST_OPSET else "onnx 1.18 beside it, from CANN 9.0 on"
        text = f"AMCT promises opset 8 to 14, and {graph.opset} with {need}: --opset 13 where it refuses the graph"
        notes.append(Note(level="warning", text=text))
    return tuple(notes)


# ---------------------------------------------------------------------------------------------------------------- data


def write_data(graph: OnnxGraph, folder: Path) -> None:
    """Write the samples to calibrate with as AMCT takes them. Copies bytes, and imports no numpy.

    Raises :class:`UsageError` CNV-2288 for samples of another shape or type than the artifact will take.
    """
    shutil.rmtree(folder / DATA, ignore_errors=True)
    faults: list[str] = []
    for place, spec in enumerate(sized_inputs(graph.inputs, graph.dims)):
        (folder / DATA / str(place)).mkdir(parents=True)
        for name in calibration_names(graph):
            target = folder / DATA / str(place) / f"{Path(name).stem}.bin"
            if fault := _copied(graph.path(name), spec.name, (spec.dtype, spec.shape), target):
                faults.append(f"{name}: {fault}")
    if faults:
        shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")
        raise UsageError(
            "CNV-2288",
            f"the inputs to calibrate with do not fit the artifact: {shown}",
            hint="give them in the shapes that are compiled (--dim NAME=SIZE says which), in the model's own types",
        )


def _copied(source: Path, name: str, wanted: tuple[str, tuple[int | str, ...]], target: Path) -> str:
    """Copy the raw numbers of one array of an ``.npz``; says what is wrong where that can't be done."""
    try:
        with zipfile.ZipFile(source) as archive, archive.open(f"{name}.npy") as stream:
            dtype, shape, fortran = _header(stream)
            if (dtype, shape) != wanted:
                return f"{name} is {dtype}{list(shape)}, and {wanted[0]}{list(wanted[1])} is compiled"
            if fortran and math.prod(shape) > 1:
                return f"{name} lies in Fortran's order"
            with target.open("wb") as out:
                shutil.copyfileobj(stream, out)
    except (*DAMAGE, KeyError, SyntaxError) as error:
        return f"{name} can't be read: {error}"
    return ""


def _header(stream: IO[bytes]) -> tuple[str, tuple[int, ...], bool]:
    """dtype, shape and order that a ``.npy`` says of itself (numpy's format, versions 1 to 3)."""
    magic = stream.read(8)
    if magic[:6] != b"\x93NUMPY" or magic[6] not in (1, 2, 3):
        raise ValueError("it is no .npy")
    length = int.from_bytes(stream.read(2 if magic[6] == 1 else 4), "little")
    if length > LONGEST:
        raise ValueError("its header is too long")
    said = ast.literal_eval(stream.read(length).decode("latin-1"))
    return NUMPY_TYPES.get(said["descr"], str(said["descr"])), tuple(said["shape"]), bool(said["fortran_order"])


def _codes() -> Iterator[tuple[str, str]]:
    kinds = {"f": "float", "i": "int", "u": "uint"}
    for name in TYPES - {"bool"}:
        kind = next(code for code, word in kinds.items() if name.startswith(word))
        size = int(name.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8
        yield f"{'|' if size == 1 else '<'}{kind}{size}", name


NUMPY_TYPES = {**dict(_codes()), "|b1": "bool"}
