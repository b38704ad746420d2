"""Both exporters are judged where a known silent fault can concern the graph, and the verdicts are kept."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import onnx
import onnx.parser
import pytest
import torch

from artifacts.digest import canonical_json
from convert.errors import ExportError
from convert.exporter_faults import FAULTS, Exported, concerning, known_faults
from convert.exporter_verdict import ExporterVerdict
from convert.publishing import graph_history
from convert.report.data import ReportData, TargetReport
from convert.report.html import render_report
from convert.request import Conversion, Request, StageRun, TargetResult, as_json
from convert.stages.export import DETOURS, export_graph
from convert.stages.load import load_model
from convert.values import ExportOptions, LoadOptions, OnnxGraph

MODELS = '''
import torch

class Linear(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        return torch.relu(x) * 2

class Attend(torch.nn.Module):
    def forward(self, q: torch.Tensor, mask: torch.Tensor):
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)

class Padded(torch.nn.Module):
    """The mask comes from the tokens, where 0 is padding."""
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.linspace(-1, 1, 80).reshape(10, 8))
    def forward(self, ids: torch.Tensor):
        x = self.table[ids][:, None]
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=(ids != 0)[:, None, None, :])

class Count(torch.nn.Module):
    def forward(self, x: torch.Tensor, places: torch.Tensor):
        return torch.zeros(8, 4).index_add(0, places, x)

class Branch(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        if x.sum() > 0:
            return x * 2
        return x - 1
'''  # fmt: skip


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    path = tmp_path_factory.mktemp("zoo") / "zoo_of_exporters.py"
    path.write_text(MODELS)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[path.stem]


def export(module: torch.nn.Module, sample: tuple[Any, ...], folder: Path, *, kind: str, exporter: Any) -> OnnxGraph:
    path = folder / "m.pt"
    if kind == "module":
        torch.save(module.eval(), path)
    elif kind == "torchscript":
        torch.jit.save(torch.jit.trace(module.eval(), sample), str(path))
    else:
        torch.export.save(torch.export.export(module.eval(), sample), path)
    torch.save((sample, {}), folder / "in.pt")
    for name in ("load", "export"):
        (folder / name).mkdir()
    source = LoadOptions(path=str(path), samples=str(folder / "in.pt"), allow_pickle=True)
    loaded = load_model(source, folder / "load")
    return export_graph(loaded, source, ExportOptions(exporter=exporter), folder / "export")


QUERY, FULL_MASK = torch.linspace(-2, 2, 64).reshape(1, 2, 4, 8), torch.ones(1, 1, 4, 4, dtype=torch.bool)
TOKENS = torch.tensor([[1, 2, 3, 4], [1, 2, 0, 0]])
ROWS = (torch.linspace(-2, 2, 12).reshape(3, 4), torch.tensor([1, 2, 3]))
CHOICES: dict[str, tuple[str, tuple[Any, ...], str, str, list[tuple[str, str]]]] = {
    "nothing-to-learn": ("Linear", (QUERY,), "module", "auto", [("dynamo", "chosen"), ("torchscript", "not judged")]),
    "asked-for-both": ("Linear", (QUERY,), "module", "both", [("dynamo", "chosen"), ("torchscript", "right")]),
    "mask-of-tokens": ("Padded", (TOKENS,), "module", "auto", [("dynamo", "wrong"), ("torchscript", "chosen")]),
    "mask-in-a-program": (
        "Attend",
        (QUERY, FULL_MASK),
        "exported_program",
        "auto",
        [("dynamo", "wrong"), ("dynamo (at opset 23, lowered)", "chosen"), ("torchscript", "not judged")],
    ),
    "lost-additions": (
        "Count",
        ROWS,
        "torchscript",
        "auto",
        [("torchscript", "wrong"), ("dynamo (of the model as a program)", "chosen"), ("dynamo", "not judged")],
    ),
    "frozen-branch": (
        "Branch",
        (torch.ones(3),),
        "module",
        "auto",
        [("dynamo", "failed"), ("torchscript", "wrong"), ("torchscript (of the model as a script)", "chosen")],
    ),
    "asked-for-the-wrong-one": (
        "Count",
        ROWS,
        "module",
        "torchscript",
        [("torchscript", "chosen"), ("dynamo", "not judged")],
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_exporter_that_is_right_is_taken_and_every_verdict_is_kept(
    name: str, zoo: ModuleType, tmp_path: Path
) -> None:
    model, sample, kind, exporter, verdicts = CHOICES[name]
    graph = export(getattr(zoo, model)(), sample, tmp_path, kind=kind, exporter=exporter)
    assert [(one.exporter, one.state) for one in graph.exporters] == verdicts
    chosen = next(one for one in graph.exporters if one.state == "chosen")
    assert graph.made_by == chosen.exporter.partition(" ")[0] and graph.opset == chosen.opset
    assert sorted(path.name for path in (tmp_path / "export").iterdir()) == ["model.onnx", "reference", "samples"]
    said = " | ".join(note.text for note in graph.notes)
    wrong = [one for one in graph.exporters if one.state == "wrong"]
    assert all(one.concerns and one.probes and "gives other numbers" in one.reason for one in wrong)
    assert ("fell back to the" in said) == bool(wrong)
    if name == "nothing-to-learn":
        assert "torchscript was not judged: nothing that dynamo is known to get silently wrong" in said
    if name == "asked-for-both":
        assert "dynamo and torchscript were judged against torch on the samples: all are right" in said
    if name == "asked-for-the-wrong-one":
        assert chosen.concerns == ("repeated-index: of additions at an index that comes twice the last is kept",)
        assert "no exporter is right there" in said


GRAPHS = {
    "masked-rows": (
        "(float[2,4] x, bool[2,4] m) => (float[2,4] y) <float z = {0}, float n = {-3e38}> "
        "{ a = Where(m, z, n) b = Add(x, a) y = Softmax(b) }",
        "(float[2,4] x, bool[2,4] m) => (float[2,4] y) <float z = {0}, float n = {-3e38}> { y = Where(m, x, n) }",
    ),
    "repeated-index": (
        "(float[4] x, int64[2,1] i, float[2] u) => (float[4] y) { y = ScatterND(x, i, u) }",
        "(float[4] x, int64[2,1] i, float[2] u) => (float[4] y) { y = ScatterND<reduction = \"add\">(x, i, u) }",
    ),
    "floor-division": (
        "(int64[4] x) => (int64[4] y) <int64 k = {3}> { y = Div(x, k) }",
        "(float[N,4] x) => (float[N,4] y) <int64 k = {2}, float h = {2}> "
        "{ s = Shape(x) t = Div(s, k) u = Mul(t, k) v = Reshape(x, s) y = Div(v, h) }",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_a_fault_concerns_a_graph_that_has_what_it_needs_and_no_other(name: str) -> None:
    exporter = next(fault.exporter for fault in FAULTS if fault.name == name)
    there, absent = (
        Exported(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')) for text in GRAPHS[name]
    )
    assert [fault.name for fault in concerning(exporter, there)] == [name]
    assert concerning(exporter, absent) == ()


def test_a_branch_that_the_exporter_froze_concerns_it() -> None:
    exported = Exported(onnx.ModelProto(), frozen=("net.py:12",))
    assert [fault.name for fault in concerning("torchscript", exported)] == ["frozen-branch"]
    assert concerning("dynamo", exported) == ()


def test_every_fault_has_a_way_around_it() -> None:
    assert {name for name, _ in DETOURS} == {fault.name for fault in FAULTS}
    assert set(known_faults("dynamo")) | set(known_faults("torchscript")) == set(FAULTS)


def test_json_manifest_and_report_show_the_verdicts() -> None:
    verdicts = (
        ExporterVerdict(exporter="dynamo", state="wrong", opset=18, reason="cosine 0.9", concerns=("masked-rows: x",)),
        ExporterVerdict(exporter="torchscript", state="chosen", opset=17, probes=("a row of a mask",)),
    )
    run = StageRun(stage="export", seconds=1.0, cached=False, exporters=verdicts)
    result = TargetResult(target="cpu", status="built", stages=(run,))
    conversion = Conversion(
        request=Request(load=LoadOptions(path="m.pt"), targets=("cpu",)),
        status="built",
        model=None,
        name="m",
        targets=(result,),
    )
    stage = as_json(conversion)["targets"][0]["stages"][0]
    assert stage["exporters"] == msgspec.json.decode(msgspec.json.encode(verdicts))
    kept = graph_history(result)["exporters"]
    assert kept == msgspec.json.decode(canonical_json(kept))
    assert [(one["exporter"], one["state"]) for one in kept] == [("dynamo", "wrong"), ("torchscript", "chosen")]
    assert all("reason" not in one for one in kept)
    page = render_report(ReportData(conversion=conversion, targets=(TargetReport(result=result),)))
    assert "masked-rows: x" in page and "wrong: cosine 0.9" in page


def test_complex_inputs_are_refused_by_name(tmp_path: Path) -> None:
    class Turn(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.view_as_real(x * 1j)

    sample = (torch.ones(2, dtype=torch.complex64),)
    torch.export.save(torch.export.export(Turn(), sample), tmp_path / "m.pt2")
    torch.save((sample, {}), tmp_path / "in.pt")
    source = LoadOptions(path=str(tmp_path / "m.pt2"), samples=str(tmp_path / "in.pt"))
    (tmp_path / "loaded").mkdir()
    loaded = load_model(source, tmp_path / "loaded")
    with pytest.raises(ExportError, match=r"no compiler takes complex inputs: x \(complex64\)"):
        export_graph(loaded, source, ExportOptions(), tmp_path)
