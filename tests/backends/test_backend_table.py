import importlib.metadata
import subprocess
import sys

import pytest

from convert.backends import BACKENDS, backend_names, load_backend
from convert.backends.base import Backend
from convert.errors import UsageError


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_of_the_table_has_its_own_name_and_keeps_the_protocol(name):
    backend = load_backend(name)
    assert backend.name == name
    assert isinstance(backend, Backend)


@pytest.mark.parametrize("name", BACKENDS)
def test_the_toolchain_that_is_assumed_has_a_version(name):
    assumed = load_backend(name).assumed()
    assert assumed.assumed
    assert assumed.version


def test_an_unknown_backend_gets_the_nearest_name():
    with pytest.raises(UsageError) as refusal:
        load_backend("onnxrumtime")
    assert refusal.value.code == "CNV-2073"
    assert "onnxruntime" in refusal.value.hint


class _Entry:
    name = "acme"

    def __init__(self, value: str) -> None:
        self.value = value


def _install(monkeypatch, value: str) -> None:
    def entry_points(*, group: str, name: str = ""):
        return importlib.metadata.EntryPoints([importlib.metadata.EntryPoint("acme", value, group)])

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)


def test_another_distribution_adds_a_backend_by_an_entry_point(monkeypatch):
    _install(monkeypatch, "convert.backends.onnxruntime:OnnxRuntimeBackend")
    assert backend_names() == (*BACKENDS, "acme")
    with pytest.raises(UsageError) as refusal:
        load_backend("acme")
    assert refusal.value.code == "CNV-2074"
    assert "no backend called 'acme'" in refusal.value.message


def test_an_entry_point_that_can_not_be_imported_is_named(monkeypatch):
    _install(monkeypatch, "acme_backends:Atc")
    with pytest.raises(UsageError) as refusal:
        load_backend("acme")
    assert refusal.value.code == "CNV-2074"
    assert "acme_backends" in refusal.value.message


def test_planning_and_probing_import_no_onnx_and_no_numpy():
    code = (
        "import sys, os; from convert.stages.compile import find_toolchain; from convert.values import CompileOptions;"
        "find_toolchain(CompileOptions(target='cpu', backend='onnxruntime', precision='fp32'), os.environ);"
        "print({'torch', 'onnx', 'onnxruntime', 'numpy', 'prefect'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
