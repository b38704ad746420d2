"""Optionals: what they say of values that are no optionals."""

from __future__ import annotations

import numpy as np

from convert.lowering.site import Refuse, Site
from convert.lowering.table import down


def _is_optional(site: Site, name: str) -> bool:
    found = site.scope.type_of(name)
    if found is None:
        raise Refuse(f"the type of '{name}' is not known")
    return bool(found.WhichOneof("value") == "optional_type")


@down("OptionalGetElement", version=18)
def element_of_a_plain_value(site: Site) -> None:
    """Of a value that is no optional: the value."""
    if _is_optional(site, site.inp(0)):
        site.same()
    else:
        site.end_as(site.inp(0))


@down("OptionalHasElement", version=18)
def presence_of_a_plain_value(site: Site) -> None:
    """Of a value that is no optional: yes; of nothing: no."""
    if site.has(0) and _is_optional(site, site.inp(0)):
        site.same()
    else:
        site.end_as(site.tensor(np.array(site.has(0))))


@down("Optional", version=28)
def optional_types(site: Site) -> None:
    """Only types were added."""
    site.same()
