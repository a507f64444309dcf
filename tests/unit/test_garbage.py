"""A start collects no garbage, and leaves the collector as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from volley.garbage import none_collected


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Python's garbage collector as it is at the start of a process; the suite freezes what it has imported."""
    gc.unfreeze()
    yield
    gc.enable()
    gc.freeze()


def test_it_begins_again_and_passes_over_what_was_made() -> None:
    with none_collected():
        assert not gc.isenabled()
        made = [[number] for number in range(10_000)]
    assert gc.isenabled()
    assert not gc.get_freeze_count()
    young = {id(each) for generation in (0, 1) for each in gc.get_objects(generation)}
    assert not [each for each in made if id(each) in young]


def test_garbage_of_a_start_is_collected_later() -> None:
    class Part:
        pass

    with none_collected():
        one = Part()
        one.itself = one  # type: ignore[attr-defined]
        del one
    assert gc.collect() > 0


def test_what_a_program_has_chosen_stays() -> None:
    gc.disable()
    with none_collected():
        pass
    assert not gc.isenabled()
    gc.enable()
    gc.freeze()
    with none_collected():
        pass
    assert gc.isenabled()
    assert gc.get_freeze_count()
