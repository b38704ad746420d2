"""Acceptance of an artifact on the device that it is for: how fast, how steady, and what happens when things break.

READ FIRST:

    values     what is measured (Subject), and the results: Bench, Soak, Fault, Acceptance
    record     ``artifact.json`` and a few samples beside an artifact, from which it can be run again
    subjects   a folder of a conversion, an ONNX file, or a reference of a registry → Subject
    running    an artifact on endless or counted samples, through its backend
    bench      latency and throughput
    soak       every output held against the first one
    faults     what is broken on purpose, one function each
    accept     precision, stress and faults together, as one report
"""
