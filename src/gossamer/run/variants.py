"""Which of a compiled file's Programs a session runs: the one that uses cuDNN, or the native one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TypeAlias

from gossamer.diagnostics import warn
from gossamer.errors import ArtifactError, CudnnError, NotFound, PlanError
from gossamer.program import Target
from gossamer.program.artifact import Artifact, Variant
from gossamer.program.manifest import CUDNN, Shapes

Active: TypeAlias = Callable[[], AbstractContextManager[None]]


class Variants:
    """One session's way to the Programs of a file.

    target: one of the file's, with the `device` that the session runs on. cudnn: whether the session wants it. Without
    it, and for signatures that do not use it, cuDNN is not even looked for. active: makes the device's context current,
    in which cuDNN reads what the device can do.
    """

    def __init__(self, artifact: Artifact, target: Target, active: Active = nullcontext, *, cudnn: bool) -> None:
        self._artifact, self._target, self._active, self._cudnn = artifact, target, active, cudnn
        self._warned = False

    def of(self, shapes: Shapes) -> Variant:
        """The variant to run for these input shapes; errors as `Artifact.variant` has them.

        It uses cuDNN where the session wants that, the file has it, there is a cuDNN, and that one runs every call.
        Plans of another cuDNN version, or for another device, are made anew; where one cannot be, the variant is the
        native one. The first time that either happens, a UserWarning names both versions.
        """
        name = self._target.name
        if not self._cudnn or CUDNN not in self._artifact.needs(name, shapes, cudnn=True):
            return self._artifact.variant(name, shapes)
        from gossamer.cudnn import fitting, loader, plan_cache  # not to be imported for files that do without

        library = loader.load()  # the first need: only now is cuDNN looked for
        if not library.available:
            return self._artifact.variant(name, shapes)
        made, here = self._artifact.variant(name, shapes, cudnn=True), f"cuDNN {library.version_text}"
        try:
            with self._active():
                properties = plan_cache.properties_of(self._target)
                here = f"{here} on {properties}"
                program = fitting.fitted(made.program, properties)
        except (CudnnError, NotFound, PlanError) as error:
            self._warn(made.program.target, here, f"the native kernels are used instead, because {error}")
            return self._artifact.variant(name, shapes)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            text = f"{self._artifact.path}: what cuDNN is to compute cannot be read: {error!r}"
            raise ArtifactError("MALFORMED", text) from None
        if program.calls != made.program.calls:
            self._warn(made.program.target, here, "they are made anew each time that the model is loaded")
        return replace(made, program=program)

    def _warn(self, made_for: Target, here: str, outcome: str) -> None:
        """Once: what becomes of one signature mostly becomes of the others."""
        if self._warned:
            return
        self._warned = True
        from gossamer.cudnn.device_properties import DeviceProperties

        version = self._artifact.description.versions.get(CUDNN, "of an unknown version")
        device = DeviceProperties.from_json(made_for.properties) if made_for.properties else made_for.name
        text = (
            f"{self._artifact.path}: its cuDNN plans were made by cuDNN {version} for {device}, and this is {here}: "
            f"{outcome}. Compile the model again for what is here, or set enable_cudnn=0"
        )
        warn(text)
