"""The ``tensorrt`` backend: NVIDIA cards, through ``trtexec`` of TensorRT 8.4 to 11.1.

READ FIRST:

    flags     trtexec's options by release, from ``flags.toml``; what ``--option`` may pass through
    plan      graph, target, options and toolchain → a plan (pure)
    probe     trtexec, its release, and the card that an engine is built on
    compile   the plan run; a graph cast or quantized beforehand where the release wants it so
    running   an engine on samples, through trtexec
    timing    what trtexec says of an engine's speed
    backend   the class that puts these together
"""

from convert.backends.tensorrt.backend import TensorrtBackend

__all__ = ["TensorrtBackend"]
