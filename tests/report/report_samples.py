"""Conversions as they end, for the report's tests: one published, one failed, one with hostile names."""

from __future__ import annotations

from artifacts.digest import FileEntry
from convert.gate import judge
from convert.metrics import OutputMetrics, OutputPicture
from convert.report.data import ReportData, TargetReport
from convert.request import ArtifactInfo, Conversion, Request, StageRun, TargetResult
from convert.values import Judged, LoadOptions, ModelFile, Note, Plan, Support, ValidationReport

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>\u202e\x1b[31m'


def digest(letter: str) -> str:
    return "sha256:" + letter * 64


MODEL = ModelFile(path="/models/resnet18.pt", format="torchscript", sha256=digest("a"), bytes=46_823_911)
REQUEST = Request(load=LoadOptions(path="/models/resnet18.pt"), targets=("cpu",))
VERSIONS = {"torch": "2.13.0", "onnx": "1.23.2", "onnxruntime": "1.32.0", "onnxsim": "0.8.1"}
STAGES = (
    StageRun(stage="load", seconds=1.92, cached=False, digest=digest("b"), parent=digest("a"), peak_rss=412 << 20),
    StageRun(
        stage="export",
        seconds=6.4,
        cached=False,
        digest=digest("c"),
        parent=digest("b"),
        peak_rss=630 << 20,
        notes=(Note(level="warning", text="the dynamo exporter refuses a ScriptModule: torchscript was used instead"),),
    ),
    StageRun(stage="simplify", seconds=0.035, cached=True, digest=digest("d"), parent=digest("c")),
    StageRun(stage="check", seconds=0.11, cached=False, digest=digest("e"), parent=digest("d"), peak_rss=180 << 20),
    StageRun(stage="compile", seconds=1.35, cached=False, digest=digest("f"), parent=digest("d"), peak_rss=505 << 20),
)
VALIDATED = StageRun(stage="validate", seconds=0.8, cached=False, digest=digest("1"), parent=digest("f"))


def logits(rel_l2: float = 1.3e-3, name: str = "logits") -> OutputMetrics:
    return OutputMetrics(
        name=name,
        dtype="float32",
        candidate_dtype="float32",
        shape=(1, 1000),
        state="compared",
        elements=4000,
        cosine=1 - rel_l2**2 / 2,
        worst_row_cosine=1 - rel_l2**2,
        rel_l2=rel_l2,
        norm_ratio=1.0002,
        max_abs=0.0123,
        max_rel=0.21,
        argmax_agreement=1.0,
        samples=4,
        worst_sample=2,
        worst={"rel_l2": 2, "cosine": 2},
        worst_row=(0,),
    )


LABEL = OutputMetrics(
    name="label",
    dtype="int64",
    candidate_dtype="int64",
    shape=(1,),
    state="exact",
    elements=4,
    exact_match=1.0,
    matching=4,
    max_abs=0.0,
    samples=4,
)
PICTURE = OutputPicture(
    name="logits",
    counts=(0,) * 12 + (3, 11, 26, 60, 130, 270, 540, 900, 1010, 700, 270, 60, 9, 1) + (0,) * 14,
    equal=10,
    points=tuple((i / 20 - 7.0, i / 20 - 7.0 + (i % 7 - 3) * 0.03) for i in range(300)),
    sample=2,
    error=1.3e-3,
)
SUPPORT = Support(
    supported=True,
    nodes=49,
    opset=17,
    judged=(
        Judged(
            op="Resize",
            node="/upsample/Resize",
            module="upsample",
            state="slow",
            grade="read",
            reason="runs on the AI CPU",
            source="operator list of the toolkit, 8.1",
            hint="use a scale of 2 with mode=nearest",
        ),
    ),
)


def published() -> ReportData:
    report = ValidationReport(
        parent=digest("f"), ran_on="device", device="ONNX Runtime 1.32.0, CPU", outputs=(logits(), LABEL), samples=4
    )
    result = TargetResult(
        target="cpu",
        backend="onnxruntime",
        precision="fp16",
        status="published",
        stages=(*STAGES, VALIDATED),
        support=SUPPORT,
        plan=Plan(backend="onnxruntime", argv=("optimize", "--precision", "fp16", "model.onnx"), output="model.onnx"),
        artifact=ArtifactInfo(
            path="/out/resnet18/cpu/model.onnx",
            sha256=digest("9"),
            bytes=23_411_002,
            ref="resnet18:1.0.0",
            files=(FileEntry(name="model.onnx", sha256=digest("9"), bytes=23_411_002),),
        ),
        report=report,
        verdict=judge(report, "fp16"),
        toolchain={"onnxruntime": "1.32.0"},
        folder="/out/resnet18/cpu",
    )
    ops = {"Conv": 20, "Relu": 17, "Add": 8, "GlobalAveragePool": 1, "Flatten": 1, "MaxPool": 1, "Gemm": 1}
    target = TargetReport(result=result, pictures=(PICTURE, OutputPicture(name="label", equal=4)), ops=ops)
    conversion = Conversion(
        request=REQUEST,
        status="published",
        model=MODEL,
        name="resnet18",
        version="1.0.0",
        targets=(result,),
        versions=VERSIONS,
    )
    return ReportData(conversion=conversion, targets=(target,), finished="30 November 2026, 22:10 UTC")


def failed_gate() -> ReportData:
    report = ValidationReport(parent=digest("f"), ran_on="host", device="cpu", outputs=(logits(0.26), LABEL), samples=4)
    verdict = judge(report, "fp16")
    error = {
        "code": "CNV-8001",
        "message": "resnet18 for cpu differs from the reference beyond the gate",
        "hint": "the report shows where they differ",
        "exit_code": 8,
    }
    result = TargetResult(
        target="cpu", backend="onnxruntime", precision="fp16", status="failed", stages=(*STAGES, VALIDATED),
        support=SUPPORT, report=report, verdict=verdict, error=error,
    )  # fmt: skip
    conversion = Conversion(
        request=REQUEST,
        status="failed",
        model=MODEL,
        name="resnet18",
        targets=(result,),
        versions=VERSIONS,
        error=error,
    )
    target = TargetReport(result=result, pictures=(PICTURE, OutputPicture(name="label", equal=4)))
    return ReportData(conversion=conversion, targets=(target,))


def failed_early() -> ReportData:
    """A model that could not be loaded: nothing but the error is known."""
    error = {
        "code": "CNV-3004",
        "message": f"{HOSTILE} is a git-lfs pointer, not the model",
        "hint": "run git lfs pull",
        "exit_code": 3,
    }
    result = TargetResult(target="cpu", error=error)
    request = Request(load=LoadOptions(path=f"/tmp/{HOSTILE}"), targets=("cpu",))
    conversion = Conversion(
        request=request, status="failed", model=None, name="resnet18", targets=(result,), error=error
    )
    return ReportData(conversion=conversion, targets=(TargetReport(result=result),))


def hostile() -> ReportData:
    """Every name that a stranger could choose holds markup; and there are two targets."""
    report = ValidationReport(
        parent=digest("f"),
        ran_on="forecast",
        device=HOSTILE,
        outputs=(logits(0.26, HOSTILE + "x" * 300), logits(0.002, HOSTILE)),
        samples=4,
        notes=(Note(text=HOSTILE, subject=HOSTILE),),
    )
    judged = Judged(
        op=HOSTILE,
        node=HOSTILE,
        module=HOSTILE,
        state="refused",
        grade="site",
        reason=HOSTILE,
        source=HOSTILE,
        hint=HOSTILE,
    )
    result = TargetResult(
        target=HOSTILE, soc=HOSTILE, backend=HOSTILE, precision="fp16", status="failed", stages=STAGES,
        support=Support(supported=False, nodes=2, opset=17, judged=(judged,)),
        artifact=ArtifactInfo(
            path=HOSTILE, sha256=digest("9"), bytes=1, ref=HOSTILE,
            files=(FileEntry(name=HOSTILE, sha256=digest("9"), bytes=1),),
        ),
        report=report, verdict=judge(report, "fp16"), toolchain={HOSTILE: HOSTILE}, folder=HOSTILE,
    )  # fmt: skip
    conversion = Conversion(
        request=REQUEST, status="failed", model=MODEL, name=HOSTILE, version=HOSTILE,
        targets=(result, result), versions={HOSTILE: HOSTILE},
    )  # fmt: skip
    pictures = (PICTURE, OutputPicture(name=HOSTILE, equal=4))
    target = TargetReport(result=result, pictures=pictures, ops={HOSTILE: 3})
    return ReportData(conversion=conversion, targets=(target, target), finished=HOSTILE)


ALL = {"published": published, "failed_gate": failed_gate, "failed_early": failed_early, "hostile": hostile}
