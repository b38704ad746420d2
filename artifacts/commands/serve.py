"""``artifacts serve``: the registry as a web page and a JSON API."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from artifacts.errors import UsageError
from artifacts.move_options import signing_key
from artifacts.registry import default_root
from artifacts.render import echo, json_option, key_option, print_json, registry_option
from artifacts.trust import make_trust

if TYPE_CHECKING:
    from fastapi import FastAPI

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8642, show_default=True, help="0 takes a free one.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name by which browsers may call this server.")
@click.option("--token-file", type=click.Path(path_type=Path), help="Who may promote: lines of NAME TOKEN [CHANNEL…].")
@click.option("--sign-key", type=click.Path(path_type=Path), help="Sign the events of promotions.")
@click.option("--share", default="", metavar="oci://HOST/PROJECT", help="Where the fetch commands take files from.")
@key_option
@registry_option
@json_option
def command(
    host: str,
    port: int,
    *,
    allow_host: tuple[str, ...],
    token_file: Path | None,
    sign_key: Path | None,
    share: str,
    key: tuple[Path, ...],
    registry: Path | None,
    as_json: bool,
) -> None:
    """Serve the registry folder to browsers and programs until it is stopped. Read-only without --token-file.

    It speaks plain HTTP: on other machines put it behind a proxy with TLS.
    """
    root = registry or default_root()
    names = (*LOOPBACK, *allow_host) if host in LOOPBACK or allow_host else ()
    app = _app(root, key=key, names=names, token_file=token_file, sign_key=sign_key, share=share)
    with _listen(host, port) as listening:
        place = f"[{host}]" if ":" in host else host
        url = f"http://{place}:{listening.getsockname()[1]}/"
        if as_json:
            print_json({"url": url, "registry": str(root), "promotion": token_file is not None})
        else:
            echo(f"{url} serves {root} ({'promotion with a token' if token_file else 'read-only'})")
        _run(app, listening)


def _app(
    root: Path,
    *,
    key: tuple[Path, ...],
    names: tuple[str, ...],
    token_file: Path | None,
    sign_key: Path | None,
    share: str,
) -> FastAPI:
    try:
        from artifacts.web.app import create_app
        from artifacts.web.desk import Desk
        from artifacts.web.store import WebStore
        from artifacts.web.tokens import read_tokens
    except ModuleNotFoundError as error:
        raise UsageError(
            "CNV-2443", f"the web needs {error.name}, which is not installed", hint="pip install 'model-convert[web]'"
        ) from error
    if token_file is not None:
        read_tokens(token_file)
    store = WebStore(root, make_trust(key, "none"), remote=share)
    return create_app(Desk(store, tokens=token_file, key=signing_key(sign_key)), hosts=names)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise UsageError(
            "CNV-2449", f"can't listen on {host} port {port}: {error.strerror}", hint="choose another --port or --host"
        ) from error


def _run(app: FastAPI, listening: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(
        app, log_level="warning", server_header=False, proxy_headers=False, timeout_keep_alive=10, limit_concurrency=200
    )
    uvicorn.Server(config).run(sockets=[listening])
