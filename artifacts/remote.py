"""One repository of an OCI registry: blobs, manifests, tags and referrers, by the distribution API 1.1.

Everything that comes in is checked against its digest while it is read; nothing is held in memory but manifests.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from artifacts.digest import CHUNK, Digest, sha256_bytes
from artifacts.durable import write_all
from artifacts.errors import RegistryError, UsageError
from artifacts.http_options import HttpOptions
from artifacts.names import NAME_PATTERN, TAG_PATTERN
from artifacts.oci import INDEX_TYPE, MANIFEST_TYPE, Descriptor, document, parse_index
from artifacts.remote_http import (
    CONNECT_TRIES,
    RETRIED,
    TRIES,
    Transport,
    failed,
    read_answer,
    unreachable,
)
from artifacts.strictjson import MANIFEST_BYTES, parse_json

SCHEME = "oci://"
ACCEPT = f"{INDEX_TYPE}, {MANIFEST_TYPE}"
MAX_TAGS = 1_000_000
_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?|\[[0-9a-fA-F:]+\](:[0-9]{1,5})?")
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """``oci://host/repository[:tag]``; ``path`` may be empty for a registry's root."""

    host: str
    path: str
    tag: str = ""

    def child(self, name: str) -> Address:
        """The address of a model below this one."""
        return Address(host=self.host, path=f"{self.path}/{name}" if self.path else name)

    def __str__(self) -> str:
        return f"{SCHEME}{self.host}" + (f"/{self.path}" if self.path else "") + (f":{self.tag}" if self.tag else "")


