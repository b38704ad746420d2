"""Side by side with other tools: the same models, in one run, each tool in an environment of its own.

``scripts/peer-venvs`` makes the environments; what could not be installed stands in the table with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Bars, CommandFailed, Cost, Grid, Part, Row, run, together

ROOT = Path(__file__).resolve().parent.parent
VENVS = Path(os.environ.get("CONVERT_BENCH_PEERS", ROOT / ".peers"))
DEEP, MODELS = str(ROOT / "benchmarks" / "deep.py"), str(ROOT / "benchmarks" / "peer_models.py")
PAIRS = 3
"""How often the bare calls and ours are run in turn; the least of each counts."""
NO_OP_LIMIT, HELP_LIMIT, PEAK_LIMIT = 1.0, 0.3, 0.6
IMAGE = "x:float32[batch,3,32,32]"
IDS, MASK = "input_ids:int64[batch,32]{0..1999}", "attention_mask:int64[batch,32]{0..1}"
OFFLINE = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
DISTRIBUTIONS = {
    "plain": ("torch", "onnxsim"),
    "onnxslim": ("onnxslim",),
    "polygraphy": ("polygraphy", "onnx-graphsurgeon"),
    "converter": ("onnxconverter-common",),
    "optimum": ("optimum", "optimum-onnx", "transformers"),
    "olive": ("olive-ai",),
}
HEADER = ("model", "tool", "what", "CPU s", "peak, MB", "result")


def rows() -> Part:
    """Measure everything that is installed."""
    with tempfile.TemporaryDirectory() as place:
        bench = _Bench(Path(place))
        bench.prepare()
        for measure in (bench.deep, bench.olive, bench.simplifiers, bench.polygraphy, bench.optimum, bench.helps):
            bench.attempt(measure)
        return bench.part()


def missing(peer: str) -> str:
    """Why a peer can't be measured; empty where it can."""
    if (VENVS / peer / "bin" / "python").exists():
        return ""
    failed = VENVS / f"{peer}.failed"
    return failed.read_text().strip() if failed.is_file() else f"not installed: run scripts/peer-venvs python3 {VENVS}"


def versions(peer: str) -> str:
    """Names and versions of what a peer's environment is for."""
    code = (
        "import sys; from importlib.metadata import version;"
        "print(', '.join(f'{name} {version(name)}' for name in sys.argv[1:]))"
    )
    command = [str(VENVS / peer / "bin" / "python"), "-c", code, *DISTRIBUTIONS[peer]]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def node_count(path: Path) -> int:
    """Nodes of a graph's file."""
    import onnx

    return len(onnx.load(path, load_external_data=False).graph.node)


