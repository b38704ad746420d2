"""Models that come from the registry: which file a reference means now, and that file on this machine."""

from __future__ import annotations

from pathlib import Path

from artifacts.manifest import Manifest
from artifacts.names import parse_ref
from artifacts.registry import Registry, root_of
from artifacts.resolve import choose_target, load_target, resolve
from convert.catalog.values import Pair
from convert.settings import Settings


def source_digest(pair: Pair, settings: Settings) -> str:
    """What a pair's model is now: empty for a file, which has its own digest.

    Raises:
        RegistryError: CNV-9001, CNV-9002, CNV-9010 (a version of several targets: name one), and those of reading.
    """
    if pair.path:
        return ""
    root = root_of(settings.registry)
    if root is not None:
        return _main_file(_manifest(root, pair.registry))
    from artifacts.place import remote_view

    with remote_view(settings.registry, pair.registry, whole=False) as view:
        return _main_file(_manifest(view, pair.registry))


def source_path(pair: Pair, settings: Settings) -> str:
    """Where a pair's model lies on this machine; one of the registry is pulled into the cache, once for each content.

    Raises:
        RegistryError: as :func:`source_digest`, and those of pulling.
        ResourceLimit: CNV-1003.
    """
    if pair.path:
        return pair.path
    folder = Path(settings.cache_dir) / "models" / source_digest(pair, settings).removeprefix("sha256:")
    if not (folder / "manifest.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        root = root_of(settings.registry)
        if root is not None:
            from artifacts.pull import pull

            pull(root, pair.registry, folder)
        else:
            from artifacts.place import pull_remote

            pull_remote(settings.registry, pair.registry, folder)
    from artifacts.manifest import parse_manifest

    return str(folder / parse_manifest((folder / "manifest.json").read_bytes()).files[0].name)


def _manifest(root: Path, text: str) -> Manifest:
    layout, resolved = resolve(Registry(root), parse_ref(text))
    return load_target(layout, choose_target(layout, resolved)).manifest


def _main_file(manifest: Manifest) -> str:
    return manifest.files[0].sha256
