"""``render_report``: one conversion as one HTML file that needs nothing else: no network, no script.

The template escapes every text (names come from strangers); only the pictures, made of numbers alone, are markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from artifacts.render import size_text
from convert.gate import METRICS, keeps
from convert.ladder import ladder_text
from convert.metrics import OutputMetrics, OutputPicture
from convert.report.data import ReportData, TargetReport
from convert.report.pictures import histogram, scatter
from convert.request import Conversion, StageRun, TargetResult
from convert.values import GateVerdict, Note, RanOn, Support

PICTURED = 12
"""Outputs with pictures; of more, those that differ most."""
LISTED = 200
"""Outputs, operators and nodes that are listed at most; the JSON has all."""
RAN_ON: Mapping[RanOn, str] = {
    "device": "the target's own runtime",
    "simulator": "the vendor's simulator",
    "host": "the artifact's graph on another processor",
    "forecast": "nothing yet: judged on the forecast, until a device has spoken",
}
BADGES = {"published": "good", "built": "fair", "planned": "fair", "handoff": "fair", "failed": "bad"}
SHOWN = ("cosine", "worst_row_cosine", "rel_l2", "norm_ratio", "max_abs", "max_rel", "exact_match", "argmax_agreement")
FORMS = {
    "cosine": ".7g",
    "worst_row_cosine": ".7g",
    "norm_ratio": ".6g",
    "exact_match": ".5g",
    "argmax_agreement": ".5g",
}


def render_report(data: ReportData) -> str:
    """The HTML of a report. Reads nothing but its template; raises nothing that is expected."""
    from markupsafe import Markup

    template, style = _template()
    conversion = data.conversion
    return str(
        template.render(
            conversion=conversion,
            finished=data.finished,
            title=f"{conversion.name} {conversion.version}".strip(),
            badge=BADGES[conversion.status],
            style=Markup(style),
            targets=[_target(conversion, target, place) for place, target in enumerate(data.targets)],
            model_size=size_text(conversion.model.bytes) if conversion.model else "",
        )
    )


@cache
def _template() -> tuple[Any, str]:
    import jinja2

    loader = jinja2.PackageLoader("convert", "report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, _, _ = loader.get_source(environment, "report.css")
    return environment.get_template("report.html.j2"), style


def _visible(value: Any) -> Any:
    """Texts with what can't be seen, or turns the direction of writing, written out as an escape."""
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in value)


# ------------------------------------------------------------------------------------------------------------- verdict


def _target(conversion: Conversion, report: TargetReport, place: int) -> dict[str, Any]:
    result = report.result
    return {
        "result": result,
        "anchor": f"target-{place}",
        "badge": BADGES[result.status],
        "sentence": _sentence(result),
        "facts": list(_facts(result)),
        "accuracy": _accuracy(report),
        "steps": _steps(result.stages, result.report.notes if result.report else ()),
        "total": duration(sum(run.seconds for run in result.stages)),
        "operators": _operators(report.ops),
        "support": _support(result.support),
        "files": _files(result),
        "fetch": f"artifacts pull {result.artifact.ref} --target {result.target}"
        if result.artifact and result.artifact.ref
        else "",
        "chain": list(_chain(conversion, result.stages)),
        "plan": " ".join(result.plan.argv) if result.plan else "",
    }


def _sentence(result: TargetResult) -> str:
    """What happened, in one sentence."""
    if result.error or result.status == "failed":
        done = [run.stage for run in result.stages]
        reached = f" Done before: {', '.join(done)}." if done else ""
        return f"Nothing was published.{reached}" if result.status == "failed" else f"Built, not published.{reached}"
    judged = _judged(result)
    if result.status == "published":
        ref = f" as {result.artifact.ref}" if result.artifact and result.artifact.ref else ""
        return f"Published{ref}. {judged}"
    if result.status == "built":
        return f"Built, not published. {judged}"
    if result.status == "handoff":
        return "Everything that this machine can do is done; the compiler runs where the toolchain is."
    return "Checked and planned; nothing was compiled."


def _judged(result: TargetResult) -> str:
    if result.report is None or result.verdict is None:
        return "Its outputs were not compared."
    outputs, samples = len(result.report.outputs), result.report.samples
    gate = result.judged_as or result.precision
    kept = "output keeps" if outputs == 1 else "outputs keep"
    return f"{outputs} {kept} the {gate} gate over {samples} sample{'' if samples == 1 else 's'}."


def _facts(result: TargetResult) -> Iterator[tuple[str, tuple[str, str]]]:
    """(what, (its value, a second line)) for the head of the page."""
    yield "Target", (result.target, result.soc if result.soc != result.target else "")
    if result.precision:
        yield "Precision", (result.precision, "")
    if result.ladder:
        yield "Ladder", (ladder_text(result.ladder), "fastest first; the first that holds in the forecast")
    if result.backend:
        yield "Backend", (result.backend, "")
    if result.report:
        device = f"{result.report.device}: " if result.report.device else ""
        yield "Compared on", (result.report.ran_on, device + RAN_ON[result.report.ran_on])
    if result.artifact:
        yield "Artifact", (size_text(result.artifact.bytes), result.artifact.path.rpartition("/")[2])


