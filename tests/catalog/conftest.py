"""Debian's docker-registry, for the tests of this folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def docker_registry(tmp_path: Path) -> Iterator[str]:
    """Its address on a free port of this machine."""
    if shutil.which("docker-registry") is None and not os.environ.get("CI"):
        pytest.skip("docker-registry is not installed (make test installs it on Debian)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    config = tmp_path / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {tmp_path}/remote}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '{address}'}}\nlog: {{level: error}}\n"
    )
    with (tmp_path / "registry.log").open("wb") as log:
        environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
        process = subprocess.Popen(["docker-registry", "serve", str(config)], env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                urllib.request.urlopen(f"http://{address}/v2/", timeout=2).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield address
    finally:
        process.kill()
        process.wait()
