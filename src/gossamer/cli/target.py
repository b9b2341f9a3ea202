"""`gossamer target`: what can be compiled for, and this machine's GPU as a file to compile for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from gossamer.cli.output import console
from gossamer.errors import DeviceNotFound, InvalidArgument
from gossamer.program import Target
from gossamer.program.shipped_devices import shipped_device, shipped_devices

_LEGEND = """
* the one that is meant where only the architecture is named
--target takes both, in any case, and the files that `gossamer target dump` writes."""


def list_targets(as_json: bool) -> None:
    """Print every target with a name, its figures, and where they are from."""
    rows = [(device, Target.named(device.name)) for device in shipped_devices()]
    if as_json:
        entries = [
            {
                "name": device.name,
                "architecture": device.architecture,
                "represents_architecture": device.represents_architecture,
                "multiprocessors": target.sm_count,
                "shared_memory_per_block": target.shared_bytes,
                "measured": device.measured,
                "source": device.source,
            }
            for device, target in rows
        ]
        print(json.dumps(entries))
        return
    table = Table("name", "architecture", "SMs", "shared memory per block", "figures", box=None, pad_edge=False)
    for device, target in rows:
        architecture = device.architecture + " *" * device.represents_architecture
        figures = "read off one" if device.measured else "public"
        table.add_row(device.name, architecture, str(target.sm_count), f"{target.shared_bytes:,}", figures)
    out = console()
    out.print(table)
    out.print(_LEGEND)


def show_target(name: str, as_json: bool) -> None:
    """Print a target's properties, and where they are from. Raises InvalidArgument, NoSuchFile."""
    target = Target.named(name)
    if target.interpreted:
        raise InvalidArgument("the interpreter is no device, and has no properties")
    properties = json.loads(target.properties)
    if as_json:
        print(json.dumps(properties, indent=2, sort_keys=True))
        return
    out = console()
    device_name = properties.get("deviceName", "a device")
    out.print(f"{target.name}: {device_name}, sm_{target.arch}, {target.sm_count} multiprocessors")
    out.print(f"figures: {_source(name)}\n")
    table = Table("property", "value", box=None, pad_edge=False)
    for key, value in sorted(properties.items()):
        table.add_row(key, str(value))
    out.print(table)


def _source(name: str) -> str:
    return f"the file {name}" if name.lower().endswith(".json") else shipped_device(name).source


def dump_target(ordinal: int, file: Path | None) -> None:
    """Write the properties of this machine's GPU. Raises DeviceNotFound; InvalidArgument for a file not to be written,
    or of a name that `Target.named` would not take for one.
    """
    if file is not None and file.suffix.lower() != ".json":
        raise InvalidArgument(f"-o {file}: a name that ends in .json is wanted, for --target to take it")
    from gossamer.run.device_properties import device_properties

    try:
        properties = device_properties(ordinal)
    except DeviceNotFound as missing:
        remedy = "run it on the machine with the GPU; those of `gossamer target list` can be named without a file"
        raise replace(missing, remedy=remedy) from None
    text = json.dumps(properties.values, indent=2, sort_keys=True)
    if file is None:
        print(text)
        return
    try:
        file.write_text(f"{text}\n")
    except OSError as error:
        raise InvalidArgument(f"-o {file}: {error.strerror}") from None
    print(f"{file}: {properties}; compile for it with --target {file}")
