"""What a site can learn: from an installed CANN, a ``migraphx-driver onnx -l``, an ATC check report or a compile log.

``learn`` finds out from the content which of them it was given. It reads, and gives lines for the overlay
(``overlay.SiteRow``); writing them is the caller's part.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from op_registry.errors import UnreadableSource
from op_registry.forms import CUT, conditions, forms_in_log
from op_registry.overlay import SiteRow
from op_registry.support import SupportTable, load_support
from op_registry.tables import format_opsets
from op_registry.values import State, Target
from op_registry.vendors import all_vendors, find_vendor, resolve_version

REGISTRATION = re.compile(rb"(?<![\w.])([A-Za-z_][\w.]{1,30})::(\d{1,2})::([A-Za-z_]\w{0,63})")
TYPED = re.compile(r"([A-Za-z_][\w.]{0,63})::([1-9]|[1-5]\d|6[0-4])::([A-Za-z_]\w{0,127})", re.ASCII)
"""``ai.onnx::13::Resize``, as CANN names operators."""
DOTTED = re.compile(r"(?:([A-Za-z_][\w.]{0,63})[.:])?([A-Za-z_]\w{0,127})(?:-\d{1,2})?", re.ASCII)
"""``Resize``, ``my.domain.Resize`` (OpenVINO), ``my.domain:Resize`` (ONNX Runtime), ``Resize-13`` (OpenVINO)."""
WHOLE_REGISTRY = 50
"""A scan that finds fewer operators than this didn't see the whole registry: nothing is concluded from absence."""
LARGEST = 64 << 20
"""Bytes of a report or log that are read."""


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned from one source, and how it reads against what was known."""

    schema: int = 1
    kind: str
    vendor: str
    toolchain_version: str
    source: str
    lines: tuple[SiteRow, ...]
    agree: int = 0
    """Operators found as the table already has them: nothing to write."""
    notes: tuple[str, ...] = ()


def learn(
    path: Path,
    *,
    vendor: str = "",
    version: str = "",
    target: Target | None = None,
    site: Iterable[SiteRow] = (),
) -> Learned:
    """Learn from a folder (an installed CANN) or a file.

    Args:
        path: the toolkit's folder, a ``check_result.json``, a compile log, or the saved output of ``onnx -l``.
        vendor: whose it is, where the content doesn't tell.
        version: the toolchain version, where the content doesn't tell.
        target: the part that a log was made for; lines about kernels hold for its architecture only.
        site: what this site knows already: lines of a log go on from there.

    Raises:
        UnreadableSource: CNV-2506, nothing can be learned from it, or vendor or version are missing.
    """
    if path.is_dir():
        return _from_cann(path, version)
    if path.exists() and not path.is_file():
        raise UnreadableSource(
            "CNV-2506", f"{path} can't be read: it is a pipe or a device", hint="give a file or a toolkit's folder"
        )
    text = _text_of(path)
    if text.lstrip().startswith(("{", "[")):
        return _from_report(path, text, _version("ascend", version, path))
    if (forms := forms_in_log(text)) and not refusals_in_log(text):
        return _from_forms(path, text, forms, version)
    if found := refusals_in_log(text):
        return _from_log(path, text, found, _Told(version=version, target=target, site=tuple(site)))
    return _from_names(path, text, vendor, version)


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(LARGEST).decode("utf-8", "replace")
    except OSError as error:
        raise UnreadableSource(
            "CNV-2506", f"{path} can't be read: {error.strerror}", hint="give a file or a toolkit's folder"
        ) from error


def _version(vendor: str, version: str, path: Path) -> str:
    """The version that a source is of; what it says holds for that version only."""
    if not version:
        toolchain = all_vendors()[vendor].toolchain
        raise UnreadableSource(
            "CNV-2506",
            f"{path.name} doesn't tell which version of {toolchain} it is of",
            hint=f"add --toolchain-version V: what is learned holds for that version of {toolchain} only",
        )
    return resolve_version(all_vendors()[vendor], version)


# ----------------------------------------------------------------------------------------------------- installed CANN


def _from_cann(folder: Path, version: str) -> Learned:
    libraries = sorted(set(_plugin_libraries(folder)))
    if not libraries:
        hint = "give the folder that ASCEND_TOOLKIT_HOME or ASCEND_OPP_PATH points at"
        raise UnreadableSource("CNV-2506", f"{folder} holds no ONNX plug-ins of CANN", hint=hint)
    known = _version("ascend", version or _cann_version(folder), folder)
    found: dict[tuple[str, str], set[int]] = {}
    for library in libraries:
        for domain, opset, op in _registrations(library):
            found.setdefault((domain, op), set()).add(opset)
    table = load_support("ascend", known)
    source = f"plug-ins of the installed CANN {known}"
    lines, agree = _compared(table, found, source, whole=len(found) >= WHOLE_REGISTRY)
    notes = (
        () if len(found) >= WHOLE_REGISTRY else (f"only {len(found)} operators found: nothing is concluded of others",)
    )
    return Learned(
        kind="installed CANN",
        vendor="ascend",
        toolchain_version=known,
        source=source,
        lines=lines,
        agree=agree,
        notes=notes,
    )


def _plugin_libraries(folder: Path) -> Iterator[Path]:
    for base in (folder, folder / "opp", folder / "latest" / "opp"):
        for pattern in ("built-in/framework/onnx/*.so", "vendors/*/framework/onnx/*.so", "framework/onnx/*.so"):
            yield from (path.resolve() for path in base.glob(pattern) if path.is_file())
    if folder.name == "onnx":
        yield from (path.resolve() for path in folder.glob("*.so") if path.is_file())


def _cann_version(folder: Path) -> str:
    for name in ("version.cfg", "version.info", "opp/version.info", "compiler/version.info", "latest/opp/version.info"):
        path = folder / name
        if path.is_file():
            match = re.search(
                r"(?im)^\s*version\s*=\s*\[?\s*([0-9][\w.\-]*)", path.read_text("utf-8", "replace")[:4096]
            )
            if match:
                return match[1]
    return ""


def _registrations(library: Path) -> Iterator[tuple[str, int, str]]:
    """Registered names in a library: ``ai.onnx::13::Resize``."""
    if library.stat().st_size == 0:
        return
    with library.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for match in REGISTRATION.finditer(content):
            domain, opset, op = (part.decode() for part in match.groups())
            if 0 < int(opset) <= 64:
                yield ("" if domain == "ai.onnx" else domain), int(opset), op


def _compared(
    table: SupportTable, found: dict[tuple[str, str], set[int]], source: str, *, whole: bool
) -> tuple[tuple[SiteRow, ...], int]:
    """Lines for what differs from a table: opsets found, and (of a whole registry) operators that aren't there."""
    lines: list[SiteRow] = []
    agree = 0
    for name, opsets in sorted(found.items()):
        known = {
            o for row in table.rows.get(name, ()) if row.state == "ok" and row.grade == "read" for o in row.opsets or ()
        }
        if opsets <= known and (not whole or known <= opsets):
            agree += 1
            continue
        lines.append(
            _line(table, name, format_opsets(opsets), "ok", note="registered in the installed plug-ins", source=source)
        )
        if whole and known - opsets:
            missing = format_opsets(known - opsets)
            lines.append(
                _line(table, name, missing, "refused", note="not registered in the installed plug-ins", source=source)
            )
    if whole:
        for name, rows in sorted(table.rows.items()):
            listed = {o for row in rows if row.state != "refused" for o in row.opsets or ()}
            if name not in found and listed:
                note = "not registered in the installed plug-ins"
                lines.append(_line(table, name, format_opsets(listed), "refused", note=note, source=source))
    return tuple(lines), agree


