"""Casting a graph to fp16 or bf16, and making graphs with types that ONNX Runtime lacks run."""
from __future__ import annotations
from pathlib import Path
from dataclasses import dataclass
@dataclass
class Cast:
    notes: tuple = ()
    changed: bool = False
def cast_model(model, precision, folder, *, keep=frozenset()): return Cast()
def make_runnable(model): return []
