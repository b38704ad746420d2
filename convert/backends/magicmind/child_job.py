"""Build and run MagicMind models in the SDK's own Python: python3 magicmind_job.py build|run|ask [SETTINGS].

Runs where the magicmind package is, with Python 3.7 or newer, and knows nothing of the program that wrote it; numpy is
needed to calibrate and to run. Paths are relative to the working folder. Every Status is looked at: MagicMind's Python
raises nothing where a call fails. A build happens in a process of its own, so that one that fails or crashes can be
tried once more, with the configuration of ``retry`` laid over it. A job that came to its end prints, last,
``magicmind_job: done`` and what it did as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from typing import Any

FAILED = 1
BUILD_FAILED = 75
NO_MODULE = 86
"""Exit codes: anything went wrong; the builder gave no model; this Python has no magicmind package."""
RUNTIME = "magicmind.python.runtime"
PYTHON = "CONVERT_MAGICMIND_PYTHON"
AGAIN = "MAGICMIND_JOB_AGAIN"
"""Set when the script was started again by itself, so that it does so once."""
NEUWARE = "/usr/local/neuware"
CRASHES = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGFPE, -signal.SIGILL, -signal.SIGBUS)
MAIN = "main/"
"""What the network puts before the names of its nodes."""


class Failure(Exception):
    """A step that failed, in words."""


class BuildFailure(Failure):
    """The builder gave no model."""


WRONG = (
    Failure, RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError, OSError, ImportError,
    MemoryError,
)  # fmt: skip
"""What a job may raise: its own failures, what the SDK's bindings make of C++ exceptions, files, numpy missing."""


def say(text: str) -> None:
    """One line for the log."""
    sys.stdout.write("magicmind_job: " + text + "\n")
    sys.stdout.flush()


def check(status: Any, doing: str) -> Any:
    """Pass on what a call gave; a Status that is not ok, where a call gives one, is a failure."""
    ok = getattr(status, "ok", None)
    if callable(ok) and not ok():
        raise Failure(doing + ": " + str(status))
    return status


# ---------------------------------------------------------------------------------------------------------- the package


def libraries() -> list[str]:
    """Folders with the SDK's libraries: Neuware's, and those that wheels of the old ABI need."""
    home = os.environ.get("NEUWARE_HOME") or NEUWARE
    return [home + "/lib64", home + "/lib/llvm-mm-cxx11-old-abi/lib"]


def start_again(argv: list[str], variables: dict[str, str]) -> None:
    """Start this script again in place of itself; comes back where it was started again already, or can't be."""
    if os.environ.get(AGAIN) or not os.path.isfile(sys.argv[0]):  # noqa: PTH113
        return
    sys.stdout.flush()
    try:
        os.execvpe(argv[0], argv, dict(os.environ, **variables, **{AGAIN: "1"}))
    except OSError as error:
        say("can't start " + argv[0] + ": " + str(error))


def find_runtime() -> Any:
    """The module magicmind.python.runtime, with its parser imported."""
    try:
        runtime = importlib.import_module(RUNTIME)
        importlib.import_module(RUNTIME + ".parser")
        return runtime
    except ImportError as error:
        text = str(error)
        if "cannot open shared object file" in text:
            paths = [*libraries(), os.environ.get("LD_LIBRARY_PATH", "")]
            start_again([sys.executable, *sys.argv], {"LD_LIBRARY_PATH": ":".join(path for path in paths if path)})
        elif os.environ.get(PYTHON):
            start_again([os.environ[PYTHON], *sys.argv], {})
        say("no module: " + text + " (" + sys.executable + ")")
        return None


def package_version(package: str) -> str:
    """The version of an installed package; empty where it is not known. ``pip show`` reads the same."""
    try:
        return str(importlib.import_module("importlib.metadata").version(package))
    except ImportError:
        pass
    try:
        return str(importlib.import_module("pkg_resources").get_distribution(package).version)
    except (ImportError, LookupError, ValueError):
        return library_version("libmagicmind.so.")


def library_version(prefix: str) -> str:
    """The version in the name of one of Neuware's libraries, ``libmagicmind.so.1.7.0``."""
    for folder in libraries():
        names = os.listdir(folder) if os.path.isdir(folder) else []  # noqa: PTH112, PTH208
        versions = [name[len(prefix) :] for name in names if name.startswith(prefix)]
        longest = max(versions, key=len) if versions else ""
        if longest.count(".") >= 1:
            return longest
    return ""


def toolkit_version() -> str:
    """CNToolkit's version: the last word of the line in version.txt that tells Neuware's."""
    path = (os.environ.get("NEUWARE_HOME") or NEUWARE) + "/version.txt"
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            lines = [line.split() for line in stream.read(65536).splitlines() if "Neuware Version" in line]
    except OSError:
        return ""
    return lines[0][-1] if lines else ""


