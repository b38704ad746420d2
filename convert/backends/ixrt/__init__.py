"""The ``ixrt`` backend: Iluvatar CoreX cards, through ``ixrtexec``.

READ FIRST:

    plan       graph, target, options and toolchain → a plan (pure); the editions of ixrtexec
    probe      ixrtexec, its edition, the IxRT package, and the card that an engine is built on
    child_run  the script that runs an engine, in the SDK's own interpreter: ixrtexec writes no outputs
    backend    the class that puts these together
"""

from convert.backends.ixrt.backend import IxrtBackend

__all__ = ["IxrtBackend"]
