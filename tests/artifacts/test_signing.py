"""Keys, bundles, and what signatures on the store, on a pulled folder and from other tools are worth."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import make_release

from artifacts.__main__ import cli
from artifacts.attach import find_attachments, set_attachment
from artifacts.cli import run_boundary
from artifacts.digest import canonical_json, sha256_bytes
from artifacts.dsse import Statement, Subject, open_bundle, sign_statement
from artifacts.errors import RegistryError, UsageError
from artifacts.fsck import fsck
from artifacts.keys import generate_key, load_private_key, load_public_key, trusted_keys
from artifacts.layout import Layout
from artifacts.publish import PublishRequest, publish
from artifacts.pull import pull
from artifacts.signing import sign_ref, store_bundle
from artifacts.statements import MODEL_PREDICATE, model_statement, signed_files
from artifacts.trust import Trust, check_folder_signature, check_ref, make_trust
from artifacts.verify import check_folder

STATEMENT = Statement(subject=(Subject(name="x", digest={"sha256": "0" * 64}),), predicate_type="https://example.org/p")


@pytest.fixture(autouse=True)
def no_trust_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CONVERT_TRUST", str(tmp_path / "trust"))


@pytest.fixture
def root(tmp_path) -> Path:
    cpu = make_release(tmp_path / "cpu", content=b"for the cpu", target="cpu", soc="", backend="onnxruntime")
    publish(
        tmp_path / "reg", PublishRequest(name="net", version="1.0.0", targets=(make_release(tmp_path / "npu"), cpu))
    )
    return tmp_path / "reg"


@pytest.fixture
def key(tmp_path) -> Path:
    generate_key(tmp_path / "team")
    return tmp_path / "team.key"


def public(key: Path) -> tuple:
    return (load_public_key(key.with_suffix(".pub")),)


def states(root: Path, text: str, keys: tuple) -> dict[str, str]:
    return {check.name: check.state for check in check_ref(root, text, Trust(keys, "none"))}


def test_a_new_key_is_secret_readable_by_openssl_and_never_overwritten(tmp_path, key):
    assert key.stat().st_mode & 0o777 == 0o600
    subprocess.run(["openssl", "ec", "-in", str(key), "-noout", "-check"], capture_output=True, check=True)
    with pytest.raises(UsageError) as refusal:
        generate_key(tmp_path / "team")
    assert refusal.value.code == "CNV-2410"


def test_an_encrypted_key_needs_its_password(tmp_path, monkeypatch):
    generate_key(tmp_path / "safe", password="horse")
    for password, said in (("", "missing"), ("cow", "wrong")):
        with pytest.raises(UsageError, match=said) as refusal:
            load_private_key(tmp_path / "safe.key", password=password)
        assert refusal.value.code == "CNV-2412"
    monkeypatch.setenv("CONVERT_KEY_PASSWORD", "horse")
    assert load_private_key(tmp_path / "safe.key").public.id == load_public_key(tmp_path / "safe.pub").id


@pytest.mark.parametrize("content", ["", "no pem", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_a_file_that_is_no_key_is_a_usage_error(tmp_path, content):
    (tmp_path / "bad.pub").write_text(content)
    for load in (load_public_key, load_private_key):
        with pytest.raises(UsageError) as refusal:
            load(tmp_path / "bad.pub")
        assert refusal.value.code == "CNV-2411"


def test_other_kinds_of_keys_are_refused(tmp_path):
    for argv in (
        ["genrsa", "-out", "rsa.key", "2048"],
        ["ecparam", "-name", "secp256k1", "-genkey", "-noout", "-out", "k1.key"],
    ):
        subprocess.run(["openssl", *argv], cwd=tmp_path, capture_output=True, check=True)
        with pytest.raises(UsageError, match="P-256, P-384 or P-521"):
            load_private_key(tmp_path / argv[argv.index("-out") + 1])


@pytest.mark.parametrize("curve", ["prime256v1", "secp384r1", "secp521r1"])
def test_keys_of_openssl_sign_and_verify(tmp_path, curve):
    for argv in (
        ["ecparam", "-name", curve, "-genkey", "-noout", "-out", "k.key"],
        ["ec", "-in", "k.key", "-pubout", "-out", "k.pub"],
    ):
        subprocess.run(["openssl", *argv], cwd=tmp_path, capture_output=True, check=True)
    signing, trusted = load_private_key(tmp_path / "k.key"), (load_public_key(tmp_path / "k.pub"),)
    signed = open_bundle(sign_statement(STATEMENT, signing), trusted, "a bundle")
    assert (signed.key, signed.statement.predicate_type) == (trusted[0].id, "https://example.org/p")


def test_a_signed_version_is_verified_and_signing_again_adds_nothing(root, key):
    assert states(root, "net", public(key)) == {"index": "unsigned", "ascend910b3": "unsigned", "cpu": "unsigned"}
    first = sign_ref(root, "net", load_private_key(key))
    assert (len(first.tags), first.already) == (7, 0)
    assert states(root, "net", public(key)) == {"index": "verified", "ascend910b3": "verified", "cpu": "verified"}
    again = sign_ref(root, "net", load_private_key(key))
    assert (again.tags, again.already) == ((), 7)
    assert fsck(root).clean


def test_signing_does_not_change_what_is_signed(root, key):
    before = {ref.tag: ref.descriptor for ref in Layout(root / "net").refs()}
    sign_ref(root, "net", load_private_key(key))
    after = {ref.tag: ref.descriptor for ref in Layout(root / "net").refs()}
    assert {tag: after[tag] for tag in before} == before


def test_a_signature_of_somebody_else_is_an_unknown_key(root, key, tmp_path):
    generate_key(tmp_path / "other")
    sign_ref(root, "net", load_private_key(tmp_path / "other.key"))
    assert set(states(root, "net", public(key)).values()) == {"unknown-key"}
    sign_ref(root, "net", load_private_key(key))
    assert set(states(root, "net", public(key)).values()) == {"verified"}


def test_after_a_key_was_rotated_both_signatures_count_for_their_readers(root, key, tmp_path):
    generate_key(tmp_path / "new")
    for name in (key, tmp_path / "new.key"):
        sign_ref(root, "net", load_private_key(name))
    for name in (key, tmp_path / "new.key"):
        assert set(states(root, "net", public(name)).values()) == {"verified"}


def put_bundle(root: Path, bundle: bytes, tag: str = "1.0.0-cpu") -> None:
    layout = Layout(root / "net")
    subject = layout.find(tag)
    descriptor = store_bundle(layout, subject, bundle, MODEL_PREDICATE)
    with layout.edit() as edit:
        set_attachment(edit, subject.digest, "sig", descriptor)


def bundle_of(root: Path, tag: str) -> bytes:
    layout = Layout(root / "net")
    item = find_attachments(layout, layout.refs(), layout.find(tag).digest, "sig")[0]
    return layout.read_blob(item.image.layers[0].digest, "bundle")


def test_a_bundle_of_another_artifact_is_invalid(root, key):
    sign_ref(root, "net:1.0.0-ascend910b3", load_private_key(key))
    put_bundle(root, bundle_of(root, "1.0.0-ascend910b3"))
    checks = check_ref(root, "net:1.0.0-cpu", Trust(public(key), "none"))
    assert checks[0].state == "invalid"
    assert "other files: manifest.json, net.om" in checks[0].signatures[0].why


def test_a_payload_swapped_under_a_valid_envelope_is_invalid(root, key):
    sign_ref(root, "net:1.0.0-ascend910b3", load_private_key(key))
    bundle = json.loads(bundle_of(root, "1.0.0-ascend910b3"))
    payload = canonical_json(model_statement("net", {"net.om": sha256_bytes(b"evil")}))
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    put_bundle(root, canonical_json(bundle))
    checks = check_ref(root, "net:1.0.0-cpu", Trust(public(key), "none"))
    assert (checks[0].state, checks[0].signatures[0].why) == (
        "invalid",
        "the signature is not one of the key that it names",
    )


def test_one_bad_signature_beside_a_good_one_does_no_harm(root, key):
    put_bundle(root, b"{}")
    assert states(root, "net:1.0.0-cpu", public(key)) == {"cpu": "invalid"}
    sign_ref(root, "net:1.0.0-cpu", load_private_key(key))
    assert states(root, "net:1.0.0-cpu", public(key)) == {"cpu": "verified"}


def test_the_policy_decides_what_is_pulled(root, key, tmp_path):
    other = generate_key(tmp_path / "other")
    sign_ref(root, "net", load_private_key(key))
    pull(root, "net:1.0.0-cpu", tmp_path / "out", trust=make_trust((key.with_suffix(".pub"),)))
    with pytest.raises(RegistryError, match="cpu is unknown-key") as refusal:
        pull(root, "net:1.0.0-cpu", tmp_path / "no", trust=make_trust((Path(other.public),)))
    assert refusal.value.code == "CNV-9030"
    assert not (tmp_path / "no").exists()
    pull(root, "net:1.0.0-cpu", tmp_path / "yes", trust=make_trust((Path(other.public),), "warn"))


def test_warn_still_refuses_a_broken_signature_of_a_trusted_key(root, key, tmp_path):
    sign_ref(root, "net:1.0.0-ascend910b3", load_private_key(key))
    put_bundle(root, bundle_of(root, "1.0.0-ascend910b3"))
    with pytest.raises(RegistryError, match="cpu is invalid"):
        pull(root, "net:1.0.0-cpu", tmp_path / "no", trust=make_trust((key.with_suffix(".pub"),), "warn"))


def test_keys_of_the_trust_folder_are_enforced_for_prod_alone(key, tmp_path):
    assert make_trust(()).policy == "none"
    with pytest.raises(UsageError) as refusal:
        make_trust((), "enforce")
    assert refusal.value.code == "CNV-2413"
    (tmp_path / "trust").mkdir()
    shutil.copy(key.with_suffix(".pub"), tmp_path / "trust/team.pub")
    assert [make_trust((), tag=tag).policy for tag in ("", "1.0.0", "prod", "prod-cpu")] == [
        "warn",
        "warn",
        "enforce",
        "enforce",
    ]
    assert [item.id for item in trusted_keys()] == [public(key)[0].id]


def test_a_pulled_folder_verifies_with_its_signature_and_not_after_a_change(root, key, tmp_path):
    sign_ref(root, "net", load_private_key(key))
    pulled = pull(root, "net:1.0.0-cpu", tmp_path / "out")
    assert "signature.sigstore.json" in pulled.files
    trust = Trust(public(key), "enforce")
    assert check_folder_signature(check_folder(tmp_path / "out"), trust).state == "verified"
    manifest = tmp_path / "out/manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"rel_l2":0.001', b'"rel_l2":0.000'))
    assert check_folder_signature(check_folder(tmp_path / "out"), trust).state == "invalid"
    (tmp_path / "out/signature.sigstore.json").write_text("{}")
    assert check_folder_signature(check_folder(tmp_path / "out"), trust).state == "invalid"
    (tmp_path / "out/signature.sigstore.json").unlink()
    assert check_folder_signature(check_folder(tmp_path / "out"), trust).state == "unsigned"


def test_a_folder_pulled_before_it_was_signed_gets_the_signature_with_the_next_pull(root, key, tmp_path):
    pull(root, "net:1.0.0-cpu", tmp_path / "out")
    sign_ref(root, "net", load_private_key(key))
    assert not pull(root, "net:1.0.0-cpu", tmp_path / "out").already
    assert pull(root, "net:1.0.0-cpu", tmp_path / "out").already


def test_provenance_and_test_results_say_what_the_manifest_says(root, key):
    sign_ref(root, "net", load_private_key(key))
    layout = Layout(root / "net")
    found = {}
    for item in find_attachments(layout, layout.refs(), layout.find("1.0.0-ascend910b3").digest):
        if item.kind in ("provenance", "test"):
            assert item.image.annotations["dev.sigstore.bundle.content"] == "dsse-envelope"
            bundle = layout.read_blob(item.image.layers[0].digest, "bundle")
            found[item.kind] = open_bundle(bundle, public(key), "bundle").statement.predicate
    definition = found["provenance"]["buildDefinition"]
    assert definition["externalParameters"]["soc"] == "Ascend910B3"
    assert {"name": "cann", "annotations": {"version": "8.0.RC3"}} in definition["resolvedDependencies"]
    assert (found["test"]["result"], found["test"]["passedTests"]) == ("PASSED", ["gate", "support"])


def test_a_failed_gate_is_a_failed_test_result(tmp_path, key):
    release = make_release(tmp_path / "a", validation={"passed": False})
    publish(tmp_path / "reg", PublishRequest(name="net", targets=(release,)))
    sign_ref(tmp_path / "reg", "net", load_private_key(key))
    layout = Layout(tmp_path / "reg/net")
    item = find_attachments(layout, layout.refs(), layout.find("1.0.0-ascend910b3").digest, "test")[0]
    statement = open_bundle(layout.read_blob(item.image.layers[0].digest, "bundle"), (), "bundle").statement
    assert statement.predicate["result"] == "FAILED"


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.binary(max_size=4), min_size=1, max_size=5))
def test_a_model_statement_names_its_files_exactly(contents):
    files = {name: sha256_bytes(data) for name, data in contents.items()}
    assert signed_files(model_statement("net", files)) == files


def test_a_model_statement_that_contradicts_itself_names_no_files():
    good = model_statement("net", {"a": sha256_bytes(b"a")})
    other = msgspec.structs.replace(good, subject=STATEMENT.subject)
    twice = {"resources": [*good.predicate["resources"], *good.predicate["resources"]]}
    assert signed_files(other) is None
    assert signed_files(msgspec.structs.replace(good, predicate=twice)) is None
    assert signed_files(STATEMENT) is None


KIND = "application/vnd.in-toto+json"
ODD = [
    *(None, 3, "", [], {}),
    {"payload": "%%%", "payloadType": KIND, "signatures": []},
    {"payload": "e30=", "payloadType": KIND, "signatures": [{"sig": "AA=="}]},
]


@pytest.mark.parametrize("place", ["mediaType", "dsseEnvelope", "verificationMaterial"])
@pytest.mark.parametrize("value", ODD)
def test_malformed_bundles_are_clear_errors_or_unsigned(tmp_path, key, place, value):
    bundle = json.loads(sign_statement(STATEMENT, load_private_key(key)))
    bundle[place] = value
    try:
        signed = open_bundle(canonical_json(bundle), public(key), "a bundle")
    except RegistryError as error:
        assert error.code == "CNV-9008"
    else:
        assert place == "verificationMaterial"
        assert signed.claimed == ""


@given(st.binary(max_size=100))
def test_any_bytes_are_a_bundle_or_a_clear_error(data):
    with pytest.raises(RegistryError):
        open_bundle(data, (), "a bundle")


def test_the_commands_make_a_key_sign_and_verify(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONVERT_REGISTRY", str(root))
    for line in (
        "keygen k",
        "sign net --sign-key k.key",
        "verify net --key k.pub",
        "pull net out --target cpu --key k.pub",
        "verify out --key k.pub",
    ):
        assert run_boundary(cli, line.split(), prog="artifacts", usage_code="CNV-2401") == 0
    assert "out: verified by " in capsys.readouterr().out
    assert run_boundary(cli, ["keygen", "l", "--json"], prog="artifacts", usage_code="CNV-2401") == 0
    assert run_boundary(cli, ["verify", "net", "--key", "l.pub"], prog="artifacts", usage_code="CNV-2401") == 9
    assert "error [CNV-9030]: net is not signed by a trusted key: index is unknown-key" in capsys.readouterr().err


SHELL_CHECK = """
jq -er .dsseEnvelope.payload signature.sigstore.json | base64 -d > payload
jq -er '.dsseEnvelope.signatures[0].sig' signature.sigstore.json | base64 -d > sig
{ printf 'DSSEv1 28 application/vnd.in-toto+json %d ' "$(wc -c < payload)"; cat payload; } > pae
openssl dgst -sha256 -verify "$1" -signature sig pae
jq -er '.predicate.resources[] | "\\(.digest)  \\(.name)"' payload | sha256sum -c -
"""


@pytest.mark.skipif(shutil.which("jq") is None and not os.environ.get("CI"), reason="jq is not installed")
def test_openssl_and_jq_alone_verify_a_pulled_folder(root, key, tmp_path):
    sign_ref(root, "net", load_private_key(key))
    pull(root, "net:1.0.0-cpu", tmp_path / "out")
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", SHELL_CHECK, "sh", str(key.with_suffix(".pub"))],
        cwd=tmp_path / "out", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Verified OK" in done.stdout, done.stderr
    assert "net.om: OK" in done.stdout


MODEL_SIGNING = os.environ.get("MODEL_SIGNING") or shutil.which("model_signing")


@pytest.mark.skipif(
    MODEL_SIGNING is None, reason="model_signing is not installed (pip install model-signing pyopenssl)"
)
def test_model_signing_verifies_our_folders_and_we_verify_its_signatures(root, key, tmp_path):
    sign_ref(root, "net", load_private_key(key))
    out, signature = tmp_path / "out", tmp_path / "theirs.sig"
    pull(root, "net:1.0.0-cpu", out)

    def model_signing(*argv: str) -> None:
        done = subprocess.run([str(MODEL_SIGNING), *argv], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    ours = str(out / "signature.sigstore.json")
    model_signing("verify", "key", str(out), "--public_key", str(key.with_suffix(".pub")), "--signature", ours)
    model_signing(
        "sign", "key", str(out), "--private_key", str(key), "--signature", str(signature), "--ignore-paths", ours
    )
    trust = Trust(public(key), "enforce")
    assert check_folder_signature(check_folder(out), trust, signature).state == "verified"
    (out / "net.om").write_bytes(b"changed")
    assert not check_folder(out).ok
