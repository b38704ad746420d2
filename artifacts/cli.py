"""The boundary of a command line: lazily loaded commands, errors in two lines, one JSON document, exit codes.

Used by ``artifacts`` and by ``convert``. A command prints its own result; everything that goes wrong comes through
:func:`run_boundary`. Importing this module imports click alone.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from artifacts.errors import ModelConvertError, disk_full, not_utf8, path_unusable
from op_registry.errors import RegistryDataError

INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called.

    Args:
        table: Per command the place of its click command (``package.module:name``) and one line of help.
        default: The command that a first argument which names no command belongs to; none where empty.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], default: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table
        self.default = default

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the table, in its order."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None for an unknown name."""
        if cmd_name not in self.table:
            return None
        module, _, name = self.table[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.table[cmd_name][0]} is no click command")
        _refuse_empty(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' help lines from the table, importing none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give arguments that name no command to the default command."""
        own = {option for parameter in self.get_params(ctx) for option in parameter.opts}
        if self.default and args and args[0] not in self.table and args[0] not in own:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown name gets the nearest ones."""
        if args and args[0] not in self.table:
            near = difflib.get_close_matches(args[0], self.table, n=3)
            did = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{did}")
        return super().resolve_command(ctx, args)


def _refuse_empty(command: click.Command) -> None:
    """Let no option of a command take an empty text: what an unset variable of a shell gives means nothing."""
    for option in command.params:
        if isinstance(option, click.Option) and option.callback is None:
            option.callback = _not_empty
    for inner in getattr(command, "commands", {}).values():
        _refuse_empty(inner)


def _not_empty(ctx: click.Context, option: click.Parameter, value: Any) -> Any:
    if value == "" or (isinstance(value, tuple) and "" in value):
        given = ctx.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE
        if given:
            raise click.BadParameter("it is empty", ctx=ctx, param=option)
    return value


def run_boundary(group: click.Command, argv: Sequence[str], *, prog: str, usage_code: str) -> int:
    """Run a command line and return its exit code.

    Expected failures (anything with ``code``, ``hint`` and ``exit_code``) become two lines on stderr, and with
    ``--json`` one document on stdout. Anything else is a bug: it is raised again, so that Python prints the traceback.

    Args:
        group: The click command or group.
        argv: The arguments, without the program's name.
        prog: The program's name.
        usage_code: The code of a wrong command line (``CNV-2xxx``).
    """
    as_json = "--json" in argv
    try:
        code = group.main(list(argv), prog_name=prog, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        hint = f"`{error.ctx.command_path} --help` shows the usage" if error.ctx else f"`{prog} --help` shows the usage"
        return _fail({"code": usage_code, "message": error.format_message(), "hint": hint, "exit_code": 2}, as_json)
    except (ModelConvertError, RegistryDataError) as error:
        return _fail(error.as_json(), as_json)
    except (click.Abort, KeyboardInterrupt):
        interrupted = {"code": "", "message": "interrupted", "hint": "run the same command again to go on"}
        return _fail({**interrupted, "exit_code": INTERRUPTED}, as_json)
    except BrokenPipeError:
        _silence_stdout()
        return 1
    except Exception as error:
        if isinstance(error, OSError) and (unusable := path_unusable(error)):
            return _fail(unusable.as_json(), as_json)
        if isinstance(error, UnicodeEncodeError) and (refused := not_utf8(argv)):
            return _fail(refused.as_json(), as_json)
        full = disk_full(error, "writing the result") if isinstance(error, OSError) else None
        if full is not None:
            with contextlib.suppress(OSError):
                _fail(full.as_json(), as_json)
            _silence_stdout()
            return full.exit_code
        if as_json:
            text = f"{type(error).__name__}: {error}"
            _fail(
                {"code": "", "message": text, "hint": "this is a bug; the traceback follows", "exit_code": 1}, as_json
            )
        raise


def _fail(error: dict[str, object], as_json: bool) -> int:
    code = f" [{error['code']}]" if error["code"] else ""
    click.echo(f"error{code}: {_one_line(str(error['message']))}", err=True)
    if error["hint"]:
        click.echo(f"hint: {_one_line(str(error['hint']))}", err=True)
    if as_json:
        click.echo(json.dumps({"error": error}, ensure_ascii=False))
    return int(str(error["exit_code"]))


def _one_line(text: str) -> str:
    """The text without line breaks and control characters, which a hostile file name could bring along."""
    return "".join(char if char.isprintable() else " " for char in text)


def _silence_stdout() -> None:
    """Keep the interpreter from failing again when it flushes a closed stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
