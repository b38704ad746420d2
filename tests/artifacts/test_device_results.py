"""What a card measured after publishing: attached, signed, and counted by the rules of channels."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from store_kit import make_release

from artifacts.attach import set_attachment, store_attachment
from artifacts.channels import Move, promote
from artifacts.device_results import BUNDLE, FILE, DeviceResult, attach_result, find_results
from artifacts.digest import canonical_json
from artifacts.dsse import BUNDLE_TYPE
from artifacts.errors import RegistryError
from artifacts.keys import PrivateKey, generate_key, load_private_key
from artifacts.layout import Layout
from artifacts.oci import DOC_TYPE, Descriptor, file_layer
from artifacts.publish import PublishRequest, publish
from artifacts.registry import Registry
from artifacts.versions import Versions


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrivateKey:
    """A key that this machine trusts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = load_private_key(Path(generate_key(tmp_path / "card").private))
    from artifacts.keys import trust_folder

    trust_folder().mkdir(parents=True)
    (trust_folder() / "card.pub").write_bytes(made.public.pem)
    return made


@pytest.fixture
def published(tmp_path: Path) -> tuple[Path, Layout, Descriptor]:
    """A version that was judged by a forecast."""
    root = tmp_path / "registry"
    release = make_release(tmp_path / "files", ran_on="forecast")
    publish(root, PublishRequest(name="net", targets=(release,)))
    layout = Registry(root).layout("net")
    (target,) = Versions(layout, layout.refs()).targets("1.0.0")
    return root, layout, target


def result(target: Descriptor, *, passed: bool = True, cosine: float = 0.9999) -> DeviceResult:
    validation = {"passed": passed, "ran_on": "device", "outputs": [{"name": "y", "cosine": cosine, "rel_l2": 0.001}]}
    return DeviceResult(subject=target.digest, passed=passed, device="Ascend910B3", validation=validation)


def to_prod(root: Path) -> str:
    return promote(root, "net:1.0.0", Move(channel="prod", actor="test")).channel


def test_a_version_goes_to_prod_once_its_card_has_spoken(published: tuple[Path, Layout, Descriptor]) -> None:
    root, layout, target = published
    with pytest.raises(RegistryError, match="ascend910b3 ran on: forecast") as caught:
        to_prod(root)
    assert caught.value.code == "CNV-9040"
    tag = attach_result(layout, target, result(target))
    assert tag == f"{target.digest.replace(':', '-')}.device-1"
    assert to_prod(root) == "prod"


def test_the_newest_word_of_a_card_counts(published: tuple[Path, Layout, Descriptor]) -> None:
    root, layout, target = published
    for passed in (True,) * 10 + (False,):
        attach_result(layout, target, result(target, passed=passed))
    with pytest.raises(RegistryError, match="the gate of ascend910b3 is failed"):
        to_prod(root)
    assert [found.result.passed for found in find_results(layout, layout.refs(), target.digest)] == [True] * 10 + [
        False
    ]


def test_limits_of_metrics_are_held_against_what_the_card_measured(published: tuple[Path, Layout, Descriptor]) -> None:
    root, layout, target = published
    (root / "registry.json").write_text('{"version":1,"channels":{"prod":{"minimum":{"cosine":0.999}}}}')
    attach_result(layout, target, result(target, cosine=0.99))
    with pytest.raises(RegistryError, match=r"cosine of ascend910b3 is 0\.99, the limit is 0\.999"):
        to_prod(root)


def test_a_channel_can_ask_for_a_signature(published: tuple[Path, Layout, Descriptor], key: PrivateKey) -> None:
    root, layout, target = published
    rule = {"version": 1, "channels": {"prod": {"device_keys": [key.public.id]}}}
    (root / "registry.json").write_text(json.dumps(rule))
    attach_result(layout, target, result(target))
    with pytest.raises(RegistryError, match="ran on: forecast"):
        to_prod(root)
    attach_result(layout, target, result(target), key)
    assert to_prod(root) == "prod"


def test_a_result_about_something_else_or_with_a_foreign_signature_does_not_count(
    published: tuple[Path, Layout, Descriptor], key: PrivateKey
) -> None:
    _, layout, target = published
    attach_result(layout, target, result(target), key)
    (sound,) = find_results(layout, layout.refs(), target.digest, (key.public,))
    assert sound.key == key.public.id
    (unknown,) = find_results(layout, layout.refs(), target.digest)
    assert unknown.key == ""
    bundle = next(ref for ref in layout.refs() if ref.tag == sound.tag)
    image = json.loads(layout.read_blob(bundle.descriptor.digest, "image"))
    titles = {layer["annotations"].get("org.opencontainers.image.title"): layer["digest"] for layer in image["layers"]}
    signature = titles[BUNDLE]
    changed = canonical_json(result(target, cosine=1.0))
    layers = (
        file_layer(DOC_TYPE, layout.put_bytes(changed), len(changed), FILE),
        file_layer(BUNDLE_TYPE, signature, layout.blob_path(signature).stat().st_size, BUNDLE),
    )
    elsewhere = canonical_json(msgspec.structs.replace(result(target), subject="sha256:" + "0" * 64))
    foreign = (file_layer(DOC_TYPE, layout.put_bytes(elsewhere), len(elsewhere), FILE),)
    broken = (file_layer(DOC_TYPE, layout.put_bytes(b"{}"), 2, FILE),)
    for number, parts in enumerate((layers, foreign, broken)):
        stored = store_attachment(layout, f"application/vnd.io.model-convert.device.v{number + 1}", parts, target)
        with layout.edit() as edit:
            set_attachment(edit, target.digest, "device", stored)
    assert find_results(layout, layout.refs(), target.digest, (key.public,)) == (sound,)
