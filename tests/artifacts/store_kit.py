"""Small artifacts to publish: a folder of files, its manifest, and the request."""

from __future__ import annotations

from pathlib import Path

from artifacts.digest import file_entry, sha256_bytes
from artifacts.manifest import ChainLink, Manifest, ModelSource
from artifacts.publish import PublishRequest, TargetRelease

SOURCE = sha256_bytes(b"the user's model file")


def chain_to(artifact: str) -> tuple[ChainLink, ...]:
    export, checked = sha256_bytes(b"export"), sha256_bytes(b"checked")
    return (
        ChainLink(stage="export", digest=export, parent=SOURCE),
        ChainLink(stage="check", digest=checked, parent=export),
        ChainLink(stage="compile", digest=artifact, parent=checked),
    )


def make_release(folder: Path, *, content: bytes = b"weights", link: bool = False, **fields: object) -> TargetRelease:
    """A release of ``net.om`` with a support report, and records of the run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.om").write_bytes(content)
    (folder / "support.json").write_bytes(b'{"supported":true}')
    (folder / "run.json").write_bytes(b'{"seconds":1.5}')
    (folder / "report.html").write_bytes(b"<!doctype html><title>report</title>")
    facts: dict[str, object] = {
        "model": ModelSource(format="torchscript", sha256=SOURCE),
        "chain": chain_to(sha256_bytes(content)),
        "target": "Ascend910B",
        "soc": "Ascend910B3",
        "backend": "atc",
        "precision": "fp16",
        "plan": ("atc", "--model=model.onnx"),
        "toolchain": {"cann": "8.0.RC3"},
        "libraries": {"onnx": "1.20.0"},
        "support": {"supported": True},
        "validation": {"passed": True, "outputs": [{"name": "y", "cosine": 0.9999, "rel_l2": 0.001}]},
        "ran_on": "device",
        "files": (file_entry(folder, "net.om"),),
        "reports": (file_entry(folder, "support.json"),),
    }
    manifest = Manifest(**{**facts, **fields})  # type: ignore[arg-type]
    names = [entry.name for entry in (*manifest.files, *manifest.reports)]
    return TargetRelease(
        manifest=manifest,
        sources={name: folder / name for name in names},
        records={name: folder / name for name in ("run.json", "report.html")},
        link=link,
    )


def make_request(folder: Path, *, name: str = "net", version: str = "", content: bytes = b"weights") -> PublishRequest:
    """A request for one Ascend 910B3 target."""
    return PublishRequest(name=name, version=version, targets=(make_release(folder, content=content),))
