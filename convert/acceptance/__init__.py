"""Acceptance of an artifact where it is to work: how fast it is, whether it stays right, and how it fails.

    opening.py   what a user names (a folder, an .onnx, a reference) ─▶ ``Opened``
    bench.py     warm-up, percentiles, throughput         soak.py   the same answer for hours
    faults.py    what goes wrong, and the run after it    accept.py precision, stress, faults: one report

Everything runs in worker processes, so that a crash of a runtime is an error like any other.
"""
