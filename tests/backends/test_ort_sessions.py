import ml_dtypes
import numpy as np
import onnx
import pytest

from convert.ort import SessionFailed, SessionSettings, clean_line, open_session, run_session, settings_for

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def _run(text: str, **feeds: np.ndarray) -> list[np.ndarray]:
    model = onnx.parser.parse_model(HEADER + text)
    return run_session(open_session(model.SerializeToString()), feeds)


def test_outputs_come_in_the_order_of_the_model():
    first, second = _run("g (float[2] x) => (float[2] b, float[2] a) { a = Neg(x) b = Relu(x) }", x=np.float32([1, -1]))
    assert first.tolist() == [1, 0]
    assert second.tolist() == [-1, 1]


def test_feeds_that_the_model_does_not_take_are_left_out():
    assert _run("g (float[1] x) => (float[1] y) { y = Neg(x) }", x=np.float32([1]), unused=np.int64([3]))[0] == -1


def test_scalars_stay_scalars():
    assert _run("g (float x) => (float y) { y = Neg(x) }", x=np.float32(2))[0].shape == ()


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_types_that_numpy_lacks_go_in_and_out(dtype):
    name = {"bfloat16": "bfloat16", "float8_e4m3fn": "float8e4m3fn"}[np.dtype(dtype).name]
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 19]>\ng ({name}[2,1] x) => ({name}[2,1] y) {{ y = Identity(x) }}'
    )
    given = np.array([[1.5], [-2]], dtype)
    answer = run_session(open_session(model.SerializeToString()), {"x": given})[0]
    assert answer.dtype == given.dtype
    assert np.array_equal(answer, given)


@pytest.mark.parametrize(
    ("text", "feeds", "kind", "words"),
    [
        ("g (float[2] x) => (float[2] y) { y = Neg(x) }", {}, "feed", "no value for the input 'x'"),
        ("g (float[2] x) => (float[2] y) { y = Neg(x) }", {"x": np.zeros(2)}, "feed", "takes float32"),
        ("g (float[2] x) => (float[2] y) { y = Neg(x) }", {"x": np.float32([1])}, "run", "Got: 1 Expected: 2"),
        ("g (bfloat16[1,1] x) => (bfloat16[1,1] y) { y = MatMul(x, x) }", {}, "not_implemented", "MatMul(13)"),
        ("g (float[2] x) => (float[2] y) { y = Foo(x) }", {}, "invalid", "Foo"),
    ],
)
def test_failures_say_their_kind_in_one_clean_line(text, feeds, kind, words):
    with pytest.raises(SessionFailed) as failure:
        _run(text, **feeds)
    assert failure.value.kind == kind
    assert words in str(failure.value)
    assert not [noise for noise in ("\n", "onnxruntime_src", "[ONNXRuntimeError]") if noise in str(failure.value)]


def test_nothing_is_printed_on_failure(capfd):
    with pytest.raises(SessionFailed):
        _run("g (float[2] x) => (float[2] y) { y = Neg(x) }", x=np.float32([1, 2, 3]))
    assert capfd.readouterr() == ("", "")


def test_source_positions_and_paths_are_cut_from_messages():
    raw = (
        "[ONNXRuntimeError] : 1 : FAIL : Load model from /home/me/a/model.onnx failed:"
        "/onnxruntime_src/onnxruntime/core/graph/model.cc:182 something"
    )
    assert clean_line(raw) == "Load model from model.onnx failed: something"


def test_names_of_nodes_that_look_like_paths_stay_whole():
    raw = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Foo(1) '/layers.0/attn/Foo'"
    assert clean_line(raw) == "Could not find an implementation for Foo(1) '/layers.0/attn/Foo'"


def test_a_missing_file_is_named_without_its_folder(tmp_path):
    with pytest.raises(SessionFailed) as failure:
        open_session(tmp_path / "with space" / "model.onnx")
    assert "tmp" not in str(failure.value)
    assert str(failure.value).startswith("Load model from model.onnx failed")


def test_long_messages_are_cut():
    assert len(clean_line("x" * 5000)) == 400


def test_a_big_model_is_mapped_and_not_rewritten(tmp_path):
    model = tmp_path / "model.onnx"
    model.write_bytes(b"")
    assert settings_for(model) == SessionSettings()
    with (tmp_path / "model.onnx.data").open("wb") as stream:
        stream.truncate(256 << 20)
    assert settings_for(model) == SessionSettings(level="off", big=True)
