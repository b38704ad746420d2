"""The registry: a folder with one OCI image layout for each model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from artifacts.digest import Digest
from artifacts.durable import fsync_folder, make_folders, reading, temporary_path, write_durable, writing
from artifacts.errors import RegistryError, UsageError
from artifacts.layout import Layout
from artifacts.names import RESERVED_PARTS, check_name
from artifacts.rules import ChannelRule, Retention
from artifacts.strictjson import parse_as

REGISTRY_FILE = "registry.json"
FORMAT = 1
NEW_REGISTRY = b'{"version":1}\n'
NETWORK_FILE_SYSTEMS = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "afs",
    "9p",
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.rclone",
    "fuse.juicefs",
)


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``registry.json``: the mark of a registry, and what its owner decided."""

    version: int = FORMAT
    network_file_system: bool = False
    """Publish although the file system is a network one whose locks may not hold between machines."""
    channels: dict[str, ChannelRule] = {}
    """What a channel asks of a version, where it isn't the default."""
    retention: Retention = Retention()
    """Which versions ``artifacts gc`` may remove; without it none."""


def default_root() -> Path:
    """The registry folder where ``--registry`` names none: ``CONVERT_REGISTRY``, else one in the user's data folder.

    Raises:
        UsageError: CNV-2434, when the variable names an OCI registry and a folder is needed.
    """
    if chosen := os.environ.get("CONVERT_REGISTRY"):
        return folder_of(chosen)
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "model-convert" / "registry"


def folder_of(registry: str) -> Path:
    """The folder that a registry's name means.

    Raises:
        UsageError: CNV-2434, when it is an OCI registry.
    """
    if registry.startswith(("oci://", "oci:/")):
        raise UsageError(
            "CNV-2434",
            f"{registry} is an OCI registry, and this needs a registry folder",
            hint="copy what it is about into a folder with `artifacts copy`, and push the result back",
        )
    return Path(registry).expanduser()


def root_of(registry: str) -> Path | None:
    """The folder that ``--registry`` means; None where it names an OCI registry (``oci://…``)."""
    if registry.startswith("oci://"):
        return None
    return Path(registry).expanduser() if registry else default_root()


class Registry:
    """A registry at ``root``. Making one touches nothing; ``create`` does."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def layout(self, name: str) -> Layout:
        """The layout of a model, there or not.

        Raises:
            UsageError: CNV-2402.
        """
        return Layout(self.root / check_name(name))

    def models(self) -> tuple[str, ...]:
        """The names of all models, sorted."""
        try:
            self.root.lstat()
        except FileNotFoundError:
            return ()
        with reading(f"listing {self.root}"):
            return tuple(sorted(_models(self.root, "")))

    def open_model(self, name: str) -> Layout:
        """The layout of a model that must be there.

        Raises:
            RegistryError: CNV-9001, naming the models that there are.
            UsageError: CNV-2402.
        """
        layout = self.layout(name)
        if layout.exists:
            return layout
        models = self.models()
        known = f"it has {_some(models)}" if models else "it has no model yet"
        raise RegistryError(
            "CNV-9001",
            f"no model {name!r} in the registry {self.root}; {known}",
            hint="check the name, --registry and CONVERT_REGISTRY; `artifacts list` shows what is there",
        )

    def policy(self) -> Policy:
        """What ``registry.json`` says; the defaults where there is none.

        Raises:
            RegistryError: CNV-9017 (written by a newer version), CNV-9008.
        """
        path = self.root / REGISTRY_FILE
        if not path.exists():
            return Policy()
        with reading(f"reading {path}"):
            policy = parse_as(Policy, path.read_bytes(), str(path))
        if policy.retention.keep < 0 or policy.retention.days < 0:
            raise RegistryError(
                "CNV-9008", f"{path}: retention has a negative number", hint="keep and days are 0 or more"
            )
        if policy.version != FORMAT:
            raise RegistryError(
                "CNV-9017",
                f"{path} has version {policy.version}; this version of model-convert reads version {FORMAT}",
                hint="install the model-convert version that wrote it, or a newer one",
            )
        return policy

    def create(self) -> None:
        """Make the registry, if it isn't there.

        Raises:
            RegistryError: CNV-9018 (a network file system), CNV-9019 (a folder in use for something else), CNV-9003.
        """
        policy = self.policy()
        _refuse_network(self.root, policy)
        path = self.root / REGISTRY_FILE
        if path.exists():
            return
        with writing(f"creating the registry {self.root}"):
            make_folders(self.root)
            foreign = sorted(entry.name for entry in self.root.iterdir() if not entry.name.startswith("."))
            if foreign and not path.exists():
                raise RegistryError(
                    "CNV-9019",
                    f"{self.root} is no registry and not empty: it holds {_some(tuple(foreign))}",
                    hint=f"""choose an empty folder; to adopt OCI layouts there: echo '{{"version":1}}' > {path}""",
                )
            write_durable(path, NEW_REGISTRY, temporary=temporary_path(self.root, ".registry.json"))
            fsync_folder(self.root)

    def twins(self, digest: Digest, size: int, *, besides: Layout) -> tuple[Path, ...]:
        """A blob of the same digest in another model, to be linked rather than copied."""
        for name in self.models():
            layout = self.layout(name)
            if layout.root != besides.root and layout.has(digest, size):
                return (layout.blob_path(digest),)
        return ()


def _models(folder: Path, prefix: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name in RESERVED_PARTS or not entry.is_dir(follow_symlinks=False):
                continue
            name = prefix + entry.name
            if Layout(folder / entry.name).exists:
                yield name
            yield from _models(folder / entry.name, f"{name}/")


def _some(names: tuple[str, ...], limit: int = 8) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _refuse_network(root: Path, policy: Policy) -> None:
    kind = file_system(root)
    if kind in NETWORK_FILE_SYSTEMS and not policy.network_file_system:
        raise RegistryError(
            "CNV-9018",
            f"{root} lies on a network file system ({kind}), where locks may not hold between machines",
            hint="use a local disk and share it through an OCI registry; where one machine alone writes, put"
            f""" {{"version":1,"network_file_system":true}} into {root / REGISTRY_FILE}""",
        )


def file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that a path lies on, as Linux names it; empty where that can't be told."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
        place = Path(os.path.realpath(path))  # of a link in a circle too
    except OSError:
        return ""
    best, kind = -1, ""
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        point = Path(fields[4].replace("\\040", " ")) if len(fields) > 4 else None
        if point and place.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), right.split(" ")[0]
    return kind
