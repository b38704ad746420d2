"""A strict stand-in for atc. ATC_DOUBLE_VERSION says which CANN it is, ATC_DOUBLE_FAULT how it misbehaves.

Faults: hang (with a child that ignores SIGTERM), crash, flood, no_file, empty, exit0 (an error, and exit 0), silent
(exit 0 without the closing line), memory (a child dies unless TE_PARALLEL_COMPILER=1), wrong (numbers), late_error.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from atc_facts import BF16_FAMILIES, REFUSED_OPS, STEPPED, edition, family_of, flags_of

if TYPE_CHECKING:
    import onnx

FAULT = os.environ.get("ATC_DOUBLE_FAULT", "")
MORE = "Try 'atc --help' for more information"


class Refused(Exception):
    """An error of atc: code and text."""

    def __init__(self, code: str, text: str, *more: str) -> None:
        super().__init__(text)
        self.code, self.text, self.more = code, text, more


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def coded(version: str, code: str, text: str) -> str:
    """The form of an error line: plain, with a time (8.0 to 8.2), with a title (8.3 on)."""
    if edition(version) >= (8, 3):
        return f"[PID: 4711] 2026-03-01-10:20:30.123.456 Some_Error_Title({code}): {text}"
    if edition(version) >= (8, 0):
        return f"{code}: [PID: 4711] 2026-03-01-10:20:30.123.456 {text}"
    return f"{code}: {text}"


def fail(version: str, error: Refused) -> NoReturn:
    say(f"ATC run failed, Please check the detail log, {MORE}")
    say(coded(version, error.code, error.text))
    say("        TraceBack (most recent call last):")
    for line in error.more:
        say(f"        {line}")
    sys.exit(0 if FAULT == "exit0" else 255)


def wrong_argv(text: str) -> NoReturn:
    sys.stderr.write(f"ERROR: {text}\n")
    say(f"ATC run failed, Please check the detail log, {MORE}")
    sys.exit(255)


def parse(argv: list[str], version: str) -> dict[str, str]:
    """getopt_long as cmd_flag_info.cc uses it."""
    known, given = flags_of(version), {}
    words = iter(argv)
    for word in words:
        if not re.match(r"^-{1,2}[A-Za-z]{2,}", word):
            wrong_argv(f"Non-option parameter: {word}")
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if name == "help":
            show_help(version)
        if name not in known:
            wrong_argv(f"unknown command line flag '{name}'")
        if not equals:
            value = next(words, None)
            if value is None:
                wrong_argv(f"flag '--{name}' is missing its argument")
        check_value(name, value, known[name], version)
        given[name] = value
    return given


def check_value(name: str, value: str, allowed: tuple[str, ...] | None, version: str) -> None:
    if value == "":
        fail(version, Refused("E10004", f"Value for [--{name}] is empty."))
    if allowed is None or value in allowed:
        return
    if name == "input_format":
        reason = f"Value [{value}] for parameter [--input_format] is invalid. Reason: only NCHW, ND, NCDHW for ONNX."
        fail(version, Refused("E10001", reason))
    if set(allowed) == {"true", "false"}:
        fail(
            version,
            Refused(
                "E10005",
                f"Value [{value}] for parameter [--{name}] is invalid. The value must be either [true] or [false].",
            ),
        )
    if name == "log":
        fail(version, Refused("E10010", f"Value [{value}] for parameter [--log] is invalid."))
    if {"0", "1"} >= set(allowed) or name == "external_weight":
        fail(
            version,
            Refused("E10006", f"Value [{value}] for parameter [--{name}] is invalid. The value must be either 1 or 0."),
        )
    reason = (
        f"Value [{value}] for parameter [--{name}] is invalid. Reason: The value is not within the range of values."
    )
    fail(version, Refused("E10001", reason))


def show_help(version: str) -> NoReturn:
    say("usage: atc <args>")
    say("===== Basic Functionality =====")
    for name in flags_of(version):
        say(f"  --{name:<24} one of atc's flags")
    sys.exit(0)


def invalid(flag: str, value: str, reason: str) -> Refused:
    return Refused("E10001", f"Value [{value}] for parameter [--{flag}] is invalid. Reason: {reason}")


# ------------------------------------------------------------------------------------------------------ combinations


def check_flags(given: dict[str, str], version: str) -> str:
    """Flags that exclude or need each other; gives the SoC's family."""
    if "singleop" in given and "framework" in given:
        raise invalid("singleop", given["singleop"], "not together with framework")
    for name in ("model", "soc_version") + (("output",) if given.get("mode", "0") == "0" else ()):
        if name not in given:
            raise Refused("E10054", f"The requied parameter [{name}] for ATC is empty.")
    if "framework" not in given:
        raise Refused("E10007", "[--framework] is required. The value must be 0(Caffe) or 5(Onnx).")
    if given["framework"] != "5":
        raise invalid("framework", given["framework"], "this stand-in reads ONNX")
    family = family_of(given["soc_version"], version)
    if not family:
        raise invalid("soc_version", given["soc_version"], "The soc_version is not supported.")
    if "precision_mode" in given and "precision_mode_v2" in given:
        raise Refused(
            "E10056", "Cannot config both parameters [precision_mode] and [precision_mode_v2] simultaneously."
        )
    both = [name for name in (*STEPPED, "input_shape_range") if name in given]
    if len(both) > 1:
        raise Refused("E10009", f"The parameters {both} are mutually exclusive.")
    if "auto_tune_mode" in given:
        raise invalid("auto_tune_mode", given["auto_tune_mode"], "use AOE")
    check_needs(given, version)
    check_chip(given, family)
    return family


