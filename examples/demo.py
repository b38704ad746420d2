"""``make demo``: a real trained model, from its file to a published artifact that is pulled again and verified.

The model is the voice activity detector of the package silero-vad (MIT): a TorchScript file inside its wheel.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGE = "silero-vad==6.2.3"
MEMBER = "silero_vad/data/silero_vad.jit"
BIN = Path(sys.executable).parent


def run(*command: str) -> None:
    """Run one command and show it first; stop with its exit code when it fails."""
    print("$ " + " ".join(f"'{word}'" if " " in word or "[" in word else word for word in command), flush=True)
    code = subprocess.run([str(BIN / command[0]), *command[1:]], check=False).returncode
    if code:
        sys.exit(code)


def fetch_model(folder: Path) -> Path:
    """The detector's stateless part as ``silero_vad.pt``."""
    model = folder / "silero_vad.pt"
    if model.exists():
        return model
    download = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*download, "-d", str(folder), PACKAGE], check=True)
    wheel = next(folder.glob("silero_vad-*.whl"))
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, (folder / "whole.jit").open("wb") as sink:
        shutil.copyfileobj(source, sink)
    import torch

    whole = torch.jit.load(str(folder / "whole.jit"))
    torch.jit.save(whole._model, str(model))
    return model


def main(folder: Path) -> None:
    """Convert, publish, list, pull, verify."""
    folder.mkdir(parents=True, exist_ok=True)
    model = fetch_model(folder)
    registry = str(folder / "registry")
    inputs = ["--input", "x:float32[1,576]", "--input", "state:float32[2,1,128]"]
    run("convert", str(model), "--target", "cpu", *inputs, "--out", str(folder / "out"), "--registry", registry)
    run("artifacts", "list", "--registry", registry)
    pulled = folder / "pulled"
    shutil.rmtree(pulled, ignore_errors=True)
    run("artifacts", "pull", "silero_vad", str(pulled), "--target", "cpu", "--registry", registry)
    run("artifacts", "verify", str(pulled), "--registry", registry)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out"))
