"""Loading: what a model file is, its inputs, its samples, and how it is opened.

Importing this package, ``sniff``, ``pickles``, ``inputs`` and what they use imports no torch, onnx or numpy.
``torch_models``, ``weights``, ``scripts``, ``programs``, ``samples`` and ``calls`` run in a worker.
"""
