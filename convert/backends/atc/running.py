"""Running an artifact on the card of this machine: through pyACL, or through ais_bench where only that is installed.

Outputs are taken by order: atc renames them. Loading another part's artifact is told by EE1001 (up to 8.1), EE1003 (8.5
and 9.0), E10001 (9.2) or the code 507008 (hicann/runtime errcode_manage.cc, hicann/ge om_file_helper.cc).
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convert.backends.atc.aipp import aipp_of
from convert.backends.atc.ais_bench import MODULE, arguments, read_speed, read_summary
from convert.backends.atc.device_run import laid_out
from convert.backends.atc.feeding import Job, form_of, moving_of, prepare_job, room_of
from convert.backends.atc.find import environment_of, find_runtime, interpreter
from convert.backends.atc.flags import flags_in
from convert.backends.atc.probe import probe_runtime
from convert.backends.base import CannotRun, Ran, Runner, RunRequest, Timing
from convert.backends.children import TIMES
from convert.errors import CompileFailed, ResourceLimit
from convert.values import Note, OnnxGraph, Plan
from op_registry.targets import all_socs

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds

SCRIPT = Path(__file__).with_name("device_run.py")
JOB, RESULT, LOG = "device_job.json", "device_result.json", "device.log"
TAIL = 1 << 20
WRONG_SOC = (
    re.compile(r"EE1001.*supported socVersion=(?P<card>[\w-]+).*?model socVersion=(?P<model>[\w-]+)", re.DOTALL),
    re.compile(
        r"EE1003.*value (?P<model>[\w-]+) for parameter omSocVersion is invalid\. Expected value: (?P<card>[\w-]+)"
    ),
    re.compile(r"E10001.*Value (?P<model>[\w-]+) for parameter soc_version is invalid(?P<card>)"),
    re.compile(r"\b507008\b(?P<model>)(?P<card>)"),
)


def _other_host(plan: Plan) -> str:
    """The kind of host that an artifact of ranged shapes was compiled for, where it is another one than this."""
    flags = flags_in(plan.argv)
    asked = flags.get("host_env_cpu", "")
    mine = {"aarch64": ("aarch64", "arm64"), "x86_64": ("x86_64",)}.get(platform.machine(), (asked,))
    return asked if form_of(flags) == "ranged" and asked and asked not in mine else ""


def _no_runtime(told: Mapping[str, str]) -> CannotRun:
    """Why nothing runs an artifact here: only what running needs is named."""
    source = f"source {told['set_env']}" if told["set_env"] else "source the set_env.sh of the CANN runtime or toolkit"
    if told.get("acl_error"):
        return CannotRun(
            reason=f"pyACL is here and does not load: {told['acl_error']}",
            hint=f"{source}: LD_LIBRARY_PATH must lead to libascendcl.so and the driver's libraries",
        )
    return CannotRun(
        reason="python3 on PATH has neither pyACL (acl) nor ais_bench",
        hint=f"{source}, which puts acl on PYTHONPATH; or install the wheels aclruntime and ais_bench",
    )


def run_artifact(request: RunRequest, feeds: Feeds, runner: Runner, environment: Mapping[str, str]) -> Ran | CannotRun:
    """Run an artifact on samples, or say why this machine can't.

    Raises :class:`CompileFailed`: CNV-7201 it was compiled for another part, CNV-7005 it fails on the card; and
    :class:`ResourceLimit` CNV-1001 where the time limit passed.
    """
    plan = request.artifact.plan
    how = aipp_of(plan.files, request.graph)
    ways = {"acl": "yes"} if plan.needs.get("launched") else _ways(request, environment)
    if isinstance(ways, CannotRun):
        return ways
    job = prepare_job(request, feeds, how)
    if ways.get("acl") == "yes" and not ways.get("acl_error"):
        device = _through_acl(request, job, runner, environment)
        outputs = _acl_outputs(request, job)
    else:
        device = ways.get("soc", "")
        outputs = _through_ais_bench(request, job, runner, environment)
    typed = _typed(outputs, request.graph)
    return Ran(outputs=typed, ran_on="device", device=device or "Ascend", notes=(*job.notes, *_type_notes(plan.argv)))


def _ways(request: RunRequest, environment: Mapping[str, str]) -> dict[str, str] | CannotRun:
    """What can run it here: ``acl`` and ``ais_bench``, yes or no, and the card's ``soc``.

    The compiler is not asked for: a machine that deploys has the runtime alone.
    """
    told = probe_runtime(environment)
    if told["ais_bench"] != "yes" and (told["acl"] != "yes" or told.get("acl_error")):
        return _no_runtime(told)
    if not told["soc"] and not told["cards"]:
        return CannotRun(
            reason="no Ascend card was found on this machine", hint="run it on a machine that has the card"
        )
    if other := _other_host(request.artifact.plan):
        return CannotRun(
            reason=f"the artifact holds code for {other} hosts, and this one is {platform.machine()}",
            hint="run it there: a true dynamic shape is bound to its host; fixed or listed sizes are not",
        )
    wanted = request.artifact.soc or request.artifact.plan.needs.get("soc", "")
    arches = {part.name: part.arch for part in all_socs()}
    here = arches.get(told["soc"], "")
    if here and wanted in arches and arches[wanted] != here:
        return CannotRun(
            reason=f"the card here is {told['soc']}, and the artifact is for {wanted}",
            hint=f"run it on a machine that has {wanted}",
        )
    return {**told}


# --------------------------------------------------------------------------------------------------------------- pyACL


def _through_acl(request: RunRequest, job: Job, runner: Runner, environment: Mapping[str, str]) -> str:
    """Run the script that stands alone; gives the device's name."""
    folder = request.folder
    (folder / "outputs").mkdir(exist_ok=True)
    shutil.copyfile(SCRIPT, folder / SCRIPT.name)
    order = _order(job, str(request.artifact.path(request.artifact.files[0].name)), "outputs", times=TIMES)
    (folder / JOB).write_text(order, encoding="utf-8")
    python, added = _python(request, environment)
    finished = runner([python, SCRIPT.name, JOB], environment=added, log=LOG)
    result = _result(folder / RESULT)
    if finished.timed_out:
        raise _too_slow(finished.seconds)
    if finished.returncode or "error" in result or result.get("samples") != len(job.samples):
        raise _failed(request, result, _tail(folder / LOG), finished.returncode)
    return str(result.get("device", ""))


