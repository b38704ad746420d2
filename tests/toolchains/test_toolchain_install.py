"""Installing a toolchain: step by step, resumable, mended, tried. The packages here are wheels made on the spot."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from convert.backends.base import Missing
from convert.backends.children import probe_installed
from convert.commands.toolchain import command
from convert.errors import ToolchainMissing, UsageError
from convert.toolchains import install as installing
from convert.toolchains.install import install_toolchain, remove_toolchain
from convert.toolchains.known import Edit, Known, Remove, all_toolchains, find_toolchain
from convert.toolchains.place import installed_toolchain, unfinished_toolchains
from convert.toolchains.pythons import find_python


def wheel(folder: Path, name: str, files: dict[str, str], version: str = "1.0") -> str:
    """A wheel with these files; pip takes its path as a requirement."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return str(path)


def known(packages: tuple[str, ...], **more: Any) -> Known:
    facts: dict[str, Any] = {
        "name": "toy",
        "title": "Toy",
        "version": "1.0",
        "packages": packages,
        "imports": ("toy",),
        "licence": "MIT",
        "disk": "1 MB",
        "targets": ("BM1684X",),
        "source": "the test",
    }
    return Known(**(facts | more))


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVERT_TOOLCHAINS", str(tmp_path / "toolchains"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr("convert.toolchains.place.all_toolchains", lambda: {"toy": None, **all_toolchains()})


def test_a_toolchain_is_installed_mended_tried_and_removed(tmp_path: Path) -> None:
    toy = known(
        (wheel(tmp_path, "toy", {"toy/__init__.py": "import missing\nVALUE = 3\n", "toy/libc.so.6": "old"}),),
        remove=(Remove(files=("toy/libc.so.*",), reason="older than the system's"),),
        edit=(Edit(files=("toy/__init__.py",), line="import missing", text="missing = None", reason="not needed"),),
    )
    told: list[str] = []
    found = install_toolchain(toy, tell=told.append)
    assert told == [f"toy 1.0: {step}" for step in ("environment", "packages", "mends", "trial")]
    assert found.record.packages["toy"] == "1.0"
    assert found.record.mended == ("older than the system's", "not needed")
    assert not list(found.folder.rglob("libc.so.6"))
    assert installed_toolchain("toy") == found
    again: list[str] = []
    assert install_toolchain(toy, tell=again.append) == found
    assert again == []
    assert remove_toolchain(toy)
    assert not remove_toolchain(toy)
    assert installed_toolchain("toy") is None


def test_a_stopped_installation_goes_on_after_its_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = known((wheel(tmp_path, "toy", {"toy/__init__.py": ""}),))

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(installing, "_mend", stopped)
        install_toolchain(toy)
    assert installed_toolchain("toy") is None
    assert unfinished_toolchains() == ["toy"]
    asked = probe_installed("toy", name="Toy", distribution="toy")
    assert isinstance(asked, Missing)
    assert (asked.reason, asked.hint) == (
        "the installation of its toolchain was stopped half-way", "convert toolchain install toy --accept-license"
    )  # fmt: skip
    told: list[str] = []
    install_toolchain(toy, tell=told.append)
    assert told == ["toy 1.0: mends", "toy 1.0: trial"]
    assert unfinished_toolchains() == []


def test_what_does_not_install_fit_or_import_is_told_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(ToolchainMissing, match=r"pip could not install no-such-package.*ERROR") as lacking:
        install_toolchain(known(("no-such-package==9",)))
    assert lacking.value.code == "CNV-6052"
    good = wheel(tmp_path, "toy", {"toy/__init__.py": "import gone\n"})
    with pytest.raises(ToolchainMissing, match=r"does not import.*gone") as broken:
        install_toolchain(known((good,)))
    assert broken.value.code == "CNV-6053"
    edit = Edit(files=("toy/__init__.py",), line="import torch", text="torch = None", reason="not needed")
    with pytest.raises(ToolchainMissing, match="'import torch' 0 times") as unfit:
        install_toolchain(known((good,), edit=(edit,), version="2.0"))
    assert unfit.value.code == "CNV-6053"


def test_an_interpreter_is_found_by_running_it(tmp_path: Path) -> None:
    shim = tmp_path / "bin" / "python3.10"
    shim.parent.mkdir()
    shim.write_text("#!/bin/sh\necho 'pyenv: python3.10: command not found' >&2\necho 'See also.)' >&2\nexit 127\n")
    shim.chmod(0o755)
    home = tmp_path / "home" / ".pyenv" / "versions" / "3.10.9" / "bin"
    home.mkdir(parents=True)
    environment = {"PATH": str(shim.parent), "HOME": str(tmp_path / "home")}
    with pytest.raises(ToolchainMissing, match=r"tried .*python3.10 \(exit 127: pyenv") as refused:
        find_python("3.10", tmp_path, environment)
    assert refused.value.code == "CNV-6051"
    (home / "python").write_text("#!/bin/sh\necho 3.10\n")
    (home / "python").chmod(0o755)
    assert find_python("3.10", tmp_path, environment) == home / "python"


def test_a_toolchain_whose_python_is_missing_is_not_half_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    with pytest.raises(ToolchainMissing, match=r"no Python 3\.1 that works was found$") as refused:
        install_toolchain(known(("toy",), python="3.1"))
    assert "--python PATH" in refused.value.hint
    assert unfinished_toolchains() == []


def test_nothing_is_installed_without_agreeing_to_the_licence() -> None:
    refused = CliRunner().invoke(command, ["install", "qnn"])
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.code == "CNV-2382"
    assert "redistribution" in refused.exception.message
    assert "--accept-license" in refused.exception.hint


def test_the_list_names_versions_licences_and_what_is_there() -> None:
    document = json.loads(CliRunner().invoke(command, ["list", "--json"]).stdout)
    listed = {one["name"]: one for one in document["toolchains"]}
    assert set(listed) == {"openvino", "sophgo", "qnn", "rknn"}
    assert listed["sophgo"]["python"] == "3.10"
    assert {one["installed"] for one in listed.values()} == {"no"}
    assert "BM1684X" in CliRunner().invoke(command, ["list"]).stdout


def test_an_unknown_toolchain_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="openvine") as refused:
        find_toolchain("openvine")
    assert refused.value.code == "CNV-2381"
    assert "openvino" in refused.value.hint


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CONVERT_TOOLCHAINS", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="can't be put into") as refused:
        install_toolchain(known(("toy",)))
    assert refused.value.code == "CNV-2383"


def test_every_known_toolchain_pins_its_packages() -> None:
    for one in all_toolchains().values():
        assert msgspec.to_builtins(one)["licence"]
        named = [package for package in (*one.packages, *one.bare_packages) if one.version in package]
        assert named, one.name
