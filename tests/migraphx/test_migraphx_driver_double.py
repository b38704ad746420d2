"""The stand-in has the habits of the real driver, as they were seen: exit codes that say nothing, silent losses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import onnx
import pytest
from migraphx_requests import stand_in, tiny_model

UNKNOWN_OP = onnx.helper.make_node("Det", ["y"], ["d"], name="det")


def call(*words: str) -> tuple[int, str, str]:
    ended = subprocess.run(["migraphx-driver", *words], capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("convert", "tiny.onnx"), "'convert' is not a valid command."),
        (("--ref", "compile", "tiny.onnx"), "command 'compile' must be first argument"),
        (("compile", "tiny.onnx", "--ref", "--fp-16", "-o", "t.mxr"), "Did you mean --fp16?"),
        (("compile", "gone.onnx", "--ref", "-o", "t.mxr"), "Path does not exist: gone.onnx"),
        (("compile", "--ref", "--input-dim", "@x", "2", "8", "tiny.onnx"), "required arguments were not provided"),
        (("compile", "tiny.onnx", "--ref", "-o", "t.mxr", "-o", "u.mxr"), "Too many arguments passed."),
        (("compile", "tiny.onnx", "--ref", "--batch", "x", "-o", "t.mxr"), "Failed to parse 'x' as unsigned int"),
    ],
)
def test_a_usage_error_exits_0_and_writes_nothing(words, says, machine, tiny: Path, monkeypatch) -> None:
    machine("2.16.0")
    monkeypatch.chdir(tiny.parent)
    code, out, err = call(*words)
    assert code == 0
    assert says in out + err
    assert not Path("t.mxr").exists()


@pytest.mark.parametrize(
    ("version", "closing", "stream"),
    [("2.8.0", "", 0), ("2.12.0", "] Complete: migraphx-driver", 0), ("2.15.0", "] Complete(0.024s): ", 0),
     ("2.16.0", "] Complete(0.024s): ", 1), ("4.0.0", "", 0)],
)  # fmt: skip
def test_the_closing_line_has_the_form_and_the_stream_of_the_version(
    version, closing, stream, machine, tiny: Path, monkeypatch
) -> None:
    machine(version)
    monkeypatch.chdir(tiny.parent)
    code, *said = call("compile", "tiny.onnx", "--ref", "-o", "t.mxr")
    assert code == 0
    assert (closing or "Reading: tiny.onnx") in said[stream]
    assert "Complete" not in said[1 - stream]
    assert ("Complete" in said[stream]) is bool(closing)


def test_an_exception_ends_it_with_134_and_a_what_line(machine, tmp_path: Path, monkeypatch) -> None:
    machine()
    monkeypatch.chdir(tmp_path)
    onnx.save(tiny_model(op="Mish"), "mish.onnx")
    code, _, err = call("compile", "mish.onnx", "--ref", "-o", "t.mxr")
    assert code == -6
    assert "what():" in err and "parse_graph: Unknown operator: Mish" in err


def test_a_skipped_operator_is_written_and_ends_the_load(machine, tmp_path: Path, monkeypatch) -> None:
    machine("2.16.0")
    monkeypatch.chdir(tmp_path)
    onnx.save(tiny_model(op="Mish"), "mish.onnx")
    assert call("compile", "mish.onnx", "--ref", "--skip-unknown-operators", "-o", "t.mxr")[0] == 0
    code, _, err = call("params", "t.mxr")
    assert code == -6 and "Operator not found: unknown:Mish" in err


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        (("--dim-param", "@N", "[{min:1,max:8}]"), [0, 8]),
        (("--dim-param", "@N", "{range:{min:1,max:8}}"), [0, 8]),
        (("--default-dyn-dim", "{min:1,max:8}"), [0, 8]),
        (("--dim-param", "@N", "[{min:1,max:8,range:{min:1,max:8}}]"), [[1, 8], 8]),
        (("--input-dim", "@x 4 8"), [1, 8]),
        (("--input-dim", "@wrong", "4", "8"), [1, 8]),
        (("--batch", "3"), [3, 8]),
    ],
)
def test_a_range_in_the_form_of_another_version_is_silently_dimension_0(
    words, sizes, tiny_open: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tiny_open.parent)
    with stand_in("2.16.0", "") as driver:
        values = driver.parse(["tiny.onnx", *words], driver.flags_of("compile"))
        assert driver.load(values).header["dims"]["x"] == sizes


def test_an_object_with_two_keys_is_told_to_be_wrong(tiny_open: Path, monkeypatch) -> None:
    monkeypatch.chdir(tiny_open.parent)
    with stand_in("2.16.0", "") as driver, pytest.raises(driver.mx.Failure, match="only specify one dimension"):
        driver.load(driver.parse(["tiny.onnx", "--dim-param", "@N", "{min:1,max:8}"], driver.flags_of("compile")))


def test_a_compiled_program_is_not_compiled_again_and_nothing_is_written(machine, tiny: Path, monkeypatch) -> None:
    machine("2.16.0")
    monkeypatch.chdir(tiny.parent)
    call("compile", "tiny.onnx", "--ref", "-o", "t.mxr")
    code, _, err = call("compile", "t.mxr", "--ref", "--fp16", "-o", "new.mxr")
    assert code == 0 and "already compiled, skipping compilation" in err
    assert not Path("new.mxr").exists()


def test_a_gpu_needs_a_card_and_an_empty_file_is_a_memory_fault(machine, tiny: Path, monkeypatch) -> None:
    machine()
    monkeypatch.chdir(tiny.parent)
    code, _, err = call("compile", "tiny.onnx", "--gpu", "-o", "t.mxr")
    assert code == -6 and "Failed to get device properties" in err
    Path("empty.onnx").write_bytes(b"")
    assert call("compile", "empty.onnx", "--ref", "-o", "t.mxr")[0] == -11


def test_an_unwritable_output_is_not_told(machine, tiny: Path, monkeypatch) -> None:
    machine()
    monkeypatch.chdir(tiny.parent)
    assert call("compile", "tiny.onnx", "--ref", "-o", "nowhere/t.mxr")[0] == 0
