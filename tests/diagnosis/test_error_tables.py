"""Every row of every table is reached by its own text; patterns are bounded; a hostile log costs no more."""

import csv
import re
from pathlib import Path
from re import _parser

import pytest

from convert.diagnosis import read_log
from convert.diagnosis.reading import PLACES, matches_in
from convert.diagnosis.tables import KINDS, RANKS, VENDORS, Row, rows_for, table

ROWS = [row for vendor in VENDORS for row in table(vendor)]
FACTS = Path(__file__).parents[3] / "shared" / "vendors"
COLLECTED = {
    "atc": ("ascend/errors.csv", "regex"),
    "magicmind": ("cambricon/errors.csv", "pattern"),
    "migraphx": ("migraphx/errors.csv", "pattern_regex"),
    "tensorrt": ("tensorrt/errors.csv", "pattern"),
}


def name_of(row: Row) -> str:
    return f"{row.vendor}-{row.number}"


def test_the_tables_hold_what_is_known_of_each_vendor():
    counts = {vendor: len(table(vendor)) for vendor in VENDORS}
    assert counts["atc"] >= 148
    assert counts["magicmind"] >= 29
    assert counts["migraphx"] >= 90
    assert counts["tensorrt"] >= 58
    assert counts["ixrt"] >= 16


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_each_example_of_a_row_leads_to_its_action(row: Row):
    for example in row.examples:
        log = f"starting up\n{example}\nbye\n"
        found = read_log(row.vendor, log)
        assert found.known
        assert found.hint == row.action, example
        assert found.cause.startswith(row.cause)
        assert found.code == KINDS[row.kind].code
        first = matches_in(row.vendor, log)[0]
        assert (first.row.vendor, first.row.number) == (row.vendor, row.number) or first.row.action == row.action


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_rows_are_complete(vendor: str):
    groups = {"op", "node", "flag", "input", "file", "module", "step", "value", "expected", "reason"}
    for row in table(vendor):
        assert row.examples and row.cause and row.action and row.source, name_of(row)
        assert row.kind in KINDS, name_of(row)
        assert row.codes or row.seek, name_of(row)
        assert not row.cause.endswith("."), name_of(row)
        assert {name.rstrip("23") for name in re.compile(row.pattern).groupindex} <= groups, name_of(row)


@pytest.mark.parametrize("vendor", COLLECTED)
def test_each_row_of_the_collected_facts_has_its_row_here(vendor: str):
    file, column = COLLECTED[vendor]
    if not (FACTS / file).is_file():
        pytest.skip("the collected facts are not beside this checkout")
    with (FACTS / file).open(newline="") as stream:
        patterns = [row[column] for row in csv.DictReader(stream)]
    ours = table(vendor)
    assert len(ours) >= len(patterns)
    for pattern, row in zip(patterns, ours, strict=False):
        for example in row.examples:
            assert re.search(pattern, example, re.MULTILINE), (row.number, pattern, example)


def _repeats(tree, depth=0):
    for operation, argument in tree:
        name = str(operation)
        if name in {"MAX_REPEAT", "MIN_REPEAT"}:
            _, high, inner = argument
            yield int(high), depth
            yield from _repeats(inner, depth + (int(high) > 4))
        elif name == "SUBPATTERN":
            yield from _repeats(argument[-1], depth)
        elif name == "BRANCH":
            for branch in argument[1]:
                yield from _repeats(branch, depth)
        elif name in {"ASSERT", "ASSERT_NOT"}:
            yield from _repeats(argument[1], depth)


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_repeat_of_a_pattern_is_bounded_and_none_is_nested(vendor: str):
    for row in table(vendor):
        for high, depth in _repeats(_parser.parse(row.pattern)):
            # Blanks before the end of a line are the one unbounded repeat there is: nothing else can match them.
            assert high <= 300 or (high > 1 << 20 and r"\s*" in row.pattern), name_of(row)
            assert depth == 0, name_of(row)


HOSTILE = {
    "one character": lambda seeds: "[" * (4 << 20),
    "no newline": lambda seeds: (" ".join(seeds) * 400)[: 4 << 20],
    "all seeds, often": lambda seeds: ("\n".join(seeds) * 1000)[: 4 << 20],
    "every code": lambda seeds: "".join(f"E{a}{n:04d} " for a in "ABCZ0123456789" for n in range(10000)),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_log_is_tried_at_a_bounded_number_of_places(kind: str):
    # pytest's own time limit is the judge of the time that each try takes.
    seeds = [text for row in rows_for("atc") for text in (*row.examples, *row.seek)]
    log = HOSTILE[kind](seeds)
    most = sum(2 * PLACES + 20 * len(row.seek) for row in rows_for("atc"))
    assert len(matches_in("atc", log)) <= most


def test_ranks_go_from_causes_to_warnings():
    assert RANKS == ("cause", "follow", "status", "warning")
    assert {row.rank for row in ROWS} == {0, 1, 2, 3}
