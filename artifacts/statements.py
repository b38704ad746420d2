"""What is stated about an artifact: its files, how it was made, how it was tested, and what a version consists of.

Four in-toto statements, each with a public predicate type:

- the files by name and digest (``model_signing``'s predicate), for an unpacked folder;
- SLSA provenance v1 and two test results v0.1, whose subject is the target's OCI manifest;
- a release v0.1, whose subject is the version's index, so that the set of targets is signed too.
"""

from __future__ import annotations

import hashlib
from typing import Any

from artifacts.digest import Digest
from artifacts.dsse import Statement, Subject
from artifacts.manifest import RECORD_NAMES, SIGNATURE_NAME, Manifest, verdict

MODEL_PREDICATE = "https://model_signing/signature/v1.0"
PROVENANCE_PREDICATE = "https://slsa.dev/provenance/v1"
TEST_PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
RELEASE_PREDICATE = "https://in-toto.io/attestation/release/v0.1"
BUILD_TYPE = "urn:model-convert:conversion:v1"
BUILDER = "urn:model-convert:builder"
UNSIGNED_NAMES = (*RECORD_NAMES, SIGNATURE_NAME)


def model_statement(name: str, files: dict[str, Digest]) -> Statement:
    """The files of an artifact, ``manifest.json`` and reports included, in the form of ``model_signing`` 1.0."""
    resources = [
        {"name": title, "algorithm": "sha256", "digest": digest.removeprefix("sha256:")}
        for title, digest in sorted(files.items())
    ]
    serialization = {
        "method": "files",
        "hash_type": "sha256",
        "allow_symlinks": False,
        "ignore_paths": [*UNSIGNED_NAMES],
    }
    return Statement(
        subject=(Subject(name=name, digest={"sha256": _root_digest(resources)}),),
        predicate_type=MODEL_PREDICATE,
        predicate={"serialization": serialization, "resources": resources},
    )


def _root_digest(resources: list[dict[str, str]]) -> str:
    state = hashlib.sha256()
    for resource in resources:
        state.update(bytes.fromhex(resource["digest"]))
    return state.hexdigest()


def signed_files(statement: Statement) -> dict[str, Digest] | None:
    """The files that a model statement names; None where it is none, or contradicts itself."""
    resources = statement.predicate.get("resources")
    if statement.predicate_type != MODEL_PREDICATE or not isinstance(resources, list):
        return None
    files: dict[str, Digest] = {}
    for resource in resources:
        if not isinstance(resource, dict) or resource.get("algorithm") != "sha256":
            return None
        name, digest = resource.get("name"), resource.get("digest")
        if not isinstance(name, str) or not isinstance(digest, str) or name in files or not _is_hex(digest):
            return None
        files[name] = f"sha256:{digest}"
    return files if statement.digests == (f"sha256:{_root_digest(resources)}",) else None


def _is_hex(text: str) -> bool:
    return len(text) == 64 and all(char in "0123456789abcdef" for char in text)


def provenance_statement(name: str, manifest: Manifest, digest: Digest) -> Statement:
    """How a target was made (SLSA provenance v1)."""
    parameters: dict[str, Any] = {
        "target": manifest.target,
        "soc": manifest.soc,
        "backend": manifest.backend,
        "precision": manifest.precision,
        "options": manifest.options,
        "plan": manifest.plan,
    }
    source = {"name": f"model.{manifest.model.format}", "digest": _hex(manifest.model.sha256)}
    tools = {**manifest.libraries, **manifest.toolchain}
    dependencies = [
        source,
        *({"name": tool, "annotations": {"version": version}} for tool, version in sorted(tools.items())),
    ]
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": parameters,
        "internalParameters": {"chain": manifest.chain},
        "resolvedDependencies": dependencies,
    }
    return _about(
        name, digest, PROVENANCE_PREDICATE, {"buildDefinition": definition, "runDetails": {"builder": {"id": BUILDER}}}
    )


def test_statement(name: str, manifest: Manifest, digest: Digest) -> Statement:
    """The outcome of the operator check and of the gate (test result v0.1)."""
    outcomes = {"gate": verdict(manifest), "support": _support_outcome(manifest)}
    by_outcome = {
        kind: [test for test, outcome in outcomes.items() if outcome == kind]
        for kind in ("passed", "failed", "ungated")
    }
    result = "FAILED" if by_outcome["failed"] else "WARNED" if by_outcome["ungated"] else "PASSED"
    predicate = {
        "result": result,
        "configuration": [{"name": entry.name, "digest": _hex(entry.sha256)} for entry in manifest.reports],
        "passedTests": by_outcome["passed"],
        "warnedTests": by_outcome["ungated"],
        "failedTests": by_outcome["failed"],
    }
    return _about(name, digest, TEST_PREDICATE, predicate)


def _support_outcome(manifest: Manifest) -> str:
    supported = manifest.support.get("supported")
    return "ungated" if supported is None else "passed" if supported is True else "failed"


def release_statement(name: str, version: str, digest: Digest) -> Statement:
    """That an index is a version of a model (release v0.1)."""
    return _about(
        f"{name}:{version}",
        digest,
        RELEASE_PREDICATE,
        {"purl": f"pkg:oci/{name.rsplit('/', 1)[-1]}@{digest}", "releaseId": version},
    )


def _about(name: str, digest: Digest, predicate_type: str, predicate: dict[str, Any]) -> Statement:
    return Statement(
        subject=(Subject(name=name, digest=_hex(digest)),), predicate_type=predicate_type, predicate=predicate
    )


def _hex(digest: Digest) -> dict[str, str]:
    return {"sha256": digest.removeprefix("sha256:")}
