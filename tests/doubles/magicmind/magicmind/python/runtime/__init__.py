"""The names that public code takes from here."""

from magicmind._double.base import Code, DataType, Dims, Status
from magicmind._double.build import Builder
from magicmind._double.calibration import CalibDataInterface, Calibrator, QuantizationAlgorithm, RemoteConfig
from magicmind._double.config import BuilderConfig
from magicmind._double.network import ModelKind, Network
from magicmind._double.runtime import Device, Model, System

__all__ = [
    "Builder",
    "BuilderConfig",
    "CalibDataInterface",
    "Calibrator",
    "Code",
    "DataType",
    "Device",
    "Dims",
    "Model",
    "ModelKind",
    "Network",
    "QuantizationAlgorithm",
    "RemoteConfig",
    "Status",
    "System",
]
