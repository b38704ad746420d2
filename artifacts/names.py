"""Names in the registry: models, versions, tags and references.

A model's name is an OCI repository name, a tag is an OCI tag, so that the same names work on any OCI registry. A
version reads like a semantic version; ``+`` is no tag character and is written ``_``, which no version contains.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

import msgspec

from artifacts.errors import RegistryError, UsageError

NAME_PATTERN = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
TAG_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
DIGEST_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")
VERSION_PATTERN = re.compile(
    r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
CHANNEL_PATTERN = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
REVISION_PATTERN = re.compile(r"(?:([0-9.]+)-|(.+-.+)\.)r([0-9]{1,9})")
"""A revision: ``1.0.0-r2``, or ``1.0.0-rc1.r2`` of a pre-release."""
TARGET_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")

MAX_NAME = 180
MAX_VERSION = 60
RESERVED_PARTS = frozenset({"blobs", "index.json", "oci-layout", "registry.json", "cache.db"})
"""Path components that a layout or the registry uses itself."""
TOMBSTONE = "deleted-"
"""How the tag of a removed version begins."""
RESERVED_CHANNELS = ("sha256-", "event-", "draft-", TOMBSTONE)


class Ref(msgspec.Struct, frozen=True, kw_only=True):
    """A reference as a user types it: ``name``, ``name:tag`` or ``name@sha256:…``."""

    name: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        return self.name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def check_name(name: str) -> str:
    """The name, if it is a valid model name.

    Raises:
        UsageError: CNV-2402.
    """
    parts = name.split("/")
    if NAME_PATTERN.fullmatch(name) and len(name) <= MAX_NAME and not RESERVED_PARTS.intersection(parts):
        return name
    suggestion = "/".join(filter(None, (default_name(part) for part in parts if part))) or "model"
    raise UsageError(
        "CNV-2402",
        f"{name[:200]!r} can't be a model's name: use lower-case letters, digits and single . _ - between them"
        f" (at most {MAX_NAME} characters; / makes groups)",
        hint=f"for example --name {suggestion[:MAX_NAME]}",
    )


def default_name(stem: str) -> str:
    """A valid model name made of a file's stem; a stem without any usable character gets a name made of its digest."""
    plain = unicodedata.normalize("NFKD", stem).lower()
    plain = "".join(char for char in plain if not unicodedata.combining(char))
    name = re.sub(r"[^a-z0-9]+", lambda match: _separator(match.group()), plain).strip("._-")
    name = name[:MAX_NAME].rstrip("._-")
    if not name or name in RESERVED_PARTS:
        return "model-" + hashlib.sha256(stem.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return name


def _separator(text: str) -> str:
    return text if text in (".", "_", "__", "-") else "-"


def check_version(version: str) -> str:
    """The version, if it is valid: one to three numbers, then optionally ``-pre.release`` and ``+build``.

    Raises:
        UsageError: CNV-2403.
    """
    if VERSION_PATTERN.fullmatch(version) and len(version) <= MAX_VERSION:
        return version
    raise UsageError(
        "CNV-2403",
        f"{version[:200]!r} can't be a version: start with one to three numbers, as 1.4.0, 1.4.0-rc.1 or 2026.11.30+b7",
        hint="leave --version out to get the next free one",
    )


def is_version_tag(tag: str) -> bool:
    """Whether a tag reads as a version."""
    return bool(VERSION_PATTERN.fullmatch(tag.replace("_", "+", 1)))


def version_tag(version: str) -> str:
    """The tag of a version: ``+`` becomes ``_``."""
    return version.replace("+", "_")


def version_of_tag(tag: str) -> str:
    """The version of a version's tag; inverse of :func:`version_tag`."""
    return tag.replace("_", "+", 1)


def target_tag(base: str, target: str, soc: str = "") -> str:
    """The tag of one target under a version's or channel's tag: ``1.0.0-ascend910b3``."""
    suffix = re.sub(r"[^a-z0-9_.-]", "-", (soc or target).lower())
    return f"{base}-{suffix}"


def version_key(version: str) -> tuple[object, ...]:
    """A sort key: semantic order, where ``1.0.0-rc1`` comes before ``1.0.0`` and the revision ``1.0.0-r2`` after it."""
    match = VERSION_PATTERN.fullmatch(version)
    if match is None:
        return (-1, -1, -1, 0, (), 0, version)
    major, minor, patch, _, build = match.groups()
    stem, number = _split_revision(version.partition("+")[0])
    extra = stem.partition("-")[2]
    identifiers = tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in extra.split("."))
    numbers = (int(major), int(minor or 0), int(patch or 0))
    return (*numbers, 0 if extra else 1, identifiers, number, build or "")


