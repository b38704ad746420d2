"""What a user names ─▶ ``Opened``: a folder of a conversion, one that was pulled, an ``.onnx``, or a reference.

Nothing is run here, and digests are checked: what is measured must be what was made.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from artifacts.digest import sha256_file
from artifacts.errors import ModelConvertError
from artifacts.manifest import MANIFEST_NAME, Manifest, parse_manifest
from artifacts.names import parse_ref, version_tag
from artifacts.pull import Pulled
from artifacts.registry import root_of
from convert.acceptance.stored import ARTIFACT, SAMPLES, not_an_artifact, read_stored
from convert.acceptance.values import Opened, StoredArtifact
from convert.errors import GateFailed, UsageError
from convert.validation_file import read_validation
from convert.values import CompiledArtifact, Note, OnnxGraph, Plan, Precision
from op_registry.targets import find_target

ONNXRUNTIME = "onnxruntime"
"""The backend whose artifact says itself what its inputs are."""
Outline = Callable[[Path], StoredArtifact]
"""Gives the inputs, outputs and opset of an ``.onnx``; runs in a worker."""
Puller = Callable[[str, Path], Pulled]
"""Pulls a reference into a folder."""


def open_artifact(place: str, *, target: str, pull: Puller, outline: Outline, work: Path) -> Opened:
    """Open what a user named.

    Args:
        place: A folder, a file, or a reference where no such path exists.
        target: The target of an ``.onnx`` that stands alone; empty: ``cpu``.
        pull: Fetches a reference; gets an empty place below ``work``.
        outline: Reads an ``.onnx``.
        work: An empty folder.

    Raises:
        UsageError: CNV-2281 (nothing of that name, or no artifact), CNV-2282 (it does not say what its inputs are).
        GateFailed: CNV-8121 (a file is not what the artifact says it is).
        RegistryError: those of pulling.
    """
    path = Path(place)
    if path.is_dir():
        return _open_folder(path, outline)
    if path.is_file():
        return _open_onnx(path, target or "cpu", outline)
    try:
        ref = parse_ref(place.rpartition("/")[2] if place.startswith("oci://") else place)
    except ModelConvertError as error:
        raise not_an_artifact(place, "there is no such path, and it is no reference either") from error
    pulled = pull(place, work / "pulled")
    opened = _open_folder(work / "pulled", outline)
    tag = version_tag(pulled.version)
    return msgspec.structs.replace(opened, name=ref.name, ref=f"{ref.name}:{tag}" if tag else pulled.ref)


def _open_folder(folder: Path, outline: Outline) -> Opened:
    manifest = _manifest(folder)
    if (folder / ARTIFACT).is_file():
        stored = read_stored(folder / ARTIFACT)
    elif manifest is not None:
        stored = _of_manifest(manifest, folder, outline)
    else:
        raise not_an_artifact(str(folder), f"the folder has neither {ARTIFACT} nor {MANIFEST_NAME}")
    artifact = msgspec.structs.replace(stored.artifact, folder=str(folder.absolute()))
    if manifest is not None and manifest.files != artifact.files:
        raise not_an_artifact(str(folder), f"{ARTIFACT} and {MANIFEST_NAME} name different files")
    check_files(artifact)
    judged_as, thresholds, notes = _gate_of(folder, artifact.precision, known=manifest is not None)
    kept = folder / SAMPLES
    return Opened(
        name=folder.absolute().parent.name if manifest is None else folder.absolute().name,
        artifact=artifact,
        graph=_graph_of(stored),
        judged_as=judged_as,
        thresholds=thresholds,
        kept=str(kept.absolute()) if kept.is_file() else "",
        notes=notes,
    )


def _manifest(folder: Path) -> Manifest | None:
    path = folder / MANIFEST_NAME
    return parse_manifest(path.read_bytes(), str(path)) if path.is_file() else None


def _graph_of(stored: StoredArtifact) -> OnnxGraph:
    return OnnxGraph(
        parent=stored.artifact.parent,
        stage="adapt",
        opset=stored.opset,
        inputs=stored.inputs,
        outputs=stored.outputs,
        dims=stored.dims,
    )


def _of_manifest(manifest: Manifest, folder: Path, outline: Outline) -> StoredArtifact:
    """An artifact published without ``artifact.json``: an ``.onnx`` says itself what its inputs are, others don't."""
    main = folder / manifest.files[0].name
    if manifest.backend != ONNXRUNTIME:
        raise UsageError(
            "CNV-2282",
            f"{folder} does not say what inputs {main.name} has: it was published without {ARTIFACT}",
            hint="convert and publish the model again; what `artifacts import` took in can only be run by hand",
        )
    read = outline(main)
    chain = {link.stage: link.parent for link in manifest.chain}
    artifact = CompiledArtifact(
        parent=chain.get("compile", manifest.model.sha256),
        target=manifest.target,
        soc=manifest.soc,
        backend=manifest.backend,
        precision=msgspec.convert(manifest.precision, Precision),
        plan=Plan(backend=manifest.backend, argv=manifest.plan, output=main.name),
        toolchain=manifest.toolchain,
        files=manifest.files,
    )
    return msgspec.structs.replace(read, artifact=artifact)