def check_needs(given: dict[str, str], version: str) -> None:
    mixed = (
        "allow_mix_precision",
        "allow_mix_precision_fp16",
        "allow_mix_precision_bf16",
        "mixed_float16",
        "mixed_bfloat16",
        "mixed_hif8",
    )
    mode = given.get("precision_mode_v2", given.get("precision_mode", ""))
    if "modify_mixlist" in given and mode not in mixed:
        raise invalid("modify_mixlist", given["modify_mixlist"], "only with a mixed precision mode")
    implmode = given.get("op_select_implmode", "")
    if "optypelist_for_implmode" in given and implmode not in ("high_precision", "high_performance"):
        raise invalid("optypelist_for_implmode", given["optypelist_for_implmode"], "op_select_implmode is needed")
    if "insert_op_conf" in given and "dynamic_dims" in given:
        raise invalid("insert_op_conf", given["insert_op_conf"], "not together with dynamic_dims")
    if "insert_op_conf" in given and "input_fp16_nodes" in given:
        raise Refused("E10034", "Nodes for AIPP must not be fp16 input nodes.")
    if "compress_weight_conf" in given and "enable_compress_weight" in given:
        raise Refused("E10047", "[compress_weight_conf] and [enable_compress_weight] are mutually exclusive.")
    level = given.get("deterministic_level")
    if level and edition(version) >= (9, 2) and (level != "0") != (given.get("deterministic", "0") != "0"):
        raise invalid("deterministic_level", level, "both must be zero, or neither")
    for name in ("is_input_adjust_hw_layout",):
        if name in given and "input_fp16_nodes" not in given:
            raise invalid(name, given[name], "input_fp16_nodes is needed")


def check_chip(given: dict[str, str], family: str) -> None:
    modes = (given.get("precision_mode", ""), given.get("precision_mode_v2", ""))
    if any("bf16" in mode or "bfloat16" in mode for mode in modes) and family not in BF16_FAMILIES:
        raise Refused("E10055", f"The bfloat16 precision is not supported by {given['soc_version']}.")
    if any("hif8" in mode for mode in modes) and family != "Ascend950":
        raise Refused("E10055", f"hif8 is not supported by {given['soc_version']}.")
    if "allow_hf32" in given and family not in ("Ascend910B", "Ascend910_93", "Ascend950"):
        raise Refused("E10055", f"allow_hf32 is not supported by {given['soc_version']}.")
    if "sparsity" in given and family not in ("Ascend910B", "Ascend910_93", "Ascend310B"):
        raise Refused("E10055", f"sparsity is not supported by {given['soc_version']}.")


def check_files(given: dict[str, str]) -> None:
    """Configuration files exist and can be read."""
    for name in ("keep_dtype", "op_precision_mode", "fusion_switch_file", "customize_dtypes", "compress_weight_conf"):
        if name in given and not Path(given[name]).is_file():
            raise invalid(name, given[name], "the file does not exist")
    for name in ("modify_mixlist",):
        if name in given:
            try:
                content = json.loads(Path(given[name]).read_text())
            except (OSError, ValueError):
                raise Refused("E10032", f"Parse json file [{given[name]}] failed.") from None
            if not set(content) <= {"black-list", "white-list", "gray-list"}:
                raise Refused("E20003", f"Configuration file [{given[name]}] has invalid content.")
    for name in ("model", "output"):
        if name in given and not re.fullmatch(r"[A-Za-z0-9_\-./]+", given[name]):
            raise invalid(name, given[name], "the path has characters that are not allowed")


