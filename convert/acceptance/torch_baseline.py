"""The PyTorch model itself on a device of this machine, and its outputs beside those on the CPU. Runs in the worker.

Devices in order: Ascend (``torch_npu``), Cambricon (``torch_mlu``), ``cuda`` (NVIDIA, and the torch of DTK, ROCm, MetaX
and CoreX, which all keep that name), the CPU.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Any

import msgspec
import torch

from artifacts.cards import find_cards
from convert.acceptance.speed import speed_from
from convert.acceptance.values import Speed, TorchRun
from convert.compare import compare_outputs, fold
from convert.errors import UsageError
from convert.gate import judge
from convert.loading.calls import Call
from convert.loading.opened import OpenModel
from convert.loading.torch_models import open_model, sample_calls
from convert.stages.load import load_model
from convert.torch_export import ExporterFailed, run_torch
from convert.torch_export import TorchRun as Outputs
from convert.values import LoadOptions, Precision, ValidationReport

PLUGINS = {"npu": "torch_npu", "mlu": "torch_mlu"}
"""What brings a device to torch beside torch itself (Ascend/torch_npu, Cambricon/torch_mlu)."""
ORDER = ("npu", "mlu", "cuda", "cpu")
VENDORS = {"npu": "ascend", "mlu": "cambricon", "cpu": ""}
WORDS = (
    ("hygon", ("HYGON", "DCU", "K100", "BW1")),
    ("metax", ("METAX", "MXC", "C500")),
    ("iluvatar", ("ILUVATAR", "BI-V", "MR-V")),
    ("amd", ("AMD", "INSTINCT", "RADEON")),
    ("nvidia", ("NVIDIA", "TESLA", "GEFORCE")),
)
"""Words in the name that a ``cuda`` device has, by vendor; where none is there, the vendor's own tool is asked."""


class TorchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run: the model, the device (``auto``: the first of :data:`ORDER` that is here), how often."""

    load: LoadOptions
    device: str = "auto"
    runs: int = 50
    warmup: int = 5
    gate: dict[str, float] = {}


def run_on_device(options: TorchOptions, folder: Path) -> TorchRun:
    """Run a model on a device and on the CPU, compare, and time it on the device.

    On a card the gate of ``mixed`` judges: cards round products of fp32 by default. Raises what loading raises, and
    :class:`UsageError`: CNV-2284 the device is not here, CNV-2285 the model does not run on it.
    """
    device = find_device(options.device)
    loaded = load_model(options.load, folder)
    if loaded.format == "onnx":
        raise UsageError("CNV-2285", "an ONNX file is no PyTorch model", hint="give the model's .pt, .pt2 or weights")
    model, calls = open_model(loaded, options.load), sample_calls(loaded)
    reference = [_run(model, call, "cpu") for call in calls]
    moved = _moved(model, device)
    there = [call.mapped(lambda tensor: tensor.to(device)) for call in calls]
    pairs = zip(reference, (_run(moved, call, device) for call in there), strict=True)
    compared = (compare_outputs(ours.outputs, theirs.outputs, ours.names) for ours, theirs in pairs)
    outputs = fold(compared).outputs
    judged_as: Precision = "fp32" if device == "cpu" else "mixed"
    report = ValidationReport(parent="", ran_on="device", outputs=outputs, samples=len(calls))
    card = _card(device)
    return TorchRun(
        device=device,
        card=card,
        vendor=_vendor(device, card),
        speed=_timed(moved, there, device, options),
        outputs=outputs,
        verdict=judge(report, judged_as, options.gate),
        judged_as=judged_as,
        versions=_versions(device),
        notes=loaded.notes,
    )


def find_device(asked: str) -> str:
    """The device that was asked for, or the first that is here. Raises :class:`UsageError` CNV-2284."""
    if asked == "auto":
        return next(name for name in ORDER if _available(name))
    if asked not in ORDER or not _available(asked):
        here = [name for name in ORDER if _available(name)]
        raise UsageError(
            "CNV-2284",
            f"torch has no device {asked!r} here",
            hint=f"here are: {', '.join(here)}; npu needs torch_npu, mlu torch_mlu, and cuda a torch that was built for"
            " the card (NVIDIA, DTK, ROCm, MetaX)",
        )
    return asked


def _available(name: str) -> bool:
    if name == "cpu":
        return True
    plugin = PLUGINS.get(name)
    if plugin is not None:
        if util.find_spec(plugin) is None:
            return False
        try:
            import_module(plugin)
        except (ImportError, OSError, RuntimeError):
            return False  # installed, and its own libraries are not: `convert doctor` says what is missing
    module = getattr(torch, name, None)
    return bool(module is not None and module.is_available())


def _moved(model: OpenModel, device: str) -> OpenModel:
    if device == "cpu":
        return model
    try:
        return dataclasses.replace(model, module=model.module.to(device))
    except RuntimeError as error:
        raise _does_not_run(device, str(error)) from error


def _run(model: OpenModel, call: Call, device: str) -> Outputs:
    try:
        return run_torch(model, call)
    except ExporterFailed as failure:
        raise _does_not_run(device, str(failure)) from failure


def _does_not_run(device: str, why: str) -> UsageError:
    told = why.strip().splitlines()[0][:400] if why.strip() else "no reason given"
    return UsageError(
        "CNV-2285",
        f"the PyTorch model does not run on {device}: {told}",
        hint="give inputs that suit it (--samples), or another device (--torch-device cpu)",
    )


def _timed(model: OpenModel, calls: list[Call], device: str, options: TorchOptions) -> Speed:
    """Times with the device's queue empty before and after each run."""
    wait = getattr(getattr(torch, device), "synchronize", None)
    millis = []
    with torch.inference_mode():
        for number in range(options.warmup + options.runs):
            call = calls[number % len(calls)].mapped(torch.Tensor.clone)
            if wait is not None:
                wait()
            before = time.perf_counter()
            model.run(call)
            if wait is not None:
                wait()
            millis.append((time.perf_counter() - before) * 1e3)
    return speed_from(millis[options.warmup :], warmup=options.warmup, clock="torch")


def _card(device: str) -> str:
    tell = getattr(getattr(torch, device), "get_device_name", None)
    return "" if device == "cpu" or tell is None else str(tell(0))


def _vendor(device: str, card: str) -> str:
    """Whose card it is: ``cuda`` is the name of many."""
    if device in VENDORS:
        return VENDORS[device]
    return vendor_of(card, (found.vendor for found in find_cards()))


def vendor_of(card: str, found: Iterable[str]) -> str:
    """The vendor of a ``cuda`` device, by its name, else the first that a vendor's tool shows on this machine."""
    upper = card.upper()
    told = (vendor for vendor, words in WORDS if any(word in upper for word in words))
    return next(told, "") or next((vendor for vendor in found if vendor not in ("ascend", "cambricon")), "")


def _versions(device: str) -> dict[str, str]:
    found: dict[str, Any] = {"torch": torch.__version__, "hip": torch.version.hip, "cuda": torch.version.cuda}
    plugin = PLUGINS.get(device)
    if plugin is not None:
        found[plugin] = metadata.version(plugin)
    return {name: str(version) for name, version in found.items() if version}
