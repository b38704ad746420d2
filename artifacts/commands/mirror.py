"""``artifacts mirror``: tell an MLflow model registry what is here."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.http_options import HttpOptions
from artifacts.registry import default_root
from artifacts.render import echo, http_options, json_option, print_json, print_table, registry_option


@click.command("mirror")
@click.argument("models", nargs=-1)
@click.option("--mlflow", required=True, metavar="URL", help="The address of the MLflow server.")
@click.option("--share", default="", metavar="oci://HOST/PROJECT", help="Where the models can be fetched.")
@registry_option
@http_options
@json_option
def command(
    models: tuple[str, ...], *, mlflow: str, share: str, registry: Path | None, http: HttpOptions, as_json: bool
) -> None:
    """Mirror the metadata of all models, or of MODELS, into MLflow: versions with their digests, channels as aliases.

    Nothing is read back, and no artifact is copied. Running it again adds what is new. Logins come from MLflow's own
    variables (MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD).
    """
    from artifacts.mlflow_mirror import mirror

    done = mirror(registry or default_root(), models, mlflow, share=share, options=http)
    if as_json:
        print_json(done)
        return
    rows = [
        (model.name, model.mlflow_name, str(model.versions), str(len(model.created)), ", ".join(model.aliases) or "–")
        for model in done.models
    ]
    print_table(("model", "in MLflow", "versions", "new", "aliases moved"), rows)
    for model in done.models:
        if model.skipped:
            echo(f"{model.name}: these channels can't be aliases in MLflow: {', '.join(model.skipped)}", err=True)