def _order(job: Job, model: str, out: str, times: str = "") -> str:
    order = {
        "model": model,
        "samples": job.samples,
        "inputs": job.names,
        "out": out,
        "result": RESULT,
        "form": job.form,
        "moving": job.moving,
        "output_bytes": job.output_bytes,
        **({"times": times} if times else {}),
    }
    return json.dumps(order, indent=2, sort_keys=True) + "\n"


def device_files(plan: Plan, graph: OnnxGraph) -> dict[str, str]:
    """What measures an artifact where its card is, for a handoff bundle: ``python3 device_run.py`` in its folder.

    Where the artifact takes 8-bit images, they lie in ``images/``, and ``samples/`` holds what they become.
    """
    fed = "images" if aipp_of(plan.files, graph) is not None else "samples"
    flags = flags_in(plan.argv)
    job = Job(
        form=form_of(flags),
        moving=moving_of(flags),
        names=tuple(spec.name for spec in graph.inputs),
        samples=tuple(f"{fed}/{number:03d}.npz" for number in range(graph.sample_count)),
        shapes=(),
        output_bytes=room_of(graph),
    )
    order = _order(job, f"out/{plan.output}", "measured")
    return {SCRIPT.name: SCRIPT.read_text(encoding="utf-8"), JOB: order}


