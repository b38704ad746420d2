"""Whole graphs of trained models, at every opset that a vendor asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from convert.lowering import lower

OPSETS = (11, 13, 16, 17, 18)
RNG = np.random.default_rng(7)
SOUND = RNG.standard_normal((1, 576), dtype=np.float32) * 0.1
STATE = np.zeros((2, 1, 128), np.float32)
RATE = np.array(16000)
FEEDS: dict[str, dict[str, Any]] = {
    "silero_vad-silero_vad.onnx": {"input": SOUND, "state": STATE, "sr": RATE},
    "silero_vad-silero_vad_16k_op15.onnx": {"input": SOUND, "state": STATE, "sr": RATE},
    "silero_vad-silero_vad_half.onnx": {"input": SOUND, "state": STATE},
    "silero_vad-silero_vad_op18_ifless.onnx": {"input": SOUND, "state": STATE, "sr": RATE},
    "silero_vad-silero_vad_openvino_16k.onnx": {"input": SOUND, "state": STATE},
    "magika-model.onnx": {"bytes": RNG.integers(0, 256, (2, 2048), dtype=np.int32)},
    "basic_pitch-nmp.onnx": {"serving_default_input_2:0": RNG.standard_normal((2, 43844, 1), dtype=np.float32)},
}


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)


@pytest.mark.parametrize("name", FEEDS)
def test_a_trained_graph_keeps_its_numbers_at_every_opset(trained: Path, name: str) -> None:
    model = onnx.load(trained / name)
    wanted = run(model, FEEDS[name])
    assert any(np.ptp(output) > 0 for output in wanted if output.size > 1) or wanted[0].item() > 0
    for opset in OPSETS:
        lowered = lower(model, opset)
        onnx.checker.check_model(lowered, full_check=True)
        assert next(one.version for one in lowered.opset_import if one.domain in ("", "ai.onnx")) == opset
        for given, expected in zip(run(lowered, FEEDS[name]), wanted, strict=True):
            np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-6)
