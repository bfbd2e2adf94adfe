"""`why`, `ls` and the others: what the user sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from crew import ROOT

from kernels_cache import Key, Store, cli, explanation

LONG = "for y in range(100):\n" * 10
FIELDS = {
    "text": LONG + "  vectorize(x, 8)",
    "target": "x86-64-linux-avx2",
    "options": {"strict": True, "threads": 4, "empty": {}},
    "abi": 1,
}


def changed(**fields: object) -> Key:
    return Key("cpu-object", {**FIELDS, **fields})


@pytest.fixture
def filled(store: Store) -> Store:
    store.put(changed(), {"kernel.o": b"code"}, requires={"cpu_features": ["avx2"]})
    store.put(changed(target="x86-64-linux-avx512"), {"kernel.o": b"code"})
    store.put(changed(abi=2, options={"strict": True}), {"kernel.o": b"code"})
    store.put(Key("cubin", {"text": "other"}), {"kernel.cubin": b"code" * 1000})
    return store


def run(capsys: pytest.CaptureFixture[str], root: Path, *arguments: str) -> tuple[int, str]:
    status = cli.main(["--root", str(root), *arguments])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_nearest_counts_the_fields_that_differ(filled: Store) -> None:
    found = explanation.nearest(filled, changed(abi=3), 10)
    assert [len(one.differences) for one in found] == [1, 2, 3]
    assert [str(difference) for difference in found[0].differences] == ["abi: wanted 3, stored 1"]
    assert [one.field for one in found[1].differences] == ["abi", "target"]
    assert [one.field for one in found[2].differences] == [
        "abi",
        "options.empty",
        "options.threads",
    ]
    assert found[2].differences[2].wanted == 4
    assert found[2].differences[2].stored is None
    assert all(one.manifest.kind == "cpu-object" for one in found)


def test_types_differ_too(filled: Store) -> None:
    """1, 1.0 and True are equal in Python and different keys."""
    for value in (1.0, True, "1"):
        difference = explanation.nearest(filled, changed(abi=value))[0].differences
        assert [one.field for one in difference] == ["abi"]
    absent = Key("cpu-object", {name: FIELDS[name] for name in FIELDS if name != "abi"})
    assert str(explanation.nearest(filled, absent)[0].differences[0]).startswith("abi: wanted null")
    # A field that is null is not a field that is absent.
    nothing = explanation.nearest(filled, changed(new=None))[0].differences
    assert [one.field for one in nothing] == ["new"]


def test_long_texts_are_cut_to_the_difference(filled: Store) -> None:
    nearest = explanation.nearest(filled, changed(text=LONG + "  vectorize(x, 4)"))[0]
    text = str(nearest.differences[0])
    assert "vectorize(x, 4)" in text
    assert "vectorize(x, 8)" in text
    assert len(text) < 200


def test_matching(filled: Store) -> None:
    def digests(text: str) -> set[str]:
        return {file.digest for file, _ in explanation.matching(filled, text)}

    assert digests(changed().digest[:12].upper()) == {changed().digest}
    assert digests("cubin") == {Key("cubin", {"text": "other"}).digest}
    assert digests("avx512") == {changed(target="x86-64-linux-avx512").digest}
    assert digests("options.threads=4") == {
        changed().digest,
        changed(target="x86-64-linux-avx512").digest,
    }
    assert len(digests("vectorize")) == 3
    assert digests("nowhere") == set()


def test_why_a_key(filled: Store, root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wanted = changed(abi=3)
    text = json.dumps({"kind": wanted.kind, "fields": dict(wanted.fields)})
    status, output = run(capsys, root, "why", text)
    assert status == 0
    assert f"{wanted.digest}  cpu-object: not stored" in output
    assert "1 fields differ:\n  abi: wanted 3, stored 1\n" in output
    (tmp_path / "key.json").write_text(text)
    assert run(capsys, root, "why", f"@{tmp_path / 'key.json'}") == (0, output)


def test_why_a_stored_entry(filled: Store, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output = run(capsys, root, "why", changed().digest[:10])
    assert status == 0
    assert f"{changed().digest}  cpu-object: stored" in output
    assert "file kernel.o: 4 B" in output
    assert 'requires cpu_features: ["avx2"]' in output
    assert 'target: wanted "x86-64-linux-avx2", stored "x86-64-linux-avx512"' in output
    status, output = run(capsys, root, "why", "vectorize")
    assert "3 entries match" in output


@pytest.mark.parametrize(
    ("what", "status", "text"),
    [
        ("nowhere", 1, "no entry matches 'nowhere'"),
        ('{"kind": "other", "fields": {}}', 1, "not stored"),
        ("{", 2, "not a key"),
        ('{"kind": "a"}', 2, "not a key"),
        ('{"kind": "A", "fields": {}}', 2, "not a lower-case name"),
        ("@/no/such/file", 2, "cannot read the key"),
    ],
)
def test_why_nothing(
    filled: Store, root: Path, capsys: pytest.CaptureFixture[str], what: str, status: int, text: str
) -> None:
    found, output = run(capsys, root, "why", what)
    assert found == status
    assert text in output


def test_ls_and_du(filled: Store, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(filled.root.entry(changed().digest))
    os.utime(path, (time.time() - 3 * 86_400 - 60,) * 2)
    status, output = run(capsys, root, "ls", "-l")
    lines = output.splitlines()
    assert (status, len(lines)) == (0, 4)
    assert lines[-1].split() == [
        changed().digest[:16],
        *f"{path.stat().st_size} B".split(),
        "3",
        "d",
        "cpu-object",
        "kernel.o",
    ]
    short = run(capsys, root, "ls", "-n", "2")[1].splitlines()
    assert short == [line.split("  cpu-object")[0].split("  cubin")[0] for line in lines[:2]]
    status, output = run(capsys, root, "du")
    rows = [line.split() for line in output.splitlines()]
    assert status == 0
    assert [row[2:] for row in rows[:2]] == [
        ["3", "entries", "cpu-object"],
        ["1", "entries", "cubin"],
    ]
    total = sum(item.stat().st_size for item in root.rglob("*.v1"))
    assert output.splitlines()[2].split()[:5] == [f"{total / 1024:.1f}", "KiB", "of", "2.0", "GiB"]
    assert str(root) in output


def test_verify_and_prune(filled: Store, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, root, "verify") == (0, "4 entries checked, 0 damaged\n")
    path = Path(filled.root.entry(changed().digest))
    path.write_bytes(path.read_bytes()[:-1])
    assert "unreadable" not in run(capsys, root, "ls", "--long")[1]  # the manifest is whole
    status, output = run(capsys, root, "verify")
    assert status == 1
    assert changed().digest[:16] in output
    assert "4 entries checked, 1 damaged" in output
    assert run(capsys, root, "verify") == (0, "3 entries checked, 0 damaged\n")
    status, output = run(capsys, root, "prune", "--max-bytes", "1.5K")
    assert status == 0
    assert sum(item.stat().st_size for item in root.rglob("*.*")) <= 1536
    assert "removed" in output
    status, output = run(capsys, root, "prune", "--older-than", "0")
    assert "0 entries" in output.split(";")[1]
    assert run(capsys, root, "ls") == (0, "")


def test_ls_of_what_cannot_be_read(filled: Store, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(filled.root.entry(changed().digest)).write_bytes(b"not an entry")
    assert "unreadable" in run(capsys, root, "ls", "--long")[1]
    assert "unreadable" in run(capsys, root, "du")[1]
    assert run(capsys, root, "why", "avx2")[0] == 0


def test_export_and_import(filled: Store, root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target, other = str(tmp_path / "bundle"), tmp_path / "other"
    status, output = run(capsys, root, "export", target, "--match", "cpu-object")
    assert status == 0
    assert output.startswith("3 entries, ")
    sha256 = output.split()[-1]
    status, output = run(capsys, other, "import", target, "--sha256", "0" * 64)
    assert status == 2
    assert "not the one expected" in output
    provides = '{"cpu_features": []}'
    status, output = run(capsys, other, "import", target, "--sha256", sha256, "--provides", provides)
    assert status == 0
    assert f"{changed().digest[:16]}  refused: cpu_features: requires ['avx2']" in output
    assert output.endswith("2 entries stored, 1 refused, 0 skipped\n")
    os.utime(filled.root.entry(changed().digest), (1.0, 1.0))
    assert run(capsys, root, "export", target, "--used-within", "1")[1].startswith("3 entries")


def test_import_of_another_schema(root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import zipfile

    from kernels_cache import entry

    with zipfile.ZipFile(tmp_path / "bundle", "w") as made:
        made.writestr("e" * 64 + ".v7", entry.header(7, b"{}") + b"{}")
    output = run(capsys, root, "import", str(tmp_path / "bundle"))[1]
    assert "eeeeeeeeeeeeeeee  skipped: written by another version" in output


def test_a_root_that_is_not_to_be_trusted(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root.mkdir()
    root.chmod(0o777)
    status, output = run(capsys, root, "ls")
    assert status == 2
    assert "others can write the cache directory" in output


def _refused(path: str) -> None:
    raise PermissionError(13, "Permission denied", path)


def test_trouble_is_an_answer(
    filled: Store, root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program goes on without its cache; who asks for the cache itself is told."""
    assert run(capsys, root, "export", str(tmp_path / "bundle"))[0] == 0
    for arguments in (["import", str(tmp_path / "bundle")], ["prune"]):
        status, output = run(capsys, Path("/proc/nope"), *arguments)
        if arguments == ["prune"]:  # where there is nothing, there is nothing to do
            assert (status, output.split(";")[1]) == (0, " 0 entries, 0 B left\n")
        else:
            assert (status, output) == (2, output)
            assert "kernels-cache: cannot store an entry: No such file or directory (/proc/nope)" in output
    monkeypatch.setattr(os, "scandir", _refused)
    for arguments in (["ls"], ["du"], ["verify"], ["why", "x"], ["export", str(tmp_path / "bundle")]):
        status, output = run(capsys, root, *arguments)
        assert (status, output[:48]) == (2, "kernels-cache: cannot list the cache: Permission")
    monkeypatch.undo()
    (root / "ledger").unlink()
    (root / "ledger").mkdir()
    status, output = run(capsys, root, "prune")
    assert (status, "cannot prune" in output) == (2, True)