class _Bench:
    """The folder with the models, and what was found so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[tuple[str, ...]] = []
        self.costs: dict[str, Cost] = {}
        self.aims: list[Row] = []
        self.failures: list[str] = []

    # ------------------------------------------------------------------------------------------------------- running

    def peer(self, peer: str, *command: str, check: bool = True) -> Cost:
        """Run a program (or a script: ``python …``) of a peer's environment."""
        program = str(VENVS / peer / "bin" / command[0])
        environment = {**OFFLINE, "PYTHONPATH": "", "PATH": f"{VENVS / peer / 'bin'}:{os.environ['PATH']}"}
        return run([program, *command[1:]], folder=self.folder, environment=environment, check=check)

    def ours(self, *command: str) -> Cost:
        """Run ``convert`` with a cache and a registry in the folder."""
        places = {"CONVERT_CACHE_DIR": str(self.folder / "cache"), "CONVERT_REGISTRY": str(self.folder / "registry")}
        return run([sys.executable, "-m", "convert", *command], folder=self.folder, environment=places)

    def add(self, model: str, tool: str, what: str, cost: Cost | None, result: str) -> None:
        """One line of the table."""
        figures = ("–", "–") if cost is None else (f"{cost.cpu:.2f}", f"{cost.peak / 1e6:.0f}")
        self.lines.append((model, tool, what, *figures, result))
        if cost is not None:
            self.costs[f"{tool}, {what}"] = cost

    def lacks(self, peer: str) -> bool:
        """Whether a peer is missing; the table then says why."""
        reason = missing(peer)
        if reason:
            self.add("–", peer, "not measured", None, reason)
        return bool(reason)

    def attempt(self, measure: Callable[[], None]) -> None:
        """Measure; a command that fails costs its own lines only."""
        try:
            measure()
        except CommandFailed as failure:
            self.failures.append(str(failure))

    # ------------------------------------------------------------------------------------------------------ measuring

    def prepare(self) -> None:
        """The deep model as TorchScript; its raw graph, for the tools that begin with one."""
        if reason := missing("plain"):
            raise CommandFailed(f"nothing to compare with: {reason}")
        self.peer("plain", "python", DEEP, "write", str(self.folder))

    def deep(self) -> None:
        """The bare calls and ours in turn: export, simplify, and a check of the numbers."""
        bare, checked, whole, again = [], [], [], []
        source = str(self.folder / "deep.pt")
        for _ in range(PAIRS):
            bare.append(
                together(
                    [
                        self.peer("plain", "python", DEEP, "export", source, "raw.onnx"),
                        self.peer("plain", "python", DEEP, "simplify", "raw.onnx", "sim.onnx"),
                    ]
                )
            )
            checked.append(
                self.ours("check", source, "--target", "cpu", "--input", IMAGE, "--no-cache", "-q", "--json")
            )
        golden = self.peer("plain", "python", DEEP, "compare", "raw.onnx", "sim.onnx")
        whole = [self._converted(source) for _ in range(PAIRS)]
        again = [self.ours(*self._conversion(source)) for _ in range(PAIRS)]
        base, ours = min(bare, key=_cpu), min(checked, key=_cpu)
        nodes = node_count(self.folder / "sim.onnx")
        raw = node_count(self.folder / "raw.onnx")
        self.add("deep", "torch.onnx.export + onnxsim", "export, simplify", base, f"{raw} → {nodes} nodes, unchecked")
        self.add("deep", "onnxruntime, in a script", "compare the two graphs", golden, "equal by eye")
        self.add("deep", "ours", "export, simplify, each proven; operators checked", ours, self._nodes(checked[-1]))
        self.add("deep", "ours", "all of it: to a published, pulled-back artifact", min(whole, key=_cpu), "published")
        self.add("deep", "ours", "unchanged repeat", min(again, key=_cpu), "published before, said so")
        self.aims += [
            Row(
                what="export + simplify + check of deep, beside the bare calls", ours=ours.cpu, base=base.cpu, bound=1.0
            ),
            Row(
                what="its peak memory, all processes, beside the bare calls",
                ours=ours.peak / 1e6,
                base=base.peak / 1e6,
                unit="MB",
                bound=PEAK_LIMIT,
            ),
            Row(what="cached no-op, beside 1 s", ours=min(again, key=_cpu).cpu, base=NO_OP_LIMIT, bound=1.0),
        ]

    def _conversion(self, source: str) -> list[str]:
        return [source, "--target", "cpu", "--input", IMAGE, "--out", "out", "-q"]

    def _converted(self, source: str) -> Cost:
        for name in ("cache", "registry", "out"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        return self.ours(*self._conversion(source))

    def _nodes(self, cost: Cost) -> str:
        document = json.loads(cost.output[cost.output.index("{") :])
        notes = [note["text"] for run_ in document["targets"][0]["stages"] for note in run_["notes"]]
        return next((text for text in notes if text.startswith("simplified")), "; ".join(notes))

    def olive(self) -> None:
        """Olive's own export and peephole pass of the same model; the same command again."""
        if self.lacks("olive"):
            return
        self.peer("plain", "python", MODELS, "olive", str(self.folder))
        tool = "olive run"
        first = self.peer("olive", "olive", "run", "--config", "olive.json")
        found = sorted((self.folder / "olive-out").rglob("*.onnx"))
        result = f"{node_count(found[0])} nodes, unchecked" if found else "no model, exit code 0"
        self.add("deep", tool, "export, peephole", first, result)
        self.add(
            "deep", tool, "unchanged repeat", self.peer("olive", "olive", "run", "--config", "olive.json"), "cached"
        )

    def simplifiers(self) -> None:
        """OnnxSlim and Polygraphy's surgeon on the raw graph; our node count beside theirs."""
        found: dict[str, int] = {}
        if not self.lacks("onnxslim"):
            cost = self.peer("onnxslim", "onnxslim", "raw.onnx", "slim.onnx")
            found["onnxslim"] = node_count(self.folder / "slim.onnx")
            self.add("deep, raw graph", "onnxslim", "simplify", cost, f"{found['onnxslim']} nodes, unchecked")
        if not self.lacks("polygraphy"):
            command = ("surgeon", "sanitize", "raw.onnx", "--fold-constants", "-o", "sane.onnx")
            cost = self.peer("polygraphy", "polygraphy", *command)
            nodes = node_count(self.folder / "sane.onnx")
            self.add("deep, raw graph", "polygraphy surgeon", "fold constants", cost, f"{nodes} nodes, unchecked")
        ours = self.ours("check", "raw.onnx", "--target", "cpu", "--no-cache", "-q", "--json")
        self.add("deep, raw graph", "ours", "simplify, proven; operators checked", ours, self._nodes(ours))
        simplified = self._nodes(ours).split(" to ")[-1].split()[0]
        if "onnxslim" in found and simplified.isdigit():
            what = "nodes of deep, beside OnnxSlim's"
            self.aims.append(
                Row(what=what, ours=float(simplified), base=float(found["onnxslim"]), unit="nodes", bound=1.0)
            )

    def polygraphy(self) -> None:
        """A golden run and a check against it."""
        if missing("polygraphy"):
            return
        shape = "x:[2,3,32,32]"
        saved = ("--save-inputs", "in.json", "--save-outputs", "out.json")
        golden = self.peer("polygraphy", "polygraphy", "run", "raw.onnx", "--onnxrt", "--input-shapes", shape, *saved)
        loaded = ("--load-inputs", "in.json", "--load-outputs", "out.json")
        check = self.peer("polygraphy", "polygraphy", "run", "sim.onnx", "--onnxrt", *loaded, check=False)
        self.add("deep, raw graph", "polygraphy run", "keep golden outputs", golden, "kept")
        self.add(
            "deep, simplified", "polygraphy run", "check against them", check, "equal" if not check.code else "differs"
        )

    def optimum(self) -> None:
        """A Hugging Face folder by optimum-cli; the same weights as TorchScript by us."""
        if self.lacks("optimum"):
            return
        self.peer("optimum", "python", MODELS, "bert", str(self.folder))
        command = ("export", "onnx", "-m", "hub", "--task", "feature-extraction", "optimum-out")
        cost = self.peer("optimum", "optimum-cli", *command)
        nodes = node_count(self.folder / "optimum-out" / "model.onnx")
        self.add("BERT, 48 layers", "optimum-cli export onnx", "export, compared with torch", cost, f"{nodes} nodes")
        inputs = ("--input", IDS, "--input", MASK)
        ours = self.ours("check", "bert.pt", "--target", "cpu", *inputs, "--no-cache", "-q", "--json")
        self.add("BERT, 48 layers", "ours", "export, simplify, each proven; operators checked", ours, self._nodes(ours))

    def helps(self) -> None:
        """What it costs to be told the options."""
        ours = min((self.ours("--help") for _ in range(PAIRS)), key=_cpu)
        self.add("–", "ours", "--help", ours, "")
        self.aims.append(Row(what="convert --help, beside 0.3 s", ours=ours.cpu, base=HELP_LIMIT, bound=1.0))
        for peer, program in (("olive", "olive"), ("optimum", "optimum-cli"), ("polygraphy", "polygraphy")):
            if not missing(peer):
                self.add("–", program, "--help", self.peer(peer, program, "--help"), "")

    # ------------------------------------------------------------------------------------------------------ reporting

    def part(self) -> Part:
        """Aims, the table, pictures, and the versions."""
        cpu = {label: cost.cpu for label, cost in self.costs.items()}
        peak = {label: cost.peak / 1e6 for label, cost in self.costs.items()}
        mine = tuple(label for label in cpu if label.startswith("ours"))
        grid = Grid(
            title="Side by side",
            header=HEADER,
            lines=tuple(self.lines),
            bars=(
                Bars(title="CPU seconds", unit="s", values=cpu, ours=mine),
                Bars(title="peak memory of all processes", unit="MB", values=peak, ours=mine),
            ),
        )
        told = tuple((peer, missing(peer) or versions(peer)) for peer in DISTRIBUTIONS)
        return Part(
            rows=tuple(self.aims),
            failed="; ".join(self.failures),
            grids=(grid, Grid(title="Versions", header=("environment", "versions"), lines=told)),
            notes=(
                "`deep`: a convolution and 48 transformer blocks of width 256, 156 MB, dynamic batch. Both sides use "
                "torch's legacy exporter at opset 17, as a TorchScript file asks for it.",
            ),
        )


def _cpu(cost: Cost) -> float:
    return cost.cpu
