"""``convert bench``: what is opened, what is judged, and where the times come from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from acceptance_kit import Site, tiny_model

from convert.acceptance.speed import rank, speed_from
from convert.acceptance.torch_baseline import vendor_of

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("place", ["out/m/cpu", "m:1.0.0", "m"])
def test_a_folder_and_a_reference_are_judged_and_timed(cpu: Site, capsys: Capture, place: str) -> None:
    ended = cpu("bench", place, "--target", "cpu", "--runs", 7, "--warmup", 2, capsys=capsys)
    assert ended.code == 0
    said = ended.said
    assert (said["passed"], said["error"], said["artifact"]["sampled"], said["artifact"]["references"]) == (
        True, None, "kept", 1,
    )  # fmt: skip
    assert said["accuracy"]["verdict"]["passed"] and said["accuracy"]["ran_on"] == "device"
    assert (said["speed"]["runs"], said["speed"]["warmup"], said["speed"]["clock"]) == (7, 2, "in-process")
    assert 0 < said["speed"]["least"] <= said["speed"]["p50"] <= said["speed"]["p99"] <= said["speed"]["most"]
    assert said["artifact"]["ref"] == (None if place.startswith("out") else "m:1.0.0")


def test_a_pulled_folder_runs_like_what_it_was_pulled_from(cpu: Site, tmp_path: Path, capsys: Capture) -> None:
    subprocess.run(
        [sys.executable, "-m", "artifacts", "pull", "m:1.0.0", tmp_path / "pulled", "--target", "cpu",
         "--registry", cpu.folder / "registry"], check=True, capture_output=True,
    )  # fmt: skip
    ended = cpu("bench", tmp_path / "pulled", "--runs", 2, capsys=capsys)
    assert (ended.code, ended.said["artifact"]["sampled"]) == (0, "kept")
    (tmp_path / "pulled" / "artifact.json").unlink()
    (tmp_path / "pulled" / "samples.zip").unlink()
    older = cpu("bench", tmp_path / "pulled", "--runs", 2, capsys=capsys)
    assert (older.code, older.said["artifact"]["sampled"], older.said["accuracy"]["verdict"]) == (0, "random", None)


def test_an_onnx_alone_runs_on_made_up_inputs(tmp_path: Path, cpu: Site, capsys: Capture) -> None:
    model = tiny_model(tmp_path / "alone.onnx", batch="N")
    ended = cpu("bench", model, "--dim", "N=3", "--runs", 2, capsys=capsys)
    assert (ended.code, ended.said["artifact"]["sampled"], ended.said["accuracy"]["verdict"]) == (0, "random", None)


def test_samples_of_the_user_come_before_kept_ones(cpu: Site, tmp_path: Path, capsys: Capture) -> None:
    np.savez(tmp_path / "mine.npz", x=np.ones((4, 8), "f4"))
    ended = cpu("bench", "out/m/cpu", "--samples", tmp_path / "mine.npz", "--runs", 1, capsys=capsys)
    assert (ended.said["artifact"]["sampled"], ended.said["accuracy"]["verdict"]) == ("given", None)
    kept = cpu.folder / "out/m/cpu/samples.zip"
    again = cpu("bench", "m.onnx", "--samples", kept, "--runs", 1, capsys=capsys)
    assert again.said["accuracy"]["verdict"]["passed"]


def test_made_up_samples_travel_and_given_ones_stay(cpu: Site, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.ones((4, 8), "f4"))
    assert cpu("m.onnx", "-t", "cpu", "--samples", tmp_path / "mine.npz", "--name", "given", "--quiet").code == 0
    assert (cpu.folder / "out/given/cpu/samples.zip").is_file()
    kept = {}
    for name in ("m", "given"):
        blobs = [path.read_bytes() for path in (cpu.folder / "registry" / name).rglob("blobs/sha256/*")]
        (manifest,) = (json.loads(blob) for blob in blobs if blob.startswith(b'{"backend":'))
        kept[name] = [entry["name"] for entry in manifest["reports"]]
    assert kept["m"] == ["support.json", "validation.json", "artifact.json", "samples.zip"]
    assert kept["given"] == ["support.json", "validation.json", "artifact.json"]


def test_outputs_beyond_the_gate_end_in_8(cpu: Site, copied: Path, tmp_path: Path, capsys: Capture) -> None:
    from convert.arrays import load_npz, save_npz

    _rezip(copied / "samples.zip", tmp_path, lambda path: save_npz(path, {"0": load_npz(path)["0"] * 2}))
    ended = cpu("bench", copied, "--runs", 1, capsys=capsys)
    assert (ended.code, ended.said["error"]["code"], ended.said["passed"]) == (8, "CNV-8124", False)
    loose = ("rel_l2=1", "norm_ratio=1", "worst_row_cosine=0", "cosine=0")
    eased = cpu("bench", copied, "--runs", 1, *(word for gate in loose for word in ("--gate", gate)), capsys=capsys)
    assert eased.code == 0, eased.said["error"]


def _rezip(path: Path, work: Path, change) -> None:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        archive.extractall(work / "unzipped")
    change(work / "unzipped" / "reference" / "000.npz")
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((work / "unzipped").rglob("*.npz")):
            archive.write(file, str(file.relative_to(work / "unzipped")))


def test_a_damaged_artifact_is_told_before_it_runs(cpu: Site, copied: Path, capsys: Capture) -> None:
    data = bytearray((copied / "model.onnx").read_bytes())
    data[len(data) // 2] ^= 1
    (copied / "model.onnx").write_bytes(data)
    ended = cpu("bench", copied, capsys=capsys)
    assert (ended.code, ended.said["error"]["code"]) == (8, "CNV-8121")
    assert "model.onnx has other content" in ended.said["error"]["message"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("artifact.json", b"{"),
        ("artifact.json", b'{"schema": 1}'),
        ("samples.zip", b"PK no zip"),
    ],
)
def test_what_is_kept_with_an_artifact_is_read_strictly(
    cpu: Site, copied: Path, capsys: Capture, name: str, content: bytes
) -> None:
    (copied / name).write_bytes(content)
    ended = cpu("bench", copied, capsys=capsys)
    assert (ended.code, ended.said["error"]["code"]) == (2, "CNV-2281")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b"])
def test_an_artifact_names_no_file_outside_its_folder(cpu: Site, copied: Path, capsys: Capture, name: str) -> None:
    stored = json.loads((copied / "artifact.json").read_bytes())
    stored["artifact"]["files"][0]["name"] = name
    (copied / "artifact.json").write_text(json.dumps(stored))
    ended = cpu("bench", copied, capsys=capsys)
    assert (ended.code, ended.said["error"]["code"]) == (2, "CNV-2281")


def test_what_is_nowhere_is_told(cpu: Site, tmp_path: Path, capsys: Capture) -> None:
    assert cpu("bench", "no such thing", capsys=capsys).said["error"]["code"] == "CNV-2281"
    assert cpu("bench", tmp_path, capsys=capsys).said["error"]["code"] == "CNV-2281"
    assert cpu("bench", "m.onnx", "-t", "Ascend910B3", capsys=capsys).said["error"]["code"] == "CNV-2281"
    assert cpu("bench", "nothing:1.0.0", "-t", "cpu", capsys=capsys).code == 9


def test_an_artifact_that_does_not_say_its_inputs_is_refused(ascend: Site, tmp_path: Path, capsys: Capture) -> None:
    subprocess.run(
        [sys.executable, "-m", "artifacts", "pull", "m:1.0.0", tmp_path / "old", "--target", "Ascend910B3",
         "--registry", ascend.folder / "registry"], check=True, capture_output=True,
    )  # fmt: skip
    (tmp_path / "old" / "artifact.json").unlink()
    ended = ascend("bench", tmp_path / "old", capsys=capsys)
    assert (ended.code, ended.said["error"]["code"]) == (2, "CNV-2282")


def test_a_dry_run_says_what_would_be_done_and_runs_nothing(cpu: Site, capsys: Capture) -> None:
    for command in ("bench", "soak", "accept"):
        ended = cpu(command, "out/m/cpu", "--dry-run", capsys=capsys)
        assert ended.code == 0 and ended.said["steps"] and ended.said["artifact"]["target"] == "cpu"
    before = set(cpu.folder.rglob("*"))
    cpu("accept", "out/m/cpu", "--dry-run", "--quiet", capsys=capsys)
    assert set(cpu.folder.rglob("*")) == before


def test_a_card_is_timed_by_its_own_script_and_by_the_vendors_tool(ascend: Site, capsys: Capture) -> None:
    ended = ascend("bench", "out/m/Ascend910B", "--runs", 6, "--warmup", 1, capsys=capsys)
    assert ended.code == 0, ended.said
    assert (ended.said["accuracy"]["ran_on"], ended.said["accuracy"]["device"]) == ("device", "Ascend910B3")
    assert (ended.said["speed"]["clock"], ended.said["speed"]["runs"]) == ("runtime", 6)
    vendor = ended.said["vendor"]
    assert (vendor["tool"], vendor["p50"], vendor["p99"], vendor["runs"]) == ("ais_bench", 2.0, 2.1, 6)


def test_a_card_with_wrong_numbers_ends_in_8(ascend: Site, capsys: Capture) -> None:
    ended = ascend("bench", "m", "-t", "Ascend910B3", "--runs", 4, capsys=capsys, ACL_DOUBLE_FAULT="drift")
    assert (ended.code, ended.said["error"]["code"]) == (8, "CNV-8123")


@pytest.mark.parametrize("fault", ["crash", "execute"])
def test_a_card_that_fails_ends_in_7(ascend: Site, capsys: Capture, fault: str) -> None:
    ended = ascend("bench", "m", "-t", "Ascend910B3", capsys=capsys, ACL_DOUBLE_FAULT=fault)
    assert (ended.code, ended.said["error"]["code"]) == (7, "CNV-7005")


def test_a_card_that_hangs_ends_in_10(ascend: Site, capsys: Capture) -> None:
    ended = ascend("bench", "out/m/Ascend910B", "--timeout", 2, capsys=capsys, ACL_DOUBLE_FAULT="hang")
    assert (ended.code, ended.said["error"]["code"]) == (10, "CNV-1001")


def test_without_the_card_it_ends_in_6(ascend: Site, cpu: Site, capsys: Capture) -> None:
    ended = cpu("bench", ascend.folder / "out/m/Ascend910B", capsys=capsys)
    assert (ended.code, ended.said["error"]["code"]) == (6, "CNV-6002")


def test_the_pytorch_model_is_a_second_baseline(cpu: Site, tmp_path: Path, capsys: Capture) -> None:
    import torch

    path = tmp_path / "net.pt"
    torch.jit.save(torch.jit.trace(torch.nn.Linear(8, 3).eval(), torch.rand(4, 8)), str(path))
    given = ("--input", "input:float32[4,8]", "--torch-device", "auto", "--runs", 3)
    ended = cpu("bench", path, *given, capsys=capsys)
    assert ended.code == 0, ended.said
    run = ended.said["torch"]
    assert (run["device"], run["judged_as"], run["verdict"]["passed"], run["speed"]["clock"]) == (
        "cpu", "fp32", True, "torch",
    )  # fmt: skip
    assert run["speed"]["runs"] == 3 and run["versions"]["torch"]
    absent = cpu("bench", path, "--input", "input:float32[4,8]", "--torch-device", "npu", capsys=capsys)
    assert (absent.code, absent.said["error"]["code"]) == (2, "CNV-2284")


@pytest.mark.parametrize(
    ("card", "tools", "vendor"),
    [
        ("K100_AI", (), "hygon"),
        ("HYGON DCU Z100", ("amd",), "hygon"),
        ("AMD Instinct MI300X", (), "amd"),
        ("MetaX C500", ("nvidia",), "metax"),
        ("NVIDIA A100-SXM4-80GB", ("hygon",), "nvidia"),
        ("", ("ascend", "hygon"), "hygon"),
        ("", (), ""),
    ],
)
def test_whose_card_cuda_is_is_told_by_name_then_by_the_vendors_tool(
    card: str, tools: tuple[str, ...], vendor: str
) -> None:
    assert vendor_of(card, tools) == vendor


def test_percentiles_are_of_the_nearest_rank() -> None:
    ordered = [float(one) for one in range(1, 101)]
    assert [rank(ordered, percent) for percent in (50, 90, 99, 100)] == [50.0, 90.0, 99.0, 100.0]
    assert rank([5.0], 50) == 5.0
    speed = speed_from([4.0, 1.0], warmup=0, clock="torch")
    assert (speed.p50, speed.p99, speed.mean, speed.per_second) == (1.0, 4.0, 2.5, 400.0)