def test_export_names_what_it_leaves_out(
    filled: Store, root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Path(filled.root.entry(changed().digest)).write_bytes(b"damaged")
    status, output = run(capsys, root, "export", str(tmp_path / "bundle"))
    assert (status, output.splitlines()[1][:9]) == (0, "3 entries")
    assert f"{changed().digest[:16]}  left out: damaged" in output


def test_shared_roots_are_looked_into_as_well(
    filled: Store, root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_SHARED", str(root))
    mine = tmp_path / "mine"
    assert "cpu-object: stored" in run(capsys, mine, "why", changed().digest)[1]
    rows = [line.split() for line in run(capsys, mine, "du")[1].splitlines()]
    assert (rows[0][:2], rows[1][2:]) == (["0", "B"], ["4", "entries", "in", f"{root},", "shared"])
    assert run(capsys, mine, "ls") == (0, "")
    assert run(capsys, mine, "export", str(tmp_path / "bundle"), "--match", "avx2")[1].startswith("0 entries")
    assert not mine.exists()


def test_nothing_from_an_entry_controls_the_terminal(
    store: Store, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b[2J\ud800"
    store.put(Key("k", {evil: evil}), {"a": b""}, requires={evil: evil})
    output = run(capsys, root, "why", "k")[1] + run(capsys, root, "why", '{"kind": "k", "fields": {}}')[1]
    assert "requires \\u001b[2J\\ud800" in output
    assert output.isascii() and output.replace("\n", "").isprintable()
    miss = store.look_up(Key("k", {evil: evil}), provides={})
    assert "\x1b" not in miss.detail


@pytest.mark.parametrize(
    "arguments",
    [
        ["prune", "--max-bytes", "lots"],
        ["import", "x", "--provides", "[1]"],
        ["import", "x", "--provides", "{"],
        [],
        ["prune", "--max-bytes", ""],
        ["prune", "--max-bytes", "-1"],
        ["prune", "--max-bytes", "inf"],
        ["prune", "--older-than", "-1"],
        ["prune", "--older-than", "nan"],
        ["export", "x", "--used-within", "soon"],
        ["ls", "-n", "-1"],
    ],
)
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    assert raised.value.code == 2
    assert "usage: kernels-cache" in capsys.readouterr().err


def test_the_command_in_a_shell(filled: Store, root: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HALIDE_BACKEND_CACHE_DIR": str(root)}
    command = [sys.executable, "-m", "kernels_cache"]
    helped = subprocess.run([*command, "--help"], env=environment, capture_output=True, text=True)
    for name in ("ls", "du", "verify", "prune", "why", "export", "import"):
        assert f"\n    {name} " in helped.stdout
    listed = subprocess.run([*command, "ls"], env=environment, capture_output=True, text=True)
    assert (listed.returncode, len(listed.stdout.splitlines())) == (0, 4)
    # A reader that stops early is no reason for a traceback.
    gone = subprocess.Popen([*command, "ls"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    gone.stdout.close()
    assert (gone.wait(), gone.stderr.read()) == (0, b"")
    gone.stderr.close()


def test_sizes_and_ages_for_people() -> None:
    assert [cli._size(size) for size in (0, 1023, 1024, 1024**2, 3 * 1024**3)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.0 MiB",
        "3.0 GiB",
    ]
    assert [cli._age(age) for age in (-1, 59, 60, 7200, 90_000)] == [
        "0 s",
        "59 s",
        "1 min",
        "2 h",
        "1 d",
    ]