def _split_revision(stem: str) -> tuple[str, int]:
    match = REVISION_PATTERN.fullmatch(stem)
    return (match.group(1) or match.group(2), int(match.group(3))) if match else (stem, 0)


def next_patch(versions: list[str]) -> str:
    """The version after the newest of ``versions``; ``1.0.0`` where there is none."""
    if not versions:
        return "1.0.0"
    match = VERSION_PATTERN.fullmatch(max(versions, key=version_key))
    if match is None:
        return "1.0.0"
    return f"{match.group(1)}.{match.group(2) or 0}.{int(match.group(3) or 0) + 1}"


def base_version(version: str) -> str:
    """The version that a revision revises: ``1.0.0`` of ``1.0.0-r2``; other versions stay as they are."""
    stem, plus, build = version.partition("+")
    return _split_revision(stem)[0] + plus + build


def next_revision(version: str, taken: set[str]) -> str:
    """The first free revision of a version: ``1.0.0-r2``, then ``-r3``; of a pre-release ``1.0.0-rc1.r2``."""
    stem, plus, build = base_version(version).partition("+")
    joint = ".r" if "-" in stem else "-r"
    count = 2
    while (candidate := f"{stem}{joint}{count}{plus}{build}") in taken:
        count += 1
    return candidate


def parse_ref(text: str) -> Ref:
    """Read a reference.

    Raises:
        UsageError: CNV-2404, or CNV-2402 for its name.
    """
    rest, at, digest = text.partition("@")
    name, colon, tag = rest.partition(":")
    tag = tag.replace("+", "_", 1)
    broken = (at and not DIGEST_PATTERN.fullmatch(digest)) or (colon and not TAG_PATTERN.fullmatch(tag)) or not name
    if broken:
        raise UsageError(
            "CNV-2404",
            f"{text[:200]!r} is no reference",
            hint="write NAME, NAME:VERSION, NAME:CHANNEL or NAME@sha256:… with 64 hexadecimal digits",
        )
    return Ref(name=check_name(name), tag=tag, digest=digest)


def check_target(name: str, what: str) -> str:
    """The name of a target or SoC, if it can stand in a tag.

    Raises:
        RegistryError: CNV-9008.
    """
    if TARGET_PATTERN.fullmatch(name):
        return name
    raise RegistryError(
        "CNV-9008", f"the {what} {name[:80]!r} can't stand in a tag", hint="use letters, digits and . _ -"
    )


def check_digest(digest: str, what: str) -> str:
    """The digest, if it is ``sha256:`` and 64 lower-case hexadecimal digits.

    Raises:
        RegistryError: CNV-9008.
    """
    if DIGEST_PATTERN.fullmatch(digest):
        return digest
    raise RegistryError(
        "CNV-9008",
        f"{what} names the digest {digest[:80]!r}; only sha256 digests are read",
        hint="publish it again, or copy it from a registry that uses sha256",
    )


def check_file_name(name: str) -> str:
    """The name, if it is a flat file name that can be written into any folder.

    Raises:
        RegistryError: CNV-9015, for path separators, ``..``, control characters and the like.
    """
    flat = bool(name) and not name.startswith((".", "-")) and not re.search(r"[/\\:\x00-\x1f\x7f]", name)
    try:
        fits = len(name.encode()) <= 255
    except UnicodeEncodeError:
        fits = False
    if flat and fits and name == name.strip():
        return name
    raise RegistryError(
        "CNV-9015",
        f"{name[:200]!r} can't be the name of an artifact's file: it could leave the folder or break a shell",
        hint="use a plain file name without folders",
    )
