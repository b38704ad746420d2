"""Compile an ONNX graph for Qualcomm's HTP: python qnn_compile.py SETTINGS.

Runs where onnxruntime-qnn is installed, and knows nothing of the program that wrote it. What the HTP does not take
stops the compile: nothing is left to the CPU in silence. The last line of a finished run is ``qnn_compile: done``.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

onnxruntime: Any = importlib.import_module("onnxruntime")
onnxruntime_qnn: Any = importlib.import_module("onnxruntime_qnn")


def say(text: str) -> None:
    """One line for the log."""
    sys.stdout.write("qnn_compile: " + text + "\n")
    sys.stdout.flush()


def session_options(settings: dict[str, Any]) -> Any:
    """Session options with the QNN provider on every device that it offers."""
    name = "QNNExecutionProvider"
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
    options = onnxruntime.SessionOptions()
    provider = {
        "backend_path": onnxruntime_qnn.get_qnn_htp_path(),
        "htp_graph_finalization_optimization_mode": settings["optimization"],
        "enable_htp_fp16_precision": "1" if settings["fp16"] else "0",
        "soc_model": settings["soc_model"],
        "htp_arch": settings["htp_arch"],
    }
    options.add_provider_for_devices(devices, provider)
    return options


def tell_what_is_left(settings: dict[str, Any]) -> None:
    """One line for each node that the HTP does not take: what a session that may use the CPU gives to it."""
    options = session_options(settings)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = onnxruntime.InferenceSession(settings["model"], options)
    for part in session.get_provider_graph_assignment_info():
        if part.ep_name == "CPUExecutionProvider":
            for node in part.get_nodes():
                say(f"left to the CPU: {node.op_type} {node.name}")


def main() -> int:
    """Run the settings named on the command line; gives the exit code."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        settings = json.load(stream)
    name = "QNNExecutionProvider"
    onnxruntime.register_execution_provider_library(name, onnxruntime_qnn.get_library_path())
    options = session_options(settings)
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_file_path", settings["output"])
    options.add_session_config_entry("ep.context_embed_mode", "0")
    try:
        onnxruntime.InferenceSession(settings["model"], options)
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
        if "assigned to the default CPU EP" in str(error):
            tell_what_is_left(settings)
        raise
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
