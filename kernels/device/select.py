"""Choosing a device by name."""

from __future__ import annotations

from typing import Literal

from onegraph.kernels.device.base import Device
from onegraph.kernels.device.host import HostDevice


class DeviceUnavailableError(RuntimeError):
    """The device that was asked for is not there; the message says why and what to do."""


def open_device(kind: Literal["auto", "cuda", "host"] = "auto") -> Device:
    """Open a device: ``cuda`` insists on a GPU, ``auto`` takes one if there is one.

    Raises:
        DeviceUnavailableError: ``cuda`` was asked for and can't be had.
        ValueError: an unknown kind.
    """
    if kind not in ("auto", "cuda", "host"):
        raise ValueError(f"device {kind!r} is unknown; choose auto, cuda or host")
    if kind == "host":
        return HostDevice()
    try:
        from onegraph.kernels.device.cuda import CudaDevice

        return CudaDevice()
    except (ImportError, DeviceUnavailableError) as error:
        if kind == "auto":
            return HostDevice()
        if isinstance(error, DeviceUnavailableError):
            raise
        raise DeviceUnavailableError(
            f"device cuda needs the CUDA extra ({error}); run pip install 'onegraph[cuda]', or use"
            " --device host"
        ) from error
