"""``convert catalog plan | run``: what is rebuilt and why, and that nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catalog_kit import HEAD, Site, make_model

from artifacts.listing import list_models, show
from artifacts.names import parse_ref
from artifacts.registry import Registry

ROOT = Path(__file__).resolve().parents[2]
A, B = '[[model]]\npath = "nets/a.onnx"', '[[model]]\npath = "nets/b.onnx"'


@pytest.fixture(scope="session")
def stage_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One stage cache for all tests, which convert the same few models."""
    return tmp_path_factory.mktemp("stages")


@pytest.fixture
def site(tmp_path: Path, stage_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name in ("CONVERT_REGISTRY", "CONVERT_CACHE_DIR", "CONVERT_OUT"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    make_model(tmp_path / "nets/a.onnx", 1)
    make_model(tmp_path / "nets/b.onnx", 2)
    made = Site(tmp_path, stage_cache)
    made.write(A, B)
    return made


def versions(site: Site) -> dict[str, list[str]]:
    return {m.name: [v.version for v in m.versions] for m in list_models(Registry(site.folder / "registry"))}


def test_a_run_publishes_and_a_second_one_does_nothing_until_something_changes(site: Site) -> None:
    assert {pair["why"] for pair in site.pairs("plan").values()} == {"never published"}
    code, first = site.run("run", "--quiet")
    assert (code, first["status"], first["counts"]) == (0, "done", {"published": 2})
    assert [pair["ref"] for pair in first["pairs"]] == ["a:1.0.0-cpu", "b:1.0.0-cpu"]
    code, second = site.run("run", "--quiet")
    assert (code, second["counts"]) == (0, {"unchanged": 2})
    assert [pair["digest"] for pair in second["pairs"]] == [pair["digest"] for pair in first["pairs"]]

    make_model(site.folder / "nets/b.onnx", 3)
    plan = site.pairs("plan")
    assert plan["a@cpu"]["action"] == "keep"
    assert (plan["b@cpu"]["action"], plan["b@cpu"]["why"]) == ("build", "changed: model")
    (change,) = plan["b@cpu"]["changes"]
    assert (change["fact"], change["was"][:7], change["now"][:7]) == ("model", "sha256:", "sha256:")
    assert site.pairs("run", "--quiet")["b@cpu"]["ref"] == "b:1.0.1-cpu"
    assert versions(site) == {"a": ["1.0.0"], "b": ["1.0.1", "1.0.0"]}


def test_a_precision_left_to_the_ladder_is_published_in_the_fastest_that_holds_and_stays(site: Site) -> None:
    site.write(f'{A}\nprecision = "auto"')
    pair = site.pairs("run", "--quiet")["a@cpu"]
    (stored,) = show(site.folder / "registry", parse_ref(pair["ref"])).targets
    assert stored.manifest.precision in ("int8", "fp16", "bf16")
    assert site.pairs("plan")["a@cpu"]["action"] == "keep"


def test_a_plan_names_the_option_that_changed(site: Site) -> None:
    np.savez(site.folder / "s.npz", x=np.ones((2, 4), "f4"))
    site.write(A)
    site.run("run", "--quiet")
    for line, fact in (
        ('precision = "bf16"', "precision"),
        ("gate = {rel_l2 = 0.5}", "gate rel_l2"),
        ('options = {level = "off"}', "option level"),
        ("simplify = false", "simplify"),
        ('samples = "s.npz"', "samples"),
        ("seed = 7", "seed"),
    ):
        site.write(f"{A}\n{line}")
        (pair,) = site.pairs("plan").values()
        assert [change["fact"] for change in pair["changes"]] == [fact]
        assert pair["published"] == "a:1.0.0-cpu"


def test_a_tool_or_program_that_changed_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from convert.catalog import recipes

    site.write(A)
    site.run("run", "--quiet")
    known = recipes.library_versions(recipes.ONNX)
    monkeypatch.setattr(recipes, "library_versions", lambda names: {**known, "onnxsim": "99.0"})
    monkeypatch.setattr(recipes, "code_digest", lambda: "sha256:" + "0" * 64)
    (pair,) = site.pairs("plan").values()
    assert pair["why"] == "changed: library onnxsim, model-convert"
    assert pair["changes"][0]["now"] == "99.0"
    monkeypatch.setattr(recipes, "_probed", lambda backend, target: "ONNX Runtime 2.0")
    assert "toolchain" in {change["fact"] for change in site.pairs("plan")["a@cpu"]["changes"]}


def test_a_program_that_changed_and_makes_the_same_artifact_makes_no_new_version(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convert.catalog import recipes

    site.write(A)
    site.run("run", "--quiet")
    monkeypatch.setattr(recipes, "code_digest", lambda: "sha256:" + "0" * 64)
    assert site.pairs("run", "--quiet")["a@cpu"]["ref"] == "a:1.0.0-cpu"
    assert site.pairs("plan")["a@cpu"]["action"] == "keep"
    assert versions(site) == {"a": ["1.0.0"]}


def test_one_failure_never_stops_the_rest_and_is_not_tried_again_until_something_changes(site: Site) -> None:
    tight = '[[model]]\nname = "tight"\npath = "nets/b.onnx"\nprecision = "bf16"\ngate = {rel_l2 = 1e-9}'
    site.write('[[model]]\npath = "nets/gone.onnx"', tight, A)
    code, document = site.run("run", "--quiet")
    assert code == 8
    assert document["error"]["code"] == "CNV-8001"
    pairs = {pair["model"]: pair for pair in document["pairs"]}
    assert [pairs[name]["status"] for name in ("gone", "tight", "a")] == ["failed", "failed", "published"]
    assert pairs["gone"]["error"]["code"] == "CNV-3001"
    plan = site.pairs("plan")
    assert [plan[name]["action"] for name in ("gone@cpu", "tight@cpu", "a@cpu")] == ["blocked", "known failure", "keep"]
    assert plan["tight@cpu"]["why"].startswith("failed before with the same recipe: [CNV-8001]")
    assert site.pairs("plan", "--retry-failed")["tight@cpu"]["action"] == "build"
    site.write(tight.replace("1e-9", "0.5"), A)
    assert site.run("run", "--quiet")[1]["counts"] == {"published": 1, "unchanged": 1}


def test_a_version_waits_for_all_of_its_targets_and_carries_what_is_unchanged(site: Site) -> None:
    two = f'{A}\ntargets = ["cpu", "C500"]\n'
    strict = '[model.target.C500]\nprecision = "bf16"\ngate = {rel_l2 = 1e-9}'
    site.write(two + strict)
    pairs = site.pairs("run", "--quiet")
    assert (pairs["a@C500"]["status"], pairs["a@cpu"]["status"]) == ("failed", "drafted")
    assert pairs["a@cpu"]["change"] == "new; 1.0.0 waits for a@C500"
    assert versions(site) == {"a": []}
    site.write(two + strict.replace("1e-9", "0.5"))
    again = site.pairs("run", "--quiet")
    assert (again["a@cpu"]["status"], again["a@C500"]["status"]) == ("unchanged", "published")
    assert [target.target for target in show(site.folder / "registry", parse_ref("a:1.0.0")).targets] == ["C500", "cpu"]
    site.write(f'{two}[model.target.C500]\nprecision = "fp32"')
    third = site.pairs("run", "--quiet")
    assert third["a@cpu"]["ref"] == "a:1.0.1-cpu"
    assert third["a@cpu"]["digest"] == pairs["a@cpu"]["digest"]
    assert versions(site) == {"a": ["1.0.1", "1.0.0"]}


def test_a_model_may_be_published_with_the_targets_that_passed(site: Site) -> None:
    site.write(
        f'{A}\ntargets = ["cpu", "C500"]\nrequire = "passed"\n'
        '[model.target.C500]\nprecision = "bf16"\ngate = {rel_l2 = 1e-9}'
    )
    code, document = site.run("run", "--quiet")
    assert (code, document["counts"]) == (8, {"published": 1, "failed": 1})
    assert [target.target for target in show(site.folder / "registry", parse_ref("a:1.0.0")).targets] == ["cpu"]


def test_a_published_artifact_can_be_a_model_of_the_catalogue(site: Site) -> None:
    site.write(A)
    site.run("run", "--quiet")
    site.write(A, '[[model]]\nname = "again"\nregistry = "a:1.0.0-cpu"\nprecision = "bf16"')
    assert site.run("run", "--quiet")[1]["counts"] == {"unchanged": 1, "published": 1}
    assert site.run("run", "--quiet")[1]["counts"] == {"unchanged": 2}


def test_a_fixed_version_that_is_published_is_told_to_be_raised(site: Site) -> None:
    site.write(f'{A}\nversion = "2.0"')
    assert site.pairs("run", "--quiet")["a@cpu"]["ref"] == "a:2.0-cpu"
    site.write(f'{A}\nversion = "2.0"\nprecision = "bf16"')
    code, document = site.run("run", "--quiet")
    assert (code, document["error"]["code"]) == (9, "CNV-9050")
    assert "raise `version`" in document["error"]["hint"]


def test_a_new_version_is_promoted_where_the_channel_s_rules_allow_it(site: Site) -> None:
    site.write(f'{A}\nchannel = "prod"', '[[model]]\npath = "nets/b.onnx"\nchannel = "prod"\ntargets = ["C500"]')
    pairs = site.pairs("run", "--quiet")
    assert pairs["a@cpu"]["change"] == "new; promoted to prod"
    assert "not promoted to prod: b:1.0.0 may not go to prod: c500 ran on: host" in pairs["b@C500"]["change"]


def test_a_gate_that_passed_before_is_a_regression_that_somebody_is_told_of(site: Site) -> None:
    told: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    head = f'{HEAD}\non_regression = "http://127.0.0.1:{server.server_port}/hook"\n'
    try:
        site.write(A, head=head)
        site.run("run", "--quiet")
        site.write(f'{A}\nprecision = "bf16"\ngate = {{rel_l2 = 1e-9}}', head=head)
        (pair,) = site.pairs("run", "--quiet").values()
    finally:
        server.shutdown()
        server.server_close()
    assert pair["regression"] == "a:1.0.0-cpu passed before"
    assert [(one["model"], one["owner"], one["event"]) for one in told] == [("a", "vision", "regression")]


def test_compiling_that_takes_twice_as_long_is_a_regression() -> None:
    from convert.catalog.outcomes import slower_compile
    from convert.catalog.values import Recorded
    from convert.request import StageRun, TargetResult

    def result(seconds: float, *, cached: bool = False) -> TargetResult:
        return TargetResult(target="cpu", stages=(StageRun(stage="compile", seconds=seconds, cached=cached),))

    last = Recorded(ref="a:1.0.0-cpu", digest="sha256:0", seconds={"compile": 20.0})
    assert slower_compile(result(50.0), last) == "compiling took 50 s, 2.5 × the 20 s of last time"
    assert slower_compile(result(39.0), last) == ""
    assert slower_compile(result(90.0, cached=True), last) == ""
    assert slower_compile(result(90.0), None) == ""


def convert(site: Site, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CONVERT_")}
    return subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "convert", "catalog", *arguments],
        cwd=site.folder,
        env={**kept, "PYTHONPATH": str(ROOT), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_run_without_changes_imports_neither_torch_nor_onnx(site: Site) -> None:
    site.run("run", "--quiet")
    ended = convert(site, "run")
    output, imports = ended.communicate()
    assert b"2 unchanged" in output
    names = {line.rpartition(b"|")[2].strip().split(b".")[0] for line in imports.splitlines() if b"|" in line}
    assert names & {b"torch", b"onnx", b"onnxruntime", b"numpy", b"prefect", b"jinja2", b"httpx"} == set()


def test_a_run_that_is_killed_goes_on_where_it_stopped(site: Site) -> None:
    for number in range(4):
        make_model(site.folder / f"many/m{number}.onnx", 10 + number)
    site.write('[[model]]\nglob = "many/*.onnx"')
    first = convert(site, "run")
    index = site.folder / "registry/m0/index.json"
    while not (index.exists() and b"1.0.0" in index.read_bytes()):
        assert first.poll() is None
        os.sched_yield()
    first.kill()
    first.communicate()
    code, document = site.run("run", "--quiet")
    assert code == 0
    assert document["counts"].get("published", 0) + document["counts"].get("unchanged", 0) == 4
    assert versions(site) == {f"m{number}": ["1.0.0"] for number in range(4)}
    assert site.run("run", "--quiet")[1]["counts"] == {"unchanged": 4}
    assert not any(model.drafts for model in list_models(Registry(site.folder / "registry")))


def test_check_prints_one_problem_a_line_and_the_same_as_json(site: Site) -> None:
    site.write("[[model]]\npaht = 1")
    code, document = site.run("check")
    assert (code, document["error"]["code"]) == (2, "CNV-2352")
    assert document["problems"] == [{"line": 12, "key": "model.paht", "message": "no such key; did you mean path?"}]
    ended = convert(site, "check")
    output, told = ended.communicate()
    assert ended.returncode == 2
    assert output.decode() == "convert.toml:12: model.paht: no such key; did you mean path?\n"
    assert b"error [CNV-2352]" in told


def test_a_choice_that_fits_nothing_is_told(site: Site) -> None:
    code, document = site.run("plan", "--model", "c*", "--target", "MLU370")
    assert (code, document["error"]["code"]) == (2, "CNV-2353")
    assert "c*, MLU370" in document["error"]["message"]
    assert set(site.pairs("plan", "--model", "a")) == {"a@cpu"}


def test_a_catalogue_can_publish_into_a_remote_registry(site: Site, docker_registry: str) -> None:
    site.write(f'{A}\nchannel = "prod"')
    remote = ("--registry", f"oci://{docker_registry}/models")
    assert site.pairs("run", "--quiet", *remote)["a@cpu"]["ref"] == "a:1.0.0-cpu"
    assert site.pairs("plan", *remote)["a@cpu"]["action"] == "keep"
    site.write(f'{A}\nchannel = "prod"\nprecision = "bf16"')
    (pair,) = site.pairs("run", "--quiet", *remote).values()
    assert (pair["ref"], pair["status"]) == ("a:1.0.1-cpu", "published")
    assert pair["change"].endswith("promoted to prod")
    assert site.run("run", "--quiet", *remote)[1]["counts"] == {"unchanged": 1}
    assert not (site.folder / "registry").exists()


def test_a_catalogue_that_is_not_there_is_told(site: Site) -> None:
    assert site.run("plan", "--file", "none.toml")[1]["error"]["code"] == "CNV-2351"
