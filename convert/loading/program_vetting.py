"""``torch.export`` programs (.pt2): vetted before torch opens them, because opening one can run code from the file.

``torch.export.load`` (2.13) unpickles without ``weights_only`` where a part asks for it, evaluates expressions of
symbolic sizes as Python, resolves call targets by attribute access from ``torch`` and turns guards into functions.
So every pickle is scanned, and every expression, target and guard checked against what torch itself writes.
Runs in the worker only; the vetting itself imports no torch.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from convert.errors import LoadError
from convert.loading.pickles import MAX_PICKLE, SAFE, scan_pickle
from convert.loading.zips import DAMAGE, Archive, open_archive
from convert.values import ModelFile

MAX_JSON = 512 << 20
TARGET = re.compile(
    r"torch\.ops\.(?!load_library|import_module)[A-Za-z]\w*\.[A-Za-z_]\w*(\.\w+)?|torch\.(_?sym_\w+|_check\w*|Size)"
    r"|torch\._higher_order_ops\.[\w.]+|torch\._C\._set_grad_enabled|torch\.amp\.autocast_mode\._(enter|exit)_autocast"
    r"|_operator\.(?!attrgetter|methodcaller)\w+|math\.\w+|#\w*:?[\w.:]*"
)
"""Call targets that torch writes: operators, arithmetic and control flow."""
FILE_OPERATORS = re.compile(r"torch\.ops\.aten\.(from_file|save|load)\b")
GUARD_CALLS = {"size", "stride", "dim", "numel", "storage_offset", "is_contiguous", "len", "isinstance", "type", "int"}
EXPRESSION_CALL = re.compile(r"[A-Z]\w*|floor|ceiling|sqrt|log|exp|pow|min|max|not_|and_|or_")
MAX_EXPRESSION = 20_000


def vet_program(file: ModelFile, *, allow_pickle: bool) -> None:
    """Check that opening and running an exported program runs no code of the file's own.

    Raises :class:`LoadError`: CNV-3036 for a pickle that needs trust (unless ``allow_pickle``), CNV-3037 for
    expressions, targets or guards that torch does not write, CNV-3028 where its JSON can't be read.
    """
    path = Path(file.path)
    archive = open_archive(path, file.bytes)
    if archive.below("data/aotinductor/"):
        raise foul(path, "compiled libraries beside the program")
    if not allow_pickle:
        _vet_pickles(archive)
    documents = [name for name in archive.members if name.endswith(".json")]
    for name in documents:
        inner = name[len(archive.root) :]
        if inner.startswith("extra"):
            continue
        try:
            document = json.loads(archive.read(inner, limit=MAX_JSON))
        except (ValueError, RecursionError) as error:
            raise LoadError(
                "CNV-3028",
                f"{path.name} is damaged: {inner} can't be read ({str(error)[:80]})",
                hint="download or copy the file again, or export the program again",
            ) from error
        _vet_document(path, document)


def foul(path: Path, what: str) -> LoadError:
    """The error for a program that holds what torch does not write."""
    return LoadError(
        "CNV-3037",
        f"{path.name} was not opened: it holds {what}, which torch.export.save does not write",
        hint="get the program from a source that you trust, or export it again",
    )


def _vet_pickles(archive: Archive) -> None:
    wanted: dict[str, None] = {}
    for name in archive.members:
        inner = name[len(archive.root) :]
        if inner.startswith(("models/", "extra", ".data/")) or inner.endswith((".json", "version", "byteorder")):
            continue
        data = archive.start(inner, 4)
        if data.startswith(b"PK\x03\x04") or data[:1] == b"\x80" or "opaque_obj" in inner or "custom_obj" in inner:
            wanted.update(dict.fromkeys(_globals_in(archive, inner)))
    bad = [name for name in wanted if not SAFE.fullmatch(name)]
    if bad:
        raise LoadError(
            "CNV-3036",
            f"{archive.path.name} was not opened: its pickled parts would import {', '.join(bad[:8])}",
            hint="pass --allow-pickle if you trust where the file comes from",
        )


def _globals_in(archive: Archive, name: str) -> tuple[str, ...]:
    """What a pickled part would import; weights that are no pickle (raw tensors) give nothing."""
    raw = name.startswith(("data/weights/weight_", "data/constants/tensor_"))
    if raw and archive.members[archive.root + name] > MAX_PICKLE:
        return ()
    data = archive.read(name, limit=1 << 31)
    try:
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as inner:
                member = next((item for item in inner.infolist() if item.filename.endswith("data.pkl")), None)
                if member is None or member.file_size > MAX_PICKLE:
                    return ("an archive without data.pkl",)
                data = inner.read(member)
        return scan_pickle(data).globals
    except DAMAGE:
        return () if raw else ("a pickle that can't be read",)


def _vet_document(path: Path, document: Any) -> None:
    stack: list[tuple[str, Any]] = [("", document)]
    while stack:
        key, value = stack.pop()
        if isinstance(value, dict):
            stack.extend(value.items())
        elif isinstance(value, list):
            stack.extend((key, item) for item in value)
        elif isinstance(value, str):
            _vet_text(path, key, value)


def _vet_text(path: Path, key: str, text: str) -> None:
    if key == "target" and text.startswith(("torch", "_operator", "math", "#")):
        if not TARGET.fullmatch(text) or ("__" in text and _dunder(text)):
            raise foul(path, f"a call of {text[:120]!r}")
        if FILE_OPERATORS.match(text):
            raise foul(path, f"an operator that reads or writes files: {text[:120]!r}")
    elif key == "expr_str" and not is_arithmetic(text):
        raise foul(path, f"a symbolic size that is no arithmetic: {text[:120]!r}")
    elif key == "guards_code" and not is_guard(text):
        raise foul(path, f"a guard that is more than a comparison: {text[:120]!r}")


def _dunder(text: str) -> bool:
    """Whether a target goes through a special attribute other than an operator of ``aten`` (``aten.__and__``)."""
    return not re.fullmatch(r"torch\.ops\.aten\.__\w+__(\.\w+)?", text)


def is_arithmetic(text: str) -> bool:
    """Whether a symbolic expression is made of numbers, names, operators and sympy's own functions only."""
    allowed = (
        ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Name, ast.Constant, ast.Call, ast.Load,
        ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.keyword,
    )  # fmt: skip
    tree = _parsed(text)
    if tree is None:
        return False
    for node in ast.walk(tree):
        if not isinstance(node, allowed):
            return False
        if isinstance(node, ast.Name) and "__" in node.id:
            return False
        if isinstance(node, ast.Constant) and not _plain(node.value):
            return False
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and not _small(node.right):
            return False
        if isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Name)
            and EXPRESSION_CALL.fullmatch(node.func.id)
            and all(isinstance(keyword.value, ast.Constant) and keyword.arg for keyword in node.keywords)
        ):
            return False
    return True


def _plain(value: object) -> bool:
    """Numbers, and the names of symbols: ``Symbol('s17', positive=True)``."""
    if isinstance(value, str):
        return bool(re.fullmatch(r"\w{1,64}", value)) and "__" not in value
    return isinstance(value, (int, float, bool))


def _small(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _small(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and abs(node.value) <= 64


def is_guard(text: str) -> bool:
    """Whether a guard only compares sizes and values of the inputs."""
    tree = _parsed(text)
    if tree is None:
        return False
    forbidden = (
        ast.Lambda,
        ast.ListComp,
        ast.SetComp,
        ast.DictComp,
        ast.GeneratorExp,
        ast.Await,
        ast.Yield,
        ast.NamedExpr,
    )
    for node in ast.walk(tree):
        if isinstance(node, forbidden):
            return False
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name.startswith("_"):
            return False
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called not in GUARD_CALLS and not re.fullmatch(r"[A-Z]\w*|sym_\w+|floor|ceil|sqrt", called):
                return False
    return True


def _parsed(text: str) -> ast.Expression | None:
    if len(text) > MAX_EXPRESSION:
        return None
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
