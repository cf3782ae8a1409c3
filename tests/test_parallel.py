"""Work in threads comes back in order, and its first error is raised."""

from __future__ import annotations

import threading

import pytest

from ladder import parallel


def test_results_are_in_order_and_made_by_several_threads(monkeypatch):
    monkeypatch.setattr(parallel, "threads", lambda: 4)
    together = threading.Barrier(4, timeout=10)

    def work(number):
        together.wait()
        return number, threading.get_ident()

    found = parallel.each(work, range(4))
    assert [number for number, _ in found] == [0, 1, 2, 3]
    assert len({thread for _, thread in found}) == 4


@pytest.mark.parametrize("count", [1, 4])
def test_one_thread_is_this_one(monkeypatch, count):
    monkeypatch.setattr(parallel, "threads", lambda: 1)
    found = parallel.each(lambda _: threading.get_ident(), range(count))
    assert set(found) == {threading.get_ident()}


def test_an_error_is_raised(monkeypatch):
    monkeypatch.setattr(parallel, "threads", lambda: 4)
    with pytest.raises(ZeroDivisionError):
        parallel.each(lambda number: 1 / number, [1, 0, 2])


def test_there_is_a_thread_at_least():
    assert 1 <= parallel.threads() <= parallel.MOST_THREADS
