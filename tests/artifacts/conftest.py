"""Fixtures that several files of this folder use."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import pytest


@pytest.fixture
def registry_url(tmp_path) -> Iterator[str]:
    """Debian's docker-registry on a free port of this machine."""
    if shutil.which("docker-registry") is None and not os.environ.get("CI"):
        pytest.skip("docker-registry is not installed (make test installs it on Debian)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    (tmp_path / "remote").mkdir()
    config = tmp_path / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {tmp_path}/remote}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '{address}'}}\nlog: {{level: error}}\n"
    )
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
    log = (tmp_path / "registry.log").open("wb")
    process = subprocess.Popen(["docker-registry", "serve", str(config)], env=environment, stdout=log, stderr=log)
    try:
        _wait_for(f"http://{address}/v2/")
        yield address
    finally:
        process.kill()
        process.wait()
        log.close()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