# -------------------------------------------------------------------------------------------------------------- shapes


def parse_shape(text: str) -> dict[str, list[str]]:
    shapes = {}
    for part in text.split(";"):
        name, colon, dims = part.rpartition(":")
        if not colon or not name or not re.fullmatch(r"[0-9 ,~\-]*", dims):
            raise Refused("E10002", "Value for [--input_shape] is invalid. Reason: it can't be parsed.")
        shapes[name] = [dim for dim in dims.split(",") if dim]
    return shapes


def parse_range(text: str) -> dict[str, list[str]]:
    shapes = {}
    for part in text.split(";"):
        match = re.fullmatch(r"(.+):\[([0-9,~\-]*)\]", part)
        if match is None:
            raise Refused("E10048", "Value for [--input_shape_range] is invalid.")
        shapes[match[1]] = [dim for dim in match[2].split(",") if dim]
    return shapes


def model_shapes(model: onnx.ModelProto) -> dict[str, list[int | str]]:
    fixed = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
        if value.name not in fixed
    }


def check_shapes(given: dict[str, str], model: onnx.ModelProto, family: str, version: str) -> dict[str, list[str]]:
    real = model_shapes(model)
    for name in filter(None, given.get("input_fp16_nodes", "").split(";")):
        if name not in real:
            raise Refused("E10016", f"Opname [{name}] specified in [--input_fp16_nodes] is not found in the model")
    if "input_shape_range" in given:
        shapes = parse_range(given["input_shape_range"])
    else:
        shapes = parse_shape(given["input_shape"]) if "input_shape" in given else {}
        if edition(version) < (6, 0) and "~" in given.get("input_shape", ""):
            raise Refused("E10002", "Value for [--input_shape] is invalid. Reason: ~ can't be parsed.")
    for name, dims in shapes.items():
        if name not in real:
            raise Refused("E10016", f"Opname [{name}] specified in [--input_shape] is not found in the model")
        if len(dims) != len(real[name]):
            raise Refused(
                "E10049",
                f"Dimension count [{len(dims)}] of [{name}] does not match that of the model [{len(real[name])}]",
            )
        for own, dim in zip(real[name], dims, strict=True):
            if isinstance(own, int) and own and dim != str(own):
                raise Refused("E10049", f"Shape of [{name}] does not match the model")
    for name, dims in real.items():
        if name not in shapes and any(isinstance(dim, str) or dim == 0 for dim in dims):
            raise Refused("E11005", f"Shape is not defined by using --input_shape for input [{name}].")
    stepped = next((name for name in STEPPED if name in given), "")
    moving = [dim for dims in shapes.values() for dim in dims if dim == "-1" or "~" in dim]
    if stepped:
        check_steps(stepped, given, shapes, real)
    elif moving and family in ("Ascend310", "Ascend310B"):
        raise Refused(
            "EZ3002",
            "Optype [Conv2D] of Ops kernel [AIcoreEngine] is unsupported. "
            "Reason: Dynamic shape is not supported on this chip.",
        )
    if not stepped and any(dim.isdigit() and int(dim) < 1 for dims in shapes.values() for dim in dims):
        raise Refused("E10011", "Values for [--input_shape] must be positive integers.")
    return shapes


