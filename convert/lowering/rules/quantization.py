"""Quantization per axis and per block, and types of scales that came late."""

from __future__ import annotations

from onnx import TensorProto, helper

from convert.lowering.narrow import elem_name
from convert.lowering.site import FLOATS, Refuse, Site
from convert.lowering.table import down

T = TensorProto
RANGES: dict[int, tuple[int, int]] = {
    T.INT8: (-128, 127),
    T.UINT8: (0, 255),
    T.INT16: (-32768, 32767),
    T.UINT16: (0, 65535),
}
OLD = (T.INT8, T.UINT8)


def axis_shape(site: Site, name: str, rank: int) -> str:
    """A vector along the quantization axis, shaped so that it broadcasts."""
    shape = site.scope.shape(name)
    if shape is None:
        raise Refuse(f"the rank of '{name}' is not known")
    if len(shape) != 1 or shape[0] == 1:
        return name if len(shape) == 0 else site.op("Reshape", name, site.tensor_of_no_dims())
    after = rank - 1 - site.attr("axis", 1) % rank
    return site.unsqueeze(name, *range(1, after + 1)) if after else name


def _per_block(site: Site, name: str, data: str) -> str:
    """A value per block repeated over the block, cut to the size of the data."""
    axis, size = site.attr("axis", 1), site.attr("block_size", 0)
    dims = site.fixed(name)
    axis = site.axis(axis, len(dims))
    wide = site.unsqueeze(name, axis + 1)
    shape = [*dims[: axis + 1], size, *dims[axis + 1 :]]
    spread = site.op("Expand", wide, site.longs(*shape))
    flat = site.reshape(spread, *dims[:axis], dims[axis] * size, *dims[axis + 1 :])
    return site.slice(flat, site.longs(0), site.dim(data, axis), axis)


def _spread(site: Site, name: str) -> str:
    data = site.inp(0)
    if site.attr("block_size", 0):
        return _per_block(site, name, data)
    return axis_shape(site, name, site.rank(data))


def _wide(site: Site, name: str, dtype: int) -> str:
    return name if site.dtype(name) == dtype else site.cast(name, dtype)


def quantize_by_arithmetic(site: Site) -> None:
    """round(x / scale) + zero, held inside of the type's range."""
    kind = _quantized_type(site)
    if kind not in RANGES:
        raise Refuse(f"quantization to {elem_name(kind)} has no equivalent at opset {site.opset}")
    low, high = RANGES[kind]
    kind_of_scale = site.dtype(site.inp(1))
    if kind_of_scale in FLOATS:
        scaled = site.op("Div", _wide(site, site.inp(0), kind_of_scale), _spread(site, site.inp(1)))
    else:
        scaled = site.op("Div", site.cast(site.inp(0), T.FLOAT), _float_scale(site))
    value = site.op("Round", scaled if kind_of_scale == T.FLOAT else site.cast(scaled, T.FLOAT))
    if site.has(2):
        value = site.op("Add", value, site.cast(_spread(site, site.inp(2)), T.FLOAT))
    bounded = site.op("Clip", value, site.scalar(low, T.FLOAT), site.scalar(high, T.FLOAT))
    site.end("Cast", bounded, to=kind)


def _float_scale(site: Site) -> str:
    spread = _spread(site, site.inp(1))
    return spread if site.dtype(site.inp(1)) == T.FLOAT else site.cast(spread, T.FLOAT)


def _quantized_type(site: Site) -> int:
    if site.has(2):
        return site.dtype(site.inp(2))
    return site.attr("output_dtype", 0) or T.UINT8


def dequantize_by_arithmetic(site: Site, output: int = 0) -> None:
    """(x - zero) * scale, the difference in int32."""
    value = site.cast(site.inp(0), T.INT32)
    if site.has(2):
        value = site.op("Sub", value, site.cast(_spread(site, site.inp(2)), T.INT32))
    scaled = site.op("Mul", site.cast(value, T.FLOAT), _float_scale(site))
    site.end("Cast", scaled, to=output or site.dtype(site.inp(1)))


