"""A strict stand-in for ``migraphx-driver`` 2.2 … 2.16 and for that of DTK (4.x), written from what the real one does.

It has no exit code of its own: 0 unless something is thrown (134) or a fault ends it (139).
"""

import difflib
import os
import resource
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import program as mx

COMMANDS = ("compile", "onnx", "op", "params", "perf", "read", "roctx", "run", "tf", "verify")
SWITCH, WORD, NUMBER, LIST = 0, 1, "n", 2
BASE = {
    "--onnx": SWITCH, "--tf": SWITCH, "--migraphx": SWITCH, "--migraphx-json": SWITCH, "--batch": NUMBER,
    "--nhwc": SWITCH, "--nchw": SWITCH, "--skip-unknown-operators": SWITCH, "--trim": NUMBER, "-t": NUMBER,
    "--input-dim": LIST, "--output-names": LIST, "--optimize": SWITCH, "-O": SWITCH, "--graphviz": SWITCH,
    "-g": SWITCH, "--brief": SWITCH, "--cpp": SWITCH, "--json": SWITCH, "--text": SWITCH, "--binary": SWITCH,
    "--output": WORD, "-o": WORD, "--fill0": LIST, "--fill1": LIST, "--gpu": SWITCH, "--cpu": SWITCH, "--ref": SWITCH,
    "--enable-offload-copy": SWITCH, "--disable-fast-math": SWITCH, "--fp16": SWITCH, "--int8": SWITCH,
}  # fmt: skip
LATER = {
    (2, 5): {"--python": SWITCH, "--py": SWITCH},
    (2, 6): {"--dyn-input-dim": LIST, "--default-dyn-dim": WORD, "--exhaustive-tune": SWITCH},
    (2, 9): {"--fp8": SWITCH, "--apply-pass": LIST, "-p": LIST},
    (2, 10): {"--test": SWITCH, "--dim-param": LIST},
    (2, 11): {"--int4-weights": SWITCH, "--mlir": SWITCH},
    (2, 12): {"--bf16": SWITCH, "--netron": SWITCH},
    (2, 13): {"--load-arg": LIST, "--trim-size": NUMBER, "-s": NUMBER},
    (2, 16): {
        "--log-level": WORD, "--log-file": LIST, "--debug-symbols": SWITCH, "--strip-context": SWITCH,
        "--replace-literals": SWITCH,
    },
}  # fmt: skip
COMPILE_ONLY = {"--fill0", "--fill1", "--load-arg", "--gpu", "--cpu", "--ref", "--enable-offload-copy", "--fp16",
                "--disable-fast-math", "--exhaustive-tune", "--int8", "--fp8", "--bf16", "--int4-weights"}  # fmt: skip
PASSES = {"dead_code_elimination", "simplify_algebra", "simplify_reshapes", "eliminate_identity", "propagate_constant"}


class Usage(Exception):
    """What the argument parser says; the exit code stays 0."""


def flags_of(command):
    found = dict(BASE)
    for since, flags in LATER.items():
        if mx.level() >= since:
            found.update(flags)
    if command == "perf":
        return {**found, "--iterations": NUMBER, "-n": NUMBER}
    return found if command == "compile" else {name: kind for name, kind in found.items() if name not in COMPILE_ONLY}


def say(text, level="INFO"):
    """A status line: on stdout up to 2.15, on stderr with a prefix since."""
    if mx.level() < (2, 16):
        print(text, flush=True)
        return
    if level == "INFO" and os.environ.get("MIGRAPHX_LOG_LEVEL", "3") in ("0", "1", "2"):
        return
    stamp = datetime.now().strftime("%Y-%m-%d %H:%M:%S.%f")
    print(f"{stamp} [{level}] [/src/AMDMIGraphX/src/driver/main.cpp:1117] {text}", file=sys.stderr, flush=True)


def banner():
    return f"MIGraphX Version: {mx.version()[0]}.20250912-17-gf729a52faf"


def parse(words, flags):
    """Values by flag, positional words under ''."""
    values = {"": []}
    current = ""
    for word in words:
        if word in flags:
            kind = flags[word]
            values.setdefault(word, [])
            if kind == SWITCH:
                values[word].append("on")
            current = "" if kind == SWITCH else word
        elif current:
            values[current].append(word)
            if flags[current] != LIST:
                current = ""
        else:
            values[""].append(word)
    return values


