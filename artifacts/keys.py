"""Signing keys: elliptic-curve keys in PEM files, as ``openssl`` and ``model_signing`` use them.

A key's id is the SHA-256 of its public PEM, which is what Sigstore bundles of these tools carry as a hint.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from artifacts.digest import read_start
from artifacts.errors import UsageError

PASSWORD_VARIABLE = "CONVERT_KEY_PASSWORD"
KEY_VARIABLE = "CONVERT_SIGN_KEY"
MAX_PEM = 64 << 10
_HASHES: dict[str, type[hashes.HashAlgorithm]] = {
    "secp256r1": hashes.SHA256,
    "secp384r1": hashes.SHA384,
    "secp521r1": hashes.SHA512,
}


class PublicKey:
    """A key that signatures are checked with. ``name`` says where it came from."""

    def __init__(self, key: ec.EllipticCurvePublicKey, name: str) -> None:
        self._key = key
        self._hash = _HASHES[key.curve.name]()
        self.name = name

    @property
    def pem(self) -> bytes:
        """The public PEM."""
        kind = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_bytes(serialization.Encoding.PEM, kind)

    @property
    def id(self) -> str:
        """The SHA-256 of the public PEM, in hexadecimal."""
        return hashlib.sha256(self.pem).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key's owner signed the message."""
        try:
            self._key.verify(signature, message, ec.ECDSA(self._hash))
        except InvalidSignature:
            return False
        return True


class PrivateKey:
    """A key that signs."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, name: str) -> None:
        self._key = key
        self.public = PublicKey(key.public_key(), name)

    def sign(self, message: bytes) -> bytes:
        """An ECDSA signature in DER, with the hash that fits the curve."""
        return self._key.sign(message, ec.ECDSA(_HASHES[self._key.curve.name]()))


class KeyPair(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a new key."""

    private: str
    public: str
    id: str


def generate_key(prefix: Path, *, password: str = "") -> KeyPair:
    """Make a P-256 key: ``<prefix>.key`` (mode 0600, encrypted where there is a password) and ``<prefix>.pub``.

    Raises:
        UsageError: CNV-2410, when a file of that name exists or can't be written.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    secret = password.encode()
    encryption = serialization.BestAvailableEncryption(secret) if secret else serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    public = PublicKey(key.public_key(), str(prefix))
    paths = [prefix.with_name(prefix.name + ".key"), prefix.with_name(prefix.name + ".pub")]
    for path, data, mode in zip(paths, (private, public.pem), (0o600, 0o644), strict=True):
        _write_new(path, data, mode)
    return KeyPair(private=str(paths[0]), public=str(paths[1]), id=public.id)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
    except OSError as error:
        if isinstance(error, FileExistsError):
            hint = "choose another name; a key that exists is never overwritten"
        else:
            hint = f"name a file in a folder that exists and may be written; {path.parent} can't be used"
        raise UsageError("CNV-2410", f"can't write the key {path}: {error.strerror or error}", hint=hint) from error


def load_private_key(path: Path, *, password: str | None = None) -> PrivateKey:
    """Read a private key. Without ``password`` it is taken from ``CONVERT_KEY_PASSWORD``.

    Raises:
        UsageError: CNV-2411 (can't be read, or of another kind), CNV-2412 (password missing or wrong).
    """
    data = _read_pem(path)
    secret = os.environ.get(PASSWORD_VARIABLE, "") if password is None else password
    encrypted = b"ENCRYPTED" in data
    try:
        key = serialization.load_pem_private_key(data, secret.encode() if secret and encrypted else None)
    except (TypeError, ValueError) as error:
        if encrypted:
            raise UsageError(
                "CNV-2412",
                f"the key {path} is encrypted, and its password is {'wrong' if secret else 'missing'}",
                hint=f"put the password into the environment variable {PASSWORD_VARIABLE}",
            ) from error
        raise _bad_key(path, "it holds no private key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name not in _HASHES:
        raise _bad_key(path, "it is no elliptic-curve key of P-256, P-384 or P-521")
    return PrivateKey(key, str(path))


def load_public_key(path: Path) -> PublicKey:
    """Read a public key.

    Raises:
        UsageError: CNV-2411.
    """
    try:
        key = serialization.load_pem_public_key(_read_pem(path))
    except ValueError as error:
        raise _bad_key(path, "it holds no public key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in _HASHES:
        raise _bad_key(path, "it is no elliptic-curve key of P-256, P-384 or P-521")
    return PublicKey(key, str(path))


def trusted_keys(paths: tuple[Path, ...] = ()) -> tuple[PublicKey, ...]:
    """The keys that this user trusts: those of ``paths``, and all ``*.pub`` of :func:`trust_folder`.

    Raises:
        UsageError: CNV-2411.
    """
    folder = trust_folder()
    found = sorted(folder.glob("*.pub")) if folder.is_dir() else []
    keys = [load_public_key(path) for path in (*paths, *found)]
    return tuple({key.id: key for key in reversed(keys)}.values())


def trust_folder() -> Path:
    """Where trusted public keys lie: ``CONVERT_TRUST``, else ``~/.config/model-convert/keys``."""
    if chosen := os.environ.get("CONVERT_TRUST"):
        return Path(chosen).expanduser()
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(config).expanduser() / "model-convert" / "keys"


def _read_pem(path: Path) -> bytes:
    try:
        return read_start(path, MAX_PEM)
    except OSError as error:
        raise _bad_key(path, error.strerror or str(error)) from error


def _bad_key(path: Path, why: str) -> UsageError:
    return UsageError(
        "CNV-2411",
        f"can't use the key {path}: {why}",
        hint="make one with `artifacts keygen NAME`, or with openssl ecparam",
    )
