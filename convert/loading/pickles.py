"""What a pickle would import and what it holds, found without executing anything.

A pickle is a program for a small stack machine. Here the machine is run with symbols: a global becomes its name, a
call becomes a note that it would be made. That tells a state_dict from a pickled module and names everything that
unpickling would import. Nothing is imported, called or allocated on the word of the file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

import msgspec

from convert.errors import LoadError
from convert.loading.zips import Archive, open_archive

if TYPE_CHECKING:
    import tarfile

MAX_PICKLE = 256 << 20
MAX_OPCODES = 5_000_000
MAX_LINE = 4096
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""The first object of a ``torch.save`` file from before PyTorch 1.6 (torch/serialization.py, MAGIC_NUMBER)."""
LEGACY_HEAD = 3
"""Pickles before the object in such a file: magic number, protocol version, system information."""
TAR_MEMBERS = ("sys_info", "pickle", "storages", "tensors")

SAFE = re.compile(
    r"collections\.(OrderedDict|Counter)|(builtins|__builtin__)\.(set|bytearray|complex)|_codecs\.encode"
    r"|torch\.(Size|Tensor|device|Generator)|torch\.\w*Storage|torch\.storage\.\w*Storage"
    r"|torch\.(b?float|int|uint|complex|q?u?int|bool|half|double|long|short)\w*"
    r"|torch\._utils\._rebuild_\w+|torch\._tensor\._rebuild_from_type_v2"
    r"|torch\.nn\.parameter\.(Parameter|Buffer)|torch\.serialization\._get_layout"
)
"""Globals that ``torch.load(weights_only=True)`` takes: they only put tensors and plain containers together."""

Kind = Literal["module", "state_dict", "checkpoint", "tensor", "other"]


class PickleScan(msgspec.Struct, frozen=True, kw_only=True):
    """What a pickle holds. ``entries``: key → what stands there, for a dict, in order."""

    kind: Kind
    globals: tuple[str, ...]
    what: str = ""
    """The class of a module, or the type of something else."""
    entries: tuple[tuple[str, str], ...] = ()
    magic: bool = False

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Globals that need the user's trust, the user's own before those of torch."""
        found = [name for name in self.globals if not SAFE.fullmatch(name)]
        return tuple(sorted(found, key=lambda name: name.startswith(("torch.", "collections.", "numpy."))))


class Made:
    """Something that the pickle would make by calling ``name``."""

    __slots__ = ("args", "items", "name", "state")

    def __init__(self, name: str, args: Any) -> None:
        self.name = name
        self.args = args
        self.items: dict[Any, Any] = {}
        self.state: Any = None


class Global(str):
    """The name of a global, as a symbol on the stack."""

    __slots__ = ()


class Mark:
    """The mark that some opcodes look back to."""


class BoundedReader:
    """A stream that never reads beyond ``limit`` bytes, whatever length the pickle declares."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, count: int) -> bytes:
        """At most what is left; asking for more is damage."""
        if count > self._left:
            raise ValueError(f"it declares {count} bytes where {self._left} are left")
        data = self._stream.read(count)
        self._left -= len(data)
        return data

    def readline(self) -> bytes:
        """A line of at most :data:`MAX_LINE` bytes."""
        line = self._stream.readline(min(MAX_LINE, self._left) + 1)
        if len(line) > MAX_LINE:
            raise ValueError("a line in it is too long")
        self._left -= len(line)
        return line

    def tell(self) -> int:
        """The position in the stream."""
        return self._stream.tell()


