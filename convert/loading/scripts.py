"""TorchScript archives: opened on the CPU, with what can't be converted named before anything runs.

Runs in the worker only (imports torch).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from artifacts.scratch import temporary_folder
from convert.errors import LoadError
from convert.loading.calls import Parameter, Signature
from convert.loading.opened import OpenModel, half_note, unused_factory, widen
from convert.loading.user_code import Guarded
from convert.loading.zips import open_archive
from convert.values import LoadOptions, ModelFile, Note

MAX_SOURCE = 64 << 20
CUDA_DEVICE = re.compile(rb'torch\.device\("cuda(?::\d+)?"(?:, \d+)?\)|(?<=device=)"cuda(?::\d+)?"')
CUDA_CALL = re.compile(rb"torch\.cuda\(")
OTHER_DEVICE = re.compile(rb'"(cuda|xpu|npu|mlu|hpu)(?::\d+)?"')
ASKED_DEVICE = re.compile(rb'\[(?:"[^"\\\n]*"(?:, )?)+\]|torch\.(?:eq|ne)\([^()\n]*\)')
"""Where code asks which device it is on (``torch.nn.TransformerEncoder`` does): a list of names, a comparison."""
FILE_ACCESS = re.compile(rb"(?:ops\.aten|torch)\.(save|from_file|load)\(")
"""TorchScript operators that read or write files (aten/src/ATen/native and torch/csrc/jit/runtime/register_*)."""
INDEX = "int64, an index into a table"
_jit: Any = torch.jit
RANDOM = (
    "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "randperm", "normal", "normal_", "bernoulli",
    "bernoulli_", "multinomial", "poisson", "uniform_", "exponential_", "random_", "cauchy_", "geometric_", "rrelu",
    "log_normal_",
)  # fmt: skip
DROPOUTS = ("dropout", "dropout_", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout")


def open_script(file: ModelFile, options: LoadOptions) -> OpenModel:
    """Open a TorchScript archive in eval mode.

    Raises :class:`LoadError`: CNV-3028 it can't be opened, CNV-3029 it has no ``forward``, CNV-3030 its code is bound
    to another processor, CNV-3031 it is quantized, CNV-3032 a part stays in training mode, CNV-3035 its code reads
    or writes files.
    """
    path = Path(file.path)
    notes: list[Note] = []
    devices = check_source(path, file.bytes)
    hint = "open it with the PyTorch version that saved it and save it again, or download it again if it may be damaged"
    with Guarded("CNV-3028", f"PyTorch {torch.__version__} can't open {path.name}", hint=hint):
        module = _load_on_cpu(path, devices)
    if devices:
        notes.append(Note(level="warning", text=f"its code names {', '.join(devices)}; it was rewritten to the CPU"))
    check_forward(module, path)
    with Guarded("CNV-3028", f"PyTorch {torch.__version__} can't read the graph of {path.name}", hint=hint):
        module.eval()
        graph = module.inlined_graph
        nodes = all_nodes(graph)
    check_quantized(nodes, path)
    check_training(nodes, path)
    was_half = widen(module)
    notes += [half_note(file)] if was_half else []
    notes += unused_factory(options, "a TorchScript archive")
    may_vary = random_operators(nodes)
    return OpenModel(
        module, None, "torchscript", script_signature(module, graph, nodes), tuple(notes), may_vary, was_half
    )


def check_source(path: Path, size: int) -> tuple[str, ...]:
    """Devices in the archive's code that can be rewritten to the CPU; errors CNV-3030 and CNV-3035 for the rest."""
    archive = open_archive(path, size)
    names = [name for name in archive.below("code/") if name.endswith(".py")]
    devices: dict[str, None] = {}
    for name, source in archive.read_all(names, limit=MAX_SOURCE):
        if (access := FILE_ACCESS.search(source)) is not None:
            raise LoadError(
                "CNV-3035",
                f"the code in {path.name} reads or writes files ({access[0].decode()[:-1]} in {name}); it was not run",
                hint="get the model from a source that you trust, or trace it again without that code",
            )
        devices.update(dict.fromkeys(_devices(source)))
        left = OTHER_DEVICE.search(ASKED_DEVICE.sub(b"", rewritten(source)))
        if left is not None:
            raise LoadError(
                "CNV-3030",
                f"the code in {path.name} is bound to a device: {left[0].decode()} in {name}",
                hint="trace or script the model again on the CPU: model.cpu().eval() before torch.jit.trace",
            )
    return tuple(devices)


def _devices(source: bytes) -> Iterator[str]:
    for match in (*CUDA_DEVICE.finditer(source), *CUDA_CALL.finditer(source)):
        named = re.search(rb"cuda(:\d+)?", match[0])
        yield named[0].decode() if named else "cuda"


def rewritten(source: bytes) -> bytes:
    """TorchScript source with its CUDA devices replaced by the CPU."""
    source = CUDA_DEVICE.sub(lambda match: b'torch.device("cpu")' if b"torch" in match[0] else b'"cpu"', source)
    # x.cuda() becomes an operator that changes nothing on the CPU and that every exporter knows.
    return CUDA_CALL.sub(b"torch.detach(", source)


