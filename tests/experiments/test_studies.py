"""The experiments that are shipped: their extent, their committed rows, and that their pages quote those rows alone."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ladder.errors import ExperimentError
from ladder.experiments import STUDIES, Sweep, read, rows, totals
from ladder.experiments.figures import KINDS, draw
from ladder.experiments.studies import PAPER_MS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "experiments"
SECONDS = 300.0


@pytest.mark.parametrize("name", STUDIES)
def test_committed_rows_are_of_all_points_of_the_study(name: str) -> None:
    study = STUDIES[name]
    found = read(RESULTS / f"{name}.csv")
    asked = [
        (p.device.name, p.n, p.k, p.m, str(p.type_of("float16", None)), p.placement)
        for p in study.make().points()
    ]
    assert [(r.device, r.n, r.k, r.m, r.weight, r.placement) for r in found] == asked
    assert len(found) >= 60
    assert {row.experiment for row in found} == {name}
    assert all(len(row.commit) == 12 for row in found), "made from a clean checkout"


@pytest.mark.parametrize("name", STUDIES)
def test_pages_quote_the_committed_rows(name: str) -> None:
    page = (ROOT / "docs" / "experiments" / f"{name}.md").read_text("utf-8")
    found = read(RESULTS / f"{name}.csv")
    assert STUDIES[name].table(found).strip() in page
    assert f"ladder experiment {name} " in page
    if not any(row.measured_us for row in found):
        assert "Nothing here is measured" in page


@pytest.mark.parametrize("name", STUDIES)
def test_pictures_can_be_drawn_from_the_committed_rows(name: str, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    found = read(RESULTS / f"{name}.csv")
    one, two = (draw(STUDIES[name].figure, found, tmp_path / f"{i}.svg") for i in range(2))
    assert one.read_bytes() == two.read_bytes()
    assert ET.parse(one).getroot().tag.endswith("svg")
    assert (RESULTS / f"{name}.svg").exists()


def test_pictures_of_nothing_are_refused(tmp_path) -> None:
    for kind in (*KINDS, "pie"):
        with pytest.raises(ExperimentError, match="no picture"):
            draw(kind, [], tmp_path / "none.svg")


def test_pictures_without_matplotlib_say_what_to_do(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    found = list(rows(Sweep(shapes=[(64, 64)], weights=["int4"], ms=[1])))
    with pytest.raises(ExperimentError, match="need matplotlib"):
        draw("m", found, tmp_path / "none.svg")


def test_a_study_takes_a_small_part_of_its_five_minutes() -> None:
    """A tenth of the placement study, without the types' decode programs, which are remembered."""
    start = time.process_time()
    sweep = STUDIES["placement"].make()
    few = Sweep(shapes=sweep.shapes, weights=sweep.weights[:1], ms=(1, 4096), devices=sweep.devices)
    assert len(list(rows(few))) == 8
    assert (time.process_time() - start) * 11 < SECONDS


def test_what_the_model_says_of_bits_follows_bytes_at_one_token_alone() -> None:
    found = totals(read(RESULTS / "bits.csv"), ("device", "placement", "m", "bits"))
    for device in ("a100", "h200"):
        times = [found[device, "register", 1, bits] for bits in (1, 2, 3, 4, 8)]
        assert times == sorted(times)
        assert times[-1] > 2.5 * times[0]
        prefill = [found[device, "register", 4096, bits] for bits in (1, 2, 3, 4, 8)]
        assert max(prefill) < 1.25 * min(prefill)


def test_the_papers_figures_are_in_order() -> None:
    assert sorted(PAPER_MS, key=PAPER_MS.__getitem__) == [1, 2, 4, 8]
