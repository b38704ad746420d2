"""Pulling: the files of one target into a folder, each checked while it is copied, the folder appearing as a whole."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from artifacts.attach import find_attachments
from artifacts.cards import Card
from artifacts.digest import Digest, sha256_file
from artifacts.durable import copy_hashed, fsync_folder, link_durable, make_folders, reading, temporary_path
from artifacts.errors import RegistryError, UsageError, disk_full
from artifacts.layout import Layout, corrupt_blob, missing_blob
from artifacts.manifest import MANIFEST_NAME, RECORD_NAMES, SIGNATURE_NAME
from artifacts.names import parse_ref, target_tag
from artifacts.oci import TITLE, Descriptor
from artifacts.registry import Registry
from artifacts.resolve import choose_target, load_target, resolve
from artifacts.trust import Trust, check_stored
from artifacts.verify import check_folder

_EXCHANGE = 2
"""``RENAME_EXCHANGE`` of renameat2(2)."""
_AT_FDCWD = -100


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """What was pulled. ``already``: the folder held exactly this before. ``files``: names inside the folder."""

    ref: str
    version: str
    digest: Digest
    target: str
    soc: str
    precision: str
    path: str
    main: str
    files: tuple[str, ...]
    already: bool = False


def pull(
    root: Path,
    text: str,
    out: Path | None = None,
    *,
    target: str = "",
    soc: str = "",
    cards: Sequence[Card] | None = None,
    trust: Trust | None = None,
    take: bool = False,
) -> Pulled:
    """Pull one target of ``name``, ``name:version``, ``name:channel`` or ``name@sha256:…`` into the folder ``out``.

    Without ``out`` it is a folder of the working directory, named after the model and the target. A folder that an
    earlier pull made is replaced as a whole; any other folder with something in it is refused. The newest run record
    and the signature of the files come along. Where neither ``target`` nor ``soc`` is named, ``cards`` (those of this
    machine, from :func:`artifacts.cards.find_cards`) choose among several targets. With ``trust`` the signatures are
    judged before anything is written. With ``take`` files are linked out of the registry instead of copied: only for
    one that is about to be deleted, and whose blobs were hashed when they came.

    Raises:
        UsageError: CNV-2404 (no reference), CNV-2405 (``out`` is in use).
        RegistryError: CNV-9001, CNV-9002, CNV-9010 (which targets exist), CNV-9071, CNV-9072 (this machine's cards),
            CNV-9006, CNV-9007, CNV-9008, CNV-9021, CNV-9030 (not signed as ``trust`` asks).
        ResourceLimit: CNV-1003.
    """
    ref = parse_ref(text)
    layout, resolved = resolve(Registry(root), ref)
    stored = load_target(layout, choose_target(layout, resolved, target=target, soc=soc, cards=cards))
    manifest = stored.manifest
    out = out or Path(target_tag(ref.name.rsplit("/", 1)[-1], manifest.target, manifest.soc))
    if trust is not None:
        trust.require(check_stored(layout, stored, trust), resolved.ref)
    layers = (*stored.image.layers, *extra_layers(layout, stored.descriptor.digest))
    pulled = Pulled(
        ref=resolved.ref,
        version=resolved.version,
        digest=stored.descriptor.digest,
        target=manifest.target,
        soc=manifest.soc,
        precision=manifest.precision,
        path=str(out),
        main=manifest.files[0].name,
        files=tuple(sorted(layer.title for layer in layers)),
        already=holds(out, layers),
    )
    if not pulled.already:
        _check_free(out)
        _write_folder(layout, layers, out, take=take)
    return pulled


def extra_layers(layout: Layout, subject: Digest) -> tuple[Descriptor, ...]:
    """What comes along with a target: the files of its newest run record, and the newest signature of its files."""
    refs = layout.refs()
    records = find_attachments(layout, refs, subject, "run")[-1:]
    signatures = find_attachments(layout, refs, subject, "sig")[-1:]
    found = [layer for item in records for layer in item.image.layers if layer.title in RECORD_NAMES]
    bundles = [layer for item in signatures for layer in item.image.layers[:1]]
    named = [msgspec.structs.replace(layer, annotations={TITLE: SIGNATURE_NAME}) for layer in bundles]
    return (*found, *named)


def holds(out: Path, layers: tuple[Descriptor, ...]) -> bool:
    """Whether a folder holds exactly these files, every one checked."""
    expected = {layer.title: layer.digest for layer in layers}
    if not (out / MANIFEST_NAME).is_file() or {path.name for path in out.iterdir()} != set(expected):
        return False
    with reading(f"reading {out}"):
        return all(sha256_file(out / name) == digest for name, digest in expected.items())


def _check_free(out: Path) -> None:
    if not out.exists() and not out.is_symlink():
        return
    if out.is_dir() and not out.is_symlink() and (not any(out.iterdir()) or _is_pulled(out)):
        return
    raise UsageError(
        "CNV-2405",
        f"{out} exists and is no folder that `artifacts pull` made: it is left as it is",
        hint="name another folder, or empty that one",
    )


def _is_pulled(out: Path) -> bool:
    """Whether nothing but what a pull writes lies in a folder, so that replacing it loses nothing."""
    if not (out / MANIFEST_NAME).is_file():
        return False
    try:
        return not check_folder(out).extra
    except RegistryError:
        return False


def _write_folder(layout: Layout, layers: tuple[Descriptor, ...], out: Path, *, take: bool) -> None:
    parent = out.absolute().parent
    temporary = temporary_path(parent, f".{out.name}.part")
    with _pulling(f"pulling into {out}"):
        make_folders(parent)
        temporary.mkdir()
        try:
            for layer in layers:
                path = temporary / layer.title
                if take and link_durable(layout.blob_path(layer.digest), path):
                    path.chmod(0o644)
                else:
                    _copy_blob(layout, layer, path)
            fsync_folder(temporary)
            _put_in_place(temporary, out)
            fsync_folder(parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _pulling(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_full(error, doing) or RegistryError(
            "CNV-9021",
            f"can't write while {doing}: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""),
            hint="check the folder's owner and mode, or pull into another one",
        ) from error


def _copy_blob(layout: Layout, layer: Descriptor, path: Path) -> None:
    source = layout.blob_path(layer.digest)
    what = f"the file {layer.title}"
    if not source.is_file():
        raise missing_blob(what, layer.digest)
    with reading(f"reading {source}"):
        source.open("rb").close()
    if copy_hashed(source, path, mode=0o644) != (layer.digest, layer.size):
        raise corrupt_blob(what, layer.digest)


def _put_in_place(temporary: Path, out: Path) -> None:
    """Rename the finished folder to ``out``; what was there before ends up under ``temporary``."""
    try:
        temporary.rename(out)
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    if _exchange(temporary, out):
        return
    before = temporary_path(out.absolute().parent, f".{out.name}.old")
    out.rename(before)
    temporary.rename(out)
    before.rename(temporary)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders in one step; False where the C library or the file system can't."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _EXCHANGE) == 0)