@down("QuantizeLinear", version=23)
def precision_of_division(site: Site) -> None:
    """Only the precision that older versions have."""
    precision, kinds = site.attr("precision", 0), {site.dtype(site.inp(0)), site.dtype(site.inp(1))}
    if precision not in (0, T.FLOAT) or (precision == T.FLOAT and kinds != {T.FLOAT}):
        raise Refuse("attribute precision came with version 23")
    site.same(drop=["precision"])


@down("QuantizeLinear", version=21)
def quantize_blocks_and_types(site: Site) -> None:
    """Blocks and 16-bit types by arithmetic; the output type by a zero point."""
    kind = _quantized_type(site)
    if site.attr("block_size", 0) or kind in (T.INT16, T.UINT16):
        quantize_by_arithmetic(site)
    elif not site.has(2) and kind != T.UINT8:
        if kind not in RANGES or len(site.dims(site.inp(1))) > 1:
            raise Refuse(f"quantization to {elem_name(kind)} has no equivalent at opset {site.opset}")
        scale = site.inp(1)
        zeros = site.op("ConstantOfShape", site.op("Shape", scale), value=helper.make_tensor("value", kind, [1], [0]))
        site.same([site.inp(0), scale, zeros], drop=["output_dtype", "block_size"])
    else:
        site.same(drop=["output_dtype", "block_size"])


@down("QuantizeLinear", version=19)
def quantize_floats_only(site: Site) -> None:
    """The quotient is rounded in the type of the scale first; scales other than float by arithmetic."""
    if site.dtype(site.inp(1)) != T.FLOAT:
        quantize_by_arithmetic(site)
        return
    data = _wide(site, site.inp(0), T.FLOAT)
    site.same([data, *site.node.input[1:]], drop=["saturate"])


@down("QuantizeLinear", version=13)
def quantize_per_tensor(site: Site) -> None:
    """One scale for all; scales along an axis by arithmetic."""
    if len(site.dims(site.inp(1))) == 0:
        site.same(drop=["axis"])
    else:
        quantize_by_arithmetic(site)


@down("DequantizeLinear", version=23)
def dequantized_type(site: Site) -> None:
    """Another output type than the scale’s by a Cast."""
    wanted, scale = site.attr("output_dtype", 0), site.dtype(site.inp(1))
    if wanted in (0, scale):
        site.same(drop=["output_dtype"])
        return
    written = site.same(drop=["output_dtype"])
    written.output[0] = site.names.fresh(f"{site.stem}/scaled")
    site.end("Cast", written.output[0], to=wanted)


@down("DequantizeLinear", version=21)
def dequantize_blocks_and_types(site: Site) -> None:
    """Blocks and 16-bit types by arithmetic."""
    kind = site.dtype(site.inp(0))
    if kind not in (*RANGES, T.INT32):
        site.same(drop=["block_size"]) if not site.attr("block_size", 0) else _refuse_type(site, kind)
    elif site.attr("block_size", 0) or kind in (T.INT16, T.UINT16):
        dequantize_by_arithmetic(site)
    else:
        site.same(drop=["block_size"])


def _refuse_type(site: Site, kind: int) -> None:
    raise Refuse(f"blocks of {elem_name(kind)} have no equivalent at opset {site.opset}")


@down("DequantizeLinear", version=19)
def dequantize_to_float_only(site: Site) -> None:
    """Scales other than float by arithmetic."""
    scale = site.dtype(site.inp(1))
    if scale == T.FLOAT:
        site.same()
        return
    if site.dtype(site.inp(0)) not in (*OLD, T.INT32):
        _refuse_type(site, site.dtype(site.inp(0)))
    dequantize_by_arithmetic(site)


@down("DequantizeLinear", version=13)
def dequantize_per_tensor(site: Site) -> None:
    """One scale for all; scales along an axis by arithmetic."""
    if len(site.dims(site.inp(1))) == 0:
        site.same(drop=["axis"])
    else:
        dequantize_by_arithmetic(site)


@down("QLinearMatMul", version=21)
def scales_in_float(site: Site) -> None:
    """Scales of float16 are given in float."""
    inputs = list(site.node.input)
    for index in (1, 4, 6):
        inputs[index] = _wide(site, inputs[index], T.FLOAT)
    site.same(inputs)
