"""The artifact registry: versions of converted models in OCI image layouts, and what a deploy machine needs.

Installs and runs without torch, onnx and prefect, and knows nothing of models or compilers.
"""
