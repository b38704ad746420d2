"""Memory and speed with big files, measured in a process of their own against Debian's docker-registry."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from store_kit import make_release

from artifacts.publish import PublishRequest, publish

MEASURED = """
import re, sys
from artifacts.__main__ import cli
from artifacts.cli import run_boundary
code = run_boundary(cli, sys.argv[1:], prog="artifacts", usage_code="CNV-2401")
print("peak", int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) // 1024)
sys.exit(code)
"""


def run_measured(*argv: str) -> tuple[float, int]:
    """Seconds and peak memory in MiB of an ``artifacts`` command."""
    begin = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *argv], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return time.monotonic() - begin, int(done.stdout.split("peak ")[1])


def make_big(root: Path, folder: Path, megabytes: int) -> str:
    folder.mkdir()
    release = make_release(folder, content=os.urandom(1 << 20) * megabytes, target="cpu", soc="", link=True)
    return publish(root, PublishRequest(name="big", targets=(release,))).targets[0].sha256


def push_and_pull(tmp_path: Path, host: str, megabytes: int) -> tuple[float, float]:
    """Seconds of the pull, and of curl with sha256sum for the same blob."""
    root, at = tmp_path / "reg", f"oci://{host}/zoo"
    digest = make_big(root, tmp_path / "a", megabytes)
    peaks = [run_measured("push", "big", at, "--registry", str(root))[1]]
    seconds, peak = run_measured("pull", "big", str(tmp_path / "out"), "--registry", at)
    assert max(*peaks, peak) < 100
    begin = time.monotonic()
    url = f"http://{host}/v2/zoo/big/blobs/{digest}"
    script = f"curl -sf -o {tmp_path}/curl.bin {url} && sha256sum {tmp_path}/curl.bin && sync {tmp_path}/curl.bin"
    subprocess.run(["sh", "-ec", script], capture_output=True, check=True)
    return seconds, time.monotonic() - begin


def test_pushing_and_pulling_holds_no_file_in_memory(tmp_path, registry_url):
    push_and_pull(tmp_path, registry_url, 200)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_gigabyte_is_pulled_about_as_fast_as_curl_and_sha256sum(tmp_path, registry_url):
    ours, theirs = push_and_pull(tmp_path, registry_url, 1024)
    print(f"pull {1024 / ours:.0f} MB/s, curl and sha256sum {1024 / theirs:.0f} MB/s")
    assert ours < theirs / 0.7
