"""What ``--metric`` names is looked for before a conversion begins, and none of it is run."""

from pathlib import Path

import pytest

from convert.errors import UsageError
from convert.pipeline import convert_model
from convert.request import Request
from convert.settings import load_settings
from convert.user_metrics import find_metrics
from convert.values import LoadOptions

DEFINED = [
    "def iou(a, b):\n    return 1.0\n",
    "iou = lambda a, b: 1.0\n",
    "from somewhere import closeness as iou\n",
    "class iou:\n    pass\n",
    "from somewhere import *\n",
    "globals()['i' + 'ou'] = print\n",
    "def __getattr__(name):\n    return print\n",
    "if True:\n    iou = print\n",
]


@pytest.mark.parametrize("text", DEFINED)
def test_a_file_that_may_have_the_name_passes(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    find_metrics([f"{tmp_path}/mine.py:iou"])


@pytest.mark.parametrize("text", ["def other(a, b):\n    return 1.0\n", "", "# iou\nother = 'iou'\n"])
def test_a_file_without_the_name_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UsageError) as refusal:
        find_metrics([f"{tmp_path}/mine.py:iou"])
    assert (refusal.value.code, "no callable 'iou'" in str(refusal.value)) == ("CNV-2018", True)


def test_a_file_that_cannot_be_parsed_is_left_to_the_import(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_bytes(b"def (\n\x00")
    find_metrics([f"{tmp_path}/mine.py:iou"])


def test_no_code_of_the_user_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mine.py", "some_metrics_pack.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef iou(a, b):\n    return 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    find_metrics([f"{tmp_path}/mine.py:iou", "some_metrics_pack:iou", "some_metrics_pack.inner:iou"])
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "code"), [("no_such_package_x.metrics:iou", "CNV-2018"), ("no.py:iou", "CNV-2018"), ("iou", "CNV-2055")]
)
def test_a_wrong_metric_ends_a_conversion_before_any_stage_runs(tmp_path: Path, text: str, code: str) -> None:
    load = LoadOptions(path=str(tmp_path / "absent.onnx"))
    request = Request(load=load, targets=("cpu",), metrics=(text,))
    conversion = convert_model(request, load_settings({"out": str(tmp_path / "out")}))
    (result,) = conversion.targets
    assert conversion.error is not None
    assert (conversion.error["code"], result.stages, conversion.model) == (code, (), None)
