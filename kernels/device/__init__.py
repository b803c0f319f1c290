"""Devices: one protocol, on CUDA and on NumPy, with every call counted."""

from onegraph.kernels.device.base import (
    Device,
    DeviceArray,
    DeviceError,
    DeviceEvent,
    Graph,
    GraphExec,
    ModuleMixError,
)
from onegraph.kernels.device.host import HostDevice
from onegraph.kernels.device.ledger import Ledger, StepCounts
from onegraph.kernels.device.no_roundtrips import RoundTripError, no_roundtrips
from onegraph.kernels.device.select import DeviceUnavailableError, open_device

__all__ = [
    "Device",
    "DeviceArray",
    "DeviceError",
    "DeviceEvent",
    "DeviceUnavailableError",
    "Graph",
    "GraphExec",
    "HostDevice",
    "Ledger",
    "ModuleMixError",
    "RoundTripError",
    "StepCounts",
    "no_roundtrips",
    "open_device",
]
