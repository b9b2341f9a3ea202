from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from gossamer import settings
from gossamer.errors import InvalidArgument


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in settings.SETTINGS.values():
        monkeypatch.delenv(setting.name, raising=False)


def test_defaults() -> None:
    assert settings.DEVICE() == "cuda"
    assert settings.DEBUG() == 0
    assert settings.STRICT() is False
    assert settings.MAX_CONTEXTS() == 4


def test_read_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DEBUG", "3")
    assert settings.DEBUG() == 3
    monkeypatch.setenv("GOSSAMER_DEBUG", "4")
    assert settings.DEBUG() == 4
    monkeypatch.setenv("GOSSAMER_DEBUG", "")
    assert settings.DEBUG() == 0


@pytest.mark.parametrize(
    ("variable", "value", "accepted"),
    [
        ("GOSSAMER_DEVICE", "gpu", "cuda, interpreter, null"),
        ("GOSSAMER_DEBUG", "6", "0 to 5"),
        ("GOSSAMER_DEBUG", "-1", "0 to 5"),
        ("GOSSAMER_DEBUG", "²", "0 to 5"),
        ("GOSSAMER_STRICT", "yes", "1, 0, true, false"),
        ("GOSSAMER_MAX_CONTEXTS", "0", "from 1"),
        ("GOSSAMER_TARGET", "90", "sm_90"),
    ],
)
def test_a_bad_value_is_refused_by_name(
    variable: str, value: str, accepted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidArgument) as caught:
        settings.SETTINGS[variable.removeprefix("GOSSAMER_")]()
    for part in (variable, repr(value), accepted):
        assert part in str(caught.value)


def test_cache_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert settings.CACHE_DIR() == Path("/somewhere/gossamer")
    monkeypatch.setenv("GOSSAMER_CACHE_DIR", "~/kernels")
    assert settings.CACHE_DIR() == Path.home() / "kernels"


def test_override_is_scoped_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DEVICE", "null")
    with settings.override(DEVICE="interpreter", DEBUG=2):
        assert (settings.DEVICE(), settings.DEBUG()) == ("interpreter", 2)
        with settings.override(DEBUG=0):
            assert settings.DEBUG() == 0
        assert settings.DEBUG() == 2
    assert (settings.DEVICE(), settings.DEBUG()) == ("null", 0)
    with pytest.raises(InvalidArgument, match="GOSSAMER_DEBUG='9'"), settings.override(DEVICE="cuda", DEBUG=9):
        pass
    assert settings.DEVICE() == "null"
    with pytest.raises(InvalidArgument, match="GOSSAMER_DEVISE"), settings.override(DEVISE="cuda"):
        pass


def test_override_stays_in_its_thread() -> None:
    seen: list[int] = []
    with settings.override(DEBUG=5):
        thread = threading.Thread(target=lambda: seen.append(settings.DEBUG()))
        thread.start()
        thread.join()
    assert seen == [0]


def test_markdown_has_every_variable() -> None:
    text = settings.as_markdown()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(settings.SETTINGS)
    assert all(row.count("|") == 5 for row in rows)
    assert str(Path.home()) not in text


def test_every_variable_that_the_package_names_is_in_the_table() -> None:
    texts = {path.name: path.read_text("utf-8") for path in Path(settings.__file__).parent.rglob("*.py")}
    named = {name for text in texts.values() for name in re.findall(r"GOSSAMER_([A-Z_]+)", text)}
    assert named - settings.SETTINGS.keys() == set()
    assert [name for name, text in texts.items() if re.search(r"(environ|getenv).*GOSSAMER_", text)] == []
