"""``convert gate REPORT``: judge a stored report again, with other thresholds, without running anything."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from artifacts.render import echo
from convert.gate import gate_failed, judge, parse_gate
from convert.report.text import metrics_table, verdict_text
from convert.validation_file import as_document, read_validation


@click.command("gate")
@click.argument("report", type=click.Path(path_type=Path))
@click.option("--gate", "gates", multiple=True, metavar="METRIC=VALUE", help="Replace a threshold; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def gate(report: Path, gates: tuple[str, ...], as_json: bool) -> None:
    """Judge the stored metrics of a conversion again.

    REPORT is a validation.json, the folder that holds it, or a manifest.json. Exits 0 where the gate passes, 8 where
    it does not.
    """
    stored = read_validation(report)
    users = {name for output in stored.report.outputs for name in output.user}
    verdict = judge(stored.report, stored.precision, parse_gate(gates, users))
    error = None if verdict.passed else gate_failed(verdict, str(report))
    if as_json:
        document = as_document(str(report), stored, verdict) | {"error": error.as_json() if error else None}
        echo(msgspec.json.encode(document).decode())
        raise click.exceptions.Exit(error.exit_code if error else 0)
    echo(verdict_text(verdict, stored.precision))
    echo(metrics_table(stored.report.outputs))
    if error:
        raise error