def check(values, flags):
    for flag, given in values.items():
        if not flag:
            continue
        if flags[flag] in (WORD, NUMBER) and len(given) > 1:
            raise Usage(f"Invalid input to '{flag} [std::string]'\n    Too many arguments passed.")
        if flags[flag] != SWITCH and not given:
            raise Usage(f"Invalid input to '{flag} [std::string]'\n    Flag with no value.")
        if flags[flag] == NUMBER and not given[0].isdigit():
            raise Usage(f"Invalid input to '{flag} [unsigned int]'\n    Failed to parse '{given[0]}' as unsigned int")
    for word in values[""]:
        near = difflib.get_close_matches(word, flags, n=1, cutoff=0.75) if word.startswith("-") else []
        if near:
            raise Usage(
                f"error: Found argument '{word}' which wasn't expected, or isn't valid in this context\n"
                f"    Did you mean {near[0]}?"
            )
    if not values[""]:
        raise Usage("error: The following required arguments were not provided:\n    <input file>")
    if not Path(values[""][-1]).exists():
        raise Usage(f"error: Invalid input to '<input file> [std::string]'\n    Path does not exist: {values[''][-1]}")


def named_lists(words):
    """``@a 1 2 @b 3`` as names and their words. What stands before the first name has none."""
    found, name = {}, ""
    for word in words:
        if word.startswith("@"):
            name = word[1:]
        else:
            found.setdefault(name, []).append(word)
    return found


def input_dims(words):
    found = {}
    for name, sizes in named_lists(words).items():
        for size in sizes:
            if not size.isdigit():
                raise mx.Failure(f"Failed to parse '{size}' as unsigned long")
        found[name] = [int(size) for size in sizes]
    return found


def load(values):
    file = values[""][-1]
    say(f"Reading: {file}")
    if not (file.endswith(".onnx") or "--onnx" in values):
        return mx.load_mxr(Path(file).read_bytes(), Path(file).name)
    dims = input_dims(values.get("--input-dim", []))
    dynamic = {
        name: [mx.range_of(size) for size in mx.relaxed_json(texts[0])]
        for name, texts in named_lists(values.get("--dyn-input-dim", [])).items()
    }
    if dims and dynamic:
        raise mx.Failure(
            f"{mx.FAR}onnx/onnx.cpp:66: parse_onnx_from: PARSE_ONNX_FROM: both map_input_dims and map_dyn_input_dims"
            " non-empty, onlyone should be used"
        )
    named = {}
    for name, texts in named_lists(values.get("--dim-param", [])).items():
        told = mx.relaxed_json(texts[0])
        entries = told if isinstance(told, list) else [told] if isinstance(told, int) else list(told.values())
        if len(entries) != 1:
            raise mx.Failure(f"{mx.FAR}driver/main.cpp:250: operator(): dim_param must only specify one dimension")
        named[name] = mx.range_of(told[0] if isinstance(told, list) else told) if not isinstance(told, dict) else 0
    default = int(values["--batch"][0]) if "--batch" in values else 1
    if "--default-dyn-dim" in values:
        default = mx.range_of(mx.relaxed_json(values["--default-dyn-dim"][0]))
    for name in values.get("--apply-pass", []) + values.get("-p", []):
        if name not in PASSES:
            raise mx.Failure(f"{mx.FAR}driver/passes.cpp:100: get_passes: Unknown pass: {name}")
    if not Path(file).stat().st_size:
        say("Compiling ... ")
        fall()
    return mx.parse_onnx(file, {**dims, **dynamic}, default, named, "--skip-unknown-operators" in values)


def precisions(values):
    order = ("--fp16", "--bf16", "--int8", "--fp8", "--int4-weights")
    given = [flag.removeprefix("--") for flag in order if flag in values]
    if mx.level() < (2, 6) and len(given) > 1:
        given = [flag.removeprefix("--") for flag in values if flag in order][-1:]
    return given


def compile_command(values):
    say("Compiling ... ")
    found = load(values)
    if found.compiled and "--strip-context" not in values:
        say("The program is already compiled, skipping compilation ...")
        if precisions(values):
            say("Quantization options are ignored as the program is already compiled.", "WARN")
        return
    target = "ref" if "--ref" in values else "cpu" if "--cpu" in values else "gpu"
    mx.check_target(target)
    for name in precisions(values):
        say(f"Quantizing to {name} ..." if name != "int4-weights" else "Quantizing weights to int4 ...")
        mx.quantize(found, name, dict.fromkeys(found.header["types"], 1.0) if name == "int8" else None)
    mx.compile_for(found, target, "--enable-offload-copy" in values)
    output = (values.get("-o") or values.get("--output") or [""])[0]
    if mx.fault() == "nofile":
        return
    data = b"" if mx.fault() == "empty" else found.save()
    if not output:
        print("main:@0 = a program")
        return
    try:
        Path(output).write_bytes(data)
    except OSError:
        return  # the real one says nothing


