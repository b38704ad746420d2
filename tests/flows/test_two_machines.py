"""Compiled where the toolkit is, measured where the card is: two workers with their own environments, one registry."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flow_kit import ROOT, Server, Worker, copy_template, deploy, free_port, make_model, running, wait_for
from flow_server import client_of

sys.path.insert(0, str(ROOT / "tests" / "doubles" / "atc"))
from install import install_cann

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """Debian's docker-registry on a free port of this machine."""
    if shutil.which("docker-registry") is None and not os.environ.get("CI"):
        pytest.skip("docker-registry is not installed (make test installs it on Debian)")
    import urllib.request

    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "remote").mkdir()
    config = tmp_path / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {tmp_path}/remote}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '{address}'}}\nlog: {{level: error}}\n"
    )
    with (tmp_path / "registry.log").open("wb") as log:
        environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
        process = subprocess.Popen(["docker-registry", "serve", str(config)], env=environment, stdout=log, stderr=log)

    def answers() -> bool:
        try:
            urllib.request.urlopen(f"http://{address}/v2/", timeout=2).close()
        except OSError:
            return False
        return True

    try:
        wait_for(answers, seconds=30, told="docker-registry")
        yield f"oci://{address}/models"
    finally:
        process.kill()
        process.wait()


def toolkit(server: Server, folder: Path) -> Worker:
    """A machine with CANN and no card."""
    cann = install_cann(folder / "toolkit-cann", "8.5.0", acl=False)
    path = {"PYTHONPATH": f"{cann['PYTHONPATH']}{os.pathsep}{ROOT}"}
    return Worker(server, "atc", folder / "toolkit", **{**cann, **path})


def card(server: Server, folder: Path, key: Path) -> Worker:
    """A machine with a card and its runtime; its compiler compiles nothing."""
    cann = install_cann(folder / "card-cann", "8.5.0", soc="Ascend910B3")
    path = {"PYTHONPATH": f"{cann['PYTHONPATH']}{os.pathsep}{ROOT}", "ATC_DOUBLE_FAULT": "no_file"}
    path["CONVERT_SIGN_KEY"] = str(key)
    return Worker(server, "card-ascend910b3", folder / "card", **{**cann, **path})


def test_what_one_machine_compiles_another_measures_and_the_version_reaches_prod(
    remote: str, tmp_path: Path, prefect_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from artifacts.device_results import find_results
    from artifacts.keys import generate_key, load_public_key
    from artifacts.resolve import load_target
    from convert.catalog.shelf import open_shelf, published
    from flows.convert_catalog import convert_catalog

    for name in ("CONVERT_REGISTRY", "CONVERT_CACHE_DIR", "CONVERT_OUT"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pair = generate_key(tmp_path / "device")
    make_model(tmp_path / "net.onnx", 3)
    file = tmp_path / "convert.toml"
    file.write_text(
        f'[settings]\nregistry = "{remote}"\ncache_dir = "{tmp_path}/cache"\n'
        '[catalog]\ntargets = ["Ascend910B3"]\ndevice = true\nchannel = "prod"\n[[model]]\npath = "net.onnx"\n'
    )
    copy_template(prefect_template, tmp_path / "server")
    server = Server(tmp_path / "server")
    server.start()
    try:
        with client_of(server.url, tmp_path / "client"):
            deploy("convert_target", "atc", "atc")
            deploy("validate_on_device", "card-ascend910b3", "card-ascend910b3")
            with running(toolkit(server, tmp_path), card(server, tmp_path, Path(pair.private))):
                state = convert_catalog(str(file), return_state=True)
                again = convert_catalog(str(file), return_state=True)
    finally:
        server.stop()
    assert state.message == "1 published"
    assert again.message == "1 unchanged"
    with open_shelf(remote, "net") as shelf:
        shelf.fetch_channel("prod")
        versions = shelf.versions()
        (target,) = published(shelf.layout, versions).values()
        manifest = load_target(shelf.layout, target).manifest
        assert manifest.ran_on == "forecast"
        keys = (load_public_key(Path(pair.public)),)
        (found,) = find_results(shelf.layout, shelf.layout.refs(), target.digest, keys)
        assert (found.result.passed, found.key) == (True, keys[0].id)
        assert found.result.validation["ran_on"] == "device"
        assert versions.channels["prod"].digest == versions.names["1.0.0"].digest
