"""validate: ``CompiledArtifact ─▶ ValidationReport``. Runs the artifact on every sample and measures, without judging.

Samples and reference outputs are those of the graph. They are read, run and compared one after another, so that the
memory needed does not grow with their number. Where nothing here runs the artifact, outputs that were measured on a
device elsewhere, or the forecast, take the place of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.digest import file_entry
from convert.arrays import load_npz
from convert.backends import load_backend
from convert.backends.base import CannotRun, Ran, RunRequest
from convert.compare import Compared, compare_outputs, fold
from convert.errors import GateFailed, ToolchainMissing
from convert.evidence import Evidence
from convert.handoff.measured import read_measured
from convert.stages.compile import runner_for
from convert.ties import TieCount, read_ties
from convert.user_metrics import load_metrics
from convert.values import CompiledArtifact, Forecast, Note, OnnxGraph, ValidateOptions, ValidationReport, to_json

if TYPE_CHECKING:
    from convert.arrays import Array

PICTURES = "pictures.json"


def validate_artifact(
    graph: OnnxGraph, artifact: CompiledArtifact, options: ValidateOptions, folder: Path
) -> ValidationReport:
    """Run an artifact on the samples of its graph and compare with the reference outputs, position by position.

    ``folder`` gets ``pictures.json``. Raises:

    - :class:`ToolchainMissing` (CNV-6002) where nothing on this machine can run the artifact;
    - :class:`CompileFailed` (CNV-7005) where the artifact does not load or fails while it runs (raised by the backend);
    - :class:`GateFailed` (CNV-8061) where a sample or its reference can't be read;
    - :class:`UsageError` (CNV-2055, CNV-2056) for a user's metric that can't be loaded or fails.
    """
    return validate_with(graph, artifact, options, Evidence(), folder)


def validate_with(
    graph: OnnxGraph, artifact: CompiledArtifact, options: ValidateOptions, evidence: Evidence, folder: Path
) -> ValidationReport:
    """:func:`validate_artifact`, with what may stand in for a run: measured outputs before, the forecast after it.

    Raises what it raises, and :class:`UsageError` (CNV-2305) for measured outputs that can't be used.
    """
    metrics = load_metrics(options.metrics)
    samples = _Samples(graph)
    folder.mkdir(parents=True, exist_ok=True)
    if evidence.measured is not None:
        ran: Ran | CannotRun = read_measured(graph, evidence.measured)
    else:
        request = RunRequest(artifact=artifact, graph=graph, folder=folder, replaceable=evidence.forecast is not None)
        runner = runner_for(options.timeout, folder, options.launcher)
        ran = load_backend(artifact.backend).run(request, samples.feeds(), runner)
    if isinstance(ran, CannotRun):
        if evidence.forecast is None:
            raise _nothing_runs(artifact, ran)
        return _forecast_report(artifact, evidence.forecast, ran, folder)

    ties = TieCount([spec.name for spec in graph.outputs])
    outputs_of = ran.outputs
    output_names = ran.output_names

    def compared() -> Iterator[Sequence[Compared]]:
        names = [spec.name for spec in graph.outputs]
        for number, outputs in enumerate(outputs_of):
            reference = samples.reference(number)
            settled = ties.settle(reference, outputs, read_ties(graph, number))
            yield compare_outputs(reference, settled, names, candidate_names=output_names, user=metrics)

    comparison = fold(compared(), inputs_differ=samples.differ())
    (folder / PICTURES).write_bytes(to_json(comparison.pictures))
    return ValidationReport(
        parent=artifact.digest,
        ran_on=ran.ran_on,
        device=ran.device,
        outputs=comparison.outputs,
        samples=comparison.samples,
        notes=(*ran.notes, *comparison.notes, *ties.notes("the reference"), *_host_note(ran, artifact)),
        files=(file_entry(folder, PICTURES),),
        folder=str(folder),
    )


def _nothing_runs(artifact: CompiledArtifact, why: CannotRun) -> ToolchainMissing:
    return ToolchainMissing(
        "CNV-6002",
        f"nothing on this machine can run the artifact for {artifact.target}: {why.reason}",
        hint=why.hint or "validate on a machine that has the card",
    )


def _forecast_report(artifact: CompiledArtifact, forecast: Forecast, why: CannotRun, folder: Path) -> ValidationReport:
    """The forecast's metrics as a report that says what they are: an emulation, the artifact itself has not run."""
    (folder / PICTURES).write_bytes(to_json([]))
    said = Note(
        level="warning",
        text=f"nothing here can run the artifact ({why.reason}): the numbers are the forecast of {forecast.precision},"
        f" made on this CPU, and {artifact.target} has not spoken yet",
    )
    return ValidationReport(
        parent=artifact.digest,
        ran_on="forecast",
        device="emulation on the CPU",
        outputs=forecast.planned or forecast.outputs,
        samples=forecast.samples,
        notes=(said, *forecast.notes),
        files=(file_entry(folder, PICTURES),),
        folder=str(folder),
    )


def _host_note(ran: Ran, artifact: CompiledArtifact) -> tuple[Note, ...]:
    if ran.ran_on != "host":
        return ()
    text = f"ran on the {ran.device or 'host'} of this machine, not on {artifact.target}: the card has not spoken yet"
    return (Note(level="warning", text=text),)


class _Samples:
    """The samples of a graph and their reference outputs, read when they are asked for."""

    def __init__(self, graph: OnnxGraph) -> None:
        self.graph = graph

    def feeds(self) -> Iterator[dict[str, Array]]:
        """The inputs by name, sample by sample."""
        for number in range(self.graph.sample_count):
            yield self._read(f"samples/{number:03d}.npz")

    def differ(self) -> bool:
        """Whether at least two samples differ: equal arrays are stored as equal bytes."""
        return len({entry.sha256 for entry in self.graph.files if entry.name.startswith("samples/")}) > 1

    def reference(self, number: int) -> list[Array]:
        """The reference outputs of a sample, in order."""
        arrays = self._read(f"reference/{number:03d}.npz")
        return [arrays[key] for key in sorted(arrays, key=int)]

    def _read(self, name: str) -> dict[str, Any]:
        try:
            return load_npz(self.graph.path(name))
        except (OSError, ValueError) as error:
            raise GateFailed(
                "CNV-8061",
                f"{name} of the graph can't be read: {error}",
                hint="convert again with --no-cache",
            ) from error