def duration(seconds: float) -> str:
    """A time for people: ``35 ms``, ``1.2 s``, ``3 min 12 s``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


# ------------------------------------------------------------------------------------------------------------ accuracy


def _accuracy(report: TargetReport) -> dict[str, Any] | None:
    result = report.result
    if result.report is None:
        return None
    verdict = result.verdict or GateVerdict(passed=False, thresholds={})
    pictures = dict(enumerate(report.pictures)) if len(report.pictures) == len(result.report.outputs) else {}
    drawn = [place for place in pictures if pictures[place].points]
    ranked = sorted(drawn, key=lambda place: -pictures[place].error)[:PICTURED]
    outputs = result.report.outputs[:LISTED]
    cards = [
        _output(output, verdict, pictures[place] if place in ranked else None) for place, output in enumerate(outputs)
    ]
    return {
        "verdict": verdict,
        "reference": result.report.reference,
        "samples": result.report.samples,
        "outputs": cards,
        "more": len(result.report.outputs) - len(cards),
        "notes": result.report.notes,
    }


def _output(output: OutputMetrics, verdict: GateVerdict, picture: OutputPicture | None) -> dict[str, Any]:
    from markupsafe import Markup

    subject = f"output {output.name!r}: "
    limit = verdict.thresholds.get("rel_l2")
    return {
        "output": output,
        "shape": " × ".join(map(str, output.shape)) or "scalar",
        "failed": any(text.startswith(subject) for text in verdict.failures),
        "metrics": list(_metrics(output, verdict.thresholds)),
        "histogram": Markup(histogram(picture, limit)) if picture else "",
        "scatter": Markup(scatter(picture)) if picture else "",
        "equal": bool(picture and picture.equal and not any(picture.counts) and output.state == "compared"),
    }


def _metrics(output: OutputMetrics, thresholds: Mapping[str, float]) -> Iterator[dict[str, str]]:
    for name in SHOWN:
        value = getattr(output, name)
        if value is not None:
            shown = (
                f"{output.matching}/{output.elements}"
                if name == "exact_match"
                else format(value, FORMS.get(name, ".3g"))
            )
            yield _cell(METRICS[name].words, shown, name, value, thresholds)
    for name, value in output.user.items():
        yield _cell(name, f"{value:.6g}", name, value, thresholds)
    odd = output.nan_candidate + output.inf_candidate
    if odd or output.nan_reference or output.inf_reference:
        yield {"words": "NaN, Inf", "value": str(odd), "limit": "", "state": "bad" if output.nonfinite_mismatch else ""}


def _cell(words: str, shown: str, name: str, value: float, thresholds: Mapping[str, float]) -> dict[str, str]:
    limit = thresholds.get(name)
    if limit is None:
        return {"words": words, "value": shown, "limit": "", "state": ""}
    sign = {"most": "≤ ", "band": "1 ± "}.get(METRICS[name].rule if name in METRICS else "least", "≥ ")
    state = "good" if keeps(name, value, limit) else "bad"
    return {"words": words, "value": shown, "limit": f"{sign}{limit:g}", "state": state}


# ------------------------------------------------------------------------------------------- steps, operators and files


def _steps(stages: tuple[StageRun, ...], told: tuple[Note, ...]) -> list[dict[str, Any]]:
    """Each stage, with the notes that were not told before."""
    longest = max((run.seconds for run in stages), default=0.0) or 1.0
    return [
        {
            "run": run,
            "notes": [note for note in run.notes if note not in told],
            "share": max(1.0, round(100 * run.seconds / longest, 1)),
            "seconds": duration(run.seconds),
            "memory": size_text(run.peak_rss) if run.peak_rss else "",
        }
        for run in stages
    ]


def _operators(ops: Mapping[str, int]) -> dict[str, Any] | None:
    if not ops:
        return None
    ranked = sorted(ops.items(), key=lambda item: (-item[1], item[0]))
    highest = ranked[0][1]
    rows = [{"op": op, "count": count, "share": max(1.0, 100 * count / highest)} for op, count in ranked[:LISTED]]
    return {"rows": rows, "kinds": len(ops), "nodes": sum(ops.values()), "more": max(0, len(ranked) - LISTED)}


def _support(support: Support | None) -> dict[str, Any] | None:
    if support is None:
        return None
    order = {"refused": 0, "risk": 1, "unknown": 2, "slow": 3, "ok": 4}
    judged = sorted(support.judged, key=lambda one: order[one.state])
    counts: dict[str, int] = {}
    for one in judged:
        counts[one.state] = counts.get(one.state, 0) + 1
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    summary = f"{support.nodes} nodes at opset {support.opset}: " + (told or "every one is taken")
    return {"support": support, "summary": summary, "judged": judged[:LISTED], "more": max(0, len(judged) - LISTED)}


def _chain(conversion: Conversion, stages: tuple[StageRun, ...]) -> Iterator[dict[str, str]]:
    """Each value's digest and what it was made from: by name where that is on the page, else by digest."""
    known = {conversion.model.sha256: "the model file"} if conversion.model else {}
    for run in stages:
        if run.digest:
            origin = known.get(run.parent, "")
            known[run.digest] = run.stage
            yield {"stage": run.stage, "digest": run.digest, "origin": origin, "parent": "" if origin else run.parent}


def _files(result: TargetResult) -> list[dict[str, str]]:
    files = result.artifact.files if result.artifact else ()
    return [{"name": file.name, "size": size_text(file.bytes), "sha256": file.sha256} for file in files]
