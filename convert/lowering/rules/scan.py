"""CumProd by Scan, and Scan of opset 8."""

from __future__ import annotations

from onnx import GraphProto, ValueInfoProto, helper

from convert.lowering.rules.elementwise import ones_like
from convert.lowering.rules.signal import axis_from_front, by_axis
from convert.lowering.site import Refuse, Site
from convert.lowering.table import down, up


@down("CumProd", version=26)
def product_by_scan(site: Site) -> None:
    """The running product carried along the axis."""
    data, rank = site.inp(0), site.rank(site.inp(0))
    known = site.const(site.inp(1))
    if known is not None:
        site.end_as(_scan(site, data, int(known.reshape(-1)[0]) % rank))
        return
    axis = axis_from_front(site, site.inp(1), rank)
    site.end_as(by_axis(site, axis, rank, lambda place, index: _scan(place, data, index)))


def _scan(site: Site, data: str, axis: int) -> str:
    """Carry the product along the axis; exclusive ones write it down before the step."""
    dtype, exclusive, reverse = site.dtype(data), site.attr("exclusive", 0), site.attr("reverse", 0)
    slice_of = site.op("Gather", data, site.long(0), axis=axis)
    start = ones_like(site, slice_of, dtype)
    body = site.inner()
    carried, item = site.names.fresh(f"{site.stem}/carried"), site.names.fresh(f"{site.stem}/item")
    product = body.op("Mul", carried, item)
    result = body.op("Identity", product)
    written = body.op("Identity", carried if exclusive else product)
    inputs = [helper.make_tensor_value_info(name, dtype, None) for name in (carried, item)]
    graph = body.branch([result, written], inputs)
    last, collected = site.names.fresh(f"{site.stem}/last"), site.names.fresh(f"{site.stem}/collected")
    site.emit(
        "Scan",
        [start, data],
        [last, collected],
        body=graph,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_output_axes=[axis],
        scan_input_directions=[int(reverse)],
        scan_output_directions=[int(reverse)],
    )
    return collected


@up("Scan", version=9)
def scan_of_a_batch(site: Site) -> None:
    """Version 8 has a batch first: a Scan over the batch around a Scan over the sequence."""
    if site.has(0):
        raise Refuse("sequence lengths have no equivalent since opset 9")
    count = site.attr("num_scan_inputs")
    names = list(site.node.input[1:])
    directions = site.attr("directions")
    body: GraphProto = site.attr("body")
    inner = site.inner()
    items = [site.names.fresh(f"{site.stem}/item") for _ in names]
    results = [site.names.fresh(f"{site.stem}/result") for _ in site.node.output]
    inner.emit("Scan", items, results, body=body, num_scan_inputs=count, scan_input_directions=directions)
    graph = inner.branch(results, [ValueInfoProto(name=item) for item in items])
    for place, info in enumerate(graph.input):
        info.CopyFrom(helper.make_tensor_value_info(info.name, site.dtype(names[place]), None))
    site.emit("Scan", names, list(site.node.output), body=graph, num_scan_inputs=len(names))
