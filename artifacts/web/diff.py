"""What differs between two versions, target by target."""

from __future__ import annotations

from artifacts.listing import Shown, ShownTarget
from artifacts.names import version_tag
from artifacts.render import number_text, size_text
from artifacts.web.values import Change, TargetDiff, VersionDiff


def diff_versions(before: Shown, after: Shown) -> VersionDiff:
    """Hold the targets of two versions against each other."""
    old = {_key(target): target for target in before.targets}
    new = {_key(target): target for target in after.targets}
    return VersionDiff(
        before=_name(before),
        after=_name(after),
        targets=tuple(_diff(key, old.get(key), new.get(key)) for key in sorted({*old, *new})),
    )


def _name(shown: Shown) -> str:
    return f"{shown.name}:{version_tag(shown.version)}" if shown.version else shown.ref


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def _key(target: ShownTarget) -> str:
    return target.soc or target.target


def _diff(key: str, old: ShownTarget | None, new: ShownTarget | None) -> TargetDiff:
    if old is None or new is None:
        return TargetDiff(target=key, state="removed" if new is None else "added")
    if old.digest == new.digest:
        return TargetDiff(target=key, state="same")
    was, now = _facts(old), _facts(new)
    changes = tuple(
        Change(fact=fact, before=was.get(fact, "–"), after=now.get(fact, "–"))
        for fact in dict.fromkeys((*was, *now))
        if was.get(fact) != now.get(fact)
    )
    return TargetDiff(target=key, state="changed", changes=changes)


def _facts(target: ShownTarget) -> dict[str, str]:
    manifest = target.manifest
    main = manifest.files[0]
    return {
        "gate": target.verdict,
        "ran on": target.ran_on,
        "cosine": number_text(target.cosine),
        "rel L2": number_text(target.rel_l2),
        "precision": target.precision,
        "backend": target.backend,
        "size": size_text(target.bytes),
        "file": f"{main.name} {_short(main.sha256)}",
        "source": f"{manifest.model.format} {_short(manifest.model.sha256)}",
        **{f"stage {link.stage}": _short(link.digest) for link in manifest.chain},
        **{f"option {name}": value for name, value in sorted(manifest.options.items())},
        **{f"tool {name}": version for name, version in sorted({**manifest.libraries, **manifest.toolchain}.items())},
        "compiler": " ".join(manifest.plan),
    }
