import re
from pathlib import Path

from convert.backends.base import Backend, Missing
from convert.values import CompileOptions, OnnxGraph
from op_registry.targets import find_target

HOWTO = Path(__file__).parents[2] / "docs/how-to/add-a-backend.md"


def _example() -> Backend:
    code = re.search(r"```python\n(.*?)```", HOWTO.read_text(), re.DOTALL)
    assert code is not None
    names: dict = {}
    exec(compile(code[1], str(HOWTO), "exec"), names)
    return names["AcmeBackend"]()


def test_the_example_of_the_howto_keeps_the_protocol():
    assert isinstance(_example(), Backend)


def test_the_example_of_the_howto_plans_and_misses_its_toolchain():
    backend, target = _example(), find_target("cpu")
    graph = OnnxGraph(parent="sha256:0", stage="export", opset=17, inputs=(), outputs=())
    options = CompileOptions(target="cpu", backend="acme", precision="fp16", options={"jobs": "4"})
    plan = backend.plan(graph, target, options, backend.assumed())
    assert plan.argv == ("acmec", "model/model.onnx", "--out=out/model.acme", "--precision=fp16", "--jobs=4")
    assert isinstance(backend.probe(target, {"PATH": "/nonexistent"}), Missing)
