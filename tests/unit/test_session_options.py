from __future__ import annotations

import copy
import logging
from typing import Any

import pytest

from gossamer import errors
from gossamer.errors import InvalidArgument, NotFound
from gossamer.options import CompileOptions
from gossamer.session import (
    ExecutionMode,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    set_default_logger_severity,
)
from gossamer.session.session_options import _Attributes


def attributes(options: object) -> dict[str, Any]:
    """The plain attributes: no methods, and not what is only ours."""
    names = [name for name in dir(options) if not name.startswith("_") and name not in ("synchronize", "capture")]
    return {name: getattr(options, name) for name in names if not callable(getattr(options, name))}


@pytest.mark.parametrize("ours", [SessionOptions, RunOptions])
def test_attributes_and_defaults_are_onnxruntimes(ours: type[_Attributes]) -> None:
    """R8.3."""
    theirs = attributes(getattr(pytest.importorskip("onnxruntime"), ours.__name__)())
    given = attributes(ours())
    assert given.keys() <= theirs.keys()
    # Newer releases of onnxruntime have more.
    assert theirs.keys() - given.keys() <= {"execution_order"}
    for name, value in given.items():
        assert int(value) == int(theirs[name]) if isinstance(value, int) else value == theirs[name], name


@pytest.mark.parametrize("ours", [SessionOptions, RunOptions])
def test_every_method_of_onnxruntime_is_there_or_refused_with_a_reason(ours: type[_Attributes]) -> None:
    theirs = getattr(pytest.importorskip("onnxruntime"), ours.__name__)
    for name in dir(theirs):
        if name.startswith("_") or name in _NEWER or not callable(getattr(theirs, name)):
            continue
        if not hasattr(ours(), name):
            with pytest.raises(AttributeError, match=f"{name} is not supported: ."):
                getattr(ours(), name)


# Methods of onnxruntime that serve features Gossamer has nothing like.
_NEWER = {"clear_ep_context_data_read_func", "set_ep_context_data_read_func", "set_load_cancellation_flag"}


def test_enums_are_onnxruntimes() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    for ours in (GraphOptimizationLevel, ExecutionMode):
        theirs = getattr(onnxruntime, ours.__name__).__members__
        assert {name: int(value) for name, value in theirs.items()} == dict(ours.__members__)


def test_what_the_compiler_gets() -> None:
    options = SessionOptions()
    assert options.compile_options() == CompileOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 3
    options.inter_op_num_threads = 2
    options.use_deterministic_compute = True
    options.log_severity_level = 3
    options.add_free_dimension_override_by_name("batch", 8)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    expected = CompileOptions(False, {"batch": 8}, True, 3, 2, 3, {"session.intra_op.allow_spinning": "0"})
    assert options.compile_options() == expected
    options.graph_optimization_level = 1  # type: ignore[assignment]  # onnxruntime's users write numbers
    assert options.compile_options().optimize


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("intra_op_num_threads", -1, "at least 0"),
        ("intra_op_num_threads", "4", "is a int"),
        ("intra_op_num_threads", True, "is a int"),
        ("use_deterministic_compute", 1, "is a bool"),
        ("graph_optimization_level", 5, "ORT_ENABLE_BASIC"),
        ("logid", 1, "is a str"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, value: object, text: str) -> None:
    options = SessionOptions()
    before = getattr(options, name)
    with pytest.raises(InvalidArgument, match=rf"SessionOptions\.{name} .*{text}"):
        setattr(options, name, value)
    assert getattr(options, name) == before


def test_what_cannot_be_honoured_is_refused_by_name() -> None:
    options = SessionOptions()
    options.enable_profiling = False
    with pytest.raises(errors.NotImplemented, match=r"SessionOptions\.enable_profiling = True .*GOSSAMER_DEBUG"):
        options.enable_profiling = True
    assert options.enable_profiling is False
    with pytest.raises(errors.NotImplemented, match=r"RunOptions\.terminate"):
        RunOptions().terminate = True
    with pytest.raises(AttributeError, match="did you mean 'intra_op_num_threads'"):
        options.intra_op_threads = 3


def test_configuration_entries() -> None:
    options, how = SessionOptions(), RunOptions()
    for owner in (options.get_session_config_entry, how.get_run_config_entry):
        with pytest.raises(NotFound, match="'gpu_graph_id'"):
            owner("gpu_graph_id")
    how.add_run_config_entry("gpu_graph_id", "2")
    assert how.get_run_config_entry("gpu_graph_id") == "2"
    assert (how.capture, how.synchronize) == (True, True)
    with pytest.raises(InvalidArgument, match=r"'gpu_graf_id'.*gpu_graph_id"):
        how.add_run_config_entry("gpu_graf_id", "2")
    with pytest.raises(InvalidArgument, match="'batch'"):
        options.add_free_dimension_override_by_name("batch", 0)


def test_options_can_be_copied_and_do_not_share() -> None:
    options = SessionOptions()
    options.intra_op_num_threads = 2
    again = copy.deepcopy(options)
    again.intra_op_num_threads = 3
    assert (options.intra_op_num_threads, again.intra_op_num_threads) == (2, 3)
    assert "intra_op_num_threads=2" in repr(options)


def test_severity() -> None:
    logger = logging.getLogger("gossamer")
    before = logger.level
    try:
        set_default_logger_severity(3)
        assert logger.level == logging.ERROR
        with pytest.raises(InvalidArgument, match="from 0 to 4"):
            set_default_logger_severity(5)
    finally:
        logger.setLevel(before)
