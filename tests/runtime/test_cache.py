from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest

from ladder.codegen.kernel import Launch, LoweredKernel
from ladder.codegen.toolchain import Toolchain
from ladder.errors import CacheError
from ladder.runtime import cache as module
from ladder.runtime import entries, versions
from ladder.runtime.artifact import Artifact, Part
from ladder.runtime.cache import Cache, CacheKey
from ladder.settings import Settings

ROOT = Path(__file__).parents[2]
KEY = CacheKey("{}", "sm_90a", "nvrtc 13.0.88", ("-O3",), "13.0", "0.1.0", "abc", "0.27")


def artifact(name="k"):
    kernel = LoweredKernel(name, "// text " * 100, (), Launch((1, 1, 1), (32, 1, 1)))
    return Artifact((Part({"plan": 1}, kernel),), {}, {}, 1)


class Build:
    """A compiler stub that counts."""

    def __init__(self):
        self.count = 0

    def __call__(self):
        self.count += 1
        return artifact()


@pytest.fixture
def build():
    return Build()


@pytest.fixture(autouse=True)
def forget_warnings(monkeypatch):
    monkeypatch.setattr(entries, "_warned", set())


def entry(folder):
    (path,) = folder.rglob("*.zip")
    return path


def test_the_second_process_finds_what_the_first_built(tmp_path, build):
    first = Cache(tmp_path).get_or_build(KEY, build)
    assert Cache(tmp_path).get_or_build(KEY, build) == first
    assert Cache(tmp_path).get(KEY) == first
    assert build.count == 1


CHANGES = {
    "plan": "[]",
    "arch": "sm_90",
    "toolchain": "nvrtc 13.0.89",
    "options": ("-O2",),
    "driver": "13.1",
    "package": "0.1.1",
    "sources": "abd",
    "tvm": "0.28",
}


def test_every_field_of_the_key_has_a_change():
    assert set(CHANGES) == {field.name for field in fields(CacheKey)}


@pytest.mark.parametrize("name", CHANGES)
def test_anything_that_a_kernel_depends_on_makes_another_entry(tmp_path, build, name):
    """C68: an upgrade of toolkit, driver or package builds once more; going back hits."""
    other = replace(KEY, **{name: CHANGES[name]})
    for key, count in ((KEY, 1), (KEY, 1), (other, 2), (other, 2), (KEY, 2)):
        Cache(tmp_path).get_or_build(key, build)
        assert build.count == count


@pytest.mark.parametrize(
    "one, other",
    [("sm_120", "sm_121"), ("sm_70", "sm_80"), ("sm_90", "sm_90a"), ("sm_120", "sm_120f")],
)
def test_keys_differ_in_major_minor_and_suffix(one, other):
    """C67: a warm cache from another device is a miss."""
    assert replace(KEY, arch=one).digest != replace(KEY, arch=other).digest


@pytest.mark.parametrize("name", ["nvrtc", "nvcc"])
def test_features_are_part_of_command_and_key(name):
    """C87: the arch suffix reaches the compiler and the key."""
    toolchain = Toolchain(name, "13.0")
    commands = {arch: toolchain.command(arch) for arch in ("sm_120", "sm_120f", "sm_120a")}
    assert len(set(commands.values())) == 3
    for arch, command in commands.items():
        assert any(option.endswith(arch) for option in command)
    keys = {
        CacheKey.of({}, "sm_120", str(toolchain), command).digest for command in commands.values()
    }
    assert len(keys) == 3


def test_the_key_holds_this_machines_versions(monkeypatch):
    monkeypatch.setattr(module, "driver_version", lambda: "13.9")
    key = CacheKey.of({"b": 1, "a": [2.5]}, "sm_80", "nvcc 13.0", ("x",))
    assert key.plan == '{"a":[2.5],"b":1}'
    assert key.driver == "13.9"
    assert key.sources == versions.source_digest()
    assert key == CacheKey.of({"a": [2.5], "b": 1}, "sm_80", "nvcc 13.0", ("x",))


def test_the_source_digest_is_of_our_code(tmp_path):
    """C68: a fix in the package is seen even where its version stays."""
    for package in versions.SOURCES:
        (tmp_path / package).mkdir()
    (tmp_path / "codegen" / "emit.py").write_text("a = 1\n")
    before = versions.digest_of(tmp_path)
    assert versions.digest_of(tmp_path) == before
    (tmp_path / "codegen" / "emit.py").write_text("a = 2\n")
    changed = versions.digest_of(tmp_path)
    (tmp_path / "codegen" / "emit.py").rename(tmp_path / "codegen" / "emits.py")
    assert len({before, changed, versions.digest_of(tmp_path)}) == 3
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "other.py").write_text("b = 1\n")
    assert versions.source_digest() == versions.digest_of(ROOT / "ladder")


