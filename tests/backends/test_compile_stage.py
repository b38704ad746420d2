from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest

import convert.stages.compile as stage
from artifacts.runner import Finished
from convert.backends.base import Compiled, Diagnosis, Missing, Toolchain
from convert.errors import CompileFailed, ResourceLimit, ToolchainMissing, UsageError
from convert.stages.compile import compile_graph
from convert.values import Plan

ADD = "g (float[2] x) => (float[2] y) { y = Add(x, x) }"
X = {"x": np.array([1, 2], np.float32)}


class Scripted:
    """A backend that does what a test says: writes files into ``out/``, and answers with an outcome."""

    name = "onnxruntime"

    def __init__(self, outcome: Compiled, written: Mapping[str, bytes] = {}, missing: bool = False) -> None:
        self.outcome, self.written, self.missing = outcome, written, missing
        self.seen: set[str] = set()

    def probe(self, target, environment):
        if self.missing:
            return Missing(name="atc", reason="atc is not on PATH", hint="source set_env.sh")
        return Toolchain(name="atc", version="8.1.RC1")

    def plan(self, graph, target, options, toolchain):
        return Plan(
            backend=self.name, argv=("atc", "--output=out/net"), files={"conf/modify.json": "{}"}, output="net.om"
        )

    def compile(self, plan, graph, folder, runner):
        self.seen = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        for name, data in self.written.items():
            (folder / "out" / name).write_bytes(data)
        (folder / "compile.log").write_text("E19010: No parser is registered for Op Foo\n")
        return self.outcome

    def diagnose(self, log, plan):
        known = "E19010" in log
        return Diagnosis(cause="no parser for Foo", hint="rewrite Foo", code="CNV-7002", nodes=("n1",), known=known)


@pytest.fixture
def compile_with(monkeypatch, tmp_path, graph_of, checked_of, cpu):
    graph = graph_of(ADD, X)

    def run(backend: Scripted):
        monkeypatch.setattr(stage, "load_backend", lambda name: backend)
        return compile_graph(graph, checked_of(graph), cpu(), tmp_path / "made")

    return run


def _finished(*, timed_out: bool = False) -> Finished:
    return Finished(argv=("atc",), returncode=1, timed_out=timed_out, seconds=3.0, log="compile.log", log_bytes=9)


def test_the_working_folder_holds_the_graph_and_the_plans_files(compile_with, tmp_path):
    backend = Scripted(Compiled(files=("net.om",)), {"net.om": b"om"})
    artifact = compile_with(backend)
    assert backend.seen == {"model/model.onnx", "conf/modify.json"}
    assert artifact.files[0].name == "net.om"
    assert artifact.path("net.om").read_bytes() == b"om"
    assert artifact.toolchain == {"atc": "8.1.RC1"}
    assert not (tmp_path / "made/out").exists()


def test_side_files_belong_to_the_artifact_and_come_after_it(compile_with):
    artifact = compile_with(Scripted(Compiled(files=("a.bin", "net.om")), {"net.om": b"om", "a.bin": b"w"}))
    assert [entry.name for entry in artifact.files] == ["net.om", "a.bin"]


@pytest.mark.parametrize(("written", "word"), [({}, "is missing"), ({"net.om": b""}, "is empty")])
def test_success_without_an_output_is_a_failure(compile_with, written, word):
    with pytest.raises(CompileFailed, match=word) as failure:
        compile_with(Scripted(Compiled(files=("net.om",)), written))
    assert failure.value.code == "CNV-7003"


def test_an_output_of_an_earlier_run_does_not_count(compile_with, tmp_path):
    (tmp_path / "made/out").mkdir(parents=True)
    (tmp_path / "made/out/net.om").write_bytes(b"old")
    with pytest.raises(CompileFailed, match="is missing"):
        compile_with(Scripted(Compiled(files=("net.om",))))


@pytest.mark.parametrize("name", ["../graph/model.onnx", "/etc/hostname"])
def test_an_output_outside_of_the_folder_is_refused(compile_with, name):
    with pytest.raises(CompileFailed) as failure:
        compile_with(Scripted(Compiled(files=("net.om", name)), {"net.om": b"om"}))
    assert failure.value.code == "CNV-7003"


def test_a_failure_is_diagnosed_from_the_log(compile_with):
    with pytest.raises(CompileFailed) as failure:
        compile_with(Scripted(Compiled(files=(), failure="exit code 1", finished=_finished())))
    assert failure.value.message == "no parser for Foo (nodes: n1)"
    assert failure.value.hint == "rewrite Foo"


def test_a_time_limit_is_a_resource_limit_and_no_compiler_failure(compile_with):
    with pytest.raises(ResourceLimit) as limit:
        compile_with(Scripted(Compiled(files=(), failure="killed", finished=_finished(timed_out=True))))
    assert limit.value.code == "CNV-1001"
    assert limit.value.exit_code == 10


def test_a_missing_toolchain_ends_in_exit_6_with_its_own_advice(compile_with):
    with pytest.raises(ToolchainMissing) as missing:
        compile_with(Scripted(Compiled(files=()), missing=True))
    assert (missing.value.code, missing.value.exit_code) == ("CNV-6001", 6)
    assert missing.value.hint == "source set_env.sh"


def test_a_graph_that_was_not_the_one_checked_is_refused(graph_of, checked_of, cpu, tmp_path):
    graph = graph_of(ADD, X)
    other = msgspec.structs.replace(checked_of(graph), parent="sha256:" + "1" * 64)
    with pytest.raises(CompileFailed) as failure:
        compile_graph(graph, other, cpu(), tmp_path / "made")
    assert failure.value.code == "CNV-7004"


def test_unknown_options_are_listed_with_those_that_exist(graph_of, checked_of, cpu, tmp_path):
    graph = graph_of(ADD, X)
    with pytest.raises(UsageError) as refusal:
        compile_graph(graph, checked_of(graph), cpu(levle="off", nonsense="1"), tmp_path / "made")
    assert refusal.value.code == "CNV-2071"
    assert "'levle', 'nonsense'" in refusal.value.message
    assert "did you mean level?" in refusal.value.hint


def test_a_bad_value_of_an_option_is_refused(graph_of, checked_of, cpu, tmp_path):
    graph = graph_of(ADD, X)
    with pytest.raises(UsageError, match="level=max") as refusal:
        compile_graph(graph, checked_of(graph), cpu(level="max"), tmp_path / "made")
    assert refusal.value.code == "CNV-2075"


def test_int8_of_a_graph_without_ranges_is_refused(graph_of, checked_of, cpu, tmp_path):
    graph = graph_of(ADD, X)
    with pytest.raises(UsageError, match="the graph was not quantized") as refusal:
        compile_graph(graph, checked_of(graph), cpu("int8"), tmp_path / "made")
    assert refusal.value.code == "CNV-2268"


def test_the_log_is_read_from_its_end(tmp_path):
    log = Path(tmp_path / "compile.log")
    log.write_bytes(b"a" * stage.LOG_TAIL + b"the end")
    assert len(stage.read_tail(log)) == stage.LOG_TAIL
    assert stage.read_tail(log).endswith("the end")