class Machine:
    """The symbolic stack machine of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.globals: dict[str, None] = {}

    def run(self, stream: BoundedReader) -> Any:
        """Run to STOP and give the object's symbol. Raises ValueError or IndexError for a damaged pickle."""
        # Imported here: judging a TorchScript archive needs no opcode table.
        import pickletools

        for count, (opcode, arg, _) in enumerate(pickletools.genops(cast(BinaryIO, stream))):
            if count > MAX_OPCODES:
                raise ValueError(f"it has more than {MAX_OPCODES} instructions")
            step = STEPS.get(opcode.name)
            if step is not None:
                step(self, arg)
            elif opcode.stack_after and not opcode.stack_before:
                self.stack.append(arg)
        return self.stack[-1]

    def to_mark(self) -> list[Any]:
        """Pop everything above the last mark, and the mark."""
        items: list[Any] = []
        while not isinstance(top := self.stack.pop(), Mark):
            items.append(top)
        items.reverse()
        return items

    def add_global(self, module: Any, name: Any) -> None:
        """Push a global and remember that it would be imported."""
        known = isinstance(module, str) and isinstance(name, str)
        symbol = Global(f"{module}.{name}" if known else "a name computed by the pickle")
        self.globals[symbol] = None
        self.stack.append(symbol)

    def call(self, target: Any, args: Any) -> None:
        """Push what calling ``target`` would make."""
        if isinstance(target, Made) and isinstance(target.args, tuple) and target.args[:1] == ("module",):
            # Before 1.6 a class stood behind a persistent id, with its source: ("module", class, file, source).
            target = target.args[1] if len(target.args) > 1 else target
        self.stack.append(Made(str(target) if isinstance(target, Global) else "", args))

    def set_items(self, pairs: list[Any]) -> None:
        """Put key and value pairs into the dict, or dict-like object, on top."""
        target = self.stack[-1]
        items = target.items if isinstance(target, Made) else target
        if isinstance(items, dict):
            for key, value in zip(pairs[::2], pairs[1::2], strict=True):
                items[key if isinstance(key, (str, int)) else id(key)] = value

    def build(self) -> None:
        """Give the object on top its state."""
        state = self.stack.pop()
        if isinstance(self.stack[-1], Made):
            self.stack[-1].state = state


def _global(machine: Machine, arg: Any) -> None:
    module, _, name = str(arg).partition(" ")
    machine.add_global(module, name)


def _stack_global(machine: Machine, _: Any) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.add_global(module, name)


def _inst(machine: Machine, arg: Any) -> None:
    args = machine.to_mark()
    _global(machine, arg)
    machine.call(machine.stack.pop(), args)


def _obj(machine: Machine, _: Any) -> None:
    items = machine.to_mark()
    machine.call(items[0], items[1:])


def _reduce(machine: Machine, _: Any) -> None:
    args, target = machine.stack.pop(), machine.stack.pop()
    machine.call(target, args)


def _newobj_ex(machine: Machine, _: Any) -> None:
    machine.stack.pop()
    _reduce(machine, None)


def _append(machine: Machine, items: list[Any]) -> None:
    if isinstance(machine.stack[-1], list):
        machine.stack[-1].extend(items)


def _tuple(count: int) -> Callable[[Machine, Any], None]:
    def step(machine: Machine, _: Any) -> None:
        items = machine.stack[len(machine.stack) - count :]
        if len(items) < count:
            raise IndexError("the stack is too short")
        del machine.stack[len(machine.stack) - count :]
        machine.stack.append(tuple(items))

    return step


def _dict(machine: Machine, _: Any) -> None:
    pairs = machine.to_mark()
    machine.stack.append({})
    machine.set_items(pairs)


def _set_item(machine: Machine, _: Any) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.set_items([key, value])


def _persistent(machine: Machine, arg: Any) -> None:
    machine.stack.append(Made("persistent id", arg if arg is not None else machine.stack.pop()))


def _push(make: Callable[[], Any]) -> Callable[[Machine, Any], None]:
    return lambda machine, _: machine.stack.append(make())


def _put(machine: Machine, arg: Any) -> None:
    machine.memo[int(arg)] = machine.stack[-1]


def _get(machine: Machine, arg: Any) -> None:
    machine.stack.append(machine.memo[int(arg)])


def _memoize(machine: Machine, _: Any) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