DAMAGE = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "a bit flipped": lambda content: content[:-40] + bytes([content[-40] ^ 1]) + content[-39:],
    "longer": lambda content: content + b"\0",
    "wrong checksum": lambda content: b"0" * 64 + content[64:],
    "foreign": lambda content: b"hello",
    "right checksum of no zip": lambda content: hashlib.sha256(b"x").hexdigest().encode() + b"x",
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_broken_entry_is_a_miss_and_is_built_again(tmp_path, build, name):
    """C72: truncated, changed or foreign entries are never loaded and never crash."""
    Cache(tmp_path).get_or_build(KEY, build)
    path = entry(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(DAMAGE[name](whole))
    assert Cache(tmp_path).get(KEY) is None
    assert Cache(tmp_path).get_or_build(KEY, build).parts == artifact().parts
    assert build.count == 2
    assert Cache(tmp_path).get(KEY) is not None


def test_entries_are_compressed():
    """The manifest spells out every bit of a packing; what repeats must not fill the disk."""
    kernel = LoweredKernel("k", "// text\n" * 10_000, (), Launch((1, 1, 1), (32, 1, 1)))
    given = Artifact((Part({"plan": 1}, kernel),), {}, {}, 1)
    content = module.encode(given)
    assert len(content) < 10_000
    assert module.decode(content) == given


def test_an_entry_of_another_artifact_format_is_a_miss(tmp_path, build, monkeypatch):
    import ladder.runtime.artifact as form

    Cache(tmp_path).get_or_build(KEY, build)
    monkeypatch.setattr(form, "FORMAT", form.FORMAT + 1)
    assert Cache(tmp_path).get(KEY) is None


WORKER = """
import sys, time
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
import test_cache as t
from ladder.runtime.cache import Cache
folder = Path({folder!r})
def build():
    time.sleep(0.2)
    (folder / "built").open("a").write("x")
    return t.artifact()
print(len(Cache(folder).get_or_build(t.KEY, build).parts))
"""


def worker(folder):
    script = WORKER.format(root=str(ROOT), tests=str(Path(__file__).parent), folder=str(folder))
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_eight_processes_on_one_cold_folder_build_once(tmp_path):
    """C72: all succeed, with one consistent entry."""
    workers = [worker(tmp_path) for _ in range(8)]
    results = [process.communicate(timeout=120) for process in workers]
    assert [out.strip() for out, _ in results] == ["1"] * 8, results
    assert (tmp_path / "built").read_text() == "x"
    assert Cache(tmp_path).get(KEY) is not None
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_process_killed_while_it_writes_leaves_a_miss(tmp_path, build):
    """C72: kill -9 between the first byte and the rename."""
    script = """
import ladder.runtime.packed as packed, os
def die(path, content):
    file = path.with_name("." + path.name + ".dead.tmp")
    file.write_bytes(content[: len(content) // 2])
    os.kill(os.getpid(), 9)
import ladder.runtime.entries as entries
entries.write_atomically = die
"""
    worker(tmp_path).communicate(timeout=60)
    entry(tmp_path).unlink()
    text = WORKER.format(root=str(ROOT), tests=str(Path(__file__).parent), folder=str(tmp_path))
    head, _, tail = text.partition("folder = ")
    dead = subprocess.run(
        [sys.executable, "-c", head + script + "folder = " + tail], check=False, timeout=60
    )
    assert dead.returncode == -9
    assert len(list(tmp_path.rglob("*.tmp"))) == 1
    assert Cache(tmp_path).get(KEY) is None
    cache = Cache(tmp_path)
    cache.get_or_build(KEY, build)  # the dead process' lock does not block
    assert build.count == 1
    assert Cache(tmp_path).get(KEY) is not None


def test_what_the_dead_left_is_removed_after_a_day(tmp_path, build):
    path = Cache(tmp_path).path(KEY.digest)
    path.parent.mkdir(parents=True)
    old, young = path.parent / ".a.zip.1.tmp", path.parent / ".b.zip.2.tmp"
    old.touch()
    young.touch()
    os.utime(old, (0, time.time() - 2 * entries.STALE_SECONDS))
    Cache(tmp_path).get_or_build(KEY, build)
    assert not old.exists()
    assert young.exists()


def test_a_folder_that_cannot_be_written_is_one_warning_and_memory(tmp_path, build):
    """C78: here the folder's parent is a file, which not even root can write to."""
    (tmp_path / "file").touch()
    cache = Cache(tmp_path / "file" / "cache")
    with pytest.warns(RuntimeWarning, match="LADDER_CACHE_DIR"):
        cache.get_or_build(KEY, build)
    cache.get_or_build(KEY, build)  # a second warning would be an error
    cache.get_or_build(replace(KEY, arch="sm_80"), build)
    assert build.count == 2


def test_a_read_only_folder_is_read_and_survived(tmp_path, build, monkeypatch):
    """C78: entries that are there are used; new ones live in memory."""
    Cache(tmp_path).get_or_build(KEY, build)

    def refuse(path, content):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(entries, "write_atomically", refuse)
    cache = Cache(tmp_path)
    assert cache.get_or_build(KEY, build)
    assert build.count == 1
    other = replace(KEY, arch="sm_80")
    with pytest.warns(RuntimeWarning, match="Permission denied"):
        cache.get_or_build(other, build)
    cache.get_or_build(other, build)
    assert build.count == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_without_rights_is_survived(tmp_path, build):
    """C78."""
    tmp_path.chmod(0o500)
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        Cache(tmp_path).get_or_build(KEY, build)


def test_a_full_disk_is_survived(tmp_path, build, monkeypatch):
    """C78: ENOSPC, and nothing is left behind."""

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    cache = Cache(tmp_path)
    with pytest.warns(RuntimeWarning, match="No space left"):
        cache.get_or_build(KEY, build)
    assert cache.get(KEY) is not None
    assert not [path for path in tmp_path.rglob("*") if path.suffix in {".zip", ".tmp"}]


def test_a_file_system_without_locks_is_survived(tmp_path, build, monkeypatch):
    import filelock

    def refuse(self, *_, **__):
        raise NotImplementedError

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    Cache(tmp_path).get_or_build(KEY, build)
    assert Cache(tmp_path).get(KEY) is not None


def test_off_keeps_everything_in_memory(tmp_path, build, recwarn):
    cache = Cache.default(Settings(cache_dir="off"))
    cache.get_or_build(KEY, build)
    cache.get_or_build(KEY, build)
    assert build.count == 1
    assert cache.folder is None
    assert not recwarn.list


def test_the_settings_name_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    assert Cache.default().folder == tmp_path / module.FORMAT
    monkeypatch.delenv("LADDER_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert Cache.default().folder == tmp_path / "xdg" / "ladder" / module.FORMAT
    assert not (tmp_path / "xdg").exists()  # nothing is written until something is stored


@pytest.mark.parametrize("name, warned", [("XDG_CACHE_HOME", 0), ("HOME", 1)])
def test_import_and_use_survive_any_home(tmp_path, name, warned):
    """C78: HOME unset, and a home that nobody can write to (it is no folder); import writes nothing."""
    script = WORKER.format(root=str(ROOT), tests=str(Path(__file__).parent), folder=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-B", "-c", script.replace("Cache(folder)", "Cache.default()")],
        env={name: "/dev/null" if warned else str(tmp_path / "xdg")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "1", done.stderr
    assert done.stderr.count("RuntimeWarning:") == warned
    assert (tmp_path / "xdg").exists() == (not warned)


def test_clear_removes_every_entry(tmp_path, build):
    cache = Cache(tmp_path)
    cache.get_or_build(KEY, build)
    cache.get_or_build(replace(KEY, arch="sm_80"), build)
    assert cache.clear() == 2
    assert cache.get(KEY) is None
    assert cache.clear() == 0


def test_an_entry_that_cannot_be_removed_is_an_error(tmp_path, build, monkeypatch):
    cache = Cache(tmp_path)
    cache.get_or_build(KEY, build)

    def refuse(self, missing_ok):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(CacheError, match="Permission denied"):
        cache.clear()


def test_a_lock_that_is_never_given_back_costs_time_and_nothing_else(tmp_path, build, monkeypatch):
    """C72, C73: a process that hangs with the lock does not stop the others; they build for themselves."""
    import filelock

    path = Cache(tmp_path).path(KEY.digest).with_suffix(".lock")
    path.parent.mkdir(parents=True)
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.05)
    with filelock.FileLock(path):
        assert Cache(tmp_path).get_or_build(KEY, build) == artifact()
    assert build.count == 1
    assert Cache(tmp_path).get(KEY) is not None


def test_an_entry_that_is_a_folder_is_survived(tmp_path, build):
    """C72: whatever stands in an entry's place."""
    Cache(tmp_path).path(KEY.digest).mkdir(parents=True)
    cache = Cache(tmp_path)
    with pytest.warns(RuntimeWarning, match="the cache cannot be"):
        cache.get_or_build(KEY, build)
    cache.get_or_build(KEY, build)
    assert build.count == 1
