"""The main job through the command line: convert, judge, publish, pull; what is reused, and what survives."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from main_job_kit import Cli

SHAPE = ("--input", "x:float32[1,3,16,16]")


def test_a_torchscript_file_becomes_a_published_artifact_that_runs(cli: Cli, tiny_script: Path, tmp_path: Path) -> None:
    ended = cli.convert(tiny_script, "--target", "cpu", *SHAPE, "--json")
    assert ended.code == 0, ended.err
    document = ended.json
    assert (document["schema"], document["status"]) == (1, "published")
    assert document["model"]["format"] == "torchscript"
    (target,) = document["targets"]
    assert [run["stage"] for run in target["stages"]] == [
        "load", "export", "simplify", "check", "compile", "validate", "publish",
    ]  # fmt: skip
    assert target["validation"]["passed"]
    assert target["validation"]["ran_on"] == "device"
    assert target["artifact"]["ref"] == "classifier:0.0.1" or target["artifact"]["ref"].startswith("classifier:")
    pulled = cli.artifacts("pull", target["artifact"]["ref"], "--target", "cpu", "--out", tmp_path / "pulled", "--json")
    assert pulled.code == 0, pulled.err
    assert same_numbers(tiny_script, Path(pulled.json["path"]) / pulled.json["main"])
    assert cli.artifacts("verify", tmp_path / "pulled").code == 0
    assert cli.artifacts("fsck").code == 0


def same_numbers(script: Path, onnx: Path) -> bool:
    import onnxruntime
    import torch

    image = torch.rand(1, 3, 16, 16)
    with torch.no_grad():
        wanted = torch.jit.load(str(script))(image).numpy()
    (given,) = onnxruntime.InferenceSession(str(onnx)).run(None, {"x": image.numpy()})
    return np.allclose(wanted, given, atol=1e-5)


def test_an_unchanged_repeat_takes_every_stage_from_the_cache_and_imports_no_torch(
    cli: Cli, tiny_script: Path, tmp_path: Path
) -> None:
    first = cli.convert(tiny_script, "--target", "cpu", *SHAPE, "--json").json
    again = cli.convert(tiny_script, "--target", "cpu", *SHAPE, "--json", PYTHONPROFILEIMPORTTIME="1")
    assert all(run["cached"] for run in again.json["targets"][0]["stages"])
    assert again.json["targets"][0]["artifact"] == first["targets"][0]["artifact"]
    imported = {line.rpartition("|")[2].strip() for line in again.err.splitlines() if line.startswith("import time:")}
    assert "convert.pipeline" in imported
    assert not imported & {"torch", "onnx", "onnxruntime", "prefect", "numpy"}


@pytest.mark.parametrize("change", [("--gate", "cosine=0.9"), ("--name", "other"), ("--version", "3.0.0")])
def test_another_gate_name_or_version_runs_no_stage_again(cli: Cli, tiny_onnx: Path, change: tuple[str, str]) -> None:
    cli.convert(tiny_onnx, "--target", "cpu")
    ended = cli.convert(tiny_onnx, "--target", "cpu", *change, "--json")
    assert ended.code == 0, ended.err
    stages = {run["stage"]: run["cached"] for run in ended.json["targets"][0]["stages"]}
    stages.pop("publish")
    assert all(stages.values())


def test_a_gate_that_fails_is_exit_8_and_nothing_is_published(cli: Cli, tiny_onnx: Path) -> None:
    ended = cli.convert(tiny_onnx, "--target", "cpu", "--precision", "bf16", "--gate", "rel_l2=1e-9", "--json")
    assert ended.code == ended.json["error"]["exit_code"] == 8
    assert ended.json["targets"][0]["validation"]["passed"] is False
    assert "relative L2" in ended.json["error"]["message"]
    assert not json.loads(cli.artifacts("list", "--json").out).get("models")
    assert Path(ended.json["targets"][0]["folder"], "report.html").exists()


def test_stored_metrics_are_judged_again_without_running(cli: Cli, tiny_onnx: Path) -> None:
    folder = cli.convert(tiny_onnx, "--target", "cpu", "--precision", "fp16", "--json").json["targets"][0]["folder"]
    assert cli.convert("gate", folder).code == 0
    assert cli.convert("gate", folder, "--gate", "rel_l2=1e-12").code == 8


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_each_precision_of_the_cpu_gives_an_artifact_within_its_gate(cli: Cli, tiny_onnx: Path, precision: str) -> None:
    ended = cli.convert(tiny_onnx, "--target", "cpu", "--precision", precision, "--json")
    assert ended.code == 0, ended.err
    (target,) = ended.json["targets"]
    assert target["precision"] == precision
    assert target["validation"]["outputs"][0]["cosine"] > 0.999


def test_a_dry_run_shows_the_plan_and_writes_no_artifact(cli: Cli, tiny_onnx: Path) -> None:
    ended = cli.convert(tiny_onnx, "--target", "cpu", "--dry-run", "--json")
    assert ended.code == 0
    assert ended.json["status"] == "planned"
    assert ended.json["targets"][0]["plan"]["argv"]
    assert not (cli.folder / "registry").exists()
    assert not (cli.folder / "out").exists()


def test_without_publishing_the_run_ends_built(cli: Cli, tiny_onnx: Path) -> None:
    ended = cli.convert(tiny_onnx, "--target", "cpu", "--no-publish", "--json")
    assert (ended.code, ended.json["status"]) == (0, "built")
    assert Path(ended.json["targets"][0]["artifact"]["path"]).exists()
    assert not (cli.folder / "registry").exists()


def test_the_manifest_chains_back_to_the_users_file(cli: Cli, tiny_script: Path) -> None:
    document = cli.convert(tiny_script, "--target", "cpu", *SHAPE, "--json").json
    pulled = cli.artifacts("pull", "classifier", "--target", "cpu", "--out", cli.folder / "pulled")
    assert pulled.code == 0, pulled.err
    manifest = json.loads((cli.folder / "pulled" / "manifest.json").read_text())
    links = {link["digest"]: link["parent"] for link in manifest["chain"]}
    digest = manifest["chain"][-1]["digest"]
    while digest in links:
        digest = links[digest]
    assert digest == document["model"]["sha256"] == manifest["model"]["sha256"]


def test_a_damaged_cache_entry_is_made_again(cli: Cli, tiny_onnx: Path) -> None:
    cli.convert(tiny_onnx, "--target", "cpu", "--no-publish")
    for path in (cli.folder / "cache" / "entries").rglob("model.onnx"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.chmod(0o644)
        path.write_bytes(bytes(data))
    ended = cli.convert(tiny_onnx, "--target", "cpu", "--json")
    assert ended.code == 0, ended.err
    assert cli.artifacts("fsck").code == 0


def killed_then_run(cli: Cli, model: Path, after: float) -> None:
    """Start a conversion, kill it after a while, and see that the next one works and the registry is sound."""
    process = cli.start("convert", model, "--target", "cpu", "-q", "--version", f"1.0.{random.randrange(10**6)}")
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    fsck = cli.artifacts("fsck", "--json")
    assert fsck.code == 0, fsck.out
    ended = cli.convert(model, "--target", "cpu", "--json", "-q")
    assert ended.code == 0, ended.err
    assert not list((cli.folder / "cache" / "tmp").glob("*"))


@pytest.mark.parametrize("round", range(4))
def test_killed_at_a_random_moment_the_next_run_works(cli: Cli, tiny_onnx: Path, round: int) -> None:
    for _ in range(2):
        killed_then_run(cli, tiny_onnx, random.Random(round).uniform(0.05, 1.6))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_killed_at_a_hundred_random_moments_the_next_run_works(cli: Cli, tiny_onnx: Path) -> None:
    for _ in range(100):
        killed_then_run(cli, tiny_onnx, random.uniform(0.02, 2.0))


SMALL_DISK = """
set -e
mount -t tmpfs -o size=$1 tmpfs "$2"
shift 2
exec "$@"
"""


@pytest.mark.parametrize("place", ["cache", "registry", "out"])
def test_a_full_disk_is_exit_10_and_nothing_published_is_lost(cli: Cli, tiny_onnx: Path, place: str) -> None:
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a file system of its own: root and unshare")
    cli.convert(tiny_onnx, "--target", "cpu", "--name", "kept")
    full = cli.folder / "small"
    full.mkdir()
    variable = {"cache": "CONVERT_CACHE_DIR", "registry": "CONVERT_REGISTRY", "out": "CONVERT_OUT"}[place]
    command = [sys.executable, "-m", "convert", str(tiny_onnx), "--target", "cpu", "--json"]
    size = {"cache": "24k", "registry": "24k", "out": "8k"}[place]
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", SMALL_DISK, "sh", size, str(full), *command],
        env={**cli.environment, variable: str(full)},
        cwd=cli.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 10, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["error"]["code"] == "CNV-1003"
    assert cli.artifacts("fsck").code == 0
    assert cli.artifacts("show", "kept").code == 0


def test_a_registry_that_cannot_be_written_is_exit_9(cli: Cli, tiny_onnx: Path) -> None:
    blocker = cli.folder / "file"
    blocker.write_text("not a folder")
    ended = cli.convert(tiny_onnx, "--target", "cpu", "--json", "--registry", blocker / "registry")
    assert ended.code == ended.json["error"]["exit_code"] == 9
    assert Path(ended.json["targets"][0]["artifact"]["path"]).exists()


def test_the_json_document_is_there_on_failure_too(cli: Cli) -> None:
    ended = cli.convert("missing.pt", "--target", "cpu", "--json")
    assert ended.code == ended.json["error"]["exit_code"] == 3
    assert ended.json["status"] == "failed"
    assert len(ended.out.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("m.pt",), 2),
        (("m.pt", "--target", "nowhere"), 2),
        (("MODEL", "--target", "Ascend310P3", "--precision", "bf16"), 2),
        (("m.pt", "--target", "cpu", "--option", "x"), 2),
        (("m.pt", "--target", "cpu", "--gate", "niceness=1"), 2),
    ],
)
def test_bad_usage_is_exit_2_with_a_code_and_a_hint(
    cli: Cli, tiny_onnx: Path, args: tuple[str, ...], code: int
) -> None:
    ended = cli.convert(*(tiny_onnx if arg == "MODEL" else arg for arg in args), "-q")
    assert ended.code == code
    assert "error [CNV-2" in ended.err
    assert "\nhint: " in ended.err
    assert "Traceback" not in ended.err