def parse_address(text: str) -> Address:
    """Read ``oci://host[:port][/repository][:tag]``.

    Raises:
        UsageError: CNV-2430.
    """
    host, _, rest = text.removeprefix(SCHEME).partition("/")
    path, colon, tag = rest.partition(":")
    path = path.rstrip("/")
    good = (
        _HOST.fullmatch(host)
        and (not path or NAME_PATTERN.fullmatch(path))
        and (not colon or TAG_PATTERN.fullmatch(tag))
    )
    if not text.startswith(SCHEME) or not good:
        raise UsageError(
            "CNV-2430",
            f"{text[:200]!r} is no address of a registry",
            hint="write oci://HOST/PROJECT or oci://HOST:PORT/PROJECT, without user and password",
        )
    return Address(host=host, path=path, tag=tag)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest as a registry gave it."""

    descriptor: Descriptor
    data: bytes


class Remote:
    """A repository. Not safe for use by several threads."""

    def __init__(
        self, address: Address, options: HttpOptions | None = None, transport: Transport | None = None
    ) -> None:
        self.address = address
        self.transport = transport or Transport(address.host, options or HttpOptions())
        self._root = f"/v2/{address.path}"

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.transport.close()

    def _send(self, method: str, url: str, *, write: bool = False, **rest: Any) -> httpx.Response:
        actions = "pull,push" if write else "pull"
        return self.transport.send(method, url, scope=f"repository:{self.address.path}:{actions}", **rest)

    # ----------------------------------------------------------------------------------------------------------- blobs

    def has_blob(self, digest: Digest, size: int) -> bool:
        """Whether the registry has a blob of that digest and size."""
        response = self._send("HEAD", f"{self._root}/blobs/{digest}", write=True)
        response.close()
        if response.status_code == 404:
            return False
        if response.status_code != 200:
            raise failed(response, f"asking for {digest}")
        return bool(response.headers.get("Content-Length", str(size)) == str(size))

    def read_blob(self, digest: Digest, what: str, *, limit: int = MANIFEST_BYTES) -> bytes:
        """A small blob's bytes, checked."""
        response = self._send("GET", f"{self._root}/blobs/{digest}")
        if response.status_code != 200:
            raise failed(response, f"reading {what}")
        data = read_answer(response, what, limit)
        if sha256_bytes(data) != digest:
            raise _other_content(what, digest)
        return data

    def fetch_blob(self, blob: Descriptor, part: Path, what: str) -> None:
        """Download a blob into ``part``, going on where an earlier download of the same blob stopped; synced, checked.

        Raises:
            RegistryError: CNV-9063 (other content), CNV-9060, CNV-9062, CNV-9064.
            OSError: The file can't be written; the caller says what it is.
        """
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._fill(descriptor, blob, what)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _fill(self, descriptor: int, blob: Descriptor, what: str) -> None:
        for fresh in (False, True):
            state = hashlib.sha256()
            size = 0 if fresh else _hash_part(descriptor, state, blob.size)
            os.ftruncate(descriptor, size)
            os.lseek(descriptor, size, os.SEEK_SET)
            started = size
            whole = self._download(descriptor, blob, state, size, what)
            if f"sha256:{state.hexdigest()}" == blob.digest:
                return
            os.ftruncate(descriptor, 0)
            if whole and not started:
                break
        raise _other_content(what, blob.digest)

    def _download(self, descriptor: int, blob: Descriptor, state: Any, size: int, what: str) -> bool:
        """Append from ``size`` on, with a new request after each break, as long as there is progress.

        False where the registry refused to go on in the middle.
        """
        idle = 0
        while size < blob.size:
            response = self._send(
                "GET", f"{self._root}/blobs/{blob.digest}", headers={"Range": f"bytes={size}-"} if size else {}
            )
            if response.status_code == 416 and size:
                response.close()
                return False
            skip = size if response.status_code == 200 else 0
            if response.status_code not in (200, 206):
                raise failed(response, f"reading {what}")
            before = size
            try:
                for chunk in _after(response.iter_raw(), skip):
                    self.transport.check_deadline()
                    size += len(chunk)
                    if size > blob.size:
                        raise _other_content(what, blob.digest)
                    state.update(chunk)
                    write_all(descriptor, chunk)
            except httpx.TransportError as error:
                idle = 0 if size > before else idle + 1
                if idle >= CONNECT_TRIES:
                    raise unreachable(self.address.host, error) from error
                self.transport.pause(idle)
            else:
                if size < blob.size:
                    raise _other_content(what, blob.digest)
            finally:
                response.close()
        return True

    def put_blob(self, path: Path, digest: Digest, size: int, *, mount_from: str = "") -> bool:
        """Upload a file as a blob in one streamed PUT; False where it was mounted from another repository.

        Raises:
            RegistryError: CNV-9062, CNV-9060, CNV-9061.
        """
        query = f"?mount={digest}&from={quote(mount_from, safe='')}" if mount_from else ""
        error: httpx.TransportError | None = None
        for turn in range(TRIES):
            begin = self._send(
                "POST", f"{self._root}/blobs/uploads/{query}", write=True, headers={"Content-Length": "0"}
            )
            begin.close()
            if begin.status_code == 201:
                return False
            if begin.status_code != 202:
                raise failed(begin, f"an upload of {digest}")
            try:
                if self._put_once(begin.headers.get("Location", ""), path, digest, size, last=turn + 1 == TRIES):
                    return True
            except httpx.TransportError as broken:
                error = broken
            self.transport.pause(turn)
        raise unreachable(self.address.host, error)

    def _put_once(self, location: str, path: Path, digest: Digest, size: int, *, last: bool) -> bool:
        """Send the content of an upload; False where the whole upload is to be tried again."""
        url = f"{location}{'&' if urlsplit(location).query else '?'}digest={digest}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        response = self._send("PUT", url, write=True, headers=headers, body=lambda: _file_chunks(path), tries=1)
        if response.status_code in (*RETRIED, 404) and not last:
            response.close()
            return False
        if response.status_code not in (201, 204):
            raise failed(response, f"the upload of {digest}")
        response.close()
        return True

    # ------------------------------------------------------------------------------------------------------- manifests

    def find_manifest(self, reference: str) -> Found | None:
        """A manifest by tag or digest, checked; None where there is none.

        Raises:
            RegistryError: CNV-9063, CNV-9062, CNV-9060, CNV-9061.
        """
        response = self._send("GET", f"{self._root}/manifests/{reference}", headers={"Accept": ACCEPT})
        if response.status_code == 404:
            response.close()
            return None
        if response.status_code != 200:
            raise failed(response, f"reading {self.address.path}:{reference}")
        media_type = response.headers.get("Content-Type", "").split(";")[0].strip()
        data = read_answer(response, f"{self.address.path}:{reference}", MANIFEST_BYTES)
        digest = sha256_bytes(data)
        if reference.startswith("sha256:") and digest != reference:
            raise _other_content(f"the manifest {reference}", reference)
        return Found(descriptor=Descriptor(media_type=media_type, digest=digest, size=len(data)), data=data)

    def put_manifest(self, reference: str, data: bytes, media_type: str) -> bool:
        """Put a manifest under a tag or digest; whether the registry said that it keeps the subject's referrers.

        Raises:
            RegistryError: CNV-9062 (refused; also by a rule that makes tags immutable), CNV-9060, CNV-9061.
        """
        headers = {"Content-Type": media_type, "Content-Length": str(len(data))}
        response = self._send(
            "PUT", f"{self._root}/manifests/{reference}", write=True, headers=headers, body=lambda: iter((data,))
        )
        if response.status_code not in (200, 201, 202, 204):
            raise failed(response, f"publishing {self.address.path}:{reference}")
        response.close()
        return "OCI-Subject" in response.headers

    def tags(self) -> tuple[str, ...]:
        """All tags of the repository; none where it doesn't exist yet."""
        found: list[str] = []
        url = f"{self._root}/tags/list?n=1000"
        while url and len(found) < MAX_TAGS:
            response = self._send("GET", url)
            if response.status_code == 404:
                response.close()
                break
            if response.status_code != 200:
                raise failed(response, f"listing the tags of {self.address.path}")
            following = _NEXT.search(response.headers.get("Link", ""))
            answer = parse_json(read_answer(response, "the tags"), f"the tags of {self.address.path}", code="CNV-9062")
            names = answer.get("tags") if isinstance(answer, dict) else None
            listed = names if isinstance(names, list) else []
            new = [name for name in listed if isinstance(name, str) and TAG_PATTERN.fullmatch(name)]
            url = following.group(1) if following and new else ""
            found += new
        return tuple(dict.fromkeys(found))

    def catalog(self) -> tuple[str, ...]:
        """The repositories that the registry lists to this account.

        Raises:
            RegistryError: CNV-9062, where the registry lists none (many don't, to anybody).
        """
        found: list[str] = []
        url = "/v2/_catalog?n=1000"
        while url and len(found) < MAX_TAGS:
            response = self.transport.send("GET", url, scope="registry:catalog:*")
            if response.status_code != 200:
                raise failed(response, "listing its repositories; name a model, as oci://HOST/PROJECT/NAME")
            following = _NEXT.search(response.headers.get("Link", ""))
            answer = parse_json(read_answer(response, "the catalog"), "the catalog", code="CNV-9062")
            names = answer.get("repositories") if isinstance(answer, dict) else None
            listed = names if isinstance(names, list) else []
            new = [name for name in listed if isinstance(name, str) and NAME_PATTERN.fullmatch(name)]
            url = following.group(1) if following and new else ""
            found += new
        return tuple(dict.fromkeys(found))

    # ------------------------------------------------------------------------------------------------------- referrers

    def referrers(self, digest: Digest) -> tuple[Descriptor, ...]:
        """What is attached to a manifest: by the referrers API, else by the fallback tag ``sha256-<hex>``."""
        response = self._send("GET", f"{self._root}/referrers/{digest}", headers={"Accept": INDEX_TYPE})
        if response.status_code == 200 and INDEX_TYPE in response.headers.get("Content-Type", ""):
            data = read_answer(response, f"the referrers of {digest}")
            return parse_index(data, f"the referrers of {digest}").manifests
        response.close()
        fallback = self.find_manifest(digest.replace(":", "-"))
        return parse_index(fallback.data, f"the fallback index of {digest}").manifests if fallback else ()

    def add_to_fallback(self, subject: Digest, entry: Descriptor, artifact_type: str) -> None:
        """List an attachment under the fallback tag of its subject; reads back, since two clients may write at once.

        Raises:
            RegistryError: CNV-9066, when it is lost again and again.
        """
        tag = subject.replace(":", "-")
        for turn in range(TRIES):
            found = self.find_manifest(tag)
            index: dict[str, Any] = (
                parse_json(found.data, f"the tag {tag}", code="CNV-9062")
                if found
                else {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": []}
            )
            parse_index(document(index), f"the tag {tag}")
            if any(item["digest"] == entry.digest for item in index["manifests"]):
                return
            listed = {"mediaType": entry.media_type, "digest": entry.digest, "size": entry.size}
            index["manifests"].append({**listed, "artifactType": artifact_type})
            self.put_manifest(tag, document(index), INDEX_TYPE)
            if turn:
                self.transport.pause(turn)
        raise RegistryError(
            "CNV-9066", f"another client keeps overwriting {tag} of {self.address}", hint="run the command again"
        )


def _hash_part(descriptor: int, state: Any, limit: int) -> int:
    """Hash what an earlier download left; a part that is too long is thrown away."""
    if os.fstat(descriptor).st_size > limit:
        return 0
    os.lseek(descriptor, 0, os.SEEK_SET)
    size = 0
    while chunk := os.read(descriptor, CHUNK):
        state.update(chunk)
        size += len(chunk)
    return size


def _after(chunks: Iterator[bytes], skip: int) -> Iterator[bytes]:
    """The chunks without the first ``skip`` bytes: for a server that ignores ``Range``."""
    for chunk in chunks:
        if skip >= len(chunk):
            skip -= len(chunk)
            continue
        yield chunk[skip:]
        skip = 0


def _file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def _other_content(what: str, digest: Digest) -> RegistryError:
    return RegistryError(
        "CNV-9063",
        f"the registry gave other content for {what}: it is not {digest}",
        hint="try again; if it stays, the registry's storage is damaged, and the version must be pushed again",
    )
