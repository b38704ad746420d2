"""Sigstore bundles v0.3 that hold a DSSE envelope around an in-toto statement, signed offline with a key.

``model_signing verify key`` accepts what is written here, and what it writes is read here. A signature is only ever
checked with keys that the caller trusts; whatever key or certificate a bundle brings along is ignored.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from artifacts.digest import canonical_json
from artifacts.errors import RegistryError
from artifacts.keys import PrivateKey, PublicKey
from artifacts.strictjson import parse_as

BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
OLD_BUNDLE_TYPES = (
    "application/vnd.dev.sigstore.bundle+json;version=0.3",
    "application/vnd.dev.sigstore.bundle+json;version=0.2",
)
STATEMENT_MEDIA_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
MAX_SIGNATURES = 16


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a statement is about: a name and digests by algorithm, in hexadecimal."""

    name: str = ""
    digest: dict[str, str]


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """An in-toto statement."""

    type: str = msgspec.field(default=STATEMENT_TYPE, name="_type")
    subject: tuple[Subject, ...]
    predicate_type: str = msgspec.field(name="predicateType")
    predicate: dict[str, Any] = {}

    @property
    def digests(self) -> tuple[str, ...]:
        """The subjects' digests as the store writes them."""
        return tuple(f"sha256:{subject.digest.get('sha256', '')}" for subject in self.subject)


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """A statement out of a bundle. ``key``: the id of the trusted key that signed it; empty where none did.

    ``claimed`` is the key id that the bundle names. A signature that names a trusted key and doesn't check out makes
    ``broken`` true: then the content was tampered with.
    """

    statement: Statement
    key: str = ""
    claimed: str = ""
    broken: bool = False


class _Signature(msgspec.Struct, frozen=True):
    sig: str


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    payload: str
    payload_type: str
    signatures: tuple[_Signature, ...]


class _KeyHint(msgspec.Struct, frozen=True):
    hint: str | None = None


class _Material(msgspec.Struct, frozen=True, rename="camel"):
    public_key: _KeyHint | None = None


class _Bundle(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str
    dsse_envelope: _Envelope
    verification_material: _Material = _Material()


def statement_bytes(statement: Statement) -> bytes:
    """The canonical JSON of a statement."""
    return canonical_json(statement)


def parse_statement(data: bytes, what: str) -> Statement:
    """Read an in-toto statement.

    Raises:
        RegistryError: CNV-9008.
    """
    statement = parse_as(Statement, data, what)
    if statement.type != STATEMENT_TYPE or not statement.subject:
        raise _bad(what, f"it is no in-toto statement v1: {statement.type[:80]!r}")
    return statement


def pae(payload: bytes) -> bytes:
    """What DSSE signs: the payload with its type and length in front."""
    kind = STATEMENT_MEDIA_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign_statement(statement: Statement, key: PrivateKey) -> bytes:
    """The bundle of a statement, signed."""
    payload = statement_bytes(statement)
    signature = base64.b64encode(key.sign(pae(payload))).decode()
    return canonical_json(
        {
            "mediaType": BUNDLE_TYPE,
            "verificationMaterial": {"publicKey": {"hint": key.public.id}, "tlogEntries": []},
            "dsseEnvelope": {
                "payload": base64.b64encode(payload).decode(),
                "payloadType": STATEMENT_MEDIA_TYPE,
                "signatures": [{"sig": signature, "keyid": ""}],
            },
        }
    )


def open_bundle(data: bytes, keys: tuple[PublicKey, ...], what: str) -> Signed:
    """Read a bundle and check its signature with the trusted keys.

    Raises:
        RegistryError: CNV-9008, for anything that is no bundle of this kind.
    """
    bundle = parse_as(_Bundle, data, what)
    envelope = bundle.dsse_envelope
    if bundle.media_type not in (BUNDLE_TYPE, *OLD_BUNDLE_TYPES) or envelope.payload_type != STATEMENT_MEDIA_TYPE:
        raise _bad(what, "it is no Sigstore bundle v0.3 around an in-toto statement")
    if not 1 <= len(envelope.signatures) <= MAX_SIGNATURES:
        raise _bad(what, f"it has {len(envelope.signatures)} signatures")
    payload = _base64(envelope.payload, what)
    signatures = [_base64(item.sig, what) for item in envelope.signatures]
    hint = bundle.verification_material.public_key
    claimed = (hint.hint if hint else None) or ""
    candidates = [key for key in keys if claimed in ("", key.id)]
    signer = next((key for key in candidates for item in signatures if key.verifies(item, pae(payload))), None)
    return Signed(
        statement=parse_statement(payload, f"the statement in {what}"),
        key=signer.id if signer else "",
        claimed=claimed,
        broken=signer is None and any(key.id == claimed for key in keys),
    )


def _base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _bad(what, "it has text that is not base64") from None


def _bad(what: str, why: str) -> RegistryError:
    return RegistryError("CNV-9008", f"{what} is not valid: {why}", hint="sign it again, or fetch it again")