STEPS: dict[str, Callable[[Machine, Any], object]] = {
    "MARK": _push(Mark),
    "POP": lambda machine, _: machine.stack.pop(),
    "POP_MARK": lambda machine, _: machine.to_mark(),
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "INST": _inst,
    "OBJ": _obj,
    "EXT1": lambda machine, arg: machine.add_global("copyreg extension", str(arg)),
    "EXT2": lambda machine, arg: machine.add_global("copyreg extension", str(arg)),
    "EXT4": lambda machine, arg: machine.add_global("copyreg extension", str(arg)),
    "REDUCE": _reduce,
    "NEWOBJ": _reduce,
    "NEWOBJ_EX": _newobj_ex,
    "BUILD": lambda machine, _: machine.build(),
    "PERSID": _persistent,
    "BINPERSID": lambda machine, _: _persistent(machine, None),
    "EMPTY_DICT": _push(dict),
    "DICT": _dict,
    "SETITEM": _set_item,
    "SETITEMS": lambda machine, _: machine.set_items(machine.to_mark()),
    "EMPTY_LIST": _push(list),
    "LIST": lambda machine, _: machine.stack.append(machine.to_mark()),
    "APPEND": lambda machine, _: _append(machine, [machine.stack.pop()]),
    "APPENDS": lambda machine, _: _append(machine, machine.to_mark()),
    "EMPTY_TUPLE": _push(tuple),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.to_mark())),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "EMPTY_SET": _push(lambda: Made("builtins.set", ())),
    "ADDITEMS": lambda machine, _: machine.to_mark(),
    "FROZENSET": lambda machine, _: machine.stack.append(Made("builtins.frozenset", machine.to_mark())),
    "NONE": _push(lambda: None),
    "NEWTRUE": _push(lambda: True),
    "NEWFALSE": _push(lambda: False),
    "PUT": _put,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "GET": _get,
    "BINGET": _get,
    "LONG_BINGET": _get,
    "MEMOIZE": _memoize,
    "READONLY_BUFFER": lambda machine, _: None,
}


def scan_pickles(stream: BinaryIO, limit: int) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """The symbols and globals of consecutive pickles in a stream; raises ValueError where one is damaged."""
    bounded = BoundedReader(stream, limit)
    while True:
        machine = Machine()
        try:
            top = machine.run(bounded)
        except (IndexError, KeyError, OverflowError, AttributeError, TypeError) as error:
            raise ValueError(f"it is no valid pickle ({error})") from error
        yield top, tuple(machine.globals)


def scan_pickle(data: bytes) -> PickleScan:
    """Judge one pickle in memory. Raises ValueError where it is damaged."""
    top, names = next(scan_pickles(io.BytesIO(data), len(data)))
    return described(top, names)


def scan_legacy(path: Path, size: int) -> PickleScan:
    """Judge a file of consecutive pickles: what ``torch.save`` wrote before PyTorch 1.6, or a plain pickle."""
    with path.open("rb") as stream:
        pickles = scan_pickles(stream, min(size, MAX_PICKLE))
        top, names = next(pickles)
        if top != LEGACY_MAGIC:
            return described(top, names)
        found = list(names)
        for _ in range(LEGACY_HEAD):
            top, names = next(pickles)
            found += names
    scan = described(top, tuple(dict.fromkeys(found)))
    return msgspec.structs.replace(scan, magic=True)


def scan_tar(path: Path) -> PickleScan | None:
    """Judge a tar that the first PyTorch versions wrote; None where the tar is something else.

    Raises ValueError where the tar or a pickle in it is damaged.
    """
    import tarfile

    found: list[str] = []
    top: Any = None
    try:
        with tarfile.open(path, "r:") as archive:
            if not set(TAR_MEMBERS) <= {member.name for _, member in zip(range(16), archive, strict=False)}:
                return None
            for name in TAR_MEMBERS:
                first, names_here = next(scan_pickles(_tar_member(archive, name), MAX_PICKLE))
                found += names_here
                top = first if name == "pickle" else top
    except tarfile.TarError as error:
        raise ValueError(f"the tar can't be read ({error})") from error
    return msgspec.structs.replace(described(top, tuple(dict.fromkeys(found))), magic=True)


