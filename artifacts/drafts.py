"""Drafts: a version in the making, whose targets come from several runs and machines.

A draft declares the targets that the version is to have. Each passed target is added under the lock; with the last of
them the draft is sealed, that is, published as the version, which never changes again. Until then a draft is a ref like
any other (``draft-1.0.0``), and its targets can be replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from artifacts.attach import set_attachment, store_attachment
from artifacts.digest import Digest, canonical_json, sha256_bytes
from artifacts.errors import RegistryError
from artifacts.layout import IndexEdit, Layout
from artifacts.names import check_name, check_target, check_version, next_patch, target_tag, version_tag
from artifacts.oci import (
    DOC_TYPE,
    INDEX_TYPE,
    PREFIX,
    TITLE,
    VERSION,
    Descriptor,
    ImageIndex,
    describe,
    document,
    file_layer,
)
from artifacts.publish import Prepared, PublishRequest, add_record, check_request, keep_blobs, store_target
from artifacts.registry import Registry
from artifacts.release import Choice, add_version, choose_version, target_key
from artifacts.versions import Versions

SEAL_TYPE = "application/vnd.io.model-convert.seal.v1"
DECLARED = PREFIX + "declared"
CHOSEN = PREFIX + "version-chosen"
"""Set where the version was not asked for: sealing then gives back a version that has the same targets already."""
RUN = PREFIX + "run"
"""What runs have in common whose targets belong together: the model and the targets declared for it, as a digest."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A version in the making, or just sealed. ``declared`` and ``targets`` are keys: the SoC, else the target."""

    name: str
    version: str
    ref: str
    digest: Digest
    """The version's index where ``sealed``, else the draft's."""
    declared: tuple[str, ...]
    targets: tuple[str, ...]
    sealed: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """The declared targets that are not there yet."""
        return tuple(key for key in self.declared if key not in self.targets)


