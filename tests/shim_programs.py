"""C programs around the shim: what it makes, and a probe that calls every function of the manifest through it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gossamer.cudnn import shim
from gossamer.cudnn.symbols import FUNCTIONS

SANITIZED = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread")

_PROBE = """
#include <stdio.h>
#include <string.h>
#ifdef REAL_HEADERS
#include <cudnn.h>
#endif
#include "cudnn_shim.h"
int main(void) {
    char text[4096] = "";
    %s
    cudnnGetLastErrorString(text, sizeof text);
    printf("cudnnGetLastErrorString %%s\\n", text);
    return 0;
}
"""
_DESCRIBE = """
    cudnn_shim_describe(text, sizeof text);
    printf("handle %d\\n%s", cudnn_shim_handle() != NULL, text);
"""


def probe_source(*, own_api: bool) -> str:
    """Calls every function with zeros and prints `name result`. own_api: then asks the loader what it found."""
    lines = []
    for name, function in FUNCTIONS.items():
        call = f"{name}({', '.join('0' for _ in function.arguments)})"
        if function.returns == "const char *":
            lines.append(f'printf("{name} %s\\n", {call});')
        elif function.returns != "void":
            lines.append(f'printf("{name} %zu\\n", (size_t){call});')
    source = _PROBE % "\n    ".join(lines)
    return source.replace("    return 0;", f"{_DESCRIBE}    return 0;") if own_api else source


@dataclass(frozen=True)
class Probed:
    """What the probe printed. found: the loader's account, where it was asked."""

    results: dict[str, str]
    handle: bool
    found: str

    @classmethod
    def read(cls, output: str) -> Probed:
        functions, _, account = output.partition("handle ")
        results = dict(line.split(" ", 1) for line in functions.splitlines())
        return cls(results, account.startswith("1"), account[2:])

    @property
    def statuses(self) -> set[int]:
        """What the functions returned that return a status."""
        return {int(self.results[name]) for name, function in FUNCTIONS.items() if function.returns == "cudnnStatus_t"}


def compile_c(output: Path, source: str, *options: str) -> Path:
    """Compile one C text, without a warning."""
    command = [
        "cc",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-x",
        "c",
        "-",
        "-x",
        "none",
        *options,
        "-o",
        str(output),
    ]
    subprocess.run(command, input=source, text=True, check=True)
    return output


def run(
    program: Path, *arguments: str, folders: Sequence[Path | str] = (), cwd: Path | None = None, **more: str
) -> str:
    """Standard output of a program that ends well. folders: LD_LIBRARY_PATH, unset for none."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    path = {"LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))} if folders else {}
    result = subprocess.run(
        [program, *arguments],
        env=inherited | path | more,
        cwd=cwd or program.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


def dynamic_section(path: Path, tag: str) -> list[str]:
    """Values of a tag in the dynamic section: NEEDED, SONAME."""
    text = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
    return re.findall(rf"\({tag}\).*\[(.*)\]", text)


def symbols(path: Path, *options: str) -> list[str]:
    """Names of dynamic symbols with their versions: `cudnnCreate@@libcudnn.so.9`."""
    text = subprocess.run(["nm", "-D", *options, path], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in text.splitlines()]


@dataclass(frozen=True)
class Shim:
    """A folder with the sources, the archive, the stand-in (in `stand_in/`) and a probe linked with each."""

    folder: Path

    @classmethod
    def build(cls, folder: Path) -> Shim:
        made = cls(folder)
        shim.write(folder)
        shim.build(folder)
        shim.write(made.stand_in.parent)
        shim.build(made.stand_in.parent, stand_in=True)
        made.compile("archive_probe", probe_source(own_api=True))
        compile_c(folder / "stand_in_probe", probe_source(own_api=False), f"-I{folder}", str(made.stand_in))
        return made

    @property
    def archive(self) -> Path:
        return self.folder / shim.ARCHIVE

    @property
    def stand_in(self) -> Path:
        return self.folder / "stand_in" / shim.STAND_IN

    def compile(self, name: str, source: str, *options: str) -> Path:
        """A program, or a library, linked with the archive."""
        options = (f"-I{self.folder}", *options, str(self.archive), "-pthread", "-ldl")
        return compile_c(self.folder / name, source, *options)

    def sanitized(self, name: str, source: str, sanitizer: str) -> Path:
        """A program compiled together with the sources under a sanitizer."""
        sources = [str(self.folder / one) for one in shim.COMPILED]
        command = ["cc", *SANITIZED, f"-fsanitize={sanitizer}", f"-I{self.folder}", *sources, "-x", "c", "-"]
        output = self.folder / name
        subprocess.run([*command, "-x", "none", "-ldl", "-o", output], input=source, text=True, check=True)
        return output

    def probe(self, *folders: Path | str, cwd: Path | None = None, **environment: str) -> Probed:
        """Run the probe that the archive is linked into."""
        return Probed.read(run(self.folder / "archive_probe", folders=folders, cwd=cwd, **environment))

    def probe_stand_in(self, *folders: Path | str, **environment: str) -> Probed:
        """Run the probe that needs a libcudnn.so.9, the stand-in's folder first in LD_LIBRARY_PATH."""
        output = run(self.folder / "stand_in_probe", folders=(self.stand_in.parent, *folders), **environment)
        return Probed.read(output)
