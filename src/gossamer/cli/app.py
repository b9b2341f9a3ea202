"""The commands with their options, and how errors leave the program.

Exit status: 0 done; 1 the model cannot run here, or ran and is wrong; 2 the command line is wrong. Errors are one clear
text on standard error; GOSSAMER_DEBUG=1 or more adds the traceback.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gossamer import settings
from gossamer.errors import GossamerError, InvalidArgument, NoSuchFile

USAGE_ERRORS = (InvalidArgument, NoSuchFile)
"""What a caller can mend on the command line."""

app = typer.Typer(
    name="gossamer",
    help="Run ONNX models on NVIDIA GPUs with nothing from NVIDIA but the driver.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
cache_app = typer.Typer(help="The compiled kernels kept on disk.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(cache_app, name="cache")
target_app = typer.Typer(help="The GPUs that can be compiled for.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(target_app, name="target")


class DeviceChoice(StrEnum):
    """Where a model can be asked to run."""

    CUDA = "cuda"
    INTERPRETER = "interpreter"
    NULL = "null"
    CPU = "cpu"


class CudnnChoice(StrEnum):
    """Whether a compiled model has plans for cuDNN."""

    AUTO = "auto"
    YES = "yes"
    NO = "no"


class ReferenceChoice(StrEnum):
    """What results can be compared with."""

    ONNXRUNTIME = "onnxruntime"


OnnxModel = Annotated[Path, typer.Argument(help="An ONNX file.", show_default=False)]
Model = Annotated[Path, typer.Argument(help="An ONNX file, or what `gossamer compile` wrote.", show_default=False)]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="[NAME=]VALUE",
        help="What to feed: a .npy file, a picture, 'random' (the default) or 'zeros'. "
        "NAME may be left out where the model has one input.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape",
        "-s",
        metavar="[NAME=]1x3x224x224",
        help="Shape of an input whose dimensions the model leaves open; dimensions of the same name get the same size. "
        "An open first dimension alone is taken as 1.",
    ),
]
Device = Annotated[
    DeviceChoice | None,
    typer.Option(help="Where to run; by default the GPU if there is one, else the CPU. GOSSAMER_DEVICE sets it too."),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="NAME=VALUE", help="Option of the CUDA provider, such as use_tf32=0 or strict=1."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of random inputs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Tolerance = Annotated[
    float | None,
    typer.Option(
        help="Largest error allowed, relative to an output's largest magnitude; by default what its type makes likely."
    ),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from gossamer import __version__

        typer.echo(f"gossamer {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before the command."""


@app.command("run")
def run_command(  # noqa: PLR0913, PLR0917 - a parameter for each option
    model: Model,
    inputs: Inputs = None,
    input_shapes: Shapes = None,
    device: Device = None,
    options: Options = None,
    compare: Annotated[
        ReferenceChoice | None,
        typer.Option(help="Run the model there too, print the largest errors, and fail beyond the tolerance."),
    ] = None,
    tolerance: Tolerance = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs; the time printed is the median of all but the first.")] = 1,
    seed: Seed = 0,
    as_json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option(help="Folder to write the outputs to, one .npy file each.", show_default=False)
    ] = None,
) -> None:
    """Run a model once and say what came out, how long it took, and where its nodes ran."""
    from gossamer.cli.arguments import Request
    from gossamer.cli.run_model import run_model

    request = Request.parse(model, inputs, input_shapes, device, options, seed)
    if not run_model(request, compare is not None, tolerance, repeat, output, as_json):
        raise typer.Exit(1)


