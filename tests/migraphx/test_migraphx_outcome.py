"""Whether a driver did what it was told, by exit code, closing line and what it says."""

from __future__ import annotations

import pytest
from migraphx_requests import graph_of, plan_of

from artifacts.runner import Finished
from convert.backends.migraphx.outcome import failure_of, zero_dimension
from convert.backends.migraphx.versions import dialect_of

DONE = "Reading: model/model.onnx\nCompiling ... \n"
CLOSED = {
    "2.8": "",
    "2.12": "[ MIGraphX Version: 2.12.0.1 ] Complete: migraphx-driver compile\n",
    "2.15": "[ MIGraphX Version: 2.15.0.1 ] Complete(0.024s): migraphx-driver compile\n",
    "2.16": "2026-01-01 00:00:00.000000 [INFO] [/a/main.cpp:1] [ MIGraphX Version: 2.16.0.1 ] Complete(1.2e-02s): x\n",
}


def failure(log: str, version: str = "2.15", code: int = 0, precision: str = "fp16") -> str:
    plan = plan_of("migraphx-ref", version + ".0", graph_of("fixed"), precision)
    finished = Finished(argv=plan.argv, returncode=code, timed_out=False, seconds=1, log="", log_bytes=len(log))
    return failure_of(plan, finished, log, dialect_of(version))


@pytest.mark.parametrize("version", CLOSED)
def test_exit_0_with_the_closing_line_of_the_version_is_success(version: str) -> None:
    assert failure(DONE + CLOSED[version], version) == ""


@pytest.mark.parametrize(("version", "line"), [("2.15", "2.12"), ("2.12", "2.15"), ("2.16", "2.8")])
def test_the_closing_line_of_another_version_is_none(version: str, line: str) -> None:
    assert "without the closing line" in failure(DONE + CLOSED[line], version)


@pytest.mark.parametrize(
    "text",
    [
        "error: Found argument '--fp-16' which wasn't expected, or isn't valid in this context",
        "Path does not exist: --totally-unknown",
        "The following required arguments were not provided:",
        "Too many arguments passed.",
        "Failed to parse 'x' as unsigned int",
        "error: 'convert' is not a valid command.",
        "error: command 'compile' must be first argument",
        "Flag with no value.",
    ],
)
def test_a_usage_error_is_a_failure_although_it_exits_0_and_closes(text: str) -> None:
    told = failure(f"{text}\n{DONE}{CLOSED['2.15']}")
    assert "refused its arguments" in told and text.removeprefix("error: ")[:20] in told


def test_a_driver_that_read_nothing_or_compiled_nothing_failed() -> None:
    assert "read no file" in failure(CLOSED["2.15"])
    skipped = f"{DONE}The program is already compiled, skipping compilation ...\n{CLOSED['2.15']}"
    assert "wrote nothing" in failure(skipped)


@pytest.mark.parametrize("code", [-6, 134])
def test_an_exception_is_told_by_its_what_line(code: int) -> None:
    log = "terminate called after throwing\n  what():  /src/onnx_parser.cpp:625: parse_graph: Unknown operator: Det\n"
    assert failure(log, code=code).endswith("SIGABRT: /src/onnx_parser.cpp:625: parse_graph: Unknown operator: Det")


def test_a_memory_fault_is_told_as_such() -> None:
    assert "memory fault" in failure("", code=-11)


def test_the_script_has_a_closing_line_of_its_own() -> None:
    assert failure("migraphx_compile: done with 2.15\n", precision="int8") == ""
    assert "without its closing line" in failure("migraphx_compile: calibrating\n", precision="int8")
    assert "CONVERT_MIGRAPHX_PYTHON" in failure("migraphx_compile: no module: x\n", code=86, precision="int8")
    assert failure("  what():  Unknown operator: Det\n", code=1, precision="int8").endswith("Unknown operator: Det")


@pytest.mark.parametrize(
    ("line", "zero"),
    [
        ("x: float_type, {0, 3, 8, 8}, {192, 64, 8, 1}", "x"),
        ("x: dynamic, float_type, {[1..8], 3, 8, 0}", "x"),
        ("x: dynamic, float_type, {[0..8], 3, 8, 8}", "x"),
        ("x: dynamic, float_type, {[1..8], 10, 8, 20}", ""),
        ("x: float_type, {1, 3}, {0, 1}", ""),
        ("main:#output_0: float_type, {0, 3}, {3, 1}", ""),
    ],
)
def test_a_dimension_of_0_is_seen(line: str, zero: str) -> None:
    assert zero_dimension(f"Reading: a\n{line}\n", ("x",)) == zero


@pytest.mark.parametrize(
    ("text", "number", "closing", "file_version"),
    [
        ("2.2.0", (2, 2), "none", 5), ("2.7", (2, 7), "none", 6), ("2.8.0", (2, 8), "none", 7),
        ("2.9.1", (2, 9), "plain", 7), ("2.13", (2, 13), "seconds", 7), ("2.16.0.2025", (2, 16), "seconds", 8),
        ("2.18.0", (2, 18), "seconds", 0), ("1.9", (1, 9), "none", 0), ("rocm-6.4", (2, 12), "plain", 7),
        ("rocm-7.2.4", (2, 15), "seconds", 7), ("4.0.0", (4, 0), "unknown", 0), ("", (2, 15), "seconds", 7),
    ],
)  # fmt: skip
def test_what_is_known_of_a_version(text, number, closing, file_version) -> None:
    dialect = dialect_of(text)
    assert (dialect.version, dialect.closing, dialect.file_version) == (number, closing, file_version)
