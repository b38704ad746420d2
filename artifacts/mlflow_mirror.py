"""Mirroring what the registry holds into an MLflow model registry: metadata alone, over its REST API (2.0).

A version becomes a model version with the tag ``oci.digest``, by which it is found again; a channel becomes an alias.
MLflow decides nothing here: it is written to, and only what this mirror wrote is compared. The names of models, aliases
and tags keep to what MLflow takes (its utils/validation.py and file store): no path separator in a model's name;
letters, digits, ``_`` and ``-`` in an alias, which is neither ``latest`` nor a version number (``v3``).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from artifacts.errors import RegistryError, UsageError
from artifacts.http_options import HttpOptions
from artifacts.listing import ListedVersion, Shown, list_remembered, show
from artifacts.names import parse_ref
from artifacts.registry import Registry
from artifacts.remote_auth import is_loopback
from artifacts.remote_http import tls_context

API = "/api/2.0/mlflow/"
DIGEST_TAG = "oci.digest"
TAG_PREFIX = "model-convert."
TAG_VALUE = 5000
"""The longest value of a tag that every MLflow version takes."""
ANSWER_BYTES = 16 << 20
MAX_PAGES = 1000
PAGE = 200
_NO_ALIAS = re.compile(r"latest|v\d+", re.IGNORECASE)


class MirroredModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model. ``created``: versions that MLflow didn't have; ``aliases``: channels that were pointed anew."""

    name: str
    mlflow_name: str
    created: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Channels whose name can't be an alias."""
    versions: int = 0


class Mirrored(msgspec.Struct, frozen=True, kw_only=True):
    """What a mirroring did."""

    server: str
    models: tuple[MirroredModel, ...]


def mirror(root: Path, names: tuple[str, ...], server: str, *, share: str = "", options: HttpOptions) -> Mirrored:
    """Bring models of a registry folder into MLflow. Repeating it changes nothing that is there already.

    Args:
        root: The registry folder.
        names: Models; all where empty.
        server: The address of the MLflow server, ``https://host[:port][/prefix]``.
        share: ``oci://HOST/PROJECT``, where the models can be fetched, for the versions' source.
        options: TLS, deadline for each request, plain HTTP to other machines.

    Raises:
        UsageError: CNV-2450 (no address of an MLflow server), CNV-2432.
        RegistryError: CNV-9001, CNV-9075 (MLflow can't be reached, or answers oddly), and those of reading.
    """
    registry = Registry(root)
    with _Server(server, options) as remote:
        found = [_mirror_model(registry, name, remote, share) for name in names or registry.models()]
    return Mirrored(server=server, models=tuple(found))


def _mirror_model(registry: Registry, name: str, remote: _Server, share: str) -> MirroredModel:
    registry.open_model(name)
    model = list_remembered(registry, name)
    theirs = name.replace("/", ".")
    remote.make_model(theirs)
    known = remote.versions(theirs)
    created = []
    for version in reversed(model.versions):
        if version.digest not in known:
            shown = show(registry.root, parse_ref(version.ref))
            known[version.digest] = remote.make_version(theirs, _source(share, version), _tags(version, shown))
            created.append(version.version)
    moved, skipped = [], []
    aliases = remote.aliases(theirs)
    for channel, digest in _channels(model.versions).items():
        alias = re.sub(r"[^\w-]", "-", channel)
        if _NO_ALIAS.fullmatch(alias):
            skipped.append(channel)
        elif aliases.get(alias) != known[digest]:
            remote.set_alias(theirs, alias, known[digest])
            moved.append(channel)
    return MirroredModel(
        name=name,
        mlflow_name=theirs,
        created=tuple(created),
        aliases=tuple(moved),
        skipped=tuple(skipped),
        versions=len(model.versions),
    )


def _channels(versions: tuple[ListedVersion, ...]) -> dict[str, str]:
    return {channel: version.digest for version in versions for channel in version.channels}


def _source(share: str, version: ListedVersion) -> str:
    """Where a version can be fetched; MLflow takes no path of another machine's disk."""
    return f"{share.rstrip('/')}/{version.ref}" if share else f"model-convert://registry/{version.ref}"


def _tags(version: ListedVersion, shown: Shown) -> dict[str, str]:
    tags = {DIGEST_TAG: version.digest, TAG_PREFIX + "version": version.version}
    for target in shown.targets:
        facts = [target.precision, target.verdict, f"ran on {target.ran_on}"]
        facts += [f"cosine {target.cosine:.6g}"] if target.cosine is not None else []
        tags[f"{TAG_PREFIX}target.{target.soc or target.target}"] = ", ".join(facts)
    return {re.sub(r"[^\w./ -]", "-", key)[:250]: value[:TAG_VALUE] for key, value in tags.items()}