def check_steps(
    flag: str, given: dict[str, str], shapes: dict[str, list[str]], real: dict[str, list[int | str]]
) -> None:
    if any("~" in dim for dims in shapes.values() for dim in dims):
        raise Refused("E10040", "The input must have -1 axes, not ranges.")
    if flag == "dynamic_batch_size":
        steps = [[step] for step in given[flag].split(",")]
        if any(not dims for dims in shapes.values()):
            raise Refused("E10012", "--dynamic_batch_size is set, but an input has no dimension.")
        if set(shapes) != set(real):
            raise Refused("E10012", "all inputs must be listed.")
        if any("-1" in dims[1:] for dims in shapes.values()):
            raise Refused("E10018", "only batch size N can be -1 when --dynamic_batch_size is set.")
        if not any(dims[0] == "-1" for dims in shapes.values()):
            raise Refused("E10031", "no input has batch size equaling -1.")
    else:
        steps = [step.split(",") for step in given[flag].split(";")]
    if flag == "dynamic_image_size":
        if given.get("input_format", "NCHW") != "NCHW":
            raise invalid("input_format", given["input_format"], "dynamic_image_size needs NCHW")
        for dims in shapes.values():
            if "-1" in dims and (len(dims) != 4 or dims[2:] != ["-1", "-1"] or "-1" in dims[:2]):
                raise Refused("E10019", "only H and W may be -1 when --dynamic_image_size is set.")
    count = sum(dims.count("-1") for dims in shapes.values())
    if not count:
        raise Refused("E10040", "The input must have -1 axes.")
    if flag == "dynamic_dims" and given.get("input_format") != "ND":
        raise invalid("input_format", given.get("input_format", ""), "dynamic_dims needs ND")
    if flag == "dynamic_dims" and any(len(step) != count for step in steps):
        raise Refused("E10046", f"--dynamic_dims must have as many values as there are -1 axes [{count}].")
    if any(not size.isdigit() or int(size) < 1 for step in steps for size in step):
        raise Refused("E10038", "steps must be greater than 0.")
    if len(steps) < 2:
        raise Refused("E10035", f"--{flag} has [{len(steps)}] profiles, at least 2 are needed.")
    if len({tuple(step) for step in steps}) != len(steps):
        raise Refused("E10039", f"--{flag} has duplicate profiles.")


# ----------------------------------------------------------------------------------------------------------- the model


def check_model(model: onnx.ModelProto, version: str) -> None:
    graph = model.graph
    if not model_shapes(model) or not graph.output:
        raise Refused("E16001", "The model has no [input or output] node.")
    if len(model.opset_import) != 1 and edition(version) < (9, 2) and any(not node.domain for node in graph.node):
        raise Refused(
            "E16005", f"The model has [{len(model.opset_import)}] [--domain_version] fields, but only one is allowed."
        )
    names = [node.name for node in graph.node if node.name]
    if len(set(names)) != len(names):
        raise Refused(
            "E13009" if edition(version) >= (8, 5) else "E19009", "a node name conflict: already exists in the graph"
        )
    if refused := refused_nodes(model):
        texts = [unregistered(node.name, kind, version) for node, kind in refused]
        raise Refused("E13010" if edition(version) >= (8, 5) else "E19010", texts[0], *texts[1:])


def refused_nodes(model: onnx.ModelProto) -> list[tuple[onnx.NodeProto, str]]:
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    return [
        (node, f"ai.onnx::{opset}::{node.op_type}")
        for node in model.graph.node
        if node.op_type in REFUSED_OPS or not 8 <= opset <= 18
    ]


def unregistered(name: str, kind: str, version: str) -> str:
    if edition(version) >= (8, 5):
        return f"No operator plugin is registered for Op: {name}, optype: {kind}."
    return f"No parser is registered for Op [{name}, optype [{kind}]]. Register it."


def precision_of(given: dict[str, str]) -> str:
    mode = given.get("precision_mode_v2", given.get("precision_mode", "force_fp16"))
    if "bf16" in mode or "bfloat16" in mode:
        return "bf16"
    exact = ("origin", "must_keep_origin_dtype", "force_fp32", "cube_fp16in_fp32out", "allow_fp32_to_fp16")
    return "fp32" if mode in exact else "fp16"


def pre_check(given: dict[str, str], model: onnx.ModelProto, version: str) -> None:
    refused = {node.name: kind for node, kind in refused_nodes(model)}
    ops = [
        {
            "name": node.name,
            "type": refused.get(node.name, f"ai.onnx::17::{node.op_type}"),
            "result": "failed" if node.name in refused else "success",
            **({"cause": [{"code": 1, "message": "The type is not supported."}]} if node.name in refused else {}),
        }
        for node in model.graph.node
    ]
    report = {
        "name": "graph",
        "result": "failed" if refused else "success",
        "total": len(ops),
        "fail": len(refused),
        "op": ops,
    }
    Path(given.get("check_report", "check_result.json")).write_text(json.dumps([report]))
    if refused:
        check_model(model, version)


