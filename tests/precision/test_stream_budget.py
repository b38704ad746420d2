"""What a study holds of tensors and of samples is bounded by its memory, and small tensors come out joined."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from convert.arrays import load_npz
from convert.precision.emulate import Candidate
from convert.precision.study import LEAST_ELEMENTS, MOST_ELEMENTS, Study
from convert.values import ForecastOptions

CHAIN = "g (float[1,65536] x) => (float[1,65536] y) {{ {nodes} }}"


def _chain(count: int) -> str:
    names = ["x", *(f"v{number}" for number in range(1, count)), "y"]
    ops = [f"[n{i}] {after} = Tanh({before})" for i, (before, after) in enumerate(itertools.pairwise(names))]
    return CHAIN.format(nodes=" ".join(ops))


def _feeds(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.standard_normal((1, 65536)).astype(np.float32)} for _ in range(count)]


def _study(make_graph, tmp_path: Path, memory: int, *, layers: int = 24, samples: int = 6) -> Study:
    graph = make_graph(_chain(layers), *_feeds(samples))
    return Study(graph, ForecastOptions(precision="fp16", memory=memory), tmp_path / f"s{memory}")


@pytest.mark.parametrize("memory", [64 << 10, 4 << 20, 64 << 20])
def test_a_study_holds_no_more_than_its_budget_of_samples_and_tensors(make_graph, tmp_path: Path, memory: int):
    study = _study(make_graph, tmp_path, memory)
    evaluation = study.evaluate()
    assert evaluation.verdict.passed
    assert study.held <= memory / 2
    one = study.run_exact(load_npz(study.graph.path("samples/000.npz")))
    assert LEAST_ELEMENTS <= study.prober.elements <= MOST_ELEMENTS
    # Of 256 KiB a tensor, what is read of all 25 together.
    assert one.readings.nbytes <= max(memory, 25 * LEAST_ELEMENTS * 4 * 4)
    study.close()


def test_a_small_budget_gives_the_same_verdict_from_fewer_elements(make_graph, tmp_path: Path):
    small, large = (_study(make_graph, tmp_path, memory) for memory in (64 << 10, 64 << 20))
    assert small.prober.elements < large.prober.elements
    assert small.frugal and not large.frugal
    ours, theirs = small.evaluate(), large.evaluate()
    assert ours.outputs[0].cosine == pytest.approx(theirs.outputs[0].cosine, abs=1e-9)
    assert ours.table.passed == pytest.approx(theirs.table.passed, rel=0.35)
    small.close()
    large.close()


def test_tensors_of_one_shape_come_out_in_one_output(make_graph, tmp_path: Path):
    text = "g (float[2,3] x) => (float y) { a = Relu(x) b = Neg(a) c = ReduceMax<keepdims=0>(b) y = Tanh(c) }"
    graph = make_graph(text, {"x": np.float32([[1, -2, 3], [4, 5, -6]])})
    study = Study(graph, ForecastOptions(precision="fp16"), tmp_path / "s")
    probes = study.prober.add(Candidate(study.model).model, {"a", "b", "c", "y"}, looks="norms")
    assert {(joined.part, joined.tensors, joined.size) for joined in probes.joined} == {
        ("sample", ("a", "b"), 6),
        ("sample", ("c", "y"), 1),
    }
    assert probes.single == ()
    told = study.run_exact({"x": np.float32([[1, -2, 3], [4, 5, -6]])}).readings
    assert list(told["b"].sample) == [-1, 0, -3, -4, -5, 0]
    assert (told["c"].sample.tolist(), told["c"].norm) == ([0.0], None)
    study.close()
