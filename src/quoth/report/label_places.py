"""Where the labels of points go, so that no label covers another label or a point.

Each label is tried at places around its point, near ones first, and takes the first that is free: right, left, above,
below, then between these, on wider and wider circles. Points in the thick of others go first, since they have the least
choice. Nothing is random: equal points have equal labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

STEP = 5.0  # pixels between two circles
RINGS = 120
NEAR = 16  # circles on which lines are kept clear of too
ANGLES = (0, 180, 90, 270, 45, 135, 315, 225, 22, 158, 338, 202, 67, 113, 247, 293)


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: Box) -> bool:
        """Whether two boxes have more than an edge in common."""
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.top <= other.bottom or other.top <= self.bottom)

    def inside(self, other: Box) -> bool:
        """Whether this box lies in another."""
        across = other.left <= self.left and self.right <= other.right
        return across and other.bottom <= self.bottom and self.top <= other.top


def place_labels(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    bounds: Box,
    radius: float = 6.0,
    lines: Sequence[Box] = (),
) -> list[Box | None]:
    """The box of each label; None where no place is left inside the bounds.

    points: the centres of the marks, whose radius no label may cover; sizes: width and height of each label; lines:
    thin boxes that labels keep clear of where there is room for it near the point
    """
    marks = [Box(x - radius, y - radius, x + radius, y + radius) for x, y in points]
    order = sorted(range(len(points)), key=lambda i: (-_crowd(points, i), i))
    placed: list[Box | None] = [None] * len(points)
    obstacles = list(marks)
    for i in order:
        found = _free(points[i], sizes[i], bounds, radius, [*obstacles, *lines], NEAR)
        found = found or _free(points[i], sizes[i], bounds, radius, obstacles, RINGS)
        placed[i] = found
        if found is not None:
            obstacles.append(found)
    return placed


def _free(
    point: tuple[float, float],
    size: tuple[float, float],
    bounds: Box,
    radius: float,
    obstacles: Sequence[Box],
    rings: int,
) -> Box | None:
    """The first free place of one label on so many circles."""
    for ring in range(rings):
        for angle in ANGLES:
            box = _at(point, size, radius + 1 + STEP * ring, math.radians(angle))
            if box.inside(bounds) and not any(box.meets(other) for other in obstacles):
                return box
    return None


def _at(point: tuple[float, float], size: tuple[float, float], distance: float, angle: float) -> Box:
    """The box of which the nearest point lies at this distance and angle."""
    (x, y), (width, height) = point, size
    across, up = math.cos(angle), math.sin(angle)
    centre_x = x + across * (distance + width / 2) if abs(across) > 0.01 else x
    centre_y = y + up * (distance + height / 2) if abs(up) > 0.01 else y
    return Box(centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2)


def _crowd(points: Sequence[tuple[float, float]], i: int, near: float = 60.0) -> int:
    """How many points are near one."""
    return sum(math.dist(points[i], other) < near for other in points)
