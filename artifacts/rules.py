"""What a version must show before a channel takes it: rules by channel, and gates that judge a version by them."""

from __future__ import annotations

import msgspec

from artifacts.manifest import Manifest, highest, lowest, verdict

RULES = ("passed", "device", "targets", "minimum", "maximum")
"""The names by which a gate can be waived."""


class ChannelRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a channel asks. In ``registry.json``: ``{"version":1,"channels":{"prod":{"minimum":{"cosine":0.999}}}}``."""

    passed: bool = True
    """The validation gate of every target has passed."""
    device: bool = True
    """Every target was validated on its own device."""
    targets: bool = True
    """The version has every target that the channel has now."""
    minimum: dict[str, float] = {}
    """Lowest allowed values of metrics, over all outputs of every target: ``{"cosine": 0.999}``."""
    maximum: dict[str, float] = {}
    """Highest allowed values of metrics: ``{"rel_l2": 0.01}``."""
    keys: tuple[str, ...] = ()
    """A protected channel: ids of the keys that may sign its events."""
    device_keys: tuple[str, ...] = ()
    """Ids of the keys that must have signed what a device measured after publishing; empty: unsigned results count."""


DEFAULT_RULES = {
    "candidate": ChannelRule(passed=False, device=False, targets=False),
    "staging": ChannelRule(device=False, targets=False),
}
"""Every other channel, ``prod`` among them, asks for all of :class:`ChannelRule`'s defaults."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Which versions garbage collection may remove. In ``registry.json``: ``"retention":{"keep":10,"days":30}``.

    A version goes when it is neither among the newest ``keep`` nor younger than ``days``, and nothing needs it. With
    ``keep`` 0 every version stays.
    """

    keep: int = 0
    days: float = 0.0


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """One rule applied to a version. ``detail``: what broke it, in one sentence."""

    rule: str
    passed: bool
    detail: str = ""


def judge_version(
    rule: ChannelRule, targets: tuple[Manifest, ...], current: tuple[Manifest, ...]
) -> tuple[GateResult, ...]:
    """Judge a version by a channel's rule; ``current``: the targets that the channel has now."""
    faults: dict[str, list[str]] = {}
    if rule.passed:
        bad = [item for item in targets if verdict(item) != "passed"]
        faults["passed"] = [f"the gate of {item.key} is {verdict(item)}" for item in bad]
    if rule.device:
        faults["device"] = [f"{item.key} ran on: {item.ran_on}" for item in targets if item.ran_on != "device"]
    if rule.targets:
        lost = {item.key for item in current} - {item.key for item in targets}
        faults["targets"] = [f"{name} is in the channel and not in the version" for name in sorted(lost)]
    if rule.minimum:
        faults["minimum"] = _metric_faults(rule.minimum, targets, low=True)
    if rule.maximum:
        faults["maximum"] = _metric_faults(rule.maximum, targets, low=False)
    return tuple(GateResult(rule=name, passed=not found, detail="; ".join(found)) for name, found in faults.items())


def _metric_faults(limits: dict[str, float], targets: tuple[Manifest, ...], *, low: bool) -> list[str]:
    found = []
    for metric, limit in sorted(limits.items()):
        for item in targets:
            value = lowest(item, metric) if low else highest(item, metric)
            if value is None or (value < limit if low else value > limit):
                told = "not measured" if value is None else f"{value:.6g}"
                found.append(f"{metric} of {item.key} is {told}, the limit is {limit:.6g}")
    return found