def _tar_member(archive: tarfile.TarFile, name: str) -> BinaryIO:
    # A link would be followed to another member, or in a circle.
    member = archive.getmember(name)
    stream = archive.extractfile(member) if member.isreg() else None
    if stream is None:
        raise ValueError(f"its member {name} is no file")
    return cast(BinaryIO, stream)


def tar_names(path: Path, count: int) -> list[str]:
    """The first names in a tar. Raises ValueError where it can't be read."""
    import tarfile

    try:
        with tarfile.open(path, "r:") as archive:
            return [member.name for _, member in zip(range(count), archive, strict=False)]
    except tarfile.TarError as error:
        raise ValueError(f"the tar can't be read ({error})") from error


def described(top: Any, names: tuple[str, ...]) -> PickleScan:
    """Tell what the object of a pickle is."""
    items = dict_items(top)
    if items is not None:
        entries = tuple((str(key), describe(value)) for key, value in items.items())
        tensors = bool(items) and all(is_tensor(value) for value in items.values())
        return PickleScan(kind="state_dict" if tensors else "checkpoint", globals=names, entries=entries)
    if is_tensor(top):
        return PickleScan(kind="tensor", globals=names, what=describe(top))
    if is_module(top):
        return PickleScan(kind="module", globals=names, what=top.name)
    return PickleScan(kind="other", globals=names, what=describe(top))


def dict_items(value: Any) -> dict[Any, Any] | None:
    """The items of a dict or OrderedDict; None for anything else."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Made) and value.name in ("collections.OrderedDict", "collections.defaultdict"):
        return value.items
    return None


def is_tensor(value: Any) -> bool:
    """Whether a symbol stands for a tensor."""
    return isinstance(value, Made) and value.name.startswith(
        ("torch._utils._rebuild_", "torch._tensor._rebuild", "torch.Tensor", "torch.FloatTensor")
    )


def is_module(value: Any) -> bool:
    """Whether a symbol stands for a pickled ``nn.Module``."""
    state = value.state if isinstance(value, Made) else None
    return isinstance(state, dict) and {"_modules", "_parameters"} <= state.keys()


def describe(value: Any) -> str:
    """A short name for what a symbol stands for: ``tensor [3, 4]``, ``module zoo.Det``, ``dict of 7``, ``int``."""
    if is_tensor(value):
        args = value.args if isinstance(value.args, tuple) else ()
        shape = args[2] if len(args) > 2 and isinstance(args[2], tuple) else None
        return f"tensor {list(shape)}" if shape is not None and len(shape) <= 8 else "tensor"
    if is_module(value):
        return f"module {value.name}"
    items = dict_items(value)
    if items is not None:
        return f"dict of {len(items)}"
    if isinstance(value, Made):
        return f"object made by {value.name}" if value.name else "object"
    return type(value).__name__


def scan_archive(archive: Archive) -> PickleScan:
    """Judge the ``data.pkl`` of a ``torch.save`` zip. Raises :class:`LoadError` CNV-3021 where it is damaged."""
    try:
        return scan_pickle(archive.read("data.pkl", limit=MAX_PICKLE))
    except ValueError as error:
        raise damaged(archive.path, error) from error


def damaged(path: Path, error: Exception) -> LoadError:
    """The error for a pickle that can't be read."""
    return LoadError(
        "CNV-3021",
        f"{path.name} is damaged: its pickle can't be read: {error}",
        hint="download or copy the file again and compare its size and sha256 with the source",
    )


def globals_of(path: Path) -> tuple[str, ...]:
    """Every global that loading ``path`` as a pickle would import, in order of appearance; nothing is executed.

    Takes ``torch.save`` zips, tar and pickle files from before PyTorch 1.6, and plain pickles. Raises
    :class:`LoadError` CNV-3021 where the pickle is damaged, and what :func:`convert.loading.zips.open_archive` raises.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(512)
    try:
        if head.startswith(b"PK"):
            return scan_archive(open_archive(path, size)).globals
        if head[257:262] == b"ustar":
            scan = scan_tar(path)
            return scan.globals if scan else ()
        return scan_legacy(path, size).globals
    except ValueError as error:
        raise damaged(path, error) from error