def misbehave(version: str) -> None:
    if FAULT == "hang":
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code])
        if pids := os.environ.get("ATC_DOUBLE_PIDS"):
            Path(pids).write_text(f"{os.getpid()} {child.pid}")
        time.sleep(600)
    if FAULT == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if FAULT == "flood":
        line = "[DEBUG] GE(4711): a line that says nothing at all, over and over again, as a debug log does\n" * 1000
        for _ in range(int(os.environ.get("ATC_DOUBLE_FLOOD", "300"))):
            sys.stdout.write(line)
    if FAULT == "memory" and os.environ.get("TE_PARALLEL_COMPILER") != "1":
        say("EOFError: the compile process was Killed")
        raise Refused("E22001", "Compile result is not found, op[second].")
    if FAULT in ("exit0", "late_error"):
        text = (
            "Operator second compilation failed. Optype is MatMul."
            if edition(version) >= (8, 5)
            else "Failed to compile Op [second]. (optype: [MatMul])"
        )
        raise Refused("E20001", text)


def convert(given: dict[str, str], version: str) -> None:
    family = check_flags(given, version)
    check_files(given)
    if not Path(given["model"]).is_file():
        raise Refused("E10410" if edition(version) < (8, 5) else "E13000", f"File [{given['model']}] does not exist.")
    import onnx

    try:
        model = onnx.load(given["model"])
    except Exception:
        raise Refused("E10041", f"Failed to load the model from [{given['model']}]") from None
    if given.get("mode", "0") == "3":
        pre_check(given, model, version)
        return
    if given["output"].endswith("/"):
        raise Refused("E10022", "--output does not include the file name")
    out = Path(given["output"])
    if not out.parent.is_dir():
        raise invalid("output", given["output"], "the folder does not exist")
    shapes = check_shapes(given, model, family, version)
    check_model(model, version)
    aipp = read_aipp(given, model)
    misbehave(version)
    Path("kernel_meta").mkdir(exist_ok=True)
    Path("fusion_result.json").write_text("{}")
    write(given, model, shapes, aipp, version=version, family=family)


def read_aipp(given: dict[str, str], model: onnx.ModelProto) -> list[object]:
    if "insert_op_conf" not in given:
        return []
    from om_format import parse_aipp

    try:
        config = parse_aipp(Path(given["insert_op_conf"]).read_text())
    except (OSError, ValueError) as error:
        raise Refused("E10052", f"The AIPP configuration is invalid. Reason: {error}") from None
    return [list(model_shapes(model))[int(config.get("related_input_rank", "0"))], config]


def write(given, model, shapes, aipp, *, version, family) -> None:
    out = Path(given["output"])
    stepped = next((name for name in STEPPED if name in given), "")
    ranged = not stepped and any(dim == "-1" or "~" in dim for dims in shapes.values() for dim in dims)
    weights = ""
    if given.get("external_weight", "0") != "0":
        weights = "weight/weight_0123"
        (out.parent / "weight").mkdir(exist_ok=True)
        (out.parent / weights).write_bytes(b"weights")
    about = {
        "soc": given["soc_version"],
        "family": family,
        "version": version,
        "precision": precision_of(given),
        "keep": Path(given["keep_dtype"]).read_text().split("\n") if "keep_dtype" in given else [],
        "shapes": shapes or {name: [str(dim) for dim in dims] for name, dims in model_shapes(model).items()},
        "stepped": stepped,
        "steps": given.get(stepped, ""),
        "ranged": ranged,
        "aipp": aipp,
        "weights": weights,
        "output_type": given.get("output_type", ""),
        "fault": "wrong" if FAULT == "wrong" else "",
    }
    host = f"{given.get('host_env_os', 'linux')}_{given.get('host_env_cpu', platform.machine())}"
    about["host"] = host if ranged else ""
    place = out.with_name(f"{out.name}_{host}.om") if ranged else out.with_name(f"{out.name}.om")
    from om_format import write_om

    if FAULT == "empty":
        place.write_bytes(b"")
    elif FAULT != "no_file":
        write_om(place, about, model)


def main(argv: list[str], version: str) -> int:
    given = parse(argv, version)
    say("ATC start working now, please wait for a moment.")
    say("...")
    try:
        convert(given, version)
    except Refused as error:
        fail(version, error)
    if FAULT != "silent":
        say("ATC run success, welcome to the next use.")
        if os.environ.get("ATC_DOUBLE_WARN"):
            say("W11001: Op [second] does not hit the high-priority operator information library.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ["ATC_DOUBLE_VERSION"]))
