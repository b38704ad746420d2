"""Compare outputs that a device gave with the references of this bundle. Needs Python and numpy, runs no model.

    python3 verify.py            compares measured/NNN.npz with samples/NNN.reference.npz, prints one line each
    python3 verify.py --how      says how the files in measured/ are made

Each measured/NNN.npz holds the outputs for samples/NNN.npz, in order as ``0``, ``1``, … or by name. The verdict here is
a preview: ``convert resume`` measures more, and judges again. Exit: 0 within the gate, 8 beyond it, 2 nothing there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
Array = Any
MARK = "@"
"""Types that numpy lacks are stored as integers under ``NAME@TYPE``."""

HOW = """\
For each {fed}/NNN.npz, run out/{output} on its arrays (inputs by name, in this order: {inputs}),
and save what comes out, in the model's order:

    import numpy as np
    feeds = dict(np.load("{fed}/000.npz"))
    outputs = run_on_the_device(feeds)          # your runtime: a list of arrays
    np.savez("measured/000.npz", **{{str(i): array for i, array in enumerate(outputs)}})

The outputs are, in order: {outputs}
"""


def main(arguments: list[str]) -> int:
    """Compare, print, and give the exit code."""
    bundle = json.loads((HERE / "bundle.json").read_text(encoding="utf-8"))
    if "--how" in arguments:
        say(how(bundle))
        return 0
    count = bundle["graph"]["sample_count"]
    measured = [number for number in range(count) if (HERE / f"measured/{number:03d}.npz").is_file()]
    if not measured:
        say("measured/ holds no outputs yet\n\n" + how(bundle))
        return 2
    thresholds = bundle["thresholds"]
    good = [sample(number, bundle, thresholds) for number in measured]
    if len(measured) < count:
        say(f"{len(measured)} of {count} samples are measured; `convert resume` wants all of them")
    passed = all(good)
    say(f"{'within' if passed else 'BEYOND'} the gate of {bundle['judged_as']}: {limits(thresholds)}")
    return 0 if passed else 8


def say(text: str) -> None:
    """Write one line."""
    sys.stdout.write(text + "\n")


def how(bundle: Any) -> str:
    """How the files in ``measured/`` are made."""
    graph = bundle["graph"]
    inputs, outputs = ([f"{one['name']} ({one['dtype']})" for one in graph[kind]] for kind in ("inputs", "outputs"))
    return HOW.format(
        fed=fed_from(), output=bundle["plan"]["output"], inputs=", ".join(inputs), outputs=", ".join(outputs)
    )


def fed_from() -> str:
    """The folder of what the artifact is fed: 8-bit images where it prepares them itself."""
    return "images" if (HERE / "images").is_dir() else "samples"


def limits(thresholds: Any) -> str:
    """The thresholds that are looked at here."""
    return ", ".join(f"{name}={thresholds[name]:g}" for name in ("cosine", "rel_l2", "exact_match"))


def sample(number: int, bundle: Any, thresholds: Any) -> bool:
    """Compare one sample, one line for each output; whether all keep the thresholds."""
    names = [one["name"] for one in bundle["graph"]["outputs"]]
    references = in_order(load(HERE / f"samples/{number:03d}.reference.npz"), names)
    outputs = in_order(load(HERE / f"measured/{number:03d}.npz"), names)
    good = len(outputs) == len(references)
    if not good:
        say(f"sample {number:03d}: {len(outputs)} outputs, and the model has {len(references)}")
    for name, reference, output in zip(names, references, outputs):  # noqa: B905 (Python 3.7 has no strict)
        held, line = compare(reference, output, thresholds)
        say(f"sample {number:03d}  {name}  {line}{'' if held else '  <-- beyond the gate'}")
        good = good and held
    return good


def load(path: Path) -> dict[str, Array]:
    """Arrays by name; bfloat16 comes as float32, other types that numpy lacks as their bits."""
    arrays = {}
    with np.load(path, allow_pickle=False) as stored:
        for key in stored.files:
            name, mark, kind = key.rpartition(MARK)
            array = stored[key]
            if mark and kind == "bfloat16":
                array = (array.astype(np.uint32) << 16).view(np.float32)
            arrays[name if mark else key] = array
    return arrays


def in_order(arrays: dict[str, Array], names: list[str]) -> list[Array]:
    """Arrays in the order of the outputs: by name, else by number."""
    if set(names) <= set(arrays):
        return [arrays[name] for name in names]
    try:
        return [arrays[key] for key in sorted(arrays, key=lambda key: int(key.replace("arr_", "")))]
    except ValueError:
        sys.exit(f"the arrays are called {', '.join(arrays)}; they should be 0, 1, ... or {', '.join(names)}")


def compare(reference: Array, output: Array, thresholds: Any) -> tuple[bool, str]:
    """Whether one output keeps the thresholds, and its metrics in words."""
    if reference.shape != output.shape:
        return False, f"shape {list(output.shape)} instead of {list(reference.shape)}"
    if reference.dtype.kind in "iubSU":
        equal = float(np.mean(reference == output)) if reference.size else 1.0
        return equal >= thresholds["exact_match"], f"equal {equal:.6g}"
    left, right = (np.asarray(array, dtype=np.float64).ravel() for array in (reference, output))
    finite = np.isfinite(left) & np.isfinite(right)
    same = bool(np.array_equal(np.isnan(left), np.isnan(right)) and np.array_equal(np.isinf(left), np.isinf(right)))
    left, right = left[finite], right[finite]
    norm, other = float(np.linalg.norm(left)), float(np.linalg.norm(right))
    off = float(np.linalg.norm(right - left))
    largest = float(np.max(np.abs(right - left), initial=0.0))
    cosine = float(left @ right) / (norm * other) if norm and other else float(norm == other)
    relative = off / norm if norm else float(other > 0)
    words = f"cosine {cosine:.6g}  rel_l2 {relative:.3g}  max_abs {largest:.3g}"
    if not same:
        return False, words + "  NaN or Inf at other places"
    close = largest <= thresholds["floor"]
    return close or (cosine >= thresholds["cosine"] and relative <= thresholds["rel_l2"]), words


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
