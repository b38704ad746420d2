"""``convert.toml``: what it may say, and every problem of it at once, each with its line."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from convert.catalog.lines import key_lines
from convert.catalog.pairs import expand, request_of, select
from convert.catalog.reader import check_text, read_catalog
from convert.catalog.schema import SHIPPED, json_schema
from convert.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]

GOOD = """
[catalog]
targets = ["cpu", "Ascend910B3"]
schedule = "0 2 * * mon-fri"

[[model]]
path = "nets/a.onnx"
precision = "fp16"
gate = {cosine = 0.999}

[model.target.Ascend910B3]
options = {level = "O2"}

[[model]]
name = "zoo/{stem}"
glob = "zoo/*.onnx"
targets = ["cpu"]

[[model]]
registry = "a:prod"
name = "again"
enabled = false
"""


def problems(text: str) -> list[str]:
    return [str(problem) for problem in check_text(text)[0]]


def write(folder: Path, text: str) -> Path:
    path = folder / "convert.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_catalogue_becomes_pairs_with_their_requests(tmp_path: Path) -> None:
    for name in ("nets/a.onnx", "zoo/One.onnx", "zoo/two.onnx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    pairs = expand(read_catalog(write(tmp_path, GOOD)))
    assert [pair.label for pair in pairs] == ["a@cpu", "a@Ascend910B3", "zoo/one@cpu", "zoo/two@cpu"]
    cpu, card = (request_of([pair], pair.path) for pair in pairs[:2])
    assert (cpu.precision, cpu.gate, cpu.options) == ("fp16", {"cosine": 0.999}, {})
    assert card.options == {"level": "O2"}
    assert card.load.path == str(tmp_path / "nets/a.onnx")
    assert [pair.label for pair in select(pairs, ["zoo/*"], [])] == ["zoo/one@cpu", "zoo/two@cpu"]
    assert [pair.label for pair in select(pairs, [], ["ascend910b3"])] == ["a@Ascend910B3"]


def test_all_problems_are_told_at_once_with_their_lines() -> None:
    text = """[settings]
jobz = 2

[catalog]
schedule = "0 25 * * *"

