"""``convert soak``: the same answer over and over, and a stop at the first that differs."""

from __future__ import annotations

import pytest
from acceptance_kit import Site

from convert.acceptance.soak import parse_duration
from convert.errors import UsageError

Capture = pytest.CaptureFixture[str]


def test_every_run_is_compared_with_the_first_until_enough_were_done(cpu: Site, capsys: Capture) -> None:
    ended = cpu("soak", "out/m/cpu", "--for", "10m", "--runs", 25, "--workers", 2, capsys=capsys)
    assert ended.code == 0
    said = ended.said
    assert (said["passed"], said["runs"], said["equal"], said["broken"], said["workers"]) == (True, 25, 25, -1, 2)
    assert said["rounds"] >= 3 and said["memory_last"] > 0 and said["last"]["clock"] == "in-process"


def test_a_card_that_drifts_stops_it_at_once(ascend: Site, capsys: Capture) -> None:
    ended = ascend("soak", "out/m/Ascend910B", "--for", "10m", "--runs", 50, capsys=capsys, ACL_DOUBLE_FAULT="drift")
    assert (ended.code, ended.said["error"]["code"], ended.said["passed"]) == (8, "CNV-8123", False)
    assert ended.said["runs"] == ended.said["broken"] + 1 < 50
    assert "output 'y'" in ended.said["failures"][0]


def test_a_card_that_crashes_ends_it_in_its_own_error(ascend: Site, capsys: Capture) -> None:
    ended = ascend("soak", "out/m/Ascend910B", "--for", "1m", capsys=capsys, ACL_DOUBLE_FAULT="crash")
    assert (ended.code, ended.said["error"]["code"]) == (7, "CNV-7005")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("24h", 86400), ("2d", 172800)]
)
def test_times_are_written_as_people_do(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5m", "soon", "10 years", "1e9h", "99999d"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_duration(text)
    assert refused.value.code == "CNV-2283"