def ask() -> int:
    """Say what is here, one fact a line."""
    if find_runtime() is None:
        return NO_MODULE
    facts = {
        "magicmind": package_version("magicmind") or library_version("libmagicmind.so."),
        "python": ".".join(map(str, sys.version_info[:3])),
        "cntoolkit": toolkit_version(),
        "cnnl": library_version("libcnnl.so."),
    }
    for name, text in facts.items():
        say(name + " " + (text or "unknown"))
    return 0


# ---------------------------------------------------------------------------------------------------------------- build


def build(mm: Any, job: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """Build one model; gives what was done."""
    said: dict[str, Any] = {"version": package_version("magicmind"), "retried": bool(overlay)}
    network = parsed(mm, job)
    config = mm.BuilderConfig()
    configure(config, job["config"])
    configure(config, overlay)
    set_dims(mm, network, {int(place): sizes for place, sizes in job["dims"].items()})
    if job.get("calibration"):
        said["calibrated"], said["left_out"] = calibrate(mm, network, config, job)
    set_floats(mm, network, job["floats"])
    keep_floats(mm, network, job["keep"])
    model = mm.Builder().build_model(job["name"], network, config)
    if model is None or not hasattr(model, "serialize_to_file"):
        raise BuildFailure("Failed to build model" + ("" if model is None else ": " + str(model)))
    check(model.serialize_to_file(job["output"]), "Serialization failed with")
    if not os.path.isfile(job["output"]) or not os.path.getsize(job["output"]):  # noqa: PTH113, PTH202
        raise Failure("serialize_to_file says that it succeeded, and there is no file")
    said["inputs"] = list(map(str, model.get_input_names()))
    said["outputs"] = list(map(str, model.get_output_names()))
    return said


def parsed(mm: Any, job: dict[str, Any]) -> Any:
    """The network of the graph."""
    network = mm.Network()
    parser = importlib.import_module(RUNTIME + ".parser").Parser(mm.ModelKind.kOnnx)
    check(parser.parse(network, job["model"]), "parsing " + job["model"])
    count = network.get_input_count()
    if count != len(job["inputs"]):
        raise Failure("Got " + str(count) + " inputs from network, but " + str(len(job["inputs"])) + " from param")
    return network


def configure(config: Any, wanted: dict[str, Any]) -> None:
    """Give the builder its configuration, key by key, so that a refusal names its key."""
    for name, value in wanted.items():
        check(config.parse_from_string(json.dumps({name: value})), "configuration " + json.dumps({name: value}))


def set_dims(mm: Any, network: Any, dims: dict[int, list[int]]) -> None:
    """Fix shapes of inputs, by place. A scalar has none."""
    for place, sizes in dims.items():
        if sizes:
            check(network.get_input(place).set_dimension(mm.Dims(sizes)), "set_dimension of input " + str(place))


def set_floats(mm: Any, network: Any, floats: dict[str, dict[str, str]]) -> None:
    """What is a float in the graph has that type in the artifact, whatever the precision in between."""
    types = {"float32": mm.DataType.FLOAT32, "float16": mm.DataType.FLOAT16}
    for place, name in floats["inputs"].items():
        check(network.get_input(int(place)).set_data_type(types[name]), "set_data_type of input " + place)
    for place, name in floats["outputs"].items():
        check(network.get_output(int(place)).set_data_type(types[name]), "set_data_type of output " + place)


def keep_floats(mm: Any, network: Any, names: list[str]) -> None:
    """Set the precision of single nodes to float32: inputs that are floats, and outputs that are.

    As the SDK's sample_quantization does in C++. Nodes are looked for by name, after a calibration anew.
    """
    if not names:
        return
    nodes = {node.get_node_name(): node for node in network.get_all_nodes_in_network()}
    found = {name: nodes.get(MAIN + name) or nodes.get(name) for name in names}
    lacking = [name for name, node in found.items() if node is None]
    if lacking:
        raise Failure("the network has no node called " + ", ".join(lacking[:5]))
    for name, node in found.items():
        assert node is not None
        for place in range(node.get_input_count()):
            if is_float(mm, node.get_input(place)):
                check(node.set_precision(place, mm.DataType.FLOAT32), "set_precision of " + name)
        for place in range(node.get_output_count()):
            if is_float(mm, node.get_output(place)):
                check(node.set_output_type(place, mm.DataType.FLOAT32), "set_output_type of " + name)
    say("kept in float32: " + str(len(names)) + " nodes")


def is_float(mm: Any, tensor: Any) -> bool:
    """Whether a tensor holds floats, or will: calibrated ones are quantized floats."""
    kinds = [getattr(mm.DataType, name, None) for name in ("FLOAT32", "FLOAT16", "QINT8", "QINT16")]
    return tensor.get_data_type() in kinds


# ---------------------------------------------------------------------------------------------------------- calibration


def numpy_type(kind: Any) -> Any:
    """The numpy type of one of MagicMind's."""
    return importlib.import_module("magicmind.python.common.types").get_numpy_dtype_by_datatype(kind)


def calibrate(mm: Any, network: Any, config: Any, job: dict[str, Any]) -> tuple[int, int]:
    """Calibrate on every file whose shapes are those of the first; gives how many were used, and left out."""
    how, names = job["calibration"], job["inputs"]
    files, shapes = calibration_files(how["files"], names)
    if not files:
        raise Failure("no calibration data fits: none of " + str(len(how["files"])) + " files has all inputs")
    set_dims(mm, network, dict(enumerate(shapes)))
    series = [calibration_series(mm, files, name, network.get_input(place)) for place, name in enumerate(names)]
    calibrator = mm.Calibrator(series)
    if calibrator is None:
        raise Failure("Create calibrator failed")
    kinds = mm.QuantizationAlgorithm
    kind = kinds.EQNM_ALGORITHM if how["algorithm"] == "eqnm" else kinds.LINEAR_ALGORITHM
    check(calibrator.set_quantization_algorithm(kind), "set_quantization_algorithm")
    say("calibrating on " + str(len(files)) + " samples")
    if how["remote"]:
        remote = mm.RemoteConfig()
        remote.address = how["remote"]
        remote.device_id = how["device"]
        check(calibrator.set_remote(remote), "calibrating on " + how["remote"])
        check(calibrator.calibrate(network, config), "calibrating")
    else:
        with mm.System() as system:
            held = card(mm, system, how["device"])
            check(calibrator.calibrate(network, config), "calibrating")
            del held
    return len(files), len(how["files"]) - len(files)


def card(mm: Any, system: Any, number: int) -> Any:
    """The card of a number, made active."""
    count = system.device_count()
    if number >= count:
        raise Failure("Invalid dev id " + str(number) + ", dev_num is:" + str(count))
    device = mm.Device()
    device.id = number
    check(device.active(), "making card " + str(number) + " active")
    return device


def calibration_files(paths: list[str], names: list[str]) -> tuple[list[str], list[list[int]]]:
    """The files that hold every input in the shapes of the first such file, and those shapes."""
    import numpy as np

    files: list[str] = []
    shapes: list[list[int]] = []
    for path in paths:
        with np.load(path, allow_pickle=False) as stored:
            lacking = [name for name in names if name not in stored.files]
            here = [] if lacking else [list(stored[name].shape) for name in names]
        if lacking or (shapes and here != shapes):
            say("left out " + path + ": " + ("no " + ", ".join(lacking) if lacking else "other shapes than the first"))
            continue
        files.append(path)
        shapes = here
    return files, shapes


def calibration_series(mm: Any, files: list[str], name: str, tensor: Any) -> Any:
    """One input's samples, as MagicMind asks for them: ``next``, then ``get_sample``, until ``OUT_OF_RANGE``."""
    import numpy as np

    kind = tensor.get_data_type()

    class Series(mm.CalibDataInterface):  # type: ignore[misc]
        """Reads one file at a time."""

        def __init__(self) -> None:
            mm.CalibDataInterface.__init__(self)
            self.next_place = 0
            self.sample: Any = None

        def next(self) -> Any:
            """Go to the next sample."""
            if self.next_place >= len(files):
                return mm.Status(mm.Code.OUT_OF_RANGE, "No more data.")
            with np.load(files[self.next_place], allow_pickle=False) as stored:
                self.sample = np.array(stored[name], dtype=numpy_type(kind), order="C")
            self.next_place += 1
            return mm.Status()

        def get_shape(self) -> Any:
            """The shape of every sample."""
            with np.load(files[0], allow_pickle=False) as stored:
                return mm.Dims(list(stored[name].shape))

        def get_data_type(self) -> Any:
            """The type of every sample."""
            return kind

        def get_sample(self) -> Any:
            """The sample that ``next`` went to."""
            return self.sample

        def reset(self) -> Any:
            """Back to the beginning."""
            self.next_place, self.sample = 0, None
            return mm.Status()

    return Series()


# ------------------------------------------------------------------------------------------------------------------ run


def run(mm: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Load an artifact once and run every sample on a card; gives what was done."""
    model = mm.Model()
    check(model.deserialize_from_file(job["artifact"]), "loading " + job["artifact"])
    with mm.System() as system:
        device = card(mm, system, job["device"])
        settings = mm.Model.EngineConfig()
        settings.device_type = "MLU"
        engine = made(model.create_i_engine(settings), "an engine")
        context = made(engine.create_i_context(), "a context")
        queue = made(device.create_queue(), "a queue")
        on = (context, queue, device)
        seconds = [run_sample(model, on, job, (source, destination)) for source, destination in job["samples"]]
        del on, context, engine, queue
    names = list(map(str, model.get_output_names()))
    return {"version": package_version("magicmind"), "outputs": names, "seconds": seconds}


def made(thing: Any, what: str) -> Any:
    """What was made; None, or a Status in its place, is a failure."""
    if thing is None or callable(getattr(thing, "ok", None)):
        raise Failure("can't make " + what + ("" if thing is None else ": " + str(thing)))
    return thing


def run_sample(model: Any, on: tuple[Any, Any, Any], job: dict[str, Any], files: tuple[str, str]) -> float:
    """One sample: read, run, write; gives the seconds of the run. ``on``: context, queue and device."""
    import numpy as np

    context, queue, device = on
    inputs = made(context.create_inputs(), "inputs")
    with np.load(files[0], allow_pickle=False) as stored:
        arrays = [stored[name] for name in job["inputs"]]
    if len(inputs) != len(arrays):
        raise Failure("the artifact has " + str(len(inputs)) + " inputs, and the graph " + str(len(arrays)))
    kinds = [numpy_type(kind) for kind in model.get_input_data_types()]
    for place, (tensor, array, kind) in enumerate(zip(inputs, arrays, kinds)):  # noqa: B905
        axes = job["input_axes"].get(str(place))
        array = np.array(narrowed(array.transpose(axes) if axes else array, kind, place), order="C")
        if tuple(tensor.shape) != array.shape:
            check(tensor.resize(list(array.shape)), "resizing input " + str(place) + " to " + str(array.shape))
        check(tensor.from_numpy(array), "feeding input " + str(place))
        check(tensor.to(device), "copying input " + str(place))
    outputs: list[Any] = []
    begun = time.perf_counter()
    check(context.enqueue(inputs, outputs, queue), "enqueue")
    check(queue.sync(), "sync")
    seconds = time.perf_counter() - begun
    named: dict[str, Any] = {}
    for place, tensor in enumerate(outputs):
        array = np.array(tensor.asnumpy())
        axes = job["output_axes"].get(str(place))
        named[str(place)] = np.array(array.transpose(np.argsort(axes)) if axes else array, order="C")
    os.makedirs(os.path.dirname(files[1]) or ".", exist_ok=True)  # noqa: PTH103, PTH120
    np.savez(files[1], **named)
    return seconds


def narrowed(array: Any, kind: Any, place: int) -> Any:
    """An array in the type that the artifact takes; integers that don't fit into it are a failure."""
    import numpy as np

    if array.dtype == kind:
        return array
    cast = array.astype(kind)
    if array.dtype.kind in "iu" and not np.array_equal(cast, array):
        raise Failure("input " + str(place) + " has values that do not fit into " + str(np.dtype(kind)))
    return cast


# ----------------------------------------------------------------------------------------------------------------- main


def attempt(command: str, job: dict[str, Any], overlay: dict[str, Any]) -> int:
    """Do a job in this process; gives the exit code."""
    mm = find_runtime()
    if mm is None:
        return NO_MODULE
    try:
        said = build(mm, job, overlay) if command == "build" else run(mm, job)
    except BuildFailure as failure:
        say("failed: " + str(failure))
        return BUILD_FAILED
    except WRONG as failure:
        say("failed: " + (str(failure) or type(failure).__name__))
        return FAILED
    say("done " + json.dumps(said, sort_keys=True))
    return 0


def apart(job: dict[str, Any], overlay: dict[str, Any]) -> int:
    """Build in a process of its own; gives its exit code, negative for a signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            code = attempt("build", job, overlay)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def build_or_retry(job: dict[str, Any]) -> int:
    """Build, and where the builder gives no model or crashes, once more with ``retry`` laid over."""
    code = apart(job, {})
    if job["retry"] and (code == BUILD_FAILED or code in CRASHES):
        ended = "gave no model" if code == BUILD_FAILED else "was ended by signal " + str(-code)
        say("the builder " + ended + "; trying again with " + json.dumps(job["retry"]))
        code = apart(job, job["retry"])
    # Nobody above may take it for a builder that failed: a script that started itself again has another one above it.
    return 128 - code if code < 0 else FAILED if code == BUILD_FAILED else code


def main() -> int:
    """Do what the command line says; without one, run the samples of magicmind_run.json."""
    command, settings = ([*sys.argv[1:], "", ""])[:2]
    if command == "ask":
        return ask()
    with open(settings or "magicmind_run.json", encoding="utf-8") as stream:
        job = json.load(stream)
    return build_or_retry(job) if command == "build" else attempt("run", job, {})


if __name__ == "__main__":
    sys.exit(main())
