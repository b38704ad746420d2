"""Finding, running and believing atc: the backend against the stand-in, in every way that it fails."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from atc_kit import IMAGE, graph_for, model_of, options_for
from install import install_cann, script
from onnx import helper, numpy_helper

from convert.backends.atc import AtcBackend
from convert.backends.atc.compiling import SUCCESS
from convert.backends.atc.find import find_cann, version_in
from convert.backends.atc.precheck import refused_in_report
from convert.backends.atc.probe import edition_of
from convert.backends.base import CannotRun, Compiled, Missing, Ran, RunRequest
from convert.errors import CompileFailed, ResourceLimit
from convert.stages.compile import prepare_folder, runner_for
from convert.values import CompiledArtifact, CompileOptions, OnnxGraph
from op_registry.targets import find_target


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Callable[..., dict[str, str]]:
    """A CANN of stand-ins, installed once for each way to have it: the environment that sources it."""

    @functools.cache
    def install(version: str, **more) -> dict[str, str]:
        return install_cann(tmp_path_factory.mktemp("cann"), version, **more)

    return install


@pytest.fixture
def cann(installed, tmp_path, monkeypatch):
    """Sources a CANN of stand-ins. ``own``: one that the test may change."""

    def make(
        version: str = "8.5.0", *, soc: str = "Ascend910B3", sourced: bool = True, own: bool = False, **more
    ) -> Path:
        install = functools.partial(install_cann, tmp_path / "cann") if own else installed
        environment = install(version, soc=soc, **more)
        for name, value in environment.items():
            if sourced or name in ("PATH", "ASCEND_HOME_PATH"):
                monkeypatch.setenv(name, value)
        return Path(environment["ASCEND_HOME_PATH"])

    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH"):
        monkeypatch.delenv(name, raising=False)
    return make


def mlp(shape=("N", 8)) -> onnx.ModelProto:
    """Two products with a Relu between them."""
    rng = np.random.default_rng(7)
    first, second = rng.standard_normal((8, 16)).astype("f4"), rng.standard_normal((16, 3)).astype("f4")
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    values = [helper.make_tensor_value_info(name, 1, [*shape[:-1], last]) for name, last in (("x", 8), ("y", 3))]
    weights = [numpy_helper.from_array(first, "w1"), numpy_helper.from_array(second, "w2")]
    graph = helper.make_graph(nodes, "mlp", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(
    graph: OnnxGraph,
    folder: Path,
    options: CompileOptions | None = None,
    *,
    timeout: float = 60.0,
    launcher: tuple[str, ...] = (),
) -> tuple[Compiled, CompiledArtifact]:
    """Probe, plan and compile; the artifact lies in ``folder/out``."""
    options = options or options_for("Ascend910B")
    backend, target = AtcBackend(), find_target(options.target)
    found = backend.probe(target, os.environ)
    assert not isinstance(found, Missing), found
    plan = backend.plan(graph, target, options, found)
    folder.mkdir()
    prepare_folder(graph, plan, folder)
    done = backend.compile(plan, graph, folder, runner_for(timeout, folder, launcher))
    artifact = CompiledArtifact(
        parent=graph.digest,
        target=target.name,
        soc=plan.needs["soc"],
        backend="atc",
        precision=options.precision,
        plan=plan,
        files=(),
        folder=str(folder / "out"),
    )
    return done, artifact


def ran(
    graph: OnnxGraph,
    artifact: CompiledArtifact,
    done: Compiled,
    folder: Path,
    *samples: dict[str, np.ndarray],
    launcher: tuple[str, ...] = (),
) -> Ran | CannotRun:
    from msgspec.structs import replace

    from artifacts.digest import file_entries

    folder.mkdir()
    artifact = replace(artifact, files=file_entries(Path(artifact.folder), list(done.files)))
    request = RunRequest(artifact=artifact, graph=graph, folder=folder)
    return AtcBackend().run(request, iter(samples), runner_for(60.0, folder, launcher))


# ------------------------------------------------------------------------------------------------------------- finding


def test_a_machine_without_cann_says_what_to_source(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = AtcBackend().probe(find_target("Ascend910B"), {"PATH": str(tmp_path)})
    assert isinstance(missing, Missing)
    assert missing.name == "CANN"
    assert "set_env.sh" in missing.hint


@pytest.mark.parametrize("version", ["5.1.RC2", "8.1.RC1", "9.2.0"])
def test_a_toolkit_tells_its_version_its_card_and_its_flags(cann, version):
    home = cann(version)
    found = AtcBackend().probe(find_target("Ascend910B"), os.environ)
    assert not isinstance(found, Missing)
    assert (found.name, found.version) == ("CANN", version)
    assert found.details["program"] == str(home / "bin" / "atc")
    assert found.details["soc"] == "Ascend910B3"
    assert found.details["soc_told_by"] == "acl.get_soc_name"
    assert "input_shape" in found.details["flags"].split()
    assert found.details["sourced"] == "yes"


@pytest.mark.parametrize("soc", ["Ascend310P3", "Ascend910B4-1", "Ascend910_9392"])
def test_without_acl_the_card_is_told_by_npu_smi(cann, soc):
    cann(soc=soc, acl=False)
    found = AtcBackend().probe(find_target(soc), os.environ)
    assert not isinstance(found, Missing)
    assert (found.details["soc"], found.details["soc_told_by"]) == (soc, "npu-smi")


def test_a_machine_with_a_toolkit_and_no_card_has_no_soc(cann):
    cann(soc="")
    found = AtcBackend().probe(find_target("Ascend910B"), os.environ)
    assert not isinstance(found, Missing)
    assert (found.details["soc"], found.details["cards"]) == ("", "")


def test_a_toolkit_that_was_not_sourced_is_used_all_the_same(cann, tmp_path, graph_of):
    home = cann(sourced=False)
    found = AtcBackend().probe(find_target("Ascend910B"), os.environ)
    assert not isinstance(found, Missing)
    assert found.details["sourced"] == f"no: source {home / 'set_env.sh'}"
    done, _ = compiled(graph_of(mlp((4, 8))), tmp_path / "work")
    assert done.failure == ""


def test_an_atc_that_does_not_start_is_missing_with_its_last_words(cann):
    home = cann(own=True)
    script(home / "bin" / "atc", "sh", "-c", "echo libge_compiler.so: cannot open shared object file; exit 127")
    missing = AtcBackend().probe(find_target("Ascend910B"), os.environ)
    assert isinstance(missing, Missing)
    assert "cannot open shared object file" in missing.reason
    assert str(home / "set_env.sh") in missing.hint


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("package_name=Ascend-cann-toolkit\nversion=8.1.RC1\ninnerversion=V100R001C21SPC001B238\n", "8.1.RC1"),
        ("Version=7.7.0.1.238\nversion_dir=8.1.RC1\n", "8.1.RC1"),
        ("compiler_running_version=[7.7.0.1.238:8.5.0]\nopp_running_version=[7.7.0.1.238:8.5.0]\n", "8.5.0"),
        ("version = 9.2.0-beta.1\n", "9.2.0-beta.1"),
        ("nothing of use", ""),
    ],
)
def test_version_files_of_all_ages_are_read(text, version):
    assert version_in(text) == version


def test_a_tree_without_version_files_is_dated_by_its_flags(cann):
    home = cann("8.5.0", own=True)
    (home / "compiler" / "version.info").unlink()
    renamed = home.with_name("here")
    home.rename(renamed)
    found = find_cann({"ASCEND_HOME_PATH": str(renamed)})
    assert found is not None
    assert found.version == ""
    probed = AtcBackend().probe(find_target("Ascend910B"), {**os.environ, "ASCEND_HOME_PATH": str(renamed)})
    assert not isinstance(probed, Missing)
    assert probed.version == "8.5"


def test_the_edition_of_a_list_of_flags_is_the_oldest_that_fits():
    from convert.backends.atc.flags import flags_of

    for version in ("5.1", "6.2", "6.3", "8.0", "8.5", "9.0", "9.1", "9.2"):
        assert edition_of(frozenset(flags_of(version))) == version


def test_a_toolkit_behind_a_launcher_compiles_and_runs(cann, tmp_path, graph_of, monkeypatch):
    home = cann()
    inside = tmp_path / "inside"
    variables = {name: os.environ[name] for name in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "PYTHONPATH", "PATH")}
    script(inside, "env", **variables)
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", os.pathsep.join(part for part in variables["PATH"].split(":") if "cann" not in part))
    assert isinstance(AtcBackend().probe(find_target("Ascend910B"), os.environ), Missing)

    monkeypatch.setenv("CONVERT_LAUNCHER", str(inside))
    graph = graph_of(mlp((4, 8)), feed(4, 8))
    launcher = (str(inside),)
    done, artifact = compiled(graph, tmp_path / "work", options_for("Ascend910B3"), launcher=launcher)
    assert done.failure == ""
    assert artifact.plan.needs == {"toolchain": "CANN", "version": "8.5.0", "soc": "Ascend910B3", "launched": "yes"}
    answer = ran(graph, artifact, done, tmp_path / "run", feed(4, 8), launcher=launcher)
    assert isinstance(answer, Ran), answer
    assert next(answer.outputs)[0].shape == (4, 3)
    assert home.is_dir()


def test_a_launcher_that_leads_nowhere_is_told(tmp_path):
    script(tmp_path / "inside", "sh", "-c", "echo docker: Cannot connect to the Docker daemon >&2; exit 125")
    environment = {**os.environ, "CONVERT_LAUNCHER": str(tmp_path / "inside")}
    missing = AtcBackend().probe(find_target("Ascend910B"), environment)
    assert isinstance(missing, Missing)
    assert "Cannot connect to the Docker daemon" in missing.reason


# ----------------------------------------------------------------------------------------------------------- compiling


def test_success_needs_exit_code_closing_line_and_file(cann, tmp_path, graph_of, monkeypatch):
    cann()
    monkeypatch.setenv("ATC_DOUBLE_WARN", "1")
    done, artifact = compiled(graph_of(mlp((4, 8))), tmp_path / "work")
    assert (done.failure, done.files) == ("", ("model.om",))
    assert artifact.path("model.om").stat().st_size > 100
    assert SUCCESS in (tmp_path / "work" / "compile.log").read_text()
    assert [note.text for note in done.notes] == [
        "W11001: Op [second] does not hit the high-priority operator information library."
    ]
    assert not (tmp_path / "work" / "kernel_meta").exists()


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        ("crash", "atc was ended by signal 11"),
        ("late_error", "atc says that it failed (exit code 255)"),
        ("exit0", "atc says that it failed (exit code 0)"),
        ("silent", "atc ended with exit code 0, but without its line of success"),
    ],
)
def test_a_failure_is_told_whatever_the_exit_code_says(cann, tmp_path, graph_of, monkeypatch, fault, failure):
    cann()
    monkeypatch.setenv("ATC_DOUBLE_FAULT", fault)
    done, _ = compiled(graph_of(mlp((4, 8))), tmp_path / "work")
    assert done.failure == failure


def test_a_file_that_is_missing_or_empty_is_left_to_the_stage(cann, tmp_path, graph_of, monkeypatch):
    cann()
    monkeypatch.setenv("ATC_DOUBLE_FAULT", "no_file")
    done, artifact = compiled(graph_of(mlp((4, 8))), tmp_path / "work")
    assert done.files == ("model.om",)
    assert not artifact.path("model.om").exists()


def test_a_killed_compile_child_leads_to_one_thrifty_run(cann, tmp_path, graph_of, monkeypatch):
    cann()
    monkeypatch.setenv("ATC_DOUBLE_FAULT", "memory")
    monkeypatch.delenv("TE_PARALLEL_COMPILER", raising=False)
    done, _ = compiled(graph_of(mlp((4, 8))), tmp_path / "work")
    assert done.failure == ""
    assert "one kernel at a time (TE_PARALLEL_COMPILER=1); that worked" in done.notes[0].text


def test_a_hung_atc_is_stopped_with_its_children(cann, tmp_path, graph_of, monkeypatch):
    cann()
    monkeypatch.setenv("ATC_DOUBLE_FAULT", "hang")
    monkeypatch.setenv("ATC_DOUBLE_PIDS", str(tmp_path / "pids"))
    done, _ = compiled(graph_of(mlp((4, 8))), tmp_path / "work", timeout=4.0)
    assert done.finished is not None
    assert done.finished.timed_out
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_an_artifact_bound_to_a_host_gets_its_planned_name_and_a_note(cann, tmp_path, graph_of):
    cann()
    done, artifact = compiled(graph_of(mlp()), tmp_path / "work")
    assert done.files == ("model.om",)
    assert artifact.path("model.om").is_file()
    assert any("it runs there only" in note.text for note in done.notes)


def test_weights_beside_the_artifact_are_part_of_it(cann, tmp_path, graph_of):
    cann("9.0.0")
    options = options_for("Ascend910B", options={"external_weight": "1"})
    graph = graph_of(mlp((4, 8)), feed(4, 8))
    done, artifact = compiled(graph, tmp_path / "work", options)
    assert done.files == ("model.om", "weight.weight_0123")
    answer = ran(graph, artifact, done, tmp_path / "run", feed(4, 8))
    assert isinstance(answer, Ran), answer
    assert (tmp_path / "run" / "loaded" / "weight" / "weight_0123").is_symlink()


def test_every_refused_operator_is_told_before_anything_is_compiled(cann, tmp_path, graph_of):
    cann("8.1.RC1")
    model = model_of(IMAGE, ops=["Det", "Unique"])
    graph = graph_of(model)
    backend, target = AtcBackend(), find_target("Ascend910B")
    found = backend.probe(target, os.environ)
    assert not isinstance(found, Missing)
    plan = backend.plan(graph, target, options_for("Ascend910B"), found)
    folder = tmp_path / "work"
    folder.mkdir()
    prepare_folder(graph, plan, folder)
    told = backend.precheck(plan, graph, folder, runner_for(60.0, folder))
    assert told.ran
    assert [(one.op, one.node, one.state, one.grade) for one in told.judged] == [
        ("Det", "of_Det", "refused", "measured"),
        ("Unique", "of_Unique", "refused", "measured"),
    ]
    assert told.judged[0].source == "atc --mode=3 of CANN 8.1.RC1"


@pytest.mark.parametrize("content", [b"", b"[", b"3", b'{"op": 7}', b'[{"op": ["x", {"result": 1}]}]', b"[" * 100_000])
def test_a_report_that_is_none_tells_nothing(content):
    assert refused_in_report(content, "") == []


# ------------------------------------------------------------------------------------------------------------- running


def feed(*shape: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(shape[0]).standard_normal(shape).astype("f4")}


def with_dims(graph: OnnxGraph, **dims) -> OnnxGraph:
    from atc_kit import dims_of
    from msgspec.structs import replace

    return replace(graph, dims=dims_of(**dims))


@pytest.mark.parametrize(
    ("dims", "shapes", "bench"),
    [
        ({"N": (4,)}, [(4, 8)], False),
        ({"N": (1, 4)}, [(1, 8), (4, 8)], False),
        ({"N": (1, 4)}, [(4, 8)], True),
        ({"N": range(1, 9)}, [(2, 8), (5, 8)], False),
        ({"N": range(1, 9)}, [(5, 8)], True),
        ({"N": None}, [(3, 8)], False),
    ],
    ids=["static", "batch steps", "batch steps, ais_bench", "range", "range, ais_bench", "anything"],
)
def test_an_artifact_gives_the_graphs_numbers_at_its_precision(cann, tmp_path, graph_of, dims, shapes, bench):
    cann(acl=not bench, ais_bench=bench)
    samples = [feed(*shape) for shape in shapes]
    graph = with_dims(graph_of(mlp(), *samples), **dims)
    done, artifact = compiled(graph, tmp_path / "work")
    assert done.failure == ""
    answer = ran(graph, artifact, done, tmp_path / "run", *samples)
    assert isinstance(answer, Ran), answer
    assert answer.ran_on == "device"
    outputs = list(answer.outputs)
    assert [array.shape for arrays in outputs for array in arrays] == [(shape[0], 3) for shape in shapes]
    reference = np.load(graph.path("reference/000.npz"))["0"]
    assert np.allclose(outputs[0][0], reference, atol=2e-2)
    assert not np.array_equal(outputs[0][0], reference)


@pytest.mark.parametrize("bench", [False, True], ids=["pyACL", "ais_bench"])
def test_several_inputs_with_free_dimensions_run(cann, tmp_path, graph_of, bench):
    cann(acl=not bench, ais_bench=bench)
    samples = [
        {"ids": np.full((n, t), 3, "i8"), "mask": np.full((n, t), 0.5, "f4"), "t": np.float32(2).reshape(())}
        for n, t in ((1, 8), (2, 16))
    ]
    model = model_of({"ids": ("int64", "N", "T"), "mask": ("N", "T"), "t": ()})
    graph = with_dims(graph_of(model, *samples), N=(1, 2), T=(8, 16))
    done, artifact = compiled(graph, tmp_path / "work")
    answer = ran(graph, artifact, done, tmp_path / "run", *samples)
    assert isinstance(answer, Ran), answer
    last = list(answer.outputs)[1]
    assert [(array.shape, array.dtype.name) for array in last] == [
        ((2, 16), "int64"),
        ((2, 16), "float32"),
        ((), "float32"),
    ]


def test_image_steps_run(cann, tmp_path, graph_of):
    cann()
    samples = [{"image": np.random.default_rng(h).random((1, 3, h, w), "f4")} for h, w in ((8, 8), (16, 8))]
    graph = with_dims(graph_of(model_of({"image": (1, 3, "H", "W")}), *samples), H=(8, 16), W=(8, 16))
    done, artifact = compiled(graph, tmp_path / "work")
    answer = ran(graph, artifact, done, tmp_path / "run", *samples)
    assert isinstance(answer, Ran), answer
    assert [arrays[0].shape for arrays in answer.outputs] == [(1, 3, 8, 8), (1, 3, 16, 8)]


def test_a_sample_that_is_no_step_is_told(cann, tmp_path, graph_of):
    cann()
    graph = with_dims(graph_of(mlp(), feed(4, 8)), N=(1, 4))
    done, artifact = compiled(graph, tmp_path / "work")
    with pytest.raises(CompileFailed) as failure:
        ran(graph, artifact, done, tmp_path / "run", feed(3, 8))
    assert failure.value.code == "CNV-7005"
    assert "145013" in failure.value.message


def test_outputs_of_another_type_are_compared_in_the_graphs(cann, tmp_path, graph_of):
    cann()
    graph = graph_of(mlp((4, 8)), feed(4, 8))
    options = options_for("Ascend910B", options={"output_type": "FP16"})
    done, artifact = compiled(graph, tmp_path / "work", options)
    answer = ran(graph, artifact, done, tmp_path / "run", feed(4, 8))
    assert isinstance(answer, Ran), answer
    assert next(answer.outputs)[0].dtype == np.float32
    assert "FP16" in answer.notes[0].text


@pytest.mark.parametrize("image", ["bgr", "rgbx"])
def test_an_artifact_that_prepares_images_is_fed_the_pixels_behind_the_samples(cann, tmp_path, graph_of, image):
    from convert.backends.preprocess import model_values, parse_preprocess
    from convert.values import TensorSpec

    cann(soc="Ascend310P3")
    text = (
        f'{{"image": "{image}", "model": "rgb", "size": [12, 14], "crop": [2, 3, 6, 8], "pad": [1, 1, 0, 0],'
        ' "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}'
    )
    spec = TensorSpec(name="image", dtype="float32", shape=(1, 3, 8, 8))
    how = parse_preprocess(text, (spec,))
    pixels = np.random.default_rng(1).integers(0, 256, (1, 12, 14, 4 if image == "rgbx" else 3), np.uint8)
    sample = {"image": model_values(pixels, how)}
    graph = graph_of(model_of({"image": (1, 3, 8, 8)}), sample)
    options = options_for("Ascend310P3", "fp32", preprocess=text)
    done, artifact = compiled(graph, tmp_path / "work", options)
    assert done.failure == ""
    answer = ran(graph, artifact, done, tmp_path / "run", sample)
    assert isinstance(answer, Ran), answer
    assert np.allclose(next(answer.outputs)[0], np.maximum(sample["image"], 0), atol=2e-3)
    assert answer.notes == ()


def test_a_sample_that_is_not_made_of_pixels_is_told(cann, tmp_path, graph_of):
    cann(soc="Ascend310P3")
    sample = {"image": np.full((1, 3, 8, 8), 1 / 300, "f4")}
    graph = graph_of(model_of({"image": (1, 3, 8, 8)}), sample)
    options = options_for("Ascend310P3", "fp32", preprocess="{}")
    done, artifact = compiled(graph, tmp_path / "work", options)
    answer = ran(graph, artifact, done, tmp_path / "run", sample)
    assert isinstance(answer, Ran), answer
    assert "not made of 8-bit pixels" in answer.notes[0].text


@pytest.mark.parametrize("version", ["8.1.RC1", "8.5.0"])
def test_an_artifact_of_another_part_says_which_card_is_here(cann, tmp_path, graph_of, version):
    cann(version)
    graph = graph_of(mlp((4, 8)), feed(4, 8))
    options = options_for("Ascend910B", soc="Ascend910B2")
    done, artifact = compiled(graph, tmp_path / "work", options)
    with pytest.raises(CompileFailed) as failure:
        ran(graph, artifact, done, tmp_path / "run", feed(4, 8))
    assert failure.value.code == "CNV-7201"
    assert "compiled for Ascend910B2, and the card here (Ascend910B3)" in failure.value.message


def test_the_newest_runtime_compares_architectures_only(cann, tmp_path, graph_of):
    cann("9.2.0")
    graph = graph_of(mlp((4, 8)), feed(4, 8))
    done, artifact = compiled(graph, tmp_path / "work", options_for("Ascend910B", soc="Ascend910B2"))
    assert isinstance(ran(graph, artifact, done, tmp_path / "run", feed(4, 8)), Ran)


def test_an_artifact_for_another_kind_of_card_can_not_be_run_here(cann, tmp_path, graph_of):
    cann()
    graph = graph_of(mlp((4, 8)), feed(4, 8))
    done, artifact = compiled(graph, tmp_path / "work", options_for("Ascend310P3"))
    answer = ran(graph, artifact, done, tmp_path / "run", feed(4, 8))
    assert isinstance(answer, CannotRun)
    assert answer.reason == "the card here is Ascend910B3, and the artifact is for Ascend310P3"


def test_without_a_card_an_artifact_is_built_and_not_run(cann, tmp_path, graph_of):
    cann(soc="")
    graph = graph_of(mlp((4, 8)), feed(4, 8))
    done, artifact = compiled(graph, tmp_path / "work", options_for("Ascend910B", soc="Ascend910B3"))
    assert done.failure == ""
    answer = ran(graph, artifact, done, tmp_path / "run", feed(4, 8))
    assert isinstance(answer, CannotRun)
    assert "no Ascend card" in answer.reason


@pytest.mark.parametrize(
    ("fault", "told"), [("memory", "207001"), ("execute", "507015"), ("crash", "its runner ended with -6")]
)
def test_a_card_that_fails_says_which_call(cann, tmp_path, graph_of, monkeypatch, fault, told):
    cann()
    graph = graph_of(mlp((4, 8)), feed(4, 8))
    done, artifact = compiled(graph, tmp_path / "work")
    monkeypatch.setenv("ACL_DOUBLE_FAULT", fault)
    with pytest.raises(CompileFailed) as failure:
        ran(graph, artifact, done, tmp_path / "run", feed(4, 8))
    assert failure.value.code == "CNV-7005"
    assert told in failure.value.message
    assert failure.value.hint


def test_a_card_that_hangs_is_given_up(cann, tmp_path, graph_of, monkeypatch):
    cann()
    graph = graph_of(mlp((4, 8)), feed(4, 8))
    done, artifact = compiled(graph, tmp_path / "work")
    monkeypatch.setenv("ACL_DOUBLE_FAULT", "hang")
    from msgspec.structs import replace

    from artifacts.digest import file_entries

    (tmp_path / "run").mkdir()
    artifact = replace(artifact, files=file_entries(Path(artifact.folder), list(done.files)))
    request = RunRequest(artifact=artifact, graph=graph, folder=tmp_path / "run")
    with pytest.raises(ResourceLimit) as failure:
        AtcBackend().run(request, iter([feed(4, 8)]), runner_for(2.0, tmp_path / "run"))
    assert failure.value.code == "CNV-1001"


def test_the_double_refuses_what_the_backend_never_asks(tmp_path):
    import atc_tool  # noqa: F401  -- the kit has put it on the path
    from atc_kit import ask_double, plan_for
    from msgspec.structs import replace

    model = model_of(IMAGE)
    plan = plan_for(graph_for(model), options_for("Ascend910B3"), "8.5.0")
    for extra, told in (
        ("--no_such=1", "unknown command line flag 'no_such'"),
        ("--precision_mode=force_fp16", "E10056"),
        ("--soc_version=Ascend999", "E10001"),
        ("--input_shape=other:1", "E10016"),
        ("--input_format=NHWC", "E10001"),
        ("stray", "Non-option parameter: stray"),
    ):
        code, said = ask_double(replace(plan, argv=(*plan.argv, extra)), model, "8.5.0", tmp_path)
        assert (code, told in said) == (255, True), said


def test_what_the_toolkit_refuses_joins_the_support_report(cann, tmp_path, graph_of, checked_of):
    from convert.stages.precheck import precheck_graph

    cann()
    graph = graph_of(model_of(IMAGE, ops=["Det"]))
    checked = precheck_graph(graph, checked_of(graph), options_for("Ascend910B"), tmp_path / "work")
    assert not checked.support.supported
    assert [(one.op, one.node, one.source) for one in checked.support.judged] == [
        ("Det", "of_Det", "atc --mode=3 of CANN 8.5.0")
    ]


def test_without_a_toolkit_the_support_report_stays_as_it_is(tmp_path, graph_of, checked_of, monkeypatch):
    from convert.stages.precheck import precheck_graph

    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    graph = graph_of(model_of(IMAGE))
    checked = checked_of(graph)
    assert precheck_graph(graph, checked, options_for("Ascend910B"), tmp_path / "work").digest == checked.digest
