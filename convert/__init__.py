"""Take a PyTorch model to an artifact that a deploy team can trust on a domestic accelerator.

Importing this package imports no torch, onnx, onnxruntime or prefect.
"""
