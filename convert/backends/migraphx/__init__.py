"""The ``migraphx`` backend: AMD Instinct and Radeon, Hygon DCU (DTK), and MIGraphX's reference target on any CPU.

READ FIRST:

    versions       what each version of migraphx-driver knows: flags, closing line, file version, form of a dimension
    options        what ``--option`` takes, checked against the version
    dims           symbolic dimensions in the words of a version
    planning       graph, target, options and toolchain → a plan (pure)
    child_compile  the script of a plan that calibrates: runs where the migraphx module is, needs numpy only
    probing        the driver, its version, the card and the Python that has the module
    preparing      what a plan needs beside the graph: a cast graph, calibration data
    outcome        whether a driver did what it was told: exit code, closing line, usage errors that exit 0
    running        an artifact on samples, through the module, in a child process (``child_run``)
    timing         what ``migraphx-driver perf`` says of its speed
    backend        the class that puts these together
"""

from convert.backends.migraphx.backend import MigraphxBackend

__all__ = ["MigraphxBackend"]
