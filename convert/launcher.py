"""The launcher: a compiler is started in a container, on another machine or by a scheduler.

A launcher is a command line that the compiler's own is put behind: ``srun -p npu``, ``ssh build7``,
``docker run --rm -v {folder}:{folder} -w {folder} cann:8.5``. ``{folder}`` stands for the working folder. Where the
text has ``{command}``, the whole command goes there, quoted for a shell, instead of behind.

The working folder must be the same folder under the same path on both sides: it lies below the stage cache.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from convert.errors import UsageError

FOLDER = "{folder}"
COMMAND = "{command}"
PLACE = re.compile(r"(?<![{$\\])\{[^{}\s]{0,40}(?:\}|$)")
"""What looks like a place of ours; ``${HOME}`` of a shell and ``{{.ID}}`` of a template do not."""


def parse_launcher(text: str) -> tuple[str, ...]:
    """The words of a launcher. Raises UsageError CNV-2311 where quotes are open, or it is put behind nothing."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(
            "CNV-2311",
            f"the launcher {text!r} can't be split into words: {error}",
            hint="quote it as in a shell, such as --launcher \"ssh build7 'cd {folder} && {command}'\"",
        ) from error
    return words


def check_launcher(text: str) -> None:
    """Refuse a launcher that can't be one, before anything runs.

    Raises :class:`UsageError`: CNV-2311 where quotes are open or a place is not ``{folder}`` or ``{command}``, CNV-2313
    where its program is not on this machine.
    """
    words = parse_launcher(text)
    odd = [place for word in words for place in PLACE.findall(word) if place not in (FOLDER, COMMAND)]
    if odd:
        raise UsageError(
            "CNV-2311",
            f"the launcher {text!r} has the place {odd[0]}, which means nothing",
            hint=f"there are {FOLDER}, the working folder, and {COMMAND}, the whole command quoted for a shell",
        )
    if words and shutil.which(words[0]) is None:
        raise UsageError(
            "CNV-2313",
            f"the launcher {text!r} starts with {words[0]}, which is no program on this machine",
            hint="put it on PATH or name it by its path; a launcher is a command line that ours is put behind, such as "
            "`srun -p npu` or `ssh build7`",
        )


def launched(launcher: Sequence[str], argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> list[str]:
    """The command line with the launcher applied; without a launcher it is ``argv``.

    A launcher hands no environment on, so variables are set on the other side, by ``env``. ``ssh`` starts in the home
    folder and gives the words to a shell, so it gets one word: change to the folder, then the command.
    """
    if not launcher:
        return list(argv)
    settings = [f"{name}={value}" for name, value in sorted(environment.items())]
    command = ["env", *settings, *argv] if settings else list(argv)
    words = list(launcher)
    if PurePath(words[0]).name == "ssh" and not any(COMMAND in word for word in words):
        words.append(f"cd {FOLDER} && {COMMAND}")
    if any(COMMAND in word for word in words):
        return [_as_shell(word, command, folder) if COMMAND in word else _plain(word, folder) for word in words]
    return [*(_plain(word, folder) for word in words), *command]


def _as_shell(word: str, command: Sequence[str], folder: Path) -> str:
    return word.replace(FOLDER, shlex.quote(str(folder))).replace(COMMAND, shlex.join(command))


def _plain(word: str, folder: Path) -> str:
    return word.replace(FOLDER, str(folder))
