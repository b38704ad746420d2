"""Models whose code crashes, hangs or eats: each conversion ends with a code, in its limits, and leaves nothing."""

from __future__ import annotations

import pytest
from main_job_kit import Cli

CODE = """
import ctypes, tempfile, time
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

class Crashes(Model):
    def forward(self, x):
        return ctypes.string_at(0)

class Hangs(Model):
    def forward(self, x):
        while True:
            time.sleep(0.1)

class Eats(Model):
    def forward(self, x):
        held = []
        while True:
            held.append(torch.ones(1 << 24))

class Asks(Model):
    def forward(self, x):
        return torch.ones(30 << 28) + x

class Fills(Model):
    def forward(self, x):
        with open(tempfile.gettempdir() + "/big", "wb") as stream:
            while True:
                stream.write(bytes(1 << 22))
"""
ENDS = {
    "Crashes": ("CNV-3090", 3),
    "Hangs": ("CNV-1001", 10),
    "Eats": ("CNV-1002", 10),
    "Asks": ("CNV-1002", 10),
    "Fills": ("CNV-1201", 10),
}


@pytest.mark.parametrize("kind", ENDS)
def test_code_that_does_harm_ends_the_conversion_and_nothing_else(cli: Cli, kind: str) -> None:
    import torch
    from torch import nn

    (cli.folder / "code.py").write_text(CODE)
    torch.save({f"layer.{name}": value for name, value in nn.Linear(2, 2).state_dict().items()}, cli.folder / "w.pt")
    tmp = cli.folder / "tmp"
    tmp.mkdir()
    limits = {"CONVERT_MEMORY": "1500MB", "CONVERT_DISK": "60MB", "TMPDIR": str(tmp)}
    limits |= {"CONVERT_TIMEOUT": "25"} if kind == "Hangs" else {}
    options = ("--factory", f"code.py:{kind}", "--input", "x:float32[N,2]", "--target", "cpu", "--json", "-q")
    ended = cli.convert("w.pt", *options, **limits)
    assert (ended.json["error"]["code"], ended.code) == ENDS[kind]
    assert "Traceback" not in ended.err
    assert not [path for path in tmp.rglob("*") if path.is_file() and path.name != ".lock"]
    assert not list((cli.folder / "cache" / "tmp").glob("*"))


def test_a_graph_that_asks_for_gigabytes_is_a_resource_limit(cli: Cli) -> None:
    import onnx
    import onnx.parser

    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[n] y) <int64[1] s = {3000000000}>
        { z = ConstantOfShape(s) q = Add(z, x) y = ReduceSum<keepdims = 1>(q) }"""
    onnx.save(onnx.parser.parse_model(text), cli.folder / "huge.onnx")
    ended = cli.convert("huge.onnx", "--target", "cpu", "--json", "-q", CONVERT_MEMORY="2GB")
    assert (ended.json["error"]["code"], ended.code) == ("CNV-1002", 10)
