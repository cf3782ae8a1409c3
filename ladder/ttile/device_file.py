"""A device from a user's own Python file."""

from __future__ import annotations

import importlib.util
import os
import traceback
from pathlib import Path

from ladder.checks import PATH, accept, shown
from ladder.errors import DeviceError, LadderError
from ladder.ttile.device import Device


def load_device(path: str | Path) -> Device:
    """The ``DEVICE`` of a user's own Python file.

    Raises:
        DeviceError: there is no such file, it does not run, or it defines no ``DEVICE`` of type Device.
    """
    file = accept(path, PATH, "path", at="load_device", error=DeviceError)
    if not os.path.isfile(file):  # noqa: PTH113  # Path.is_file raises for names that are too long
        raise DeviceError(
            f"no device file {shown(str(file))}",
            at="load_device",
            hint="give a .py file; devices with a name stand in ladder.devices",
        )
    spec = importlib.util.spec_from_file_location(f"ladder_device_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise DeviceError(f"{file} is no Python file", at="load_device", hint="give a .py file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a file that ends the process must not end this one
        raise _unrunnable(file, error) from error
    device = getattr(module, "DEVICE", None)
    if not isinstance(device, Device):
        raise DeviceError(
            f"DEVICE is {'missing' if device is None else shown(device)}",
            at=file,
            hint="end the file with DEVICE = Device(name=..., ...); see ladder/catalog/devices",
        )
    return device


def _unrunnable(file: Path, error: BaseException) -> DeviceError:
    """What went wrong in a device file, at which of its lines."""
    if isinstance(error, SyntaxError):
        line, words = error.lineno, error.msg
    else:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
        line, words = (frames[-1].lineno if frames else None), str(error)
    hint = "correct the file; ladder/catalog/devices holds files that run"
    if isinstance(error, SystemExit):
        words, hint = (
            f"the file ended the program with {error.code!r}",
            "a device file only defines DEVICE",
        )
    if isinstance(error, LadderError):
        words, hint = error.what, error.hint or hint
    place = str(file) if line is None else f"{file}, line {line}"
    return DeviceError(f"{type(error).__name__}: {words}", at=place, hint=hint)