def _python(request: RunRequest, environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    if request.artifact.plan.needs.get("launched"):
        return "python3", {}
    cann = find_runtime(environment)
    added = environment_of(cann, environment) if cann else {}
    return interpreter({**environment, **added}) or "python3", added


def _result(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_bytes()[:TAIL])
    except (OSError, ValueError, RecursionError):
        return {}
    return result if isinstance(result, dict) else {}


def _acl_outputs(request: RunRequest, job: Job) -> Iterator[list[Array]]:
    from convert.arrays import load_npz

    for number in range(len(job.samples)):
        arrays = load_npz(request.folder / "outputs" / f"{number:03d}.npz")
        yield [arrays[key] for key in sorted(arrays, key=int)]


# ----------------------------------------------------------------------------------------------------------- ais_bench


def _through_ais_bench(
    request: RunRequest, job: Job, runner: Runner, environment: Mapping[str, str]
) -> Iterator[list[Array]]:
    """One run of the tool for each sample."""
    import numpy as np

    python, added = _python(request, environment)
    for number in range(len(job.samples)):
        words = _words(request, job, number)
        finished = runner([python, "-m", MODULE, *words], environment=added, log=LOG)
        if finished.timed_out:
            raise _too_slow(finished.seconds)
        made = [request.folder / "outputs" / f"{number:03d}" / f"x0_{i}.npy" for i in range(len(request.graph.outputs))]
        if finished.returncode or not all(path.is_file() for path in made):
            raise _failed(request, {}, _tail(request.folder / LOG), finished.returncode)
        yield [np.load(path, allow_pickle=False) for path in made]


def _words(request: RunRequest, job: Job, number: int) -> list[str]:
    """The tool's arguments for a sample, whose inputs are written."""
    import numpy as np

    from convert.arrays import load_npz

    arrays = load_npz(request.folder / job.samples[number])
    place = Path("samples") / f"{number:03d}"
    (request.folder / place).mkdir(exist_ok=True)
    (request.folder / "outputs").mkdir(exist_ok=True)
    files = []
    for index, name in enumerate(job.names):
        files.append(str(place / f"x{index}.npy"))
        np.save(request.folder / files[-1], arrays[name], allow_pickle=False)
    return arguments(
        laid_out(str(request.artifact.path(request.artifact.files[0].name)), str(request.folder / "loaded")),
        files,
        out="outputs",
        name=f"{number:03d}",
        steps=_steps(job, number),
        sizes=job.output_bytes if job.form == "ranged" else (),
    )


def time_artifact(
    request: RunRequest, feed: Mapping[str, Array], runner: Runner, *, warmup: int, runs: int
) -> Timing | None:
    """What ais_bench says of the times of one sample; None where the tool, or the card, is not here.

    Raises :class:`CompileFailed` CNV-7005 where it fails, :class:`ResourceLimit` CNV-1001 where the time limit passed.
    """
    how = aipp_of(request.artifact.plan.files, request.graph)
    ways = _ways(request, os.environ)
    if isinstance(ways, CannotRun) or ways["ais_bench"] != "yes":
        return None
    job = prepare_job(request, [feed], how)
    python, added = _python(request, os.environ)
    loops = ["--loop", str(runs), "--warmup_count", str(warmup)]
    finished = runner([python, "-m", MODULE, *_words(request, job, 0), *loops], environment=added, log=LOG)
    if finished.timed_out:
        raise _too_slow(finished.seconds)
    if finished.returncode:
        raise _failed(request, {}, _tail(request.folder / LOG), finished.returncode)
    speed = read_speed(_tail(request.folder / LOG))
    for name in ("outputs/000_summary.json", "outputs/000/sumary.json"):
        if (request.folder / name).is_file():
            speed = read_summary((request.folder / name).read_bytes()[:TAIL])
    return Timing(
        tool=MODULE,
        runs=speed.count or runs,
        warmup=warmup,
        median=speed.median,
        p99=speed.p99,
        mean=speed.mean,
        least=speed.minimum,
        most=speed.maximum,
        per_second=1e3 / speed.mean if speed.mean else speed.throughput,
    )


def _steps(job: Job, number: int) -> list[str]:
    shapes = job.shapes[number]
    moving = shapes[job.names.index(job.moving)] if job.moving else ()
    if job.form == "batch":
        return ["--dymBatch", str(moving[0])]
    if job.form == "image":
        return ["--dymHW", f"{moving[2]},{moving[3]}"]
    text = ";".join(f"{name}:{','.join(map(str, shape))}" for name, shape in zip(job.names, shapes, strict=True))
    return {"dims": ["--dymDims", text], "ranged": ["--dymShape", text]}.get(job.form, [])


# -------------------------------------------------------------------------------------------------------- types, errors


def _typed(outputs: Iterator[list[Array]], graph: OnnxGraph) -> Iterator[list[Array]]:
    """Floats of another width than the graph's become the graph's: ``output_type`` may have changed them."""
    for arrays in outputs:
        yield [
            array.astype(spec.dtype)
            if array.dtype.kind == "f" and spec.dtype in ("float32", "float64", "float16")
            else array
            for array, spec in zip(arrays, graph.outputs, strict=False)
        ] + list(arrays[len(graph.outputs) :])


def _type_notes(argv: tuple[str, ...]) -> tuple[Note, ...]:
    kind = flags_in(argv).get("output_type", "")
    return (
        (Note(text=f"the artifact gives its outputs as {kind}; they were compared in the graph's own type"),)
        if kind
        else ()
    )


def _tail(log: Path) -> str:
    if not log.is_file():
        return ""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - TAIL))
        return stream.read().decode("utf-8", "replace")


def _too_slow(seconds: float) -> ResourceLimit:
    return ResourceLimit(
        "CNV-1001",
        f"the artifact ran longer than the limit and was stopped after {seconds:.0f} s",
        hint="look at the card (npu-smi info), or raise --timeout",
    )


def _failed(request: RunRequest, result: Mapping[str, Any], log: str, status: int) -> CompileFailed:
    error = result.get("error")
    told = error if isinstance(error, dict) else {}
    text = f"{told.get('text', '')}\n{told.get('call', '')} returned {told.get('code', '')}\n{log}"
    artifact = request.artifact
    for pattern in WRONG_SOC:
        if match := pattern.search(text):
            card = f" ({match['card']})" if match["card"] else ""
            made = match["model"] or artifact.soc or artifact.target
            return CompileFailed(
                "CNV-7201",
                f"the artifact was compiled for {made}, and the card here{card} does not load it",
                hint=f"compile for this card: --soc {match['card'] or 'with the name that npu-smi info shows'}",
            )
    from convert.diagnosis import read_log

    diagnosis = read_log("atc", text)
    what = f"{told['call']} returned {told['code']}" if told else f"its runner ended with {status}"
    return CompileFailed(
        "CNV-7005",
        f"the artifact for {artifact.target} fails on the card: {what}"
        + (f": {diagnosis.cause}" if diagnosis.known else ""),
        hint=diagnosis.hint if diagnosis.known else f"read {LOG}; `npu-smi info` shows the card's health",
    )
