"""Which compiled program serves how many slots."""

from trainables.engine.buckets import Buckets, bucket, halved


def test_sizes_are_powers_of_two_or_all_slots() -> None:
    assert [bucket(active, 6) for active in range(1, 7)] == [1, 2, 4, 4, 6, 6]
    assert [halved(size) for size in (2, 4, 6)] == [1, 2, 4]


def test_a_larger_program_stands_in_until_it_has_wasted_a_compilation() -> None:
    """With one of eight slots in use, seven eighths of a call's seconds are wasted."""
    buckets = Buckets(8)
    assert buckets.choose(5, 8) == 8
    buckets.ran(8, 5, seconds=1.0, compiling=7.0)
    for _ in range(9):
        assert buckets.choose(1, 8) == 8
        buckets.ran(8, 1, seconds=1.0, compiling=0.0)
    assert buckets.choose(1, 8) == 1
    buckets.ran(1, 1, seconds=0.1, compiling=5.0)
    assert buckets.choose(1, 8) == 1
    assert buckets.choose(2, 8) == 8


def test_the_smallest_program_stands_in() -> None:
    buckets = Buckets(16)
    for size in (16, 4):
        buckets.ran(size, size, seconds=1.0, compiling=10.0)
    assert [buckets.choose(active, 16) for active in (1, 2, 4, 5, 8, 16)] == [4, 4, 4, 16, 16, 16]


def test_a_program_that_memory_has_no_room_for_stands_in_for_none() -> None:
    buckets = Buckets(8)
    buckets.ran(8, 8, seconds=1.0, compiling=10.0)
    assert buckets.choose(2, 4) == 2


def test_at_most_twice_the_time_of_the_best_choice() -> None:
    """However many calls come, waste and compiling cost at most twice what the cheaper of the two would.

    A call more, because what it wastes is known once it has run.
    """
    for calls in (1, 5, 11, 12, 13, 100):
        buckets, wasted, compiled = Buckets(4), 0.0, {4}
        buckets.ran(4, 4, seconds=1.0, compiling=8.0)
        for _ in range(calls):
            size = buckets.choose(1, 4)
            compiling = 0.0 if size in compiled else 8.0
            compiled.add(size)
            seconds = size / 4
            buckets.ran(size, 1, seconds, compiling)
            wasted += compiling + seconds - 1 / 4
        assert wasted <= 2 * min(8.0, 0.75 * calls) + 0.75
