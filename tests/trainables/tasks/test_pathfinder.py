"""Pathfinder: LRA's files as they are, and the generator by the published rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.published import pathfinder
from trainables.errors import BadData, Refusal
from trainables.tasks.pathfinder.pathfinder import Pathfinder, Pathfinder16, PathX
from trainables.tasks.pathfinder.rule import CONTOURS, CROSSING, SCENES, SEED_HEADINGS, Tables, tables
from trainables.tasks.pathfinder.snakes import Drawing, Paddles, SnakeJob, drawn, generated

TASK = Pathfinder()


@pytest.fixture(scope="module")
def drawing() -> Drawing:
    return drawn(np.random.default_rng(0), 32, CONTOURS["hard"], 600)


@pytest.fixture(scope="module")
def large() -> Drawing:
    return drawn(np.random.default_rng(0), 128, CONTOURS["easy"], 40)


def long_snakes(drawing: Drawing, contour: int) -> Paddles:
    """Return the two long snakes apart: heads (b, 2, c, 2), headings (b, 2, c)."""
    number = len(drawing.images)
    return Paddles(
        drawing.snakes.head.reshape(number, 2, contour, 2), drawing.snakes.heading.reshape(number, 2, contour)
    )


@pytest.mark.slow
def test_labels_are_fair_and_images_use_the_whole_range(drawing: Drawing) -> None:
    assert abs(drawing.labels.mean() - 0.5) < 3 * 0.5 / np.sqrt(600)
    assert drawing.images.shape == (600, 32, 32)
    assert (drawing.images.min(axis=(1, 2)) == 0).all()
    assert (drawing.images.max(axis=(1, 2)) == 255).all()
    # Mostly black: 48 short paddles on 1,024 pixels.
    assert 0.5 < (drawing.images < 30).mean() < 0.8


def test_images_are_distinct(drawing: Drawing) -> None:
    assert len({image.tobytes() for image in drawing.images}) == 600


def _check_discs(drawing: Drawing, contour: int) -> None:
    snakes = long_snakes(drawing, contour)
    for label, discs, heads in zip(drawing.labels, drawing.discs, snakes.head, strict=True):
        origins = [snake for snake in range(2) if (heads[snake, 0] == discs[0]).all()]
        ends = [snake for snake in range(2) if (heads[snake, -1] == discs[1]).all()]
        assert origins
        assert ends
        assert any((one == other) == bool(label) for one in origins for other in ends)


def test_the_discs_lie_on_one_snake_or_on_two(drawing: Drawing) -> None:
    _check_discs(drawing, CONTOURS["hard"])


def test_either_snake_is_marked_as_often(drawing: Drawing) -> None:
    heads = long_snakes(drawing, CONTOURS["hard"]).head
    first = (drawing.discs[:, 0] == heads[:, 0, 0]).all(axis=1)
    assert abs(first.mean() - 0.5) < 3 * 0.5 / np.sqrt(600)


def test_snakes_start_in_the_middle_and_the_set_distance_apart(drawing: Drawing) -> None:
    heads = long_snakes(drawing, CONTOURS["hard"]).head
    first, second = heads[:, 0, 0], heads[:, 1, 0]
    # 32 - 2 * 14 leaves four pixels; a paddle's space is searched one step off its tail.
    assert first.min() >= 13
    assert first.max() <= 18
    assert np.abs(np.linalg.norm(second - first, axis=1) - 7).max() <= 0.71


def turns(table: Tables, headings: np.ndarray) -> np.ndarray:
    """Return the turn between consecutive paddles in radians, 0 to pi."""
    seeds = np.radians(np.arange(-180, 180))
    angles = np.concatenate([seeds, np.arctan2(table.circle[:, 0], table.circle[:, 1])])[headings]
    gap = np.abs(np.diff(angles, axis=-1))
    return np.minimum(gap, 2 * np.pi - gap)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["drawing", "large"])
def test_no_snake_turns_more_than_its_continuity_allows(which: str, request: pytest.FixtureRequest) -> None:
    drawing: Drawing = request.getfixturevalue(which)
    side = drawing.images.shape[1]
    scene, contour = SCENES[side], drawing.snakes.heading.shape[1] // 2
    headings = long_snakes(drawing, contour).heading
    assert (headings[:, :, 0] < SEED_HEADINGS).all()
    assert (headings[:, :, 1:] >= SEED_HEADINGS).all()
    if len(scene.margins) == 1:
        angles = turns(tables(side, scene.margins[0]), headings)
        assert angles.max() <= np.pi / 2 / scene.continuity + 1e-9
        # Weights fall as cos^2: straight on is far more frequent than a sharp turn.
        assert np.median(angles) < np.pi / 6


@pytest.mark.parametrize("which", ["drawing", "large"])
def test_every_paddle_ends_inside_and_snakes_advance(which: str, request: pytest.FixtureRequest) -> None:
    drawing: Drawing = request.getfixturevalue(which)
    side, contour = drawing.images.shape[1], drawing.snakes.heading.shape[1] // 2
    scene, heads = SCENES[side], long_snakes(drawing, contour).head
    assert heads.min() >= 0
    assert heads.max() < side
    steps = np.linalg.norm(np.diff(heads[:, :, 1:], axis=2), axis=3)
    # A paddle and the free space about it, up to rounding on the grid.
    assert steps.min() > scene.paddle + min(scene.margins) - 1
    assert steps.max() < scene.paddle + 2 * max(scene.margins) + 3


def space(table: Tables, head: np.ndarray, heading: int) -> np.ndarray:
    """Return the space (32, 32) that a paddle takes, 255 for all of a pixel."""
    field, rim = np.zeros((60, 60), int), 14
    spots = head + table.solid.offsets[heading] + rim
    field[spots[:, 0], spots[:, 1]] = table.solid.values[heading]
    return field[rim:-rim, rim:-rim]


def test_paddles_of_long_snakes_do_not_cross(drawing: Drawing) -> None:
    """Each new paddle keeps off all that stood when it was placed: those two before it, in either snake."""
    snakes, table = long_snakes(drawing, CONTOURS["hard"]), tables(32, 1)
    for heads, headings in zip(snakes.head[:30], snakes.heading[:30], strict=True):
        spaces = [
            [space(table, head, heading) for head, heading in zip(*snake, strict=True)]
            for snake in zip(heads, headings, strict=True)
        ]
        for paddle in range(2, CONTOURS["hard"]):
            for snake in range(2):
                before = [*spaces[0][: paddle - 1], *spaces[1][: paddle - 1]]
                assert (np.max(before, axis=0) + spaces[snake][paddle]).max() < CROSSING


def test_distractors_are_short_and_mostly_present(drawing: Drawing) -> None:
    headings = drawing.distractors.heading.reshape(600, 5, 4)
    whole = (headings >= 0).all(axis=2)
    assert (whole == (headings >= 0).any(axis=2)).all()
    assert whole.mean() > 0.85


def test_brightness_is_as_published(drawing: Drawing, large: Drawing) -> None:
    """At 32 pixels distractors outshine the long snakes by 2 to 1.5; at 128 discs outshine both."""
    side = np.arange(32)
    snakes, others = [], []
    for row in range(100):
        for paddles, brightness in ((drawing.snakes, snakes), (drawing.distractors, others)):
            heads = paddles.head[row][paddles.heading[row] >= SEED_HEADINGS]
            near = np.abs(side[:, None, None] - heads[:, 0]) + np.abs(side[None, :, None] - heads[:, 1]) <= 2
            brightness.append(drawing.images[row][near.any(axis=2)].astype(float).mean())
    assert np.mean(others) > np.mean(snakes)
    centres = large.images[np.arange(40)[:, None], large.discs[:, :, 0], large.discs[:, :, 1]]
    assert (centres > 250).all()


def test_difficulty_is_the_number_of_paddles() -> None:
    for contour in CONTOURS.values():
        drawing = drawn(np.random.default_rng(1), 32, contour, 20)
        assert drawing.snakes.heading.shape == (20, 2 * contour)
        assert drawing.distractors.heading.shape[1] == 20 // (contour // 3) * (contour // 3)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("dashes", [3, 6])
def test_small_images_have_two_lines_of_some_dashes_and_no_distractors(dashes: int) -> None:
    drawing = drawn(np.random.default_rng(1), 16, dashes, 400)
    assert drawing.images.shape == (400, 16, 16)
    assert drawing.snakes.heading.shape == (400, 2 * dashes)
    assert (drawing.snakes.heading >= 0).all()
    assert drawing.distractors.heading.size == 0
    heads = long_snakes(drawing, dashes).head
    assert ((heads >= 0) & (heads < 16)).all()
    _check_discs(drawing, dashes)
    assert 0.4 < drawing.labels.mean() < 0.6


def test_small_images_are_comparable_with_no_paper(tmp_path: Path) -> None:
    data = Pathfinder16().load({"examples": 30, "held_out": 10}, tmp_path)
    assert data.train.inputs.shape == (30, 256, 1)
    assert not data.comparable
    assert "no published task" in data.note


def test_both_margins_of_path_x_occur(large: Drawing) -> None:
    """A wider margin spreads the paddles of a snake."""
    heads = long_snakes(large, CONTOURS["easy"]).head
    steps = np.linalg.norm(np.diff(heads[:, :, 1:], axis=2), axis=3).mean(axis=(1, 2))
    wide = steps > 10
    assert 5 < wide.sum() < 35
    assert steps[wide].mean() - steps[~wide].mean() > 1.5


@pytest.mark.slow
def test_images_do_not_depend_on_the_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainables.tasks.pathfinder.snakes._PIXELS_A_CHUNK", 20 * 1024)
    work = SnakeJob(32, CONTOURS["easy"], seed=7, number=110)
    alone, together = list(generated(work, 1)), list(generated(work, 2))
    assert [len(labels) for _, labels in alone] == [20, 20, 20, 20, 20, 10]
    for (images, labels), (others, other_labels) in zip(alone, together, strict=True):
        assert (images == others).all()
        assert (labels == other_labels).all()
    assert not (alone[0][0] == alone[1][0]).all()


def test_generated_images_are_labelled_as_such(tmp_path: Path) -> None:
    data = TASK.load({"examples": 30, "held_out": 10, "difficulty": "easy"}, tmp_path)
    assert "drawn by LRA's rule" in data.source
    assert not data.comparable
    assert data.train.inputs.shape == (30, 1024, 1)
    whole = TASK.check({}, tmp_path)
    assert not whole.comparable
    assert "not LRA's own images" in whole.note
    assert PathX().check({}, tmp_path).phrase.endswith("128 x 128")


def test_published_images_are_read(tmp_path: Path) -> None:
    pathfinder(tmp_path / "lra_release" / "lra_release")
    data = TASK.load({}, tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (32, 4, 4)
    assert not data.comparable
    assert TASK.check({}, tmp_path).comparable
    assert "40 images instead of 200,000" in data.note
    shift, factor = data.signature.scale
    assert (0 - shift[0]) * factor[0] == -1
    assert (255 - shift[0]) * factor[0] == 1


def test_labels_and_images_stay_together(tmp_path: Path) -> None:
    root = pathfinder(tmp_path)
    for k in range(2):
        for place in range(20):
            pixels = np.full((32, 32), 200 if place % 2 else 100, np.uint8)
            pixels[0, :2] = k, place
            Image.fromarray(pixels).save(root / "imgs" / str(k) / f"sample_{place}.png")
    data = TASK.load({}, tmp_path)
    for split in (data.train, data.validation, data.test):
        assert (split.inputs[:, 5, 0] == np.where(split.targets, 200, 100)).all()


def first_line(root: Path, change: Callable[[str], str]) -> None:
    path = root / "metadata" / "0.npy"
    first, rest = path.read_text().split("\n", 1)
    path.write_text(change(first) + "\n" + rest)


@pytest.mark.parametrize(
    ("damage", "must"),
    [
        (
            lambda root: (root / "imgs/1/sample_3.png").unlink(),
            r"sample_3.png must be the image that .*1.npy:4",
        ),
        (lambda root: (root / "imgs/1/sample_3.png").write_bytes(b""), "got an empty or damaged file"),
        (
            lambda root: (root / "imgs/1/sample_3.png").write_bytes(
                (root / "imgs/1/sample_3.png").read_bytes()[:200]
            ),
            "got an empty or damaged file",
        ),
        (lambda root: first_line(root, lambda line: line.replace(" 0 0 ", " 0 2 ")), "a label of 0 or 1"),
        (lambda root: first_line(root, lambda line: line + " more"), "0.npy:1: must be text of 11 fields"),
        (lambda root: [path.unlink() for path in (root / "metadata").iterdir()], "must hold metadata files"),
        (lambda root: [path.write_text("") for path in (root / "metadata").iterdir()], "got zero rows"),
        (
            lambda root: [
                path.write_text(
                    "\n".join(line for line in path.read_text().splitlines() if line.split()[3] == "1")
                )
                for path in (root / "metadata").iterdir()
            ],
            r"images of both classes \(got only 1\)",
        ),
    ],
)
def test_bad_archives_are_refused(tmp_path: Path, damage: Callable[[Path], object], must: str) -> None:
    damage(pathfinder(tmp_path))
    with pytest.raises(BadData, match=must):
        TASK.load({}, tmp_path)


def test_the_empty_image_of_the_release_is_left_out(tmp_path: Path) -> None:
    """LRA's easy images hold one empty file, which their metadata name; any other is damage."""
    root = pathfinder(tmp_path)
    easy = root.with_name("curv_baseline")
    root.rename(easy)
    whole = TASK.load({"source": "published", "difficulty": "easy"}, tmp_path)
    first_line(easy, lambda line: line.replace(line.split()[1], "sample_172.png", 1))
    (easy / "imgs/0/sample_172.png").write_bytes(b"")
    less = TASK.load({"source": "published", "difficulty": "easy"}, tmp_path)
    sizes = [len(data.train) + len(data.validation) + len(data.test) for data in (whole, less)]
    assert sizes[0] == sizes[1] + 1
    (easy / "imgs/0/sample_172.png").rename(easy / "imgs/0/sample_173.png")
    first_line(easy, lambda line: line.replace("sample_172.png", "sample_173.png"))
    with pytest.raises(BadData, match=r"sample_173.png.*got an empty or damaged file"):
        TASK.load({"source": "published", "difficulty": "easy"}, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3])
def test_so_few_images_that_a_margin_has_none_are_drawn(number: int) -> None:
    for seed in range(4):
        assert drawn(np.random.default_rng(seed), 128, 3, number).images.shape == (number, 128, 128)


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    pathfinder(tmp_path, side=16).parent.rename(tmp_path / "pathfinder32")
    with pytest.raises(BadData, match="must be a grey image of 32 x 32 pixels"):
        TASK.load({}, tmp_path)


def test_missing_published_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"data fetch pathx.*source: generated"):
        PathX().check({"source": "published"}, tmp_path)