@app.command("inspect")
def inspect_command(  # noqa: PLR0917 - a parameter for each option
    model: Model,
    input_shapes: Shapes = None,
    device: Device = None,
    target: Annotated[
        str,
        typer.Option(help="What to build for (`gossamer target list`); by default the GPU that is here, else sm_90."),
    ] = "",
    options: Options = None,
    program: Annotated[bool, typer.Option("--program", help="Print the Program, one call a line.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say which nodes go where and why, how much memory they need, and what the GPU would do. Runs nothing.

    Of a compiled model: all that it holds but weights, for every target and signature or those that are named, after
    all checksums were compared.
    """
    from gossamer.cli.arguments import Request

    request = Request.parse(model, None, input_shapes, device, options, 0)
    if request.is_compiled:
        from gossamer.cli.inspect_compiled import inspect_compiled

        inspect_compiled(request, target, with_program=program, as_json=as_json)
        return
    from gossamer.cli.inspect_model import inspect_model

    if not inspect_model(request, target, with_program=program, as_json=as_json):
        raise typer.Exit(1)


@app.command("compile")
def compile_command(  # noqa: PLR0913, PLR0917 - a parameter for each option
    model: OnnxModel,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The compiled model.")],
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="NAME[,NAME...]",
            help="What to compile for (`gossamer target list`): architectures, GPUs, files by `gossamer target dump`. "
            "By default the GPU that is here, else GOSSAMER_TARGET.",
        ),
    ] = None,
    input_shapes: Shapes = None,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X=1x3x48x320,Y=1x10",
            help="A way to run the model: the shapes of its inputs. Once for each way; --input-shape is for all. "
            "Names may hold commas and equals signs: of two inputs that fit, the one with the longer name is meant.",
        ),
    ] = None,
    cudnn: Annotated[
        CudnnChoice,
        typer.Option(
            help="Whether the file has plans for cuDNN: where it is installed and preferred, for all that it takes, or "
            "never. It runs without in any case."
        ),
    ] = CudnnChoice.AUTO,
    tune: Annotated[
        Path | None,
        typer.Option(
            metavar="TABLE",
            help="tuning.json of sessions that measured on the target (cudnn_conv_algo_search=EXHAUSTIVE): decides "
            "between cuDNN's plans and the native kernels.",
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Option of the CUDA provider, such as use_tf32=0."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile a model into one file, for GPUs that need not be here: it runs without onnx, Triton or a compiler."""
    from gossamer.cli.arguments import Request
    from gossamer.cli.compile_model import compile_model

    request = Request.parse(model, None, input_shapes, None, options, 0)
    compile_model(request, output, targets or (), shapes or (), cudnn.value, tune, as_json=as_json)


@app.command("bench")
def bench_command(  # noqa: PLR0913, PLR0917 - a parameter for each option
    model: Model,
    inputs: Inputs = None,
    input_shapes: Shapes = None,
    device: Device = None,
    options: Options = None,
    repeat: Annotated[int, typer.Option(min=3, help="Timed runs.")] = 100,
    warmup: Annotated[int, typer.Option(min=2, help="Runs before them: compiling, then capturing CUDA graphs.")] = 10,
    tolerance: Tolerance = None,
    check: Annotated[
        bool | None,
        typer.Option(
            help="Check the answer against onnxruntime first; by default unless the model is a compiled one.",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure the latency of a model, its inputs and outputs in device memory. The answer is checked first."""
    from gossamer.cli.arguments import Request
    from gossamer.cli.bench import bench_model

    request = Request.parse(model, inputs, input_shapes, device, options, seed)
    if not bench_model(request, repeat, warmup, check=check, tolerance=tolerance, as_json=as_json):
        raise typer.Exit(1)


@app.command("doctor")
def doctor_command(as_json: AsJson = False) -> None:
    """Say what is here, what is missing, and the one command to get it."""
    from gossamer.cli.doctor import doctor

    if not doctor(as_json):
        raise typer.Exit(1)


@app.command("cudnn-shim")
def cudnn_shim_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write into.", show_default=False)],
    build: Annotated[bool, typer.Option(help="Build with cc; --no-build only writes the sources.")] = True,
    stand_in: Annotated[
        bool, typer.Option("--stand-in", help="Build libcudnn.so.9, for binaries that do not start without one.")
    ] = False,
    search: Annotated[
        list[str] | None,
        typer.Option("--search", metavar="FOLDER", help="Where to look for cuDNN before the system's own search."),
    ] = None,
) -> None:
    """Make C and C++ programs start without cuDNN: they use it where it is, and get an error status where not."""
    from gossamer.cli.cudnn_shim import cudnn_shim

    if stand_in and not build:
        raise InvalidArgument("--stand-in asks for a library, --no-build for none")
    cudnn_shim(folder, build=build, stand_in=stand_in, search=search or ())


@cache_app.command("path")
def cache_path_command() -> None:
    """Print the folder. GOSSAMER_CACHE_DIR moves it."""
    from gossamer.build import cache

    typer.echo(str(cache.folder()))


@cache_app.command("list")
def cache_list_command(as_json: AsJson = False) -> None:
    """List the kernels, the last used first."""
    from gossamer.cli.kernel_cache import list_entries

    list_entries(as_json)


@cache_app.command("prune")
def cache_prune_command(
    max_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Keep the last used up to this many bytes: 200M, 2G.")
    ] = "",
    days: Annotated[float | None, typer.Option(min=0, help="Remove what was not used for this many days.")] = None,
) -> None:
    """Remove kernels that were not used for long."""
    from gossamer.cli.kernel_cache import prune

    prune(max_size, days)


@cache_app.command("clear")
def cache_clear_command() -> None:
    """Remove all kernels. They are compiled again when they are needed."""
    from gossamer.cli.kernel_cache import clear

    clear()


@target_app.command("list")
def target_list_command(as_json: AsJson = False) -> None:
    """List the GPUs whose figures come with Gossamer, by architecture."""
    from gossamer.cli.target import list_targets

    list_targets(as_json)


@target_app.command("show")
def target_show_command(
    name: Annotated[
        str, typer.Argument(help="An architecture, a GPU, or a file by `target dump`.", show_default=False)
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the properties alone, as --target takes a file.")
    ] = False,
) -> None:
    """Print all properties of a target, and where they are from."""
    from gossamer.cli.target import show_target

    show_target(name, as_json)


@target_app.command("dump")
def target_dump_command(
    device: Annotated[int, typer.Option(min=0, help="Index of the GPU among those visible to the process.")] = 0,
    file: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE.json", help="Where to; by default it is printed.")
    ] = None,
) -> None:
    """Write the properties of this machine's GPU as a file to compile for. Needs a driver, and no cuDNN."""
    from gossamer.cli.target import dump_target

    dump_target(device, file)


def main() -> None:
    """The program `gossamer`."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # type: ignore[assignment]  # reads only the first argument
            app(prog_name="gossamer")
    except GossamerError as error:
        _show_error(error, "\n".join((str(error), *getattr(error, "__notes__", ()))))
        sys.exit(2 if isinstance(error, USAGE_ERRORS) else 1)
    except OSError as error:
        _show_error(error, f"{error.filename}: {error.strerror}" if error.filename else str(error))
        sys.exit(1)
    except MemoryError as error:  # for shapes that were given
        _show_error(error, str(error) or "this machine has not enough memory")
        sys.exit(1)
    except ModuleNotFoundError as error:
        from gossamer.cli.doctor import command_for

        if error.name is None or (command := command_for(error.name)) is None:
            raise
        _show_error(error, f"this needs the package {error.name}, which is not installed: {command}")
        sys.exit(1)


def _show_error(error: BaseException, text: str) -> None:
    print(f"gossamer: {text}", file=sys.stderr)
    with suppress(InvalidArgument):  # the error may be about GOSSAMER_DEBUG
        if settings.DEBUG():
            traceback.print_exception(error)


def _show_warning(message: Warning | str, *_: object) -> None:
    print(f"gossamer: warning: {message}", file=sys.stderr)