def _load_on_cpu(path: Path, devices: tuple[str, ...]) -> Any:
    if not devices:
        return _jit.load(str(path), map_location="cpu")
    with temporary_folder("cpu") as folder:
        copy = Path(folder) / "model.pt"
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(copy, "w") as new:
            for info in old.infolist():
                data = old.read(info)
                new.writestr(zipfile.ZipInfo(info.filename), rewritten(data) if info.filename.endswith(".py") else data)
        return _jit.load(str(copy), map_location="cpu")


def check_forward(module: Any, path: Path) -> None:
    """Refuse an archive without ``forward`` (CNV-3029), listing the methods that it has."""
    names = sorted(module._c._method_names())
    if "forward" not in names:
        found = ", ".join(f"{name}()" for name in names) or "none"
        raise LoadError(
            "CNV-3029",
            f"{path.name} is TorchScript without forward(); its methods: {found}",
            hint="wrap the method that you want in a module whose forward calls it, script that, and save it",
        )


def check_quantized(nodes: list[Any], path: Path) -> None:
    """Refuse quantized operators (CNV-3031): ONNX has none of them."""
    found = sorted({node.kind() for node in nodes if node.kind().startswith("quantized::")})
    if found:
        raise LoadError(
            "CNV-3031",
            f"{path.name} is quantized by PyTorch ({', '.join(found[:6])}), which no exporter can turn into ONNX",
            hint="give the float model that it was made from and quantize while converting: --precision int8",
        )


def all_nodes(graph: Any) -> list[Any]:
    """Every node of a graph, blocks included."""
    found: list[Any] = []
    stack = [graph]
    while stack:
        for node in stack.pop().nodes():
            found.append(node)
            stack.extend(node.blocks())
    return found


def check_training(nodes: list[Any], path: Path) -> None:
    """Refuse dropout and batch normalisation that a trace has frozen in training mode (CNV-3032)."""
    found = [named for node in nodes if (named := _in_training(node))]
    if found:
        raise stays_in_training(path, list(dict.fromkeys(found)), "trace the model again after model.eval()")


def _in_training(node: Any) -> str:
    """What a node is called where it is dropout or batch normalisation with training as a constant; else empty."""
    name = node.kind().removeprefix("aten::")
    inputs = list(node.inputs())
    if name in DROPOUTS and _constant(inputs, 2) is True and _constant(inputs, 1) != 0:
        return f"{name} (p={_constant(inputs, 1)})"
    if name == "batch_norm" and _constant(inputs, 5) is True and not _is_none(inputs[3]):
        return f"{name} {_module_path(inputs[3])}".strip()
    if name == "scaled_dot_product_attention" and (_constant(inputs, 4) or 0) > 0:
        return f"{name} with dropout (p={_constant(inputs, 4)})"
    return ""


def _constant(inputs: list[Any], index: int) -> Any:
    """The constant at a position of an operator's inputs; None where it is computed or missing."""
    if index >= len(inputs) or inputs[index].node().kind() != "prim::Constant":
        return None
    return inputs[index].toIValue()


def _is_none(value: Any) -> bool:
    return str(value.type()) == "NoneType"


def _module_path(value: Any) -> str:
    """``layer1.bn`` for a value that is read from an attribute of that module."""
    names: list[str] = []
    node = value.node()
    while node.kind() == "prim::GetAttr" and len(names) < 64:
        names.append(node.s("name"))
        node = next(iter(node.inputs())).node()
    return ".".join(reversed(names[1:]))


def stays_in_training(path: Path, found: list[str], hint: str) -> LoadError:
    """The error for parts that would behave as in training."""
    shown = ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
    return LoadError("CNV-3032", f"{path.name} has parts that stay in training mode: {shown}", hint=hint)


def random_operators(nodes: list[Any]) -> tuple[str, ...]:
    """Operators of a graph that draw random numbers, and whether ``forward`` sets attributes of the module."""
    found = {node.kind() for node in nodes}
    random = sorted(kind for kind in found if kind.removeprefix("aten::") in RANDOM)
    return (*random, *(("an attribute that forward() sets",) if "prim::SetAttr" in found else ()))


def script_signature(module: Any, graph: Any, nodes: list[Any]) -> Signature:
    """What ``forward`` of a TorchScript module takes; an input that indexes an embedding table is known to be int64."""
    given = list(graph.inputs())[1:]
    looked_up = {next(iter(list(node.inputs())[1:2])).debugName() for node in nodes if node.kind() == "aten::embedding"}
    arguments = module.forward.schema.arguments[1:]
    indices = {
        argument.name for argument, value in zip(arguments, given, strict=False) if value.debugName() in looked_up
    }
    parameters = tuple(
        Parameter(
            argument.name,
            not argument.has_default_value(),
            bool(argument.kwarg_only),
            INDEX if argument.name in indices else str(argument.type),
        )
        for argument in arguments
    )
    return Signature(parameters)