def _line(
    table: SupportTable, name: tuple[str, str], opsets: str, state: State, *, note: str, source: str, arch: str = ""
) -> SiteRow:
    return SiteRow(
        vendor=table.vendor.name,
        versions=f"=={table.version}" if table.version else "",
        arch=arch,
        domain=name[0],
        op=name[1],
        opsets=opsets,
        state=state,
        note=note,
        source=source,
    )


# --------------------------------------------------------------------------------------------------- ATC check report


def _from_report(path: Path, text: str, version: str) -> Learned:
    """``check_result.json`` of ``atc --mode=3``: a list of operators with result and causes."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableSource(
            "CNV-2506", f"{path} is no JSON: {error}", hint="give ATC's check_result.json"
        ) from error
    table = load_support("ascend", version)
    source = f"check report of ATC ({path.name})"
    lines: dict[tuple[str, str, str], SiteRow] = {}
    for item in _operators(content):
        domain, opset, op = _split_type(str(item.get("type", "")))
        if not op:
            continue
        passed = str(item.get("result", "")).lower() in ("success", "pass", "passed")
        cause = item.get("cause")
        listed = cause if isinstance(cause, list) else []
        causes = [_one_line(one.get("message", "")) for one in listed if isinstance(one, dict)]
        note = ("passed ATC's check" if passed else "; ".join(filter(None, causes)) or "failed ATC's check")[:200]
        state: State = "ok" if passed else "refused"
        key = (domain, op, opset)
        if key not in lines or state == "refused":
            lines[key] = _line(table, (domain, op), opset or "*", state, note=note, source=source)
    if not lines:
        raise UnreadableSource(
            "CNV-2506", f"{path} lists no operators", hint="give the check_result.json of atc --mode=3"
        )
    return Learned(
        kind="ATC check report",
        vendor="ascend",
        toolchain_version=version,
        source=source,
        lines=tuple(sorted(lines.values())),
    )


def _one_line(text: object) -> str:
    """What a tool said as the cell of a table: printable, in one line."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())


