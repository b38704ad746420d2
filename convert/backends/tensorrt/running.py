"""An engine on samples, through trtexec: raw files in, JSON out, one start per sample.

trtexec prints outputs with about six digits, so that they are off by some 1e-6. An engine is bound to its TensorRT and
its card; both are looked at before it is loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convert.backends.base import CannotRun, Missing, Ran, Runner, RunRequest, Toolchain
from convert.backends.spans import open_inputs
from convert.backends.tensorrt.compile import failure_of
from convert.backends.tensorrt.plan import quoted, shape_word
from convert.backends.tensorrt.probe import probe
from convert.errors import CompileFailed
from convert.values import Note, OnnxGraph, Plan, TensorSpec
from op_registry.targets import find_target

if TYPE_CHECKING:
    import numpy as np

    from convert.backends.base import Array, Feeds

LOG = "run.log"
EXPORTED = "output.json"
OUTPUT = re.compile(r'"name"\s*:\s*"(?P<name>(?:[^"\\]|\\.)*)"\s*,\s*"dimensions"\s*:\s*"(?P<dims>[0-9x]*)"\s*,\s*'
                    r'"values"\s*:\s*\[(?P<values>[^\]]*)\]')  # fmt: skip
TAG = b"ftrt"
DIGITS = "trtexec prints outputs with about six digits: differences of some 1e-6 come from that"


def run_engine(request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
    """Run an engine on every sample, as they are asked for. Raises CompileFailed CNV-7005 where it does not run."""
    artifact = request.artifact
    toolchain = probe(find_target(artifact.target), os.environ)
    if isinstance(toolchain, Missing):
        return CannotRun(reason=toolchain.reason, hint=toolchain.hint)
    engine = artifact.path(artifact.files[0].name).resolve()
    if reason := unfit(artifact.plan, toolchain, plan_version(engine)):
        return CannotRun(reason=reason, hint="convert again here: an engine is bound to its TensorRT and its card")
    return Ran(
        outputs=_outputs(request, engine, toolchain, feeds, runner),
        ran_on="device",
        device=toolchain.details.get("card", artifact.target),
        notes=(Note(text=DIGITS),),
    )


def plan_version(engine: Path) -> str:
    """The TensorRT that wrote an engine, from its own bytes; empty where they don't tell.

    The tag ``ftrt``, then the version as four bytes at 24 (NVIDIA/TensorRT samples/common/sampleEngines.cpp; plans of
    8.6 and later).
    """
    with engine.open("rb") as stream:
        head = stream.read(28)
    return ".".join(str(byte) for byte in head[24:27]) if len(head) == 28 and head[:4] == TAG else ""


def unfit(plan: Plan, toolchain: Toolchain, written: str) -> str:
    """Why an engine can't be loaded by the TensorRT that is here; empty: nothing speaks against it."""
    built = written or plan.needs.get("version", toolchain.version)
    same_major = built.partition(".")[0] == toolchain.version.partition(".")[0]
    portable = "--versionCompatible" in plan.argv and same_major and _numbers(toolchain.version) >= _numbers(built)
    if _numbers(built) != _numbers(toolchain.version) and not portable:
        return f"the engine is of TensorRT {built}, and {toolchain.version} is here"
    arch, here = plan.needs.get("arch", ""), toolchain.details.get("arch", "")
    free = any(word.startswith("--hardwareCompatibilityLevel=") and not word.endswith("=none") for word in plan.argv)
    if arch and here and arch != here and not free:
        return f"the engine was built for {arch}, and the card here is {here}"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _outputs(
    request: RunRequest, engine: Path, toolchain: Toolchain, feeds: Feeds, runner: Runner
) -> Iterator[list[Array]]:
    program = toolchain.details.get("program", "trtexec")
    for sample in feeds:
        files = write_inputs(request.graph, sample, request.folder)
        argv = (
            program,
            f"--loadEngine={engine}",
            *input_words(files),
            *shape_words(request.graph, sample),
            f"--exportOutput={EXPORTED}",
            *("--iterations=1", "--duration=0", "--warmUp=0", "--avgRuns=1"),
            *static_plugins(request.artifact.plan),
        )
        (request.folder / EXPORTED).unlink(missing_ok=True)
        finished = runner(argv, log=LOG)
        log = request.folder / LOG
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        failure = "took too long" if finished.timed_out else failure_of(finished, text)
        exported = request.folder / EXPORTED
        if failure or not exported.is_file():
            raise _does_not_run(request.artifact.target, failure or "it wrote no outputs", text)
        yield read_outputs(exported.read_text(encoding="utf-8", errors="replace"), request.graph.outputs)


