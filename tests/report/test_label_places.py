"""Labels of crowded points: no two boxes meet, none covers a mark, all lie inside; the same points, the same places."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.report.label_places import Box, place_labels

AREA = Box(0, 0, 450, 340)  # pixels of a figure's axes
PLACES = st.tuples(st.floats(10, 440), st.floats(10, 330))
SIZES = st.tuples(st.floats(8, 60), st.floats(8, 12))


def overlaps(one, other):
    """By the definition: their common part has an area."""
    width = min(one.right, other.right) - max(one.left, other.left)
    height = min(one.top, other.top) - max(one.bottom, other.bottom)
    return width > 1e-9 and height > 1e-9


def check(points, sizes, boxes):
    found = [box for box in boxes if box is not None]
    for i, box in enumerate(found):
        assert AREA.left <= box.left <= box.right <= AREA.right
        assert AREA.bottom <= box.bottom <= box.top <= AREA.top
        assert not any(overlaps(box, other) for other in found[:i])
        for x, y in points:
            assert not overlaps(box, Box(x - 6, y - 6, x + 6, y + 6))
    for box, size in zip(boxes, sizes):
        assert box is None or (box.right - box.left, box.top - box.bottom) == pytest.approx(size)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(PLACES, SIZES), max_size=14))
def test_any_points(given):
    points, sizes = [point for point, _ in given], [size for _, size in given]
    boxes = place_labels(points, sizes, AREA)
    check(points, sizes, boxes)
    assert boxes == place_labels(points, sizes, AREA)


@pytest.mark.parametrize("count", [2, 8, 14])
def test_all_in_one_place(count):
    """Equal points, and points in a column, as with methods of one cost: each has its label."""
    for points in ([(200.0, 150.0)] * count, [(200.0, 150.0 + i) for i in range(count)]):
        sizes = [(55.0, 10.0)] * count
        boxes = place_labels(points, sizes, AREA)
        assert all(boxes)
        check(points, sizes, boxes)


def test_fifty_numbers():
    """More than names are shown for: numbers of two digits, in two crowds."""
    drawn = random.Random(4)
    points = [(drawn.gauss(100 + 200 * (i % 2), 25), drawn.gauss(170, 40)) for i in range(50)]
    boxes = place_labels(points, [(12.0, 9.0)] * 50, AREA)
    assert all(boxes)
    check(points, [(12.0, 9.0)] * 50, boxes)


def test_a_lone_point_has_its_label_beside_it():
    (box,) = place_labels([(100.0, 100.0)], [(40.0, 10.0)], AREA)
    assert (box.left, box.bottom) == (107.0, 95.0)


def test_lines_are_kept_clear_of():
    """The label would lie on a line to the right, so it goes to the left."""
    (box,) = place_labels([(100.0, 100.0)], [(40.0, 10.0)], AREA, lines=[Box(100, 99, 300, 101)])
    assert box.right == 93.0


def test_no_place_is_none():
    assert place_labels([(5.0, 5.0)], [(400.0, 400.0)], AREA) == [None]