def _operators(content: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Every item of every list called ``op`` in a JSON document."""
    if depth > 8:
        return
    if isinstance(content, list):
        for item in content:
            yield from _operators(item, depth + 1)
    elif isinstance(content, dict):
        for key, value in content.items():
            if key == "op" and isinstance(value, list):
                yield from (item for item in value if isinstance(item, dict))
            else:
                yield from _operators(value, depth + 1)


def _split_type(text: str) -> tuple[str, str, str]:
    """``ai.onnx::13::Resize`` as domain, opset and operator; a bare name has neither domain nor opset."""
    if match := TYPED.fullmatch(text):
        return ("" if match[1] == "ai.onnx" else match[1]), match[2], match[3]
    if match := DOTTED.fullmatch(text):
        return ("" if match[1] in (None, "onnx", "ai.onnx") else match[1]), "", match[2]
    return "", "", ""


# -------------------------------------------------------------------------------------------------------- compile log

LOG_PATTERNS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("ascend", "no parser", re.compile(r"No parser is registered for Op \[[^\]]*, optype \[([^\]]+)\]\]")),
    ("ascend", "no parser", re.compile(r"No operator plugin is registered for Op: .+?, optype: (\S+?)\.?$", re.M)),
    ("ascend", "no parser", re.compile(r"No ONNX parser is registered for optype \[?([\w.:]+)\]?")),
    (
        "ascend",
        "no kernel",
        re.compile(r"No supported Ops kernel and engine are found for \[[^\]]+\], optype \[(\w+)\]"),
    ),
    ("amd", "no parser", re.compile(r"Unknown operator: (\w+)")),
    ("nvidia", "no parser", re.compile(r"No importer registered for op: (\w+)")),
    ("cambricon", "no parser", re.compile(r"unregistered operation 'onnx\.(\w{1,60})'")),
    ("intel", "no parser", re.compile(r"No conversion rule found for operations?: ([^\n]{1,400})")),
    ("intel", "no parser", re.compile(r"does not support the following ONNX operations: ([^\n]{1,400})")),
    ("sophgo", "no parser", re.compile(r"Op not support: ?\{([^}\n]{1,400})\}")),
    ("rockchip", "no parser", re.compile(r"No lowering found for: [^\n,]{1,200}, node type = (\w{1,80})")),
    ("qualcomm", "no parser", re.compile(r"^qnn_compile: left to the CPU: (\w{1,80}) ", re.MULTILINE)),
    ("qualcomm", "no parser", re.compile(r"([\w.:]{1,120})\(-?\d{1,6}\) is not a registered function/op")),
)
SHARED = ("amd", "nvidia")
"""Vendors whose parser others have, too: the target of a log tells whose it is."""
TOLD_VERSIONS = {
    "intel": re.compile(r"^openvino_compile: openvino (\d{4}\.\d+(?:\.\d+)?)", re.MULTILINE),
    "sophgo": re.compile(r"\bTPU-MLIR v(\d+\.\d+(?:\.\d+)?)"),
}
"""Where the log itself says the version of the toolchain."""


def refusals_in_log(text: str) -> list[tuple[str, str, str]]:
    """(vendor, kind, operator) of every refusal in a log, once each."""
    found = [
        (vendor, kind, name.strip(" '\""))
        for vendor, kind, pattern in LOG_PATTERNS
        for match in pattern.finditer(text)
        for name in match[1].split(",")
    ]
    return list(dict.fromkeys(found))


def can_be_learned(log: Path) -> bool:
    """Whether `learn` finds anything in a compile log, and beside it."""
    text = _text_of(log)
    return bool(refusals_in_log(text)) or any(conditions(log, op) for _, op in forms_in_log(text))


def _from_forms(path: Path, text: str, forms: list[tuple[str, str]], version: str) -> Learned:
    """The forms of operators that a compiler doesn't take, by the small model that lies beside its log."""
    vendor = forms[0][0]
    said = TOLD_VERSIONS[vendor].search(text)
    known = _version(vendor, version or (said[1] if said else ""), path)
    table, source = load_support(vendor, known), f"compile log ({path.name})"
    told = [(op, conditions(path, op)) for _, op in forms]
    lines = [
        msgspec.structs.replace(
            _line(table, ("", op), "*", "refused", note="the compiler refused this form of it", source=source),
            when=when,
        )
        for op, written in told
        for when in written
    ]
    if not lines:
        raise UnreadableSource(
            "CNV-2506",
            f"{path.name} refuses a form of {', '.join(op for op, _ in told)}, and which one isn't told",
            hint=f"keep the log where the compilation left it, beside {CUT.as_posix()}; or write a line by hand",
        )
    without = tuple(f"{op}: which form isn't told" for op, written in told if not written)
    return Learned(
        kind="compile log", vendor=vendor, toolchain_version=known, source=source, lines=tuple(lines), notes=without
    )


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside a log."""

    version: str
    target: Target | None
    site: tuple[SiteRow, ...]


def _from_log(path: Path, text: str, found: list[tuple[str, str, str]], told: _Told) -> Learned:
    vendor, target = found[0][0], told.target
    if target is not None and vendor in SHARED and {other for other, _, _ in found} == {vendor}:
        vendor = target.vendor
    said = TOLD_VERSIONS[vendor].search(text) if vendor in TOLD_VERSIONS else None
    known = _version(vendor, told.version or (said[1] if said else ""), path)
    table = load_support(vendor, known)
    source = f"compile log ({path.name})"
    lines: set[SiteRow] = set()
    notes: list[str] = []
    for _, kind, name in found:
        if kind == "no kernel":
            lines |= _no_kernel(table, name, target, source, notes)
            continue
        domain, opset, op = _split_type(name)
        if op:
            opsets = _refused_at(table, (domain, op), opset, told.site)
            note = "the compiler has no parser for it"
            lines.add(_line(table, (domain, op), opsets, "refused", note=note, source=source))
    return Learned(
        kind="compile log",
        vendor=vendor,
        toolchain_version=known,
        source=source,
        lines=tuple(sorted(lines)),
        notes=tuple(notes),
    )


def _refused_at(table: SupportTable, name: tuple[str, str], opset: str, site: Iterable[SiteRow]) -> str:
    """The opsets that a refusal at one of them holds for, with what this site knows; none named: all.

    One opset says little of the others. Two of a row do: one plug-in serves all of its opsets, and it is not there.
    """
    if not opset:
        return "*"
    held = [
        row.row()
        for row in site
        if (row.vendor, row.domain, row.op) == (table.vendor.name, *name) and row.state == "refused" and not row.arch
        and row.versions == f"=={table.version}"
    ]  # fmt: skip
    known = frozenset({int(opset)}).union(*(row.opsets or () for row in held))
    rows = [row.opsets for row in table.rows.get(name, ()) if row.state != "refused"]
    if any(row.opsets is None for row in held) or (len(known) > 1 and None in rows):
        return "*"
    return format_opsets(known.union(*(opsets for opsets in rows if opsets and len(known & opsets) > 1)))


def _no_kernel(table: SupportTable, name: str, target: Target | None, source: str, notes: list[str]) -> set[SiteRow]:
    """A device operator without a kernel: the ONNX operators that become it are refused on that architecture."""
    if target is None:
        notes.append(f"no kernel for {name}: add --target T, as this holds for one chip only")
        return set()
    users = [key for key, parts in table.kernels.items() if [part.name for part in parts] == [name]]
    if not users:
        notes.append(f"no kernel for {name}: which ONNX operator it comes from isn't known")
    reason = f"no kernel of {name} on {target.arch}"
    return {_line(table, key, "*", "refused", note=reason, source=source, arch=target.arch) for key in users}


# ------------------------------------------------------------------------------------------------- onnx -l of a driver


def _from_names(path: Path, text: str, vendor: str, version: str) -> Learned:
    """The list of ``migraphx-driver onnx -l``: one operator a line."""
    names = [line.strip() for line in text.splitlines() if re.fullmatch(r"\s*[A-Za-z]\w{1,60}\s*", line)]
    if len(names) < WHOLE_REGISTRY or "Conv" not in names:
        hint = "give a CANN folder, ATC's check_result.json, a compile log, or the output of migraphx-driver onnx -l"
        raise UnreadableSource("CNV-2506", f"nothing to learn was found in {path}", hint=hint)
    owner = find_vendor(vendor or "amd").name
    known = _version(owner, version, path)
    table = load_support(owner, known)
    source = f"migraphx-driver onnx -l ({path.name})"
    taken = {
        op for (_, op), rows in table.rows.items() if any(row.state == "ok" and row.grade == "read" for row in rows)
    }
    domain_of = {op: domain for domain, op in table.rows}
    new = sorted(set(names) - taken)
    gone = sorted({op for _, op in table.rows if op in taken} - set(names))
    lines = [
        _line(table, (domain_of.get(op, ""), op), "*", "ok", note="the driver lists it", source=source) for op in new
    ]
    lines += [
        _line(table, (domain_of.get(op, ""), op), "*", "refused", note="the driver doesn't list it", source=source)
        for op in gone
    ]
    return Learned(
        kind="migraphx-driver onnx -l",
        vendor=owner,
        toolchain_version=known,
        source=source,
        lines=tuple(sorted(lines)),
        agree=len(set(names) & taken),
    )