def static_plugins(plan: Plan) -> tuple[str, ...]:
    """The words of a plan that an engine needs when it is loaded, too."""
    return tuple(word for word in plan.argv if word.startswith(("--staticPlugins=", "--plugins=", "--device=")))


def _does_not_run(target: str, failure: str, log: str) -> CompileFailed:
    from convert.diagnosis import read_log

    found = read_log("tensorrt", log)
    return CompileFailed(
        "CNV-7005",
        f"the artifact for {target} does not run ({failure}): {found.cause}",
        hint=found.hint if found.known else "the samples must fit the sizes that it was built for",
    )


def write_inputs(graph: OnnxGraph, sample: Mapping[str, Array], folder: Path) -> list[tuple[str, str]]:
    """Each input as the raw bytes of its array in C order; names and files, in the graph's order."""
    import numpy as np

    files = []
    for number, spec in enumerate(graph.inputs):
        name = f"in/{number}.bin"
        (folder / "in").mkdir(parents=True, exist_ok=True)
        np.ascontiguousarray(sample[spec.name]).tofile(folder / name)
        files.append((spec.name, name))
    return files


def input_words(files: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The option that names the inputs' files; none for an engine without inputs."""
    named = ",".join(f"{quoted(name)}:{file}" for name, file in files)
    return (f"--loadInputs={named}",) if named else ()


def shape_words(graph: OnnxGraph, sample: Mapping[str, Array]) -> tuple[str, ...]:
    """The shapes of a sample's inputs, where the graph leaves some open."""
    inputs = open_inputs(graph)
    if not inputs:
        return ()
    return ("--shapes=" + ",".join(shape_word(spec.name, sample[spec.name].shape) for spec in inputs),)


def read_outputs(text: str, specs: Sequence[TensorSpec]) -> list[Array]:
    """The outputs of one run in the graph's order, in the graph's dtypes; ``nan`` and ``inf`` stand bare in the file.

    Raises :class:`CompileFailed` CNV-7005 where they are not as many as the graph has, or can't be read.
    """
    import numpy as np

    found = [(match["name"], match["dims"], match["values"]) for match in OUTPUT.finditer(text)]
    if len(found) != len(specs):
        raise CompileFailed(
            "CNV-7005",
            f"the engine gave {len(found)} outputs, and the graph has {len(specs)}",
            hint="look at the outputs with `trtexec --loadEngine=… --dumpOutput`",
        )
    names = [spec.name for spec in specs]
    if sorted(name for name, _, _ in found) == sorted(names):
        found.sort(key=lambda one: names.index(one[0]))
    arrays = []
    for spec, (name, dims, values) in zip(specs, found, strict=True):
        shape = tuple(int(size) for size in dims.split("x")) if dims else ()
        words = values.split(",") if values.strip() else []
        exact = spec.dtype.startswith(("int", "uint", "bool"))
        try:
            numbers = np.array(words, dtype=np.int64 if exact else np.float64).reshape(shape)
        except ValueError as error:
            raise CompileFailed(
                "CNV-7005", f"the engine's output {name} can't be read: {error}", hint="run trtexec by hand and compare"
            ) from error
        arrays.append(numbers.astype(_dtype(spec.dtype)))
    return arrays


def _dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes
    import numpy as np

    return np.dtype(getattr(ml_dtypes, name, name))
