"""Pages that can rot are held against the source: codes, commands, settings, maps of packages, links."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from pages import PACKAGES, PAGES, READMES, ROOT, blocks, commands, name_of

from artifacts.__main__ import COMMANDS as ARTIFACTS_COMMANDS
from artifacts.__main__ import cli as artifacts_cli
from convert.__main__ import COMMANDS as CONVERT_COMMANDS
from convert.__main__ import cli as convert_cli
from convert.commands.catalog import COMMANDS as CATALOG_COMMANDS
from convert.commands.graph import command as graph_group
from convert.commands.ops import COMMANDS as OPS_COMMANDS
from convert.commands.toolchain import command as toolchain_group
from convert.settings import Settings

SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
CODES = {code for path in SOURCES for code in re.findall(r"CNV-\d{4}", path.read_text(encoding="utf-8"))}
EXPLAINED = sorted((ROOT / "convert" / "explain").glob("*.md"))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CLI_PAGE = ROOT / "docs/concepts/cli.md"


def test_every_code_in_the_source_has_a_page_and_every_page_a_code() -> None:
    assert {path.stem for path in EXPLAINED} == CODES


@pytest.mark.parametrize("path", EXPLAINED, ids=lambda path: path.stem)
def test_a_page_of_a_code_has_its_title_and_three_sections(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(rf"# {path.stem}: \S.*", lines[0])
    assert [line for line in lines if line.startswith("## ")] == ["## What happened", "## What to do", "## Example"]


@pytest.mark.parametrize("page", [*PAGES, *EXPLAINED], ids=name_of)
def test_local_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
    local = [link.partition("#")[0] for link in links if "://" not in link and not link.startswith("#")]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text(encoding="utf-8"))}
    generated = ROOT / "docs" / "reference" / "operators"
    pages = {page for page in (ROOT / "docs").rglob("*.md") if generated not in page.parents}
    assert pages - linked - {index} == set()


@pytest.mark.parametrize("page", READMES, ids=name_of)
def test_the_readme_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 150


def test_both_readmes_say_the_same() -> None:
    english, chinese = READMES
    assert commands(english) == commands(chinese)
    assert [b for b in blocks(english) if b.language == "python"] == [
        b for b in blocks(chinese) if b.language == "python"
    ]
    for pattern in (r"^#+ ", r"^\| ", r"^- ", r"\]\("):
        counts = [len(re.findall(pattern, page.read_text(encoding="utf-8"), re.MULTILINE)) for page in READMES]
        assert counts[0] == counts[1]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_tells_of_each_of_its_modules(package: str) -> None:
    text = (ROOT / package / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    modules = [path.relative_to(ROOT / package) for path in SOURCES if path.is_relative_to(ROOT / package)]
    told = {module for module in modules if f"`{module.parent}/*.py`" in text or _names(text, module.name)}
    assert [module for module in modules if module not in told and module.name != "__init__.py"] == []


def _names(text: str, name: str) -> bool:
    return re.search(rf"[`/]{re.escape(name)}`", text) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_no_module_that_it_does_not_have(package: str) -> None:
    text = (ROOT / package / "README.md").read_text(encoding="utf-8")
    names = {path.name for path in SOURCES if path.is_relative_to(ROOT / package)}
    assert {name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.py)`", text)} - names == set()


@pytest.mark.parametrize("name", CONVERT_COMMANDS)
def test_every_command_of_convert_is_told_and_helps(name: str) -> None:
    assert f"\n## convert {name}\n" in CLI_PAGE.read_text(encoding="utf-8")
    shown = CliRunner().invoke(convert_cli, [name, "--help"]).output
    assert shown.startswith(f"Usage: cli {name} ")
    assert "--json" in shown or name in ("ops", "graph", "catalog", "toolchain")


SUBCOMMANDS = [
    *(("ops", name) for name in OPS_COMMANDS),
    *(("graph", name) for name in graph_group.commands),
    *(("catalog", name) for name in CATALOG_COMMANDS),
    *(("toolchain", name) for name in toolchain_group.commands),
]


@pytest.mark.parametrize(("group", "name"), SUBCOMMANDS)
def test_every_command_of_a_group_of_convert_is_told_and_helps(group: str, name: str) -> None:
    section = CLI_PAGE.read_text(encoding="utf-8").partition(f"\n## convert {group}\n")[2].partition("\n## ")[0]
    assert f"`{name}`" in section
    shown = CliRunner().invoke(convert_cli, [group, name, "--help"]).output
    assert shown.startswith(f"Usage: cli {group} {name} ")
    assert "--json" in shown


@pytest.mark.parametrize("name", ARTIFACTS_COMMANDS)
def test_every_command_of_artifacts_is_told_and_helps(name: str) -> None:
    assert re.search(rf"^\| `artifacts {name}[ `]", CLI_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    shown = CliRunner().invoke(artifacts_cli, [name, "--help"]).output
    assert shown.startswith(f"Usage: cli {name} ")
    assert "--json" in shown


@pytest.mark.parametrize("page", READMES, ids=name_of)
def test_the_readme_names_every_command(page: Path) -> None:
    rows = re.findall(r"^\| (`(?:convert|artifacts) .*?) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    words = [re.findall(r"`(convert |artifacts )?([a-z]+)", row) for row in rows]
    named = {name for found in words for start, name in (found if found[0][0] == "artifacts " else found[:1])}
    assert named == {*CONVERT_COMMANDS, *ARTIFACTS_COMMANDS} - {"run"}


def test_every_option_of_the_main_job_is_told() -> None:
    command = convert_cli.get_command(None, "run")  # type: ignore[arg-type]
    assert command is not None
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    section = CLI_PAGE.read_text(encoding="utf-8").partition("\n## convert run\n")[2].partition("\n## ")[0]
    assert {option for option in options if f"`{option}" not in section} == set()


def test_the_example_of_the_settings_has_each_with_its_default() -> None:
    text = (ROOT / "convert.example.toml").read_text(encoding="utf-8").partition("\n# The catalogue")[0]
    assert tomllib.loads(text) == {"settings": {}}
    uncommented = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    assert tomllib.loads(uncommented) == {"settings": msgspec.to_builtins(Settings())}


def test_an_example_of_the_settings_with_everything_uncommented_changes_nothing(tmp_path: Path) -> None:
    from convert.settings import load_settings

    text = (ROOT / "convert.example.toml").read_text(encoding="utf-8").partition("\n# The catalogue")[0]
    (tmp_path / "convert.toml").write_text(re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE))
    assert load_settings({}, folder=tmp_path) == load_settings({}, folder=tmp_path / "nothing")
