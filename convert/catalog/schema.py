"""The JSON schema of ``convert.toml``, for editors: made of the structs that the reader checks against.

``schema.json`` beside this file is what it gives; a test holds the two together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from convert.catalog.values import CatalogFile

SHIPPED = Path(__file__).with_name("schema.json")


def json_schema() -> dict[str, Any]:
    """The schema, draft 2020-12."""
    schema = msgspec.json.schema(CatalogFile)
    model = schema["$defs"]["ModelEntry"]
    model["oneOf"] = [{"required": [name]} for name in ("path", "glob", "registry")]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "convert.toml",
        "description": "Settings and catalogue of model-convert",
        **_without_null(schema),
    }


def _without_null(node: Any) -> Any:
    """TOML has no null: what may be left out is simply not required."""
    if isinstance(node, list):
        return [_without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: _without_null(value) for key, value in node.items() if not (key == "default" and value is None)}
    options = [option for option in found.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1 and "anyOf" in found:
        del found["anyOf"]
        found.update(options[0])
    return found