def params_command(values):
    found = load(values)
    for name in found.header["types"]:
        print(f"{name}: {mx.describe(name, found.header)}", flush=True)


def perf_command(values):
    found = load(values)
    target = "ref" if "--ref" in values else "cpu" if "--cpu" in values else "gpu"
    mx.check_target(target)
    if not found.compiled:
        say("Compiling ... ")
        mx.compile_for(found, target, "--enable-offload-copy" in values)
    say("Allocating params ... ")
    more = " (Min: 7.9ms, Max: 9.5ms, Mean: 8.125ms, Median: 8.1ms)" if mx.level() >= (2, 9) else ""
    word = "/sec" if mx.is_fork() else " inferences/sec"
    print(
        f"main:@0 = a program: 8.1ms, 100%\nSummary:\ngpu::gemm: 8ms / 1 = 8ms, 98%\n\nBatch size: 1\nRate: 123.4{word}"
    )
    print(f"Total time: 8.1ms{more}")
    if more:
        print("Percentiles (90%, 95%, 99%): (8.2ms, 8.3ms, 9.4ms)")
    print("Total instructions time: 8.2ms\nOverhead time: 0.1ms, -0.1ms\nOverhead: 1%, -1%", flush=True)


def fall():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGSEGV)


def throw(text):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    name = "_".join(mx.version()[0].split("."))
    sys.stdout.flush()
    print(
        f"terminate called after throwing an instance of 'migraphx::version_{name}::exception'\n  what():  {text}",
        file=sys.stderr,
        flush=True,
    )
    os.kill(os.getpid(), signal.SIGABRT)


def misbehave():
    """The fault that is asked for, where it strikes before anything is done."""
    kind = mx.fault()
    if kind == "hang":
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        if os.environ.get("MIGRAPHX_DOUBLE_PIDS"):
            Path(os.environ["MIGRAPHX_DOUBLE_PIDS"]).write_text(f"{os.getpid()} {child.pid}")
        time.sleep(1000)
    if kind == "crash":
        say("Compiling ... ")
        fall()
    if kind == "flood":
        line = "x" * 127 + "\n"
        for _ in range(16 * int(os.environ.get("MIGRAPHX_DOUBLE_FLOOD", "10"))):
            sys.stdout.write(line * 512)
        throw("std::bad_alloc")
    if kind == "soft":
        raise Usage(
            "error: Found argument '--gpu' which wasn't expected, or isn't valid in this context\n"
            "    Did you mean --cpu?"
        )


def main(argv):
    if not argv or argv[0] in ("-h", "--help"):
        print("Usage:\n    migraphx-driver <command> [options]\nCOMMANDS:\n" + "\n".join(f"    {c}" for c in COMMANDS))
        return
    if argv[0] in ("-v", "--version"):
        say(banner())
        return
    known = (*COMMANDS, "time") if mx.level() >= (2, 12) else COMMANDS
    if argv[0] not in known:
        place = next((word for word in argv if word in known), "")
        told = f"command '{place}' must be first argument" if place else f"'{argv[0]}' is not a valid command."
        say(f"error: {told}", "ERROR")
        return
    line = " ".join(["migraphx-driver", *argv])
    if mx.level() >= (2, 9):
        say(f"Running [ {banner()} ]: {line}")
    try:
        flags = flags_of(argv[0])
        if argv[0] in ("compile", "params", "perf"):
            values = parse(argv[1:], flags)
            check(values, flags)
            if argv[0] == "compile":
                misbehave()
            {"compile": compile_command, "params": params_command, "perf": perf_command}[argv[0]](values)
    except Usage as usage:
        print(usage, flush=True)
    except mx.Failure as failure:
        throw(failure)
    if mx.level() >= (2, 9) and mx.fault() != "quiet":
        seconds = "(0.024s)" if mx.level() >= (2, 13) else ""
        say(f"[ {banner()} ] Complete{seconds}: {line}")


if __name__ == "__main__":
    main(sys.argv[1:])