[[model]]
path = "a.onnx"
glob = "*.onnx"
targets = ["Ascend910B9"]
"""
    assert problems(text) == ["line 2: settings.jobz: no such key; did you mean jobs?"]
    found = problems(text.replace("jobz", "jobs"))
    assert [line.partition(": ")[0] for line in found] == ["line 5", "line 7", "line 10"]
    assert "'25' is no hour (0 to 23)" in found[0]
    assert "exactly one of path, glob and registry; this one has path and glob" in found[1]
    assert "no target is called 'Ascend910B9'" in found[2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[model]]\npath = 3\n", "line 2: model.path: Expected str | null, got int"),
        ('[[model]]\npath = "a"\ntargets = "cpu"\n', "line 3: model.targets: Expected array, got str"),
        ('[[model]]\npath = "a"\nprecision = "fp12"\n', "line 3: model.precision: Invalid enum value 'fp12'"),
        ('[[model]]\npath = "a"\ntargets = ["cpu"]\ngate = {cosinus = 1.0}\n', "line 4: model.gate: "),
        ('[[model]]\npath = "a"\ntargets = ["cpu"]\ninputs = ["x:float99[2]"]\n', "line 4: model.inputs: "),
        (
            '[[model]]\npath = "a"\ntargets = ["cpu"]\n[model.target.MLU370]\nsoc = "x"\n',
            "line 4: model.target.MLU370: ",
        ),
        ('[[model]]\npath = "a"\n', "line 1: model: a model needs targets"),
        ('[[model]]\nglob = "../*.onnx"\ntargets = ["cpu"]\n', "line 2: model.glob: a pattern stays inside"),
        ('[[model]]\npath = "a"\nname = "Big Net"\ntargets = ["cpu"]\n', "line 3: model.name: "),
        ('[[model]]\npath = "a"\ntargets = ["MLU370"]\nprecision = "bf16"\n', ""),
        ("model = 3\n", "line 1: model: this is an array of tables, not a number"),
        ("[catalog]\ntargets = [\n", "line 3: TOML: "),
        ("[catalog\n", "line 1: TOML: "),
        ('[catalog]\non_regression = "ftp://x"\n', "line 2: catalog.on_regression: an address begins with http"),
        ('[catalog]\nchannel = "Prod!"\n', "line 2: catalog.channel: "),
    ],
)
def test_each_kind_of_problem_has_its_line_and_key(text: str, problem: str) -> None:
    found = problems(text)
    assert len(found) == (1 if problem else len(found))
    if problem:
        assert found[0].startswith(problem)


def test_two_models_of_one_name_and_a_pattern_without_files_are_told(tmp_path: Path) -> None:
    text = '[catalog]\ntargets = ["cpu"]\n[[model]]\npath = "x/a.onnx"\n[[model]]\npath = "y/a.onnx"\n'
    text += '[[model]]\nglob = "z*"\n'
    with pytest.raises(UsageError) as caught:
        expand(read_catalog(write(tmp_path, text)))
    assert caught.value.code == "CNV-2352"
    assert "line 5" in caught.value.message
    assert "line 7: model.glob: no file matches z*" in caught.value.message


def test_lines_are_found_through_strings_comments_and_arrays() -> None:
    text = '# [not]\na = """\n[neither]\nb = 1\n"""\n[[m]] # one\nk = [\n  "]", # ]\n]\n'
    text += '"q.r" = 1\n[[m]]\n[m.t."x y"]\nz.y = 2\n'
    lines = key_lines(text)
    assert lines[("a",)] == 2
    assert lines[("m", 0)] == 6
    assert lines[("m", 0, "k")] == 7
    assert lines[("m", 0, "q.r")] == 10
    assert lines[("m", 1)] == 11
    assert lines[("m", 1, "t", "x y", "z", "y")] == 13
    assert ("b",) not in lines


def test_the_shipped_schema_is_the_reader_s_and_refuses_what_it_refuses(request: pytest.FixtureRequest) -> None:
    import jsonschema

    if request.config.getoption("--update-goldens"):
        SHIPPED.write_text(json.dumps(json_schema(), indent=2) + "\n", encoding="utf-8")
    assert json.loads(SHIPPED.read_text(encoding="utf-8")) == json.loads(json.dumps(json_schema()))
    validator = jsonschema.Draft202012Validator(json_schema())
    assert list(validator.iter_errors(tomllib.loads(GOOD))) == []
    for bad in (
        "[catalog]\nowners = 1\n",
        "[[model]]\npath = 1\n",
        '[[model]]\npath = "a"\nglob = "b"\ntargets = ["cpu"]\n',
        '[[model]]\nname = "x"\ntargets = ["cpu"]\n',
        '[[model]]\npath = "a"\nprecision = "fp12"\n',
        "[settings]\njobs = 0\n",
    ):
        assert list(validator.iter_errors(tomllib.loads(bad))), bad
        assert problems(bad), bad


def test_the_example_is_a_catalogue_and_its_commented_part_is_too() -> None:
    text = (ROOT / "convert.example.toml").read_text(encoding="utf-8")
    assert problems(text) == []
    body = text.partition("# The catalogue")[2]
    said = re.compile(r"# (\[|[a-z_]+ = )")
    lines = [line.removeprefix("# ") for line in body.splitlines() if said.match(line)]
    whole = "\n".join(lines)
    assert problems(whole) == []
    from convert.catalog.values import Defaults, ModelEntry

    document = tomllib.loads(whole)
    assert set(document["catalog"]) == set(Defaults.__struct_fields__)
    assert {key for model in document["model"] for key in model} == set(ModelEntry.__struct_fields__)


def test_the_precision_may_be_left_to_the_ladder_of_each_target() -> None:
    assert problems('[[model]]\npath = "a.onnx"\ntargets = ["cpu", "MLU370"]\nprecision = "auto"\n') == []


def test_a_mixed_plan_is_a_precision_of_what_has_fp16() -> None:
    assert problems('[[model]]\npath = "a.onnx"\ntargets = ["cpu"]\nprecision = "mixed"\n') == []


def test_a_time_zone_that_is_none_is_told() -> None:
    (told,) = problems('[catalog]\ntimezone = "Asia/Shanghia"\n')
    assert told.startswith("line 2: catalog.timezone: no time zone is called 'Asia/Shanghia'")


def test_a_device_without_end_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_catalog(Path("/dev/zero"))
    assert caught.value.code == "CNV-2351"
    (tmp_path / "convert.toml").write_bytes(b'\xef\xbb\xbf[catalog]\r\nowner = "x"\r\n')
    assert read_catalog(tmp_path / "convert.toml").defaults.owner == "x"


def test_lines_stay_right_over_comments_and_texts_of_many_lines() -> None:
    text = '\n# one\n[catalog]\n\nowner = """\na\n"""\n\n  [[model]]\n\n  path = "x"\n'
    lines = key_lines(text)
    assert (lines["catalog", "owner"], lines["model", 0], lines["model", 0, "path"]) == (5, 9, 11)