def _open_onnx(path: Path, target: str, outline: Outline) -> Opened:
    """An ``.onnx`` that stands alone, for a target that runs ONNX itself."""
    wanted = find_target(target)
    if wanted.backend != ONNXRUNTIME:
        raise not_an_artifact(str(path), f"{wanted.name} does not run a file like this by itself")
    stored = outline(path.absolute())
    artifact = msgspec.structs.replace(stored.artifact, target=wanted.name)
    note = Note(text="an .onnx alone says nothing of its precision: it is judged as fp32, unless --gate says otherwise")
    return Opened(name=path.stem, artifact=artifact, graph=_graph_of(stored), judged_as="fp32", notes=(note,))


def check_files(artifact: CompiledArtifact) -> None:
    """See that every file of an artifact is there and is what it was. Raises :class:`GateFailed` CNV-8121."""
    wrong = []
    for entry in artifact.files:
        path = artifact.path(entry.name)
        if not path.is_file():
            wrong.append(f"{entry.name} is missing")
        elif path.stat().st_size != entry.bytes:
            wrong.append(f"{entry.name} has {path.stat().st_size} bytes instead of {entry.bytes}")
        elif sha256_file(path) != entry.sha256:
            wrong.append(f"{entry.name} has other content than when it was made")
    if wrong:
        raise GateFailed(
            "CNV-8121",
            f"the artifact for {artifact.target} is damaged: {'; '.join(wrong)}",
            hint="pull it again, or convert the model again",
        )


def _gate_of(
    folder: Path, precision: Precision, *, known: bool
) -> tuple[Precision, dict[str, float], tuple[Note, ...]]:
    """The thresholds that the artifact was judged with, else those of its precision."""
    try:
        stored = read_validation(folder)
    except UsageError:
        if known:
            raise
        text = f"it was never validated: the default thresholds of {precision} are taken"
        return precision, {}, (Note(text=text),)
    measured = {name for output in stored.report.outputs for name in output.user}
    taken = {name: value for name, value in stored.verdict.thresholds.items() if name not in measured}
    return stored.precision, taken, ()


def pull_with(registry: str, *, target: str, soc: str = "") -> Puller:
    """What pulls a reference from a registry folder or ``oci://…``, with the trust of this machine's keys."""

    def pull_into(text: str, folder: Path) -> Pulled:
        from artifacts.cards import find_cards
        from artifacts.pull import pull
        from artifacts.trust import make_trust

        trust = make_trust((), None, tag=parse_ref(text).tag)
        cards = None if target or soc else find_cards()
        root = root_of(registry)
        if root is not None:
            return pull(root, text, folder, target=target, soc=soc, cards=cards, trust=trust)
        from artifacts.place import pull_remote

        return pull_remote(registry, text, folder, target=target, soc=soc, cards=cards, trust=trust)

    return pull_into
