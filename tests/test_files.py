"""Folders that are replaced whole or not at all; arrays in files: bit by bit, mapped where they are large."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ladder import files
from ladder.errors import ArtifactError, GraphError
from ladder.files import Contents, replacing, write_files

PAIR = Contents("pair", "one", ("two", "*.npy"))
ROOT = Path(__file__).parents[1]


def put(folder, tag):
    with replacing(folder, PAIR, at="put", error=GraphError) as new:
        write_files(new, {"one": tag, "two": tag})


def found(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(params=["exchange", "two renames"])
def way(request, monkeypatch):
    """With and without names that the system exchanges in one step."""
    if request.param == "two renames":
        monkeypatch.setattr(files, "_exchange", lambda *_: False)


def test_a_folder_is_made_and_replaced(tmp_path, way):
    target = tmp_path / "new" / "pair"
    put(target, b"a")
    assert found(target) == {"one": b"a", "two": b"a"}
    target.chmod(0o750)
    write_files(target, {"old.npy": b""})
    put(target, b"b")
    assert found(target) == {"one": b"b", "two": b"b"}
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert [path.name for path in target.parent.iterdir()] == ["pair"]


def test_an_empty_folder_and_one_behind_a_link_are_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for tag in (b"a", b"b"):
        put(tmp_path / "link", tag)
        assert found(tmp_path / "real")["two"] == tag
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("failure", [OSError(28, "No space left"), KeyboardInterrupt(), KeyError()])
def test_what_fails_halfway_leaves_what_stood_there(tmp_path, failure):
    put(tmp_path / "pair", b"a")

    def fail():
        with replacing(tmp_path / "pair", PAIR, at="put", error=GraphError) as new:
            write_files(new, {"one": b"b"})
            raise failure

    with pytest.raises(GraphError if isinstance(failure, OSError) else type(failure)):
        fail()
    assert found(tmp_path / "pair") == {"one": b"a", "two": b"a"}
    assert [path.name for path in tmp_path.iterdir()] == ["pair"]


def test_a_process_that_is_killed_halfway_leaves_what_stood_there(tmp_path):
    put(tmp_path / "pair", b"a")
    code = (
        "import os, signal, sys; from tests.test_files import *\n"
        "with replacing(Path(sys.argv[1]), PAIR, at='put', error=GraphError) as new:\n"
        "    write_files(new, {'one': b'b'})\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "pair"], check=False, cwd=ROOT)
    assert done.returncode == -9
    assert found(tmp_path / "pair") == {"one": b"a", "two": b"a"}
    put(tmp_path / "pair", b"c")
    assert found(tmp_path / "pair") == {"one": b"c", "two": b"c"}


@pytest.mark.parametrize("exchange", [True, False])
def test_of_processes_that_save_to_one_place_one_folder_stays_whole(tmp_path, exchange):
    code = (
        "import sys; from tests.test_files import *\n"
        f"if not {exchange}: files._exchange = lambda *_: False\n"
        "for turn in range(60): put(Path(sys.argv[1]), sys.argv[2].encode() + bytes([turn]))"
    )
    target = tmp_path / "pair"
    running = [
        subprocess.Popen([sys.executable, "-c", code, target, tag], cwd=ROOT) for tag in "ab"
    ]
    while any(one.poll() is None for one in running):
        if exchange and target.exists():
            assert set(found(target)) <= {"one", "two"}
            assert target.exists(), "a reader finds one folder or the other at any time"
    assert [one.returncode for one in running] == [0, 0]
    last = found(target)
    assert last["one"] == last["two"] in (b"a\x3b", b"b\x3b")
    assert [path.name for path in tmp_path.iterdir()] == ["pair"]


@pytest.mark.parametrize(
    "there, named",
    [
        (("important.txt",), "important.txt"),
        (("two",), "two"),  # without what marks a pair, a file of that name is somebody else's
        (("one", "two", "thesis.tex"), "thesis.tex"),
        (tuple("abcdefg"), "a, b, c, d, e, ..."),
    ],
)
def test_a_folder_that_holds_something_else_is_not_replaced(tmp_path, there, named):
    write_files(tmp_path / "notes", dict.fromkeys(there, b"x"))
    with pytest.raises(GraphError) as caught:
        put(tmp_path / "notes", b"a")
    assert caught.value.what == f"the folder holds what is no pair's: {named}"
    assert found(tmp_path / "notes") == dict.fromkeys(there, b"x")


def test_files_and_the_working_directory_are_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "pair"):
        with pytest.raises(GraphError, match="a file stands there"):
            put(path, b"a")
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(GraphError, match="cannot write") if os.geteuid() else nullcontext():
        put(tmp_path / "closed" / "pair", b"a")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for path in (Path(), tmp_path):
        with pytest.raises(GraphError, match="the working directory cannot be replaced"):
            put(path, b"a")


@pytest.mark.parametrize(
    "dtype", [np.float16, np.uint8, ml_dtypes.bfloat16, ml_dtypes.float8_e8m0fnu]
)
def test_bits_come_back(tmp_path, dtype):
    array = np.random.default_rng(0).normal(size=(3, 5)).astype(dtype)
    digest = files.save_array(tmp_path, "a", array)
    assert digest == hashlib.sha256((tmp_path / "a.npy").read_bytes()).hexdigest()
    again = files.load_array(tmp_path, "a", digest).view(dtype)
    assert again.tobytes() == array.tobytes()
    assert [file.name for file in tmp_path.iterdir()] == ["a.npy"]


def test_large_arrays_are_mapped_and_survive_being_replaced(tmp_path):
    large = np.arange(files.MAPPED, dtype=np.uint8)

    def save(array):
        with replacing(tmp_path / "pair", PAIR, at="put", error=GraphError) as new:
            write_files(new, {"one": b""})
            return files.save_array(new, "a", array)

    mapped = files.load_array(tmp_path / "pair", "a", save(large))
    assert not mapped.flags.writeable
    again = save(large[::-1])
    np.testing.assert_array_equal(mapped, large)
    np.testing.assert_array_equal(files.load_array(tmp_path / "pair", "a", again), large[::-1])


@pytest.mark.parametrize("size", [8, files.MAPPED + files.PIECE // 2])
@pytest.mark.parametrize(
    "where", [70, -1]
)  # in the header, which NumPy would read as well; in the array
def test_a_byte_that_flipped_is_found(tmp_path, size, where):
    digest = files.save_array(tmp_path, "a", np.zeros(size, np.uint8))
    content = bytearray((tmp_path / "a.npy").read_bytes())
    content[where] ^= 1
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"a\.npy has sha256") as caught:
        files.load_array(tmp_path, "a", digest)
    assert caught.value.at == str(tmp_path)
    with pytest.raises(OSError, match=r"b\.npy"):
        files.load_array(tmp_path, "b", digest)


def test_a_document_comes_back_as_it_was_written(tmp_path):
    file = tmp_path / "index.json"
    files.save_document(file, {"format": "f/1", "eps": 1e-5, "names": ("a", "b")})
    assert files.load_document(file, "f/1") == {
        "format": "f/1",
        "eps": 1e-5,
        "names": ["a", "b"],
        "sha256": files.document_digest({"format": "f/1", "eps": 1e-5, "names": ["a", "b"]}),
    }
    with pytest.raises(ArtifactError, match=r"index\.json holds format 'f/1', expected 'f/2'"):
        files.load_document(file, "f/2")
    text = file.read_text()
    for other in (text.replace("1e-05", "1e-06"), '{"format": "f/1"}'):
        file.write_text(other)
        with pytest.raises(ArtifactError, match=r"index\.json is not as it was written"):
            files.load_document(file, "f/1")
    for other in ("[]", "3", '{"format": null}'):
        file.write_text(other)
        with pytest.raises(ArtifactError, match="holds format None"):
            files.load_document(file, "f/1")
    file.write_text("{")
    with pytest.raises(ValueError, match="property name"):
        files.load_document(file, "f/1")
