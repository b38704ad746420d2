"""READ FIRST: the values of a conversion, in pipeline order.

    model file ─load─▶ LoadedModel ─export─▶ OnnxGraph ─simplify─▶ OnnxGraph ─adapt─▶ OnnxGraph
               ─check─▶ CheckedGraph ─compile─▶ CompiledArtifact ─validate─▶ ValidationReport ─publish─▶ Manifest

All are frozen. Each names the digest of what it was made from (``parent``), so that a manifest can print the chain
back to the user's file. Large data lies in files of the value's ``folder``, named in ``files`` with their digests.
``folder`` is where those files lie on this machine; it is no part of a value's digest, nor is anything else that
depends on the machine or the clock.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from artifacts.digest import Digest, FileEntry, canonical_json, sha256_bytes
from convert.exporter_verdict import ExporterVerdict
from convert.metrics import OutputMetrics
from op_registry.values import Judged

Precision = Literal["fp32", "fp16", "bf16", "int8", "mixed"]
RanOn = Literal["device", "simulator", "host", "forecast"]
Dim = int | str
"""A dimension: a size, or the name of a symbolic dimension (``N``)."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """The base of every value of the pipeline."""

    folder: str = ""

    @property
    def digest(self) -> Digest:
        """The digest of everything but ``folder``, the parent's digest included."""
        content = {name: getattr(self, name) for name in self.__struct_fields__ if name != "folder"}
        return sha256_bytes(canonical_json([type(self).__name__, content]))

    def path(self, name: str) -> Path:
        """Where a file of this value lies on this machine."""
        return Path(self.folder) / name


V = TypeVar("V", bound=Value)


def moved(value: V, folder: Path) -> V:
    """The same value with its files in another folder."""
    return msgspec.structs.replace(value, folder=str(folder))


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something a stage did or saw that its user should know. ``subject``: the tensor, node or file it is about."""

    level: Literal["info", "warning"] = "info"
    text: str
    subject: str = ""


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Name, numpy dtype name (``float32``, ``bfloat16``, ``bool``, …) and shape of a tensor."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]


class DimRange(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--dim`` says of a symbolic dimension: the sizes it takes, or the lowest and highest."""

    name: str
    sizes: tuple[int, ...] = ()
    low: int = 1
    high: int = 0
    """0: unbounded."""


# --------------------------------------------------------------------------------------------------------------- load


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``load`` reads of a request. Paths are absolute."""

    path: str
    inputs: tuple[str, ...] = ()
    """``--input`` texts, ``name:dtype[d0,d1,…]``."""
    dims: tuple[str, ...] = ()
    """``--dim`` texts, ``N=1..8`` or ``N=1,4,8``."""
    samples: str = ""
    """A ``.npz``, a ``.pt``, a folder of either, or ``module:callable``."""
    calibration: str = ""
    """``--calibration``: inputs to calibrate int8 with, in the forms of ``samples``; empty: the samples serve."""
    preprocess: str = ""
    """``--preprocess``: what 8-bit images among the samples become."""
    factory: str = ""
    factory_args: tuple[str, ...] = ()
    allow_pickle: bool = False
    seed: int = 0


ModelFormat = Literal["torchscript", "exported_program", "module", "checkpoint", "state_dict", "safetensors", "onnx"]


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a model file is, found from its bytes. ``path`` is resolved through links."""

    path: str
    format: ModelFormat
    sha256: Digest
    bytes: int
    container: str = ""
    """``zip``, ``tar``, ``pickle``, ``protobuf``, …"""
    external: tuple[FileEntry, ...] = ()
    """External data of an ONNX model: paths relative to the model's folder."""


