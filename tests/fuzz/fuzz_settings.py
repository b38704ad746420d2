"""``convert.toml``: its settings and its catalogue."""

from __future__ import annotations

from fuzz_kit import HERE, Target, mutate_words, written

from convert.catalog.reader import check_text, read_catalog
from convert.errors import EXPECTED, UsageError
from convert.settings import load_settings, memory_limit


def read(data: bytes) -> None:
    """The catalogue first, every problem with its line; then the settings of the same file."""
    path = written(data, "convert.toml")
    try:
        read_catalog(path)
    except UsageError as error:
        if error.code == "CNV-2352":
            problems, _ = check_text(data.decode("utf-8-sig").replace("\r\n", "\n"))
            lines = data.count(b"\n") + data.count(b"\r") + 1
            assert problems and all(0 <= problem.line <= lines and problem.message for problem in problems)
    try:
        memory_limit(load_settings({}, folder=path.parent))
    except EXPECTED as error:
        assert error.code in ("CNV-2002", "CNV-2003"), error.code
        raise


def seeds() -> dict[str, bytes]:
    """The example with every key, in pieces as well; small catalogues."""
    example = (HERE.parents[1] / "convert.example.toml").read_bytes()
    plain = b"\n".join(line.removeprefix(b"# ") if b" = " in line else line for line in example.split(b"\n"))
    small = b'[settings]\njobs = 2\nmemory = "8GB"\n\n[[model]]\npath = "a.onnx"\ntargets = ["cpu"]\n'
    table = b'[catalog]\ntargets = ["cpu", "A100"]\n\n[[model]]\npath = "b.pt"\n[model.dims]\nN = "1..8"\n'
    return {"example": example, "plain": plain, "small": small, "table": table}


WORDS = (
    b"[settings]", b"[[model]]", b"[catalog]", b'targets = ["cpu"]', b'path = "a.pt"', b'gate = { cosine = 0.9 }',
    b"= nan", b"= inf", b"= -1", b"= 1979-05-27", b"= 1e400", b"'''", b'"""', b"\\u0000", b"\\ud800", b"[" * 400,
    b"9" * 5000,
    b'schedule = "* * * * *"', b'cron = "0 3 * * 1-5"', b'precision = "fp16"', b'name = "x"', b"\xef\xbb\xbf", b"\x00",
)  # fmt: skip
TARGET = Target(name="settings", read=read, seeds=seeds, mutate=mutate_words(WORDS), words=WORDS)
