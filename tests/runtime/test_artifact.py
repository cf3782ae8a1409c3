from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ladder.codegen.kernel import CeilDiv, Launch, LoweredKernel, Parameter
from ladder.codegen.toolchain import Cubin
from ladder.errors import ArtifactError
from ladder.files import document_digest
from ladder.runtime.artifact import FORMAT, Artifact, Part


def lowered(name="k"):
    return LoweredKernel(
        name,
        f'extern "C" __global__ void {name}() {{}} // µ',
        (Parameter("x_ptr", "buffer", "float16", "x"), Parameter("m", "scalar", "int64", "m")),
        Launch((CeilDiv(16), 4, 1), (128, 1, 1), 65536, ("pdl",), (2, 1, 1)),
        {"steps": [1, 2.5, "a"]},
        "sm_90a",
    )


@pytest.fixture
def artifact():
    cubins = {
        "sm_90a": Cubin(b"\x7fELF1", "", 168, 8, 16, 0.0, "nvrtc 13.0"),
        "sm_80": Cubin(b"\x7fELF2", "", 40, 0, 0, 0.0, "nvrtc 13.0"),
    }
    parts = (Part({"plan": 1}, lowered("a"), cubins), Part({"plan": 2}, lowered("b")))
    return Artifact(parts, {"plan": [1, 2]}, {"packing": 1}, 7, "nvrtc 13.0")


def test_an_artifact_comes_back_equal(artifact, tmp_path):
    artifact.save(tmp_path / "out" / "k")
    assert Artifact.load(tmp_path / "out" / "k") == artifact
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["k"]


@pytest.mark.parametrize("written", [FORMAT, 2])
def test_the_plan_of_a_kernel_alone_is_written_once(artifact, tmp_path, written):
    """Format 2 wrote it out with the kernel, too."""
    alone = replace(artifact, parts=artifact.parts[:1], plan={"plan": 1})
    folder = alone.save(tmp_path / "k")
    (kernel,) = json.loads((folder / "manifest.json").read_text())["kernels"]
    assert kernel["plan"] == 0
    if written != FORMAT:
        _edit(folder, lambda m: (m.update(format=written), m["kernels"][0].update(plan=m["plan"])))
    assert Artifact.load(folder) == alone


def test_the_folder_is_readable_by_people(artifact, tmp_path):
    folder = artifact.save(tmp_path / "k")
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "a.cu",
        "a.listing.json",
        "a.sm_80.cubin",
        "a.sm_90a.cubin",
        "b.cu",
        "b.listing.json",
        "manifest.json",
    ]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["format"], manifest["packing_version"]) == (FORMAT, 7)
    first, second = manifest["kernels"]
    assert first["launch"]["grid"] == [{"ceil_div": 16}, 4, 1]
    assert first["cubins"]["sm_90a"]["registers"] == 168
    assert second["cubins"] == {}
    assert (folder / "a.cu").read_text() == lowered("a").source
    assert "a (sm_90a, sm_80), b (text only)" in str(artifact)


@pytest.mark.parametrize("name", ["a.cu", "a.listing.json", "a.sm_80.cubin"])
def test_a_missing_or_changed_file_is_named(artifact, tmp_path, name):
    folder = artifact.save(tmp_path / "k")
    whole = (folder / name).read_bytes()
    for content in (b"", whole[: len(whole) // 2], whole + b" "):
        (folder / name).write_bytes(content)
        with pytest.raises(ArtifactError, match=f"{name} has sha256"):
            Artifact.load(folder)
    (folder / name).unlink()
    with pytest.raises(ArtifactError, match=f"{name} is missing") as caught:
        Artifact.load(folder)
    assert "compile the plan again" in str(caught.value)


def _edit(folder, change, *, sealed=True):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    if sealed:
        manifest["sha256"] = document_digest(manifest)
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda m: m.update(format=99), f"format 99, this version reads {FORMAT}"),
        (lambda m: m.pop("packing"), "lacks or misspells 'packing'"),
        (lambda m: m["kernels"][0].pop("launch"), "lacks or misspells 'launch'"),
        (lambda m: m["kernels"][0].update(parameters=3), "lacks or misspells"),
        (lambda m: m.update(kernels=[]), "kernel names"),
        (lambda m: m["kernels"][0]["source"].update(file="../../x"), "names a file '../../x'"),
    ],
)
def test_a_foreign_manifest_is_refused(artifact, tmp_path, change, text):
    folder = artifact.save(tmp_path / "k")
    _edit(folder, change)
    with pytest.raises(ArtifactError) as caught:
        Artifact.load(folder)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["kernels"][0]["parameters"].pop(),
        lambda m: m["kernels"][0]["parameters"][0].update(dtype="float32"),
        lambda m: m["kernels"][0]["launch"].update(shared_bytes=0),
        lambda m: m["kernels"][0].update(device_arch="sm_80"),
        lambda m: m["plan"].update(depth=1),
        lambda m: m.pop("sha256"),
    ],
)
def test_a_manifest_that_was_changed_is_refused(artifact, tmp_path, change):
    """C72, artifacts: an edit that would still read well must not reach a launch."""
    folder = artifact.save(tmp_path / "k")
    _edit(folder, change, sealed=False)
    with pytest.raises(ArtifactError, match="not as it was written") as caught:
        Artifact.load(folder)
    assert caught.value.at == str(folder)
    assert "compile the plan again" in caught.value.hint


@pytest.mark.parametrize(
    "content, text", [(None, "there is no manifest"), ("{", "is no JSON"), ("[]", "format None")]
)
def test_what_is_no_artifact_is_refused(tmp_path, content, text):
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ArtifactError, match=text):
        Artifact.load(tmp_path)


def test_saving_replaces_an_artifact_and_nothing_else(artifact, tmp_path):
    folder = artifact.save(tmp_path / "k")
    (folder / "stale.cu").write_text("x")
    one = Artifact(artifact.parts[:1], {}, {}, 7)
    one.save(folder)
    assert Artifact.load(folder) == one
    assert not (folder / "stale.cu").exists()
    other = tmp_path / "thesis"
    other.mkdir()
    one.save(other)  # an empty folder is fine
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "important.txt").write_text("x")
    with pytest.raises(ArtifactError, match="the folder holds what is no artifact's"):
        one.save(tmp_path / "notes")
    (folder / "important.txt").write_text("x")
    with pytest.raises(ArtifactError, match=r"no artifact's: important\.txt"):
        one.save(folder)
    with pytest.raises(ArtifactError, match="a file stands there"):
        one.save(tmp_path / "notes" / "important.txt")


def test_a_failed_save_leaves_nothing_behind(artifact, tmp_path, monkeypatch):
    from pathlib import Path

    folder = artifact.save(tmp_path / "k")
    monkeypatch.setattr(Path, "write_bytes", _full_disk)
    with pytest.raises(ArtifactError, match="No space left"):
        artifact.save(folder)
    monkeypatch.undo()
    assert Artifact.load(folder) == artifact
    assert [path.name for path in tmp_path.iterdir()] == ["k"]


def _full_disk(self, content):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("names", [("k", "k"), ("a b",), ("../k",), ()])
def test_kernel_names_are_file_names(names):
    with pytest.raises(ArtifactError, match="kernel names"):
        Artifact(tuple(Part({}, lowered(name)) for name in names), {}, {}, 1)