class LoadedModel(Value, frozen=True, kw_only=True):
    """A model that can be opened, the signature of its inputs, and sample inputs.

    ``parent`` is the digest of the user's file. ``files``: per sample ``samples/000.npz`` (leaf arrays by input name)
    and, for torch formats, ``samples/000.pt`` holding ``(args, kwargs)``; inputs to calibrate with likewise, as
    ``calibration/000.npz``.
    """

    parent: Digest
    format: ModelFormat
    inputs: tuple[TensorSpec, ...]
    """Leaves of the arguments in call order, nested ones named by path (``feats.1.0``)."""
    dims: tuple[DimRange, ...] = ()
    sample_count: int = 0
    sampled: Literal["given", "random"] = "random"
    calibration_count: int = 0
    code: Digest | Literal[""] = ""
    """Digest of the user's own source files that were imported to open the model (a factory, a pickle's classes)."""
    notes: tuple[Note, ...] = ()
    files: tuple[FileEntry, ...] = ()


# ----------------------------------------------------------------------------------------------------- export, simplify


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``export`` reads of a request."""

    exporter: Literal["auto", "both", "dynamo", "torchscript"] = "auto"
    """``auto``: a second exporter is judged where it can tell something; ``both``: always, where both can serve."""
    opset: int = 0
    """0: the opset at which the exporter is at its best."""


class SimplifyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``simplify`` reads of a request. ``reason`` says why a lower rung than ``full`` is asked for."""

    mode: Literal["full", "safe", "off"] = "full"
    reason: str = ""
    growth: float = 1.5
    """The file may grow to this many times its size (and 64 KiB on top)."""
    big_model: int = 1 << 30
    """From this many bytes of initializers on, big ones are kept out of the simplifier's sight."""


class OnnxGraph(Value, frozen=True, kw_only=True):
    """An ONNX graph in ``model.onnx`` (with ``model.onnx.data`` from 2 GB, or where its parent had external data).

    ``files`` holds the model's files, the samples ``samples/000.npz`` by input name, and the reference outputs
    ``reference/000.npz``: arrays ``0``, ``1``, … in the order of ``outputs``, from the fp32 graph on ONNX Runtime;
    and ``calibration/000.npz`` by input name, ``calibration_count`` of them. Where the artifact takes 8-bit images,
    ``images/000.npz`` are the samples as it is fed with them.
    """

    parent: Digest
    stage: Literal["export", "simplify", "adapt", "images", "quantize"]
    opset: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: tuple[DimRange, ...] = ()
    nodes: int = 0
    ops: dict[str, int] = {}
    """Operator counts, subgraphs included."""
    weight_bytes: int = 0
    sample_count: int = 0
    calibration_count: int = 0
    made_by: str = ""
    """``dynamo``, ``torchscript``, ``onnx`` (given), ``onnxsim``, …"""
    adapted: tuple[dict[str, Any], ...] = ()
    """What ``adapt`` did, in order: ``{"lowered": {"from", "to"}}``, ``{"rewrite", "nodes", "evidence"}``."""
    exporters: tuple[ExporterVerdict, ...] = ()
    """How torch's exporters were judged, in the order in which they were tried; empty where a graph was given."""
    notes: tuple[Note, ...] = ()
    files: tuple[FileEntry, ...] = ()

    @property
    def model_path(self) -> Path:
        """Where ``model.onnx`` lies."""
        return self.path("model.onnx")


class AdaptOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``adapt`` reads of a request. ``opset``: one that the user asked for, which then stays; 0 for none."""

    target: str
    toolchain_version: str = ""
    opset: int = 0
    overlay: str = ""
    """Digest of the site's overlay of support data; empty where there is none."""


# --------------------------------------------------------------------------------------------------------------- check


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of a whole graph. ``judged`` lists every node whose state is not ``ok``."""

    supported: bool
    nodes: int
    opset: int
    best_opset: int = 0
    """The opset of the target's range with the fewest refusals; 0 where none is known to be better."""
    toolchain_version: str = ""
    """The version that the judgement holds for."""
    judged: tuple[Judged, ...] = ()


class CheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``check`` reads of a request."""

    target: str
    toolchain_version: str = ""
    strict: bool = False
    overlay: str = ""
    """The digest of this site's overlay of the support data; empty: there is none."""


class CheckedGraph(Value, frozen=True, kw_only=True):
    """A graph and what the target's toolchain says of each node. The graph's files stay in the graph's folder."""

    parent: Digest
    target: str
    support: Support


# ------------------------------------------------------------------------------------------------------------ forecast


CalibrationMethod = Literal["minmax", "entropy", "percentile"]
"""How int8 ranges are taken from the inputs to calibrate with."""


class ForecastOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``forecast`` reads of a request. ``memory``: bytes that held-back tensors may take, 0 for the default.

    ``plan`` asks for the nodes to keep in fp32 so that ``gate`` (thresholds by metric; empty: the precision's own)
    holds. ``accumulate``: the type that the vendor's reductions sum in; empty where that is not known, and then a sum
    is taken to be stored in the narrow type. Products of matrices sum in fp32 everywhere.
    """

    precision: Precision
    gate: dict[str, float] = {}
    plan: bool = False
    memory: int = 0
    accumulate: Literal["", "fp32"] = ""
    calibration: CalibrationMethod = "minmax"
    """int8: how ranges are found, from the inputs to calibrate with, else from the samples."""
    narrow: Literal["fp16", "bf16"] = "fp16"
    """``mixed``: what the nodes become that are not kept."""


class NodeForecast(msgspec.Struct, frozen=True, kw_only=True):
    """One node in the emulated precision, the worst over all samples.

    Errors are relative L2. ``made`` is what this node alone adds, on exact inputs; ``arriving`` what its inputs bring;
    ``passed`` what its output carries in the end. ``reasons`` are findings in words, the gravest first.
    """

    node: str
    op: str
    module: str = ""
    output: str = ""
    low: float | None = 0.0
    high: float | None = 0.0
    """The output's range; None where it ends in an infinity or has no number at all."""
    overflow: float = 0.0
    """Share of elements beyond the precision's range."""
    flushed: float = 0.0
    """Share of non-zero elements that become zero or lose digits as subnormals."""
    made: float = 0.0
    arriving: float = 0.0
    passed: float = 0.0
    effect: dict[str, float] = {}
    """Graph output → relative L2 of the error that this node's own rounding leaves there; empty where not estimated."""
    reasons: tuple[str, ...] = ()


class Forecast(Value, frozen=True, kw_only=True):
    """What a precision will do to a graph's numbers, judged on a CPU before any vendor compiler runs.

    ``outputs`` are metrics of the emulated outputs against the reference, as ``validate`` measures an artifact's.
    ``guilty`` lists nodes worst first; ``keep`` the nodes of the mixed-precision plan; ``evaluations`` how many passes
    over the whole graph were needed. ``planned`` are the outputs with ``keep`` held in fp32.
    """

    parent: Digest
    precision: Precision
    holds: bool
    outputs: tuple[OutputMetrics, ...] = ()
    planned: tuple[OutputMetrics, ...] = ()
    guilty: tuple[NodeForecast, ...] = ()
    keep: tuple[str, ...] = ()
    plan_holds: bool | None = None
    """Whether the gate holds with ``keep``; None: no plan was asked for or needed."""
    evaluations: int = 0
    samples: int = 0
    notes: tuple[Note, ...] = ()
    files: tuple[FileEntry, ...] = ()
    """``forecast.json``: every node (not only the guilty), in the order of the graph."""


# ------------------------------------------------------------------------------------------------------------ quantize


class QuantizeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``quantize`` reads of a request. ``keep``: names of nodes that stay in float."""

    calibration: CalibrationMethod = "minmax"
    keep: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------------- compile


class CompileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``compile`` reads of a request."""

    target: str
    soc: str = ""
    backend: str
    precision: Precision
    options: dict[str, str] = {}
    keep: tuple[str, ...] = ()
    """``mixed``: names of the graph's nodes that stay in fp32, from the forecast's plan."""
    preprocess: str = ""
    """``--preprocess``: a JSON object (mean, std, crop, colour space) for compilers that prepare images themselves."""
    toolchain_version: str = ""
    """The version to plan for where no toolchain is on this machine; empty: the backend's newest verified one."""
    timeout: float = 0.0
    launcher: tuple[str, ...] = ()
    """What a compiler's command line is put behind."""
    compilers: int = 0
    """How many compilers may run on this machine at once; 0 for no limit."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend is going to do, decided before anything runs: printed by ``--dry-run``, kept in the manifest.

    ``argv`` is the exact argument list; paths in it are relative to the working folder. A backend that calls a
    library in a child process names the module and its settings there.
    """

    backend: str
    argv: tuple[str, ...]
    environment: dict[str, str] = {}
    files: dict[str, str] = {}
    """Configuration files to write before the run: name → content."""
    output: str
    """The artifact's file name."""
    needs: dict[str, str] = {}
    """What the machine that runs it must have, by name: ``toolchain`` (``CANN``), ``version``, ``soc``, ``card``, …"""
    notes: tuple[Note, ...] = ()


class CompiledArtifact(Value, frozen=True, kw_only=True):
    """What a backend made of a graph. ``files[0]`` is the artifact's main file."""

    parent: Digest
    target: str
    soc: str = ""
    backend: str
    precision: Precision
    plan: Plan
    toolchain: dict[str, str] = {}
    """Versions of what compiled it, by name."""
    notes: tuple[Note, ...] = ()
    files: tuple[FileEntry, ...] = ()


# ------------------------------------------------------------------------------------------------------------ validate


class ValidateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``validate`` reads of a request. ``metrics``: ``--metric`` texts, ``module:callable``."""

    metrics: tuple[str, ...] = ()
    argmax: bool = False
    timeout: float = 0.0
    """Seconds that a program which runs the artifact may take; 0 for no limit."""
    launcher: tuple[str, ...] = ()
    """What such a program's command line is put behind."""


class ValidationReport(Value, frozen=True, kw_only=True):
    """The artifact's outputs against the reference, before any threshold is applied.

    ``files`` holds ``pictures.json``: per output an error histogram and a scatter sample for the report.
    """

    parent: Digest
    ran_on: RanOn
    device: str = ""
    reference: str = "fp32 graph on ONNX Runtime"
    outputs: tuple[OutputMetrics, ...] = ()
    samples: int = 0
    notes: tuple[Note, ...] = ()
    files: tuple[FileEntry, ...] = ()


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """What ``locate`` looks at: a sample by its number, and the relative L2 from which a value departs.

    ``worst`` is the highest relative L2 of the artifact's outputs; 1e9 where one has NaN or Inf or none was computed.
    """

    sample: int
    limit: float
    worst: float


class Located(Value, frozen=True, kw_only=True):
    """Where an artifact that failed its gate first departs from the graph; ``node`` is empty where nowhere does.

    ``error`` is the relative L2 of the node's output (1e9: NaN or Inf where the graph has a number), ``arriving`` the
    highest of its inputs; ``low`` and ``high`` are the range that the graph has there.
    """

    parent: Digest
    how: str
    compared: int
    node: str = ""
    op: str = ""
    module: str = ""
    output: str = ""
    error: float = 0.0
    arriving: float = 0.0
    low: float = 0.0
    high: float = 0.0
    files: tuple[FileEntry, ...] = ()


class GateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A validation report judged with thresholds. ``failures``: one sentence for each broken rule."""

    passed: bool
    thresholds: dict[str, float]
    failures: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    """What passed by a rule of its own (the absolute floor), or proves little: one sentence each."""


def to_json(value: Any) -> bytes:
    """Canonical JSON of any value."""
    return canonical_json(value)