class _Server:
    """An MLflow server."""

    def __init__(self, address: str, options: HttpOptions) -> None:
        place = urlsplit(address)
        plain = place.scheme == "http" and (options.insecure_http or is_loopback(place.netloc))
        if place.scheme not in ("http", "https") or not place.hostname or place.username or place.query:
            raise UsageError(
                "CNV-2450", f"{address[:200]!r} is no address of an MLflow server", hint="write https://HOST[:PORT]"
            )
        if place.scheme == "http" and not plain:
            raise UsageError(
                "CNV-2450", f"{address[:200]} is plain HTTP to another machine", hint="use https, or --insecure-http"
            )
        self.address = address.rstrip("/")
        self._client = httpx.Client(
            verify=tls_context(options.ca),
            timeout=options.deadline or 30.0,
            follow_redirects=False,
            trust_env=not is_loopback(place.netloc),
            headers={"User-Agent": "model-convert", **_authorization()},
            auth=_basic(),
        )

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def make_model(self, name: str) -> None:
        """Make a registered model, unless there is one."""
        self._ask("POST", "registered-models/create", {"name": name}, allow="RESOURCE_ALREADY_EXISTS")

    def versions(self, name: str) -> dict[str, str]:
        """The model versions that this mirror made: their number by our digest."""
        found: dict[str, str] = {}
        query = {"filter": f"name='{name}'", "max_results": str(PAGE)}
        for _ in range(MAX_PAGES):
            answer = self._ask("GET", "model-versions/search", query)
            for item in _list(answer, "model_versions"):
                tags = {str(tag.get("key")): str(tag.get("value")) for tag in _list(item, "tags")}
                if DIGEST_TAG in tags:
                    found[tags[DIGEST_TAG]] = str(item.get("version"))
            token = answer.get("next_page_token")
            if not isinstance(token, str) or not token:
                return found
            query["page_token"] = token
        raise self._odd("model-versions/search", "it never comes to an end")

    def make_version(self, name: str, source: str, tags: dict[str, str]) -> str:
        """Make a model version; its number."""
        listed = [{"key": key, "value": value} for key, value in tags.items()]
        answer = self._ask("POST", "model-versions/create", {"name": name, "source": source, "tags": listed})
        made = answer.get("model_version")
        if not isinstance(made, dict) or not str(made.get("version", "")).isdecimal():
            raise self._odd("model-versions/create", "no version")
        return str(made["version"])

    def aliases(self, name: str) -> dict[str, str]:
        """The version number of each alias."""
        model = self._ask("GET", "registered-models/get", {"name": name}).get("registered_model")
        listed = _list(model, "aliases") if isinstance(model, dict) else []
        return {str(item.get("alias")): str(item.get("version")) for item in listed}

    def set_alias(self, name: str, alias: str, version: str) -> None:
        """Point an alias to a version."""
        self._ask("POST", "registered-models/alias", {"name": name, "alias": alias, "version": version})

    def _ask(self, method: str, path: str, body: dict[str, Any], *, allow: str = "") -> dict[str, Any]:
        query, sent = (body, None) if method == "GET" else (None, body)
        try:
            with self._client.stream(method, f"{self.address}{API}{path}", params=query, json=sent) as response:
                data = bytearray()
                for chunk in response.iter_bytes(1 << 16):
                    data += chunk
                    if len(data) > ANSWER_BYTES:
                        raise self._odd(path, "the answer is too large")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RegistryError(
                "CNV-9075",
                f"can't reach MLflow at {self.address}: {str(error) or type(error).__name__}",
                hint="check the address and the network; what was mirrored before stays",
            ) from error
        try:
            answer = msgspec.json.decode(bytes(data) or b"{}", type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            answer = {}
            if response.status_code == 200:
                raise self._odd(path, "the answer is no JSON object") from None
        if response.status_code == 200 or (allow and answer.get("error_code") == allow):
            return answer
        told = f"{answer.get('error_code', '')} {answer.get('message', '')}"[:300]
        raise self._odd(path, f"{response.status_code} {told}".strip())

    def _odd(self, path: str, what: str) -> RegistryError:
        return RegistryError(
            "CNV-9075",
            f"MLflow at {self.address} answered to {path}: {what}",
            hint="log in with MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and …_PASSWORD; see MLflow's log",
        )


def _list(value: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = value.get(key)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _authorization() -> dict[str, str]:
    token = os.environ.get("MLFLOW_TRACKING_TOKEN", "")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _basic() -> tuple[str, str] | None:
    user = os.environ.get("MLFLOW_TRACKING_USERNAME", "")
    return (user, os.environ.get("MLFLOW_TRACKING_PASSWORD", "")) if user else None
