"""Every requirement is held by a test, or said to be open."""

from __future__ import annotations

import requirements
from requirements import OPEN, REQUIREMENTS, SECTIONS, holders, named_in


def test_numbers_in_texts() -> None:
    text = "R1.4, R10.13: see R5, but R1 is a section, and XR1.2 and R2.x are nothing (R9.9)"
    assert named_in(text) == {"R1.4", "R10.13", "R5", "R9.9"}


def test_no_test_names_a_requirement_that_does_not_exist() -> None:
    assert holders().keys() - REQUIREMENTS.keys() == set()


def test_every_requirement_is_held_or_open() -> None:
    assert {number for number in REQUIREMENTS if number not in holders()} <= OPEN.keys()
    assert OPEN.keys() | requirements.ELSEWHERE.keys() <= REQUIREMENTS.keys()


def test_the_page_has_all_of_them() -> None:
    text = requirements.as_markdown()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| R")]
    assert [row[0].removeprefix("| ") for row in rows] == list(REQUIREMENTS)
    assert all(row[-1].strip(" |") for row in rows), "somebody holds it"
    assert [f"## R{section} {title}" for section, title in SECTIONS.items()] == [
        line for line in text.splitlines() if line.startswith("## ")
    ]
