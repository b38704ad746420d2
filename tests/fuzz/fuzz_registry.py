"""Data of the operator registry: a site's overlay, the vendors' tables, and what can be learned from a toolkit."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fuzz_kit import Target, chance_of, mutate_words, written

import op_registry.support as support
from convert.errors import EXPECTED
from op_registry.judge import judge_model
from op_registry.learn import learn
from op_registry.overlay import merged, overlay_text, read_overlay
from op_registry.tables import DATA, read_toml
from op_registry.targets import find_target
from op_registry.vendors import Vendor, all_vendors, resolve_version

JUDGED = ("Ascend910B3", "K100", "cpu", "MLU370-X4", "A100")


def read(data: bytes) -> None:
    """The bytes as each kind of data; what one reader refuses another may take."""
    refusals = [_refusal(reader, data) for reader in (_overlay, _table, _vendor, _learned)]
    if all(refusals):
        raise refusals[0] or AssertionError


def _refusal(reader: object, data: bytes) -> Exception | None:
    try:
        reader(data)  # type: ignore[operator]
    except EXPECTED as error:
        assert error.code in ("CNV-2502", "CNV-2503", "CNV-2504", "CNV-2506"), error.code
        return error
    return None


def _overlay(data: bytes) -> None:
    """Lines that were read can be written and read again, and a graph can be judged with them."""
    path = written(data, "ops.csv")
    rows = read_overlay(path)
    again = merged((), rows)
    path.write_text(overlay_text(again), encoding="utf-8")
    assert read_overlay(path) == again
    target = find_target(chance_of(data).choice(JUDGED))
    judge_model(_model(), target, site=rows)


def _table(data: bytes) -> None:
    """The bytes in the place of one of a vendor's own tables."""
    chance = chance_of(data)
    vendor = all_vendors()[chance.choice(("ascend", "amd", "hygon", "nvidia", "cambricon"))]
    path = written(data, "ops.csv")
    version = resolve_version(vendor, "")
    list(support._read_rows(vendor, version, path.parent))
    path.rename(path.with_name("rules.csv"))
    list(support._read_rules(path.parent, version))
    path.with_name("rules.csv").rename(path.with_name("kernels.csv"))
    support._read_kernels(path.with_name("kernels.csv"))


def _vendor(data: bytes) -> None:
    read_toml(written(data, "vendor.toml"), Vendor)


def _learned(data: bytes) -> None:
    chance = chance_of(data)
    vendor, version = chance.choice((("", ""), ("ascend", "8.0.RC3"), ("amd", "2.15"), ("hygon", ""), ("ascend", "")))
    path = written(data, chance.choice(("check_result.json", "ops.txt", "compile.log")))
    found = learn(path, vendor=vendor, version=version, target=find_target("Ascend910B3"))
    overlay = path.with_name("overlay.csv")
    overlay.write_text(overlay_text(found.lines), encoding="utf-8")
    assert read_overlay(overlay) == tuple(found.lines)


@cache
def _model() -> object:
    import onnx.parser

    text = """<ir_version: 8, opset_import: ["": 17, "x.y": 1]>
    g (float[1,3,8,8] x) => (float[1,3,8,8] y)
    { a = Relu(x) b = x.y.Foo(a) c = Cast <to = 10> (b) y = Cast <to = 1> (c) }"""
    return onnx.parser.parse_model(text)


def seeds() -> dict[str, bytes]:
    """The first lines of the vendors' tables, an overlay, and outputs of toolkits."""
    found: dict[str, bytes] = {}
    for path in sorted(DATA.glob("*/*.csv")):
        lines = path.read_bytes().split(b"\n")
        found[f"{path.parent.name}-{path.name}"] = b"\n".join(
            lines[:1] + lines[1 : len(lines) : max(1, len(lines) // 12)]
        )
    for path in sorted(Path(DATA).glob("*/vendor.toml")):
        found[f"{path.parent.name}-{path.name}"] = path.read_bytes()
    found["overlay"] = (
        b"vendor,versions,arch,domain,op,opsets,state,note,source\n"
        b"ascend,8.0.RC3,,,Relu,8-18,ok,measured here,compile log\n"
        b'hygon,>=2.10 <2.15,gfx936,x.y,Foo,*,refused,"a, b",log\n'
    )
    found["names"] = b"\n".join(b"Add Conv Relu MatMul Gemm Softmax Resize TopK".split() * 8)
    found["report"] = b'{"is_support": false, "ops_result": [{"op_type": "Foo", "op_name": "a", "is_support": false}]}'
    found["log"] = b"[ERROR] E19010: No parser is registered for Op [/a/b, optype [ai.onnx::17::GridSample]].\n" * 3
    return found


WORDS = (
    b"ok", b"refused", b"risk", b"slow", b"unknown", b"read", b"measured", b"site", b"8-18", b"~8-18", b"?8-18", b"*",
    b",,", b'"', b">=8.0", b"<9", b"8.0.RC3", b"E19010", b"ai.onnx::17::Foo", b"\xc2\xb2", b"\xd9\xa1", b"\xe2\x80\xa8",
    b"\x1b[31m",
    b"rank>4", b"mode=linear", b"dtype in (float16)", b"\x00", b"\x0b", b"\r", b"9" * 5000,
)  # fmt: skip
TARGET = Target(name="registry", read=read, seeds=seeds, mutate=mutate_words(WORDS), words=WORDS)
