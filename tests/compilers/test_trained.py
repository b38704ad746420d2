"""Trained models on real compilers: they keep their numbers, or fail their gate with the cause named.

What each reaches stands in docs/reference/agreement.md. The quick ones are here; the long form takes all.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from compiler_kit import LEAST, command, worst_cosine
from trained_kit import MODELS, words_for

pytestmark = pytest.mark.compilers
FAILS = {
    ("magika", "BM1684X", "fp16"): ("ReduceSum", "fp16 can't hold"),
    ("basic_pitch", "openvino-cpu", "fp16"): ("the forecast of fp16 blames Mul", "smallest normal"),
}
"""Models that a precision is too narrow for, and what the cause must say."""
IF_OUTPUTS = "the front end keeps the first output of an If only"
REFUSED = {
    ("silero_if", "BM1684X"): ("CNV-5001", IF_OUTPUTS),
    ("silero_16k", "BM1684X"): ("CNV-5001", IF_OUTPUTS),
    ("silero_half", "BM1684X"): ("CNV-5001", IF_OUTPUTS),
    ("silero_ifless", "BM1684X"): ("CNV-5001", IF_OUTPUTS),
    ("silero_if", "openvino-cpu"): ("CNV-7262", "operators Conv, ReduceMean"),
    ("silero_16k", "openvino-cpu"): ("CNV-7262", "operators Conv, ReduceMean"),
    ("silero_half", "openvino-cpu"): ("CNV-7262", "operators Conv, ReduceMean"),
    ("silero_ifless", "openvino-cpu", "int8"): ("CNV-7271", "it stops at an If"),
}
"""Files with an If that stays: what each compiler can't take of it, at one precision or at all."""
QUICK = {("silero", "int8"), ("pnet", "fp16"), ("rnet", "int8"), ("magika", "fp16")}
SLOW = {("magika", "BM1684X"), ("basic_pitch", "BM1684X")}
"""The simulator takes minutes for a sample of these."""
PAIRS = [(name, precision) for name in MODELS for precision in LEAST]


def quick(name: str, precision: str) -> bool:
    return (name, precision) in QUICK


@pytest.mark.parametrize(
    ("name", "precision"),
    [pytest.param(*pair, marks=() if quick(*pair) else pytest.mark.long) for pair in PAIRS],
)
def test_a_trained_model_keeps_its_numbers_or_fails_with_the_cause_named(
    trained: Path, tmp_path: Path, target: str, name: str, precision: str
) -> None:
    if quick(name, precision) and (name, target) in SLOW:
        pytest.skip("minutes on the chip's simulator: the long form runs it")
    judge(trained, tmp_path, (name, target, precision))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "precision"), [("magika", "fp16"), ("magika", "int8"), ("basic_pitch", "fp16"), ("basic_pitch", "int8")]
)
def test_a_slow_trained_model_does_so_on_the_simulator(
    trained: Path, tmp_path: Path, target: str, name: str, precision: str
) -> None:
    if (name, target) not in SLOW:
        pytest.skip("it is quick here")
    judge(trained, tmp_path, (name, target, precision))


def judge(trained: Path, folder: Path, case: tuple[str, str, str]) -> None:
    """Convert and look at the numbers; where the precision is too narrow, at what the error says of it."""
    name, target, precision = case
    words = words_for(name, trained, folder)
    answer = command(folder, "convert", *words, "--target", target, "--precision", precision, limit=3000)
    if refusal := REFUSED.get((name, target)) or REFUSED.get(case):
        error = answer.document["error"]
        assert (error["code"], answer.code) == (refusal[0], int(refusal[0][4]))
        told = error["message"] + "".join(one["reason"] for one in (answer.target["support"] or {})["unsupported"])
        assert refusal[1] in told
        return
    if case in FAILS:
        assert (answer.code, answer.document["error"]["code"]) == (8, "CNV-8001"), answer.document["error"]
        message = answer.document["error"]["message"]
        assert "Cause: it first departs at" in message
        for part in FAILS[case]:
            assert part in message
        assert not (folder / "registry" / name.replace("_", "-")).exists()
        return
    if answer.code == 8:
        # Good enough for this test, and not for the gate, which asks for more: then the cause is told.
        assert "Cause: " in answer.document["error"]["message"]
    else:
        assert answer.code == 0, answer.document["error"]
    assert worst_cosine(answer.target) >= LEAST[precision]
