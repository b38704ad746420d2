"""The data files' own format: conditions, opsets, and refusing what is malformed with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from op_registry.conditions import parse_condition
from op_registry.errors import MalformedData
from op_registry.support import parse_types, row_of
from op_registry.tables import format_opsets, malformed, parse_opsets, read_csv, read_toml
from op_registry.vendors import Era, Vendor

COLUMNS = ("domain", "op", "state", "grade", "opsets", "types", "limits", "source")
ERA = Era(id="old", versions="<=1", source="s", checked="2026-11-30")


def write(folder: Path, *lines: str, name: str = "ops.csv", head: str = ",".join(COLUMNS)) -> Path:
    path = folder / "acme" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return path


def rows(path: Path) -> list:
    return [row_of(line, None, "") for line in read_csv(path, ("domain", "op", "state", "grade", "source"))]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (",Conv,maybe,read,8,,,s", "column 'state' holds 'maybe'"),
        (",Conv,ok,heard,8,,,s", "column 'grade' holds 'heard'"),
        (",Conv,ok,read,8-,,,s", "'8-' is no opset or range of opsets"),
        (",Conv,ok,read,9-8,,,s", "'9-8' is no range between 1 and 64"),
        (",Conv,ok,read,0,,,s", "'0' is no range between 1 and 64"),
        (",Conv,ok,read,8-999999999,,,s", "is no range between 1 and 64"),
        (",Conv,ok,read,,,,s", "the opsets are missing"),
        (",,ok,read,8,,,s", "column 'op' is empty"),
        (",Conv,ok,read,8,,,", "column 'source' is empty"),
        (",Conv,ok,read,8,float32,,s", "isn't written PLACE=TYPE"),
        (",Conv,ok,read,8", "has 5 cells, the header has 8"),
        (',Conv,ok,read,8,,"open,s', "unexpected end of data"),
    ],
)
def test_a_malformed_line_is_refused_with_file_and_line(tmp_path: Path, line: str, why: str) -> None:
    path = write(tmp_path, ",Relu,ok,read,8,,,s", line)
    with pytest.raises(MalformedData) as caught:
        rows(path)
    assert caught.value.code == "CNV-2504"
    assert caught.value.message.startswith("acme/ops.csv, line 3: ")
    assert why in caught.value.message


def test_a_missing_column_and_a_doubled_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedData, match="line 1: column 'source' is missing"):
        rows(write(tmp_path, head="domain,op,state,grade,opsets"))
    with pytest.raises(MalformedData, match="line 1: a column appears twice"):
        rows(write(tmp_path, head=",".join((*COLUMNS, "op"))))


def test_a_file_that_is_no_text_or_is_not_there_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MalformedData, match="isn't UTF-8 text"):
        rows(path)
    with pytest.raises(MalformedData, match="can't be read: No such file"):
        rows(tmp_path / "acme" / "none.csv")


def test_unknown_keys_and_wrong_types_in_a_vendor_file_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, name="vendor.toml", head='title = "x"\nsurprise = 1')
    with pytest.raises(MalformedData, match=r"acme/vendor.toml: "):
        read_toml(path, Vendor)
    with pytest.raises(MalformedData, match=r"acme/vendor.toml: Invalid value \(at line 1"):
        read_toml(write(tmp_path, name="vendor.toml", head="title = = 1"), Vendor)


@pytest.mark.parametrize(
    ("cell", "state", "grade"), [("8", "ok", "read"), ("~8", "ok", "inferred"), ("?8", "unknown", "inferred")]
)
def test_marks_before_opsets_say_how_they_are_known(tmp_path: Path, cell: str, state: str, grade: str) -> None:
    path = write(tmp_path, f",Conv,ok,read,s,{cell}", head="domain,op,state,grade,source,old")
    (line,) = read_csv(path, ("op",))
    row = row_of(line, ERA, "1")
    assert row is not None
    assert (row.state, row.grade, row.opsets) == (state, grade, frozenset([8]))


@given(st.sets(st.integers(1, 64), min_size=1))
def test_opsets_written_down_are_read_back_the_same(opsets: set[int]) -> None:
    assert parse_opsets(format_opsets(opsets)) == opsets


def test_every_opset_is_a_star() -> None:
    assert parse_opsets("*") is None
    assert format_opsets(None) == "*"


def test_types_are_read_by_place() -> None:
    assert parse_types("0=float32|int8 o1=int64") == {"0": {"float32", "int8"}, "o1": {"int64"}}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("atr x is 1", "doesn't begin with one of"),
        ("attr x equals 1", "'equals' can't be asked of attr"),
        ("attr x is", "takes some values"),
        ("attr x missing 1", "takes no values"),
        ("attr x max 3", "write max > N"),
        ("attr x > many", "'many' is no number"),
        ("rank first is 3", "'first' is no index"),
        ("dtype 0 constant", "can't be asked of dtype"),
        ("inputs < 2 and  ", "doesn't begin with one of"),
    ],
)
def test_a_condition_that_cannot_be_read_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_condition(text)


def test_an_error_about_a_whole_file_names_no_line() -> None:
    assert malformed(Path("a/b.csv"), 0, "why").message == "a/b.csv: why"
