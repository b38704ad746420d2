"""Whom a user trusts, and what follows: keys, and a policy for what isn't signed by one of them.

States are named plainly: ``verified`` (by a trusted key), ``unknown-key`` (signed, by nobody who is trusted),
``invalid`` (signed by a trusted key's name, but broken or about something else), ``unsigned``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from artifacts.errors import RegistryError, UsageError
from artifacts.layout import Layout
from artifacts.manifest import MANIFEST_NAME, SIGNATURE_NAME
from artifacts.names import parse_ref
from artifacts.registry import Registry
from artifacts.resolve import StoredTarget, load_target, resolve, targets_of
from artifacts.strictjson import MANIFEST_BYTES
from artifacts.verify import FolderCheck

if TYPE_CHECKING:
    from artifacts.keys import PublicKey
    from artifacts.signing import SignatureCheck

SignaturePolicy = Literal["none", "warn", "enforce"]
POLICIES: tuple[SignaturePolicy, ...] = ("none", "warn", "enforce")


class Trust:
    """The keys that count, and whether something without a signature of them is refused."""

    def __init__(self, keys: tuple[PublicKey, ...], policy: SignaturePolicy) -> None:
        self.keys = keys
        self.policy = policy

    def require(self, checks: tuple[SignatureCheck, ...], what: str) -> None:
        """Refuse what the policy doesn't allow. A broken signature of a trusted key is refused by ``warn`` as well.

        Raises:
            RegistryError: CNV-9030.
        """
        if self.policy == "none":
            return
        bad = [check for check in checks if check.state != "verified"]
        if self.policy == "warn":
            bad = [check for check in bad if check.state == "invalid"]
        if bad:
            raise RegistryError(
                "CNV-9030",
                f"{what} is not signed by a trusted key: {'; '.join(_told(check) for check in bad)}",
                hint="give the signer's public key with --key, have it signed with `artifacts sign`,"
                " or go on without with --signatures none",
            )


def _told(check: SignatureCheck) -> str:
    reasons = sorted({item.why for item in check.signatures if item.why and item.state == check.state})
    return f"{check.name} is {check.state}" + (f" ({', '.join(reasons)})" if reasons else "")


def make_trust(keys: tuple[Path, ...], policy: str | None = None, *, tag: str = "") -> Trust:
    """The trust of a command line.

    Without a policy: ``enforce`` where keys are given with ``--key``; with keys in the trust folder, ``enforce`` for
    the channel ``prod`` and ``warn`` elsewhere; ``none`` without any key.

    Raises:
        UsageError: CNV-2411, CNV-2413 (to enforce without a key).
    """
    from artifacts.keys import trust_folder, trusted_keys

    found = trusted_keys(keys)
    if policy in POLICIES:
        chosen = next(name for name in POLICIES if name == policy)
    elif keys or (found and (tag == "prod" or tag.startswith("prod-"))):
        chosen = "enforce"
    else:
        chosen = "warn" if found else "none"
    if chosen == "enforce" and not found:
        raise UsageError(
            "CNV-2413",
            "signatures are to be enforced, and no key is trusted",
            hint=f"name the signer's public key with --key, or put it into {trust_folder()} as NAME.pub",
        )
    return Trust(found, chosen)


def check_stored(layout: Layout, stored: StoredTarget, trust: Trust) -> tuple[SignatureCheck, ...]:
    """Judge the signatures of one target."""
    from artifacts.signing import check_target_signatures

    return (check_target_signatures(layout, layout.refs(), stored, trust.keys),)


def check_ref(root: Path, text: str, trust: Trust) -> tuple[SignatureCheck, ...]:
    """Judge the signatures of a version (its index and all its targets) or of one target.

    Raises:
        RegistryError: CNV-9001, CNV-9002, and those of reading.
    """
    from artifacts.signing import check_version_signatures

    layout, resolved = resolve(Registry(root), parse_ref(text))
    checks: tuple[SignatureCheck, ...] = ()
    if resolved.kind == "version":
        checks = (check_version_signatures(layout, layout.refs(), resolved.descriptor, trust.keys),)
    for descriptor in targets_of(layout, resolved):
        checks += check_stored(layout, load_target(layout, descriptor), trust)
    return checks


def check_folder_signature(found: FolderCheck, trust: Trust, signature: Path | None = None) -> SignatureCheck:
    """Judge the signature in a pulled folder, or one that lies elsewhere, against the files as they are.

    Raises:
        RegistryError: CNV-9004 (``signature`` can't be read).
    """
    from artifacts.dsse import open_bundle
    from artifacts.durable import reading
    from artifacts.signing import Signature, SignatureCheck, State, files_contradiction

    path = signature or Path(found.path) / SIGNATURE_NAME
    name = Path(found.path).name
    if signature is None and not path.is_file():
        return SignatureCheck(subject=found.manifest_digest, name=name, state="unsigned", signatures=())
    with reading(f"reading {path}"), path.open("rb") as stream:
        data = stream.read(MANIFEST_BYTES + 1)
    files = {entry.name: entry.sha256 for entry in (*found.manifest.files, *found.manifest.reports)}
    files[MANIFEST_NAME] = found.manifest_digest
    try:
        signed = open_bundle(data, trust.keys, str(path))
    except RegistryError as error:
        bad = Signature(kind="sig", state="invalid", key="", tag=path.name, why=error.message)
        return SignatureCheck(subject=found.manifest_digest, name=name, state="invalid", signatures=(bad,))
    why = "the signature is not one of the key that it names" if signed.broken else ""
    why = why or files_contradiction(signed.statement, files)
    state: State = "invalid" if signed.broken or (signed.key and why) else "verified" if signed.key else "unknown-key"
    judged = Signature(kind="sig", state=state, key=signed.key or signed.claimed, tag=path.name, why=why)
    return SignatureCheck(subject=found.manifest_digest, name=name, state=state, signatures=(judged,))
