"""The ``artifacts`` command: output, one JSON document, exit codes, laziness."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from store_kit import make_release, make_request

from artifacts.__main__ import COMMANDS, cli
from artifacts.cli import LazyGroup, run_boundary
from artifacts.layout import Layout
from artifacts.publish import PublishRequest, publish
from artifacts.registry import default_root

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    cpu = make_release(tmp_path / "cpu", content=b"for the cpu", target="cpu", soc="", backend="onnxruntime")
    publish(
        tmp_path / "reg", PublishRequest(name="net", version="1.0.0", targets=(make_release(tmp_path / "npu"), cpu))
    )
    monkeypatch.setenv("CONVERT_REGISTRY", str(tmp_path / "reg"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "reg"


def run(*argv: str) -> int:
    return run_boundary(cli, argv, prog="artifacts", usage_code="CNV-2401")


def run_json(capsys, *argv: str) -> tuple[int, dict]:
    code = run(*argv, "--json")
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return code, json.loads(out)


def test_list_shows_models_versions_and_targets(root, capsys):
    assert run("list") == 0
    assert "ascend910b3, cpu" in capsys.readouterr().out
    code, found = run_json(capsys, "list")
    assert (code, found["schema"], found["models"][0]["versions"][0]["ref"]) == (0, 1, "net:1.0.0")


def test_list_of_an_empty_registry_says_so(tmp_path, capsys):
    assert run("list", "--registry", str(tmp_path / "none")) == 0
    assert "no model in" in capsys.readouterr().out


def test_a_registry_that_is_no_folder_is_an_error_and_not_empty(tmp_path, monkeypatch, capsys):
    (tmp_path / "one").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "one")
    (tmp_path / "file").write_text("no registry")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("one", "file", "dangling"):
        monkeypatch.setenv("CONVERT_REGISTRY", str(tmp_path / name))
        code, document = run_json(capsys, "list")
        assert (code, document["error"]["code"]) == (9, "CNV-9004")


@pytest.mark.parametrize(
    "words", [("pull", "m", "--target", ""), ("list", "--registry", ""), ("seal", "m", "1", "--reason", "")]
)
def test_an_empty_option_is_refused_instead_of_left_out(words, capsys):
    assert run(*words) == 2


def test_list_names_a_damaged_model_beside_the_others(root, tmp_path, capsys):
    publish(root, make_request(tmp_path / "a", name="other"))
    (root / "net/index.json").write_text("{")
    assert run("list") == 0
    out = capsys.readouterr().out
    assert "damaged" in out
    assert "other" in out


def test_show_tells_the_gate_the_chain_and_the_tools(root, capsys):
    assert run("show", "net") == 0
    out = capsys.readouterr().out
    for part in ("net:1.0.0-ascend910b3", "passed", "0.9999", "cann 8.0.RC3", "support.json", "compile"):
        assert part in out
    code, found = run_json(capsys, "show", "net:1.0.0-cpu")
    assert (code, found["targets"][0]["manifest"]["backend"]) == (0, "onnxruntime")


def test_pull_and_verify_go_together(root, tmp_path, capsys):
    code, pulled = run_json(capsys, "pull", "net", "--target", "cpu")
    assert (code, pulled["path"], pulled["main"]) == (0, "net-cpu", "net.om")
    code, verified = run_json(capsys, "verify", "net-cpu")
    assert (code, verified["ok"], verified["checked"]) == (0, True, ["net.om", "support.json"])
    assert run("verify", "net:1.0.0") == 0


def test_fsck_ends_with_9_and_one_document_when_something_is_damaged(root, capsys):
    assert run("fsck") == 0
    capsys.readouterr()
    layout = Layout(root / "net")
    layout.blob_path(layout.find("1.0.0-cpu").digest).unlink()
    assert run("fsck") == 9
    told = capsys.readouterr()
    assert "missing: 1.0.0, sha256:" in told.out
    assert "error [CNV-9013]" in told.err
    code, report = run_json(capsys, "fsck")
    assert (code, report["clean"], report["error"]["code"]) == (9, False, "CNV-9013")
    assert report["models"][0]["damage"][0]["fault"] == "missing"


@pytest.mark.parametrize(
    ("argv", "code", "exit_code"),
    [
        (["pull", "net:9"], "CNV-9002", 9),
        (["pull", "Net"], "CNV-2402", 2),
        (["pull"], "CNV-2401", 2),
        (["pull", "net", "--nope"], "CNV-2401", 2),
        (["pul", "net"], "CNV-2401", 2),
        (["verify", "net:9"], "CNV-9002", 9),
    ],
)
def test_failures_are_two_lines_and_one_document(root, capsys, argv, code, exit_code):
    assert run(*argv) == exit_code
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["error", "hint:"]
    assert lines[0].startswith(f"error [{code}]: ")
    got, document = run_json(capsys, *argv)
    assert (got, document["error"]["code"], document["error"]["exit_code"]) == (exit_code, code, exit_code)


def test_a_mistyped_command_gets_the_nearest_one(capsys):
    assert run("pul") == 2
    assert "Did you mean pull" in capsys.readouterr().err


def test_a_hostile_name_can_not_write_lines_or_escapes_to_the_terminal(root, capsys):
    assert run("pull", "net\x1b[2J\nok: done") == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert len(err.splitlines()) == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_explains_its_options(name, capsys):
    assert run(name, "--help") == 0
    out = capsys.readouterr().out
    assert "--json" in out
    assert ("--registry" in out) == (name != "keygen")


def test_help_imports_no_command_and_no_heavy_library():
    code = (
        "import sys\nfrom artifacts.__main__ import cli\nfrom artifacts.cli import run_boundary\n"
        "run_boundary(cli, ['--help'], prog='artifacts', usage_code='x')\n"
        "heavy = {'rich', 'torch', 'onnx', 'prefect', 'numpy', 'asyncio', 'msgspec'}\n"
        "print(sorted(m for m in sys.modules if m in heavy or m.startswith('artifacts.commands')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_registry_is_the_option_then_the_variable_then_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CONVERT_REGISTRY", "~/reg")
    assert default_root() == Path.home() / "reg"
    monkeypatch.delenv("CONVERT_REGISTRY")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_root() == tmp_path / "model-convert/registry"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_root() == Path.home() / ".local/share/model-convert/registry"


@pytest.mark.parametrize("command", ["fsck", "gc", "seal net 1.0.0 --reason x", "sign net --sign-key k"])
def test_commands_that_need_a_folder_say_so_for_an_oci_registry(command, monkeypatch, capsys):
    assert run(*command.split(), "--registry", "oci://h/x") == 2
    monkeypatch.setenv("CONVERT_REGISTRY", "oci://h/x")
    if command != "sign net --sign-key k":
        assert run(*command.split()) == 2
    assert "error [CNV-2434]" in capsys.readouterr().err


@click.command("run")
@click.argument("model")
@click.option("--target")
def run_model(model: str, target: str) -> None:
    click.echo(f"{model} for {target}")


@click.command("fail")
@click.option("--json", "as_json", is_flag=True)
@click.argument("how")
def fail(how: str, as_json: bool) -> None:
    raise {"abort": KeyboardInterrupt, "bug": ZeroDivisionError, "pipe": BrokenPipeError}[how]("no luck")


TABLE = {"run": (f"{__name__}:run_model", "Run."), "fail": (f"{__name__}:fail", "Fail.")}
GROUP = LazyGroup("demo", table=TABLE, default="run")


def run_demo(*argv: str) -> int:
    return run_boundary(GROUP, argv, prog="demo", usage_code="CNV-2001")


@pytest.mark.parametrize(
    "argv", [["m.pt", "--target", "cpu"], ["--target", "cpu", "m.pt"], ["run", "m.pt", "--target", "cpu"]]
)
def test_a_first_argument_that_is_no_command_goes_to_the_default_command(argv, capsys):
    assert run_demo(*argv) == 0
    assert capsys.readouterr().out == "m.pt for cpu\n"


def test_help_of_a_group_with_a_default_command_lists_the_commands(capsys):
    assert run_demo("--help") == 0
    assert "fail  Fail." in capsys.readouterr().out


def test_an_interrupt_is_130_and_one_document(capsys):
    assert run_demo("fail", "abort", "--json") == 130
    told = capsys.readouterr()
    assert json.loads(told.out)["error"]["exit_code"] == 130
    assert "interrupted" in told.err


def test_a_bug_keeps_its_traceback_and_still_prints_one_document(capsys):
    with pytest.raises(ZeroDivisionError):
        run_demo("fail", "bug", "--json")
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 1


def test_a_reader_that_leaves_early_is_no_traceback(root):
    command = f"{sys.executable} -m artifacts show net --fetch-commands --registry {root} | head -c 1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("#", "")


def test_a_path_that_the_system_refuses_is_an_expected_failure(root, capsys):
    code, said = run_json(capsys, "list", "--registry", "n" * 5000)
    assert (code, said["error"]["code"]) == (2, "CNV-2023")
    assert len(said["error"]["message"]) < 500