class _State(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    declared: tuple[str, ...]
    chosen: bool
    targets: dict[str, Descriptor]
    run: str = ""


def open_draft(root: Path, name: str, *, version: str = "", declared: tuple[str, ...]) -> Draft:
    """Begin a version, or join its draft; targets declared by others stay declared.

    Args:
        root: The registry folder, created if need be.
        name: The model.
        version: The version; without one, the next patch that is neither published nor a draft.
        declared: The SoC, or target without SoC, of each artifact that the version is to have.

    Raises:
        UsageError: CNV-2402, CNV-2403.
        RegistryError: CNV-9050 (the version is sealed already), and those of writing.
    """
    check_name(name)
    registry = Registry(root)
    registry.create()
    layout = registry.layout(name)
    layout.create()
    keys = {check_target(key, "target").lower() for key in declared}
    with layout.edit() as edit:
        versions = Versions(layout, edit.refs())
        chosen = check_version(version) if version else next_patch([*versions.names, *versions.drafts])
        state = _read(layout, edit, name, chosen) or _State(
            name=name, version=chosen, declared=(), chosen=not version, targets={}
        )
        if chosen in versions.names:
            raise _sealed(name, chosen)
        state = msgspec.structs.replace(state, declared=tuple(sorted(keys.union(state.declared))))
        return _write(layout, edit, state)


def add_to_draft(root: Path, request: PublishRequest) -> Draft:
    """Add passed targets to the draft of ``request.version``; the last declared one seals it.

    Raises:
        UsageError: CNV-2402, CNV-2403.
        RegistryError: CNV-9050 (sealed already, with other content), CNV-9051 (no such draft), and those of publishing.
        ResourceLimit: CNV-1003.
    """
    check_request(request)
    registry = Registry(root)
    layout = registry.open_model(request.name)
    prepared = tuple(store_target(registry, layout, request.name, release) for release in request.targets)
    with layout.edit() as edit:
        keep_blobs(registry, layout, request.name, prepared)
        state = _read(layout, edit, request.name, request.version)
        if state is None:
            return _already(layout, edit, request, prepared)
        targets = {**state.targets, **{target_key(item.descriptor): item.descriptor for item in prepared}}
        return _added(layout, edit, msgspec.structs.replace(state, targets=targets), prepared)


def _added(layout: Layout, edit: IndexEdit, state: _State, prepared: tuple[Prepared, ...]) -> Draft:
    """A draft with its new targets, published where none is missing any more."""
    for item in prepared:
        there = edit.find(_tag(state, target_key(item.descriptor)))
        if there is None or there.digest != item.descriptor.digest:
            add_record(layout, edit, item)
    done = set(state.declared) <= set(state.targets)
    return _seal(layout, edit, state) if done else _write(layout, edit, state)


def collect(root: Path, request: PublishRequest, *, declared: Iterable[str]) -> Draft:
    """Put passed targets of a run where its other targets will come to; sealed as soon as none is missing.

    Without ``request.version`` the draft is the one that runs of the same model and the same declared targets have
    begun, else a new one of the next version; a version that has these targets already is given back. A version that
    is there gets a revision, as :func:`artifacts.publish.publish` makes it.

    Args:
        root: The registry folder, created if need be.
        request: What passed: at least one target.
        declared: The targets that the version is to have, by name. One that comes as an exact part fulfils its name.

    Raises:
        UsageError: CNV-2402, CNV-2403.
        RegistryError: those of publishing.
        ResourceLimit: CNV-1003.
    """
    check_request(request)
    registry = Registry(root)
    registry.create()
    layout = registry.layout(request.name)
    layout.create()
    names = tuple(sorted({check_target(name, "target").lower() for name in declared}))
    run = sha256_bytes(canonical_json([names, sorted({item.manifest.model.sha256 for item in request.targets})]))
    prepared = tuple(store_target(registry, layout, request.name, release) for release in request.targets)
    with layout.edit() as edit:
        keep_blobs(registry, layout, request.name, prepared)
        versions = Versions(layout, edit.refs())
        version = request.version or _draft_of(versions, run)
        new = tuple(item.descriptor for item in prepared)
        choice = choose_version(versions, request.name, version, new)
        if version in versions.names or (choice.present and _has_all(versions.targets(choice.version), names)):
            return _released(layout, edit, choice, prepared)
        if choice.present:
            unwanted = [*versions.names, *versions.drafts, *versions.removed]
            choice = Choice(name=request.name, version=version or next_patch(unwanted), targets=new)
        state = _read(layout, edit, request.name, choice.version) or _State(
            name=request.name, version=choice.version, declared=(), chosen=not request.version, targets={}, run=run
        )
        targets = {**state.targets, **{target_key(item): item for item in new}}
        keys = _as_keys((*state.declared, *names), targets)
        state = msgspec.structs.replace(state, declared=keys, targets=targets)
        return _added(layout, edit, state, prepared)


def _draft_of(versions: Versions, run: str) -> str:
    """The version whose draft runs of this kind have begun; empty where none has."""
    found = (name for name, index in versions.drafts.items() if versions.index(index).annotations.get(RUN) == run)
    return next(found, "")


def _has_all(targets: tuple[Descriptor, ...], names: Iterable[str]) -> bool:
    there = {target_key(item) for item in targets}
    return set(names) <= there | {item.annotations.get(PREFIX + "target", "").lower() for item in targets}


def _as_keys(declared: Iterable[str], targets: Mapping[str, Descriptor]) -> tuple[str, ...]:
    """Declared targets by key: a name that came as exact parts stands for their keys."""
    by_name: dict[str, list[str]] = {}
    for key, target in targets.items():
        by_name.setdefault(target.annotations.get(PREFIX + "target", "").lower(), []).append(key)
    return tuple(
        sorted({key for name in declared for key in ([name] if name in targets else by_name.get(name, [name]))})
    )


def _released(layout: Layout, edit: IndexEdit, choice: Choice, prepared: tuple[Prepared, ...]) -> Draft:
    """A version that has these targets, or gets them as a revision: nothing waits for others."""
    digest = choice.present or add_version(layout, edit, choice)
    if not choice.present:
        for item in prepared:
            add_record(layout, edit, item)
    keys = tuple(sorted(target_key(target) for target in choice.targets))
    state = _State(name=choice.name, version=choice.version, declared=keys, chosen=False, targets={})
    return msgspec.structs.replace(_draft(state, choice.version, digest, sealed=True), targets=keys)


def assemble(
    root: Path, name: str, *, version: str, declared: Iterable[str], targets: tuple[Descriptor, ...], chosen: bool
) -> Draft:
    """Set a draft's targets to exactly these, whose manifests are stored already; publish it when none is missing.

    For targets that were stored one by one, on several machines, and those of an earlier version that go along.

    Args:
        root: The registry folder.
        name: The model, which exists.
        version: The version that it is or becomes.
        declared: The SoC, or target without SoC, of each artifact that the version is to have.
        targets: Target manifests with their annotations.
        chosen: Whether nobody asked for this version: one that has the same targets already is then given back.

    Raises:
        RegistryError: CNV-9050 (the version is sealed, with other content), CNV-9051, and those of writing.
    """
    layout = Registry(root).open_model(name)
    keys = tuple(sorted({check_target(key, "target").lower() for key in declared}))
    state = _State(
        name=name,
        version=check_version(version),
        declared=keys,
        chosen=chosen,
        targets={target_key(target): target for target in targets},
    )
    with layout.edit() as edit:
        there = Versions(layout, edit.refs())
        if version in there.names:
            if {item.digest for item in targets} <= {item.digest for item in there.targets(version)}:
                return _draft(state, version, there.names[version].digest, sealed=True)
            raise _sealed(name, version)
        old = _read(layout, edit, name, version)
        for key in set(old.targets if old else ()) - set(state.targets):
            edit.drop(_tag(state, key))
        done = bool(keys) and set(keys) <= set(state.targets)
        return _seal(layout, edit, state) if done else _write(layout, edit, state)


def discard(root: Path, name: str, version: str) -> None:
    """Drop a draft without any target, if it is one; blobs stay until they are swept."""
    layout = Registry(root).open_model(name)
    with layout.edit() as edit:
        state = _read(layout, edit, name, check_version(version))
        if state is not None and not state.targets:
            edit.drop(_tag(state))


def seal(root: Path, name: str, version: str, *, actor: str, reason: str) -> Draft:
    """Publish a draft although declared targets are missing; who did it and why is attached to the version.

    Raises:
        RegistryError: CNV-9001, CNV-9051 (no such draft), CNV-9052 (it has no target yet).
    """
    layout = Registry(root).open_model(name)
    with layout.edit() as edit:
        state = _read(layout, edit, name, check_version(version))
        if state is None:
            raise _no_draft(name, version)
        if not state.targets:
            raise RegistryError(
                "CNV-9052", f"the draft {name}:{version} has no target yet", hint="add one before it is sealed"
            )
        sealed = _seal(layout, edit, state)
        _attach_seal(layout, edit, sealed, actor, reason)
        return sealed


def _read(layout: Layout, edit: IndexEdit, name: str, version: str) -> _State | None:
    found = edit.find(f"draft-{version_tag(version)}")
    if found is None:
        return None
    index = Versions(layout, ()).index(found)
    return _State(
        name=name,
        version=version,
        declared=tuple(index.annotations.get(DECLARED, "").split()),
        chosen=index.annotations.get(CHOSEN) == "yes",
        targets={target_key(target): target for target in index.manifests},
        run=index.annotations.get(RUN, ""),
    )


def _tag(state: _State, key: str = "") -> str:
    base = f"draft-{version_tag(state.version)}"
    return target_tag(base, key) if key else base


def _write(layout: Layout, edit: IndexEdit, state: _State) -> Draft:
    annotations = {TITLE: state.name, VERSION: state.version, DECLARED: " ".join(state.declared)}
    data = document(
        ImageIndex(
            schema_version=2,
            media_type=INDEX_TYPE,
            manifests=tuple(state.targets[key] for key in sorted(state.targets)),
            annotations={
                **annotations,
                **({CHOSEN: "yes"} if state.chosen else {}),
                **({RUN: state.run} if state.run else {}),
            },
        )
    )
    layout.put_bytes(data)
    index = describe(data, INDEX_TYPE)
    edit.set(_tag(state), index)
    for key, target in state.targets.items():
        edit.set(_tag(state, key), target, target.annotations)
    return _draft(state, state.version, index.digest, sealed=False)


def _seal(layout: Layout, edit: IndexEdit, state: _State) -> Draft:
    targets = tuple(state.targets[key] for key in sorted(state.targets))
    choice = Choice(name=state.name, version=state.version, targets=targets)
    if state.chosen:
        earlier = choose_version(Versions(layout, edit.refs()), state.name, "", targets)
        choice = earlier if earlier.present else choice
    digest = choice.present or add_version(layout, edit, choice)
    for tag in (_tag(state), *(_tag(state, key) for key in state.targets)):
        edit.drop(tag)
    return _draft(state, choice.version, digest, sealed=True)


def _draft(state: _State, version: str, digest: Digest, *, sealed: bool) -> Draft:
    tag = version_tag(version) if sealed else _tag(state)
    return Draft(
        name=state.name,
        version=version,
        ref=f"{state.name}:{tag}",
        digest=digest,
        declared=state.declared,
        targets=tuple(sorted(state.targets)),
        sealed=sealed,
    )


def _already(layout: Layout, edit: IndexEdit, request: PublishRequest, prepared: tuple[Prepared, ...]) -> Draft:
    """The sealed version, where it has exactly these artifacts: a run that was repeated after the seal."""
    versions = Versions(layout, edit.refs())
    if request.version not in versions.names:
        raise _no_draft(request.name, request.version)
    there = {target_key(target): target.digest for target in versions.targets(request.version)}
    if any(there.get(target_key(item.descriptor)) != item.descriptor.digest for item in prepared):
        raise _sealed(request.name, request.version)
    state = _State(name=request.name, version=request.version, declared=tuple(sorted(there)), chosen=False, targets={})
    draft = _draft(state, request.version, versions.names[request.version].digest, sealed=True)
    return msgspec.structs.replace(draft, targets=tuple(sorted(there)))


def _attach_seal(layout: Layout, edit: IndexEdit, sealed: Draft, actor: str, reason: str) -> None:
    time = datetime.now(UTC).isoformat(timespec="seconds")
    data = canonical_json({"actor": actor, "reason": reason, "time": time, "missing": sealed.missing})
    layer = file_layer(DOC_TYPE, layout.put_bytes(data), len(data), "seal.json")
    subject = edit.find(version_tag(sealed.version))
    if subject is not None:
        set_attachment(edit, sealed.digest, "seal", store_attachment(layout, SEAL_TYPE, (layer,), subject))


def _sealed(name: str, version: str) -> RegistryError:
    return RegistryError(
        "CNV-9050",
        f"{name}:{version_tag(version)} is sealed: it was published, and a version never changes",
        hint="publish what is new with `--version` of the same version to make a revision, or begin another version",
    )


def _no_draft(name: str, version: str) -> RegistryError:
    return RegistryError(
        "CNV-9051",
        f"{name} has no draft of version {version or '?'}",
        hint="`artifacts list` shows drafts and versions",
    )
