"""Schedule files keep what they are given, and say what is wrong with what a person made of them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from halide_backend.errors import IllegalPlan, ScheduleFileError
from halide_backend.schedule.stage import Role
from halide_backend.schedule.steps import ComputeRoot, Reorder, RFactor, Split, Step, Vectorize
from halide_backend.schedules import schedule_file
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.schedule_file import Comments, parse, read, text_of, write
from halide_backend.schedules.size_class import SizeRange
from halide_backend.schedules.step_text import parse_step
from halide_backend.schedules.thread_class import ThreadRange

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DIGEST = "0123456789abcdef" * 4

ENTRY = ScheduleEntry(
    DIGEST,
    "x86-64-512",
    knobs=(("transposes.side", 16), ("parallel.threads", False), ("loads.hint", "L1::no_allocate"), ("a.b@c$d", 1)),
    steps=(Split("out_ptr0", "x0", "x0_o", "x0_i", 8), Reorder("out_ptr0", ("x1", "x0"), 0)),
    funcs=((3, Role.SHARED),),
    sizes=(SizeRange("x0", 1024, 4095),),
    threads=ThreadRange(2, 3),
    origin='tuned 2026-11-23, "1.12"\n\x7f\\',
    name="halide_fused_softmax_0",
)

texts = st.text(st.characters(exclude_categories=("Cs",)))
names = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1)
settings = st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans(), texts)
steps = st.one_of(
    st.builds(Split, names, names, names, names, st.integers(), st.sampled_from((None, 0))),
    st.builds(Reorder, names, st.lists(names).map(tuple)),
    st.builds(RFactor, names, st.lists(names).map(tuple), st.lists(names).map(tuple), names),
    st.builds(Vectorize, texts, texts),
)
entries = st.builds(
    ScheduleEntry,
    st.just(DIGEST),
    texts,
    st.dictionaries(texts, settings).map(lambda found: tuple(found.items())),
    st.none() | st.lists(steps).map(tuple),
    st.just(()),
    st.dictionaries(texts, st.tuples(st.integers(0, 2**31), st.integers(0, 2**31)), max_size=3).map(
        lambda found: tuple(SizeRange(axis, *bounds) for axis, bounds in found.items())
    ),
    st.none() | st.builds(ThreadRange, st.integers(0, 2**31), st.integers(0, 2**31)),
    texts,
    texts,
)


def test_an_entry_is_read_as_it_was_written(tmp_path: Path) -> None:
    other = ScheduleEntry("f" * 64, "sm_90")
    write(tmp_path / "a.toml", [ENTRY, other])
    assert read(tmp_path / "a.toml") == (ENTRY, other)
    assert [type(setting) for _, setting in read(tmp_path / "a.toml")[0].knobs] == [int, bool, str, int]
    assert os.listdir(tmp_path) == ["a.toml"]


@settings_of_hypothesis(deadline=None)
@given(entries)
def test_every_entry_is_read_as_it_was_written(entry: ScheduleEntry) -> None:
    assert parse(text_of([entry]).encode(), "x") == (entry,)


@settings_of_hypothesis(deadline=None)
@given(steps)
def test_every_step_is_read_as_it_was_written(step: Step) -> None:
    assert parse_step(repr(step)) == step


def test_one_knob_and_one_step_stand_on_a_line() -> None:
    lines = text_of([ENTRY]).splitlines()
    assert '"transposes.side" = 16' in lines
    assert "    \"Split('out_ptr0', 'x0', 'x0_o', 'x0_i', 8)\"," in lines
    assert "sizes = { x0 = [1024, 4095] }" in lines


def test_comments_are_read_by_people_only() -> None:
    entry = ScheduleEntry(DIGEST, "x86-64-512", (("transposes.side", 16),))
    comments = Comments(("produce out:", "  for x0:"), (("transposes.side", "4, 8 or 16"),), ("ComputeRoot('a')",))
    text = text_of([entry], {entry: comments})
    assert "# produce out:\n#   for x0:\n[[schedule]]\n" in text
    assert '\n# 4, 8 or 16\n"transposes.side" = 16\n' in text
    assert parse(text.encode(), "x") == (entry,)
    # Without the # the steps are the entry's.
    uncommented = text.replace("# steps", "steps").replace('#     "', '"').replace("# ]", "]")
    assert parse(uncommented.encode(), "x")[0].steps == (ComputeRoot("a"),)


def test_a_file_of_the_first_schema_is_read() -> None:
    """It has no numbers of threads, and classes without a vendor: its schedules are for all of them."""
    text = text_of([replace(ENTRY, threads=None)])
    old = text.replace(f"schema = {schedule_file.SCHEMA}\n", "schema = 1\n")
    assert old != text and parse(old.encode(), "f") == (replace(ENTRY, threads=None),)


def test_one_kernel_has_a_schedule_for_each_number_of_threads() -> None:
    several = [replace(ENTRY, threads=threads) for threads in (None, ThreadRange(1, 1), ThreadRange(2, 3))]
    assert list(parse(text_of(several).encode(), "f")) == several
    with pytest.raises(ScheduleFileError, match="has a schedule before"):
        parse(text_of([*several, several[1]]).encode(), "f")


def test_messages_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    write(path, [ENTRY, ScheduleEntry("f" * 64, "sm_90")])
    places = [entry.place for entry in read(path)]
    lines = path.read_text().splitlines()
    assert places == [f"{path}, line {k + 1}" for k, line in enumerate(lines) if line == "[[schedule]]"]
    assert read(path)[0].title == f"{places[0]}, kernel halide_fused_softmax_0"


GOOD = f'schema = 1\n[[schedule]]\nprogram = "{DIGEST}"\ndevice = "sm_90"\n'


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "f.toml", "schema is None"),
        ("schema = 3\n", "f.toml", "schema is 3"),
        ("schema = true\n", "f.toml", "schema is True"),
        ("schema = 1\n[[schedules]]\n", "f.toml", "unknown key 'schedules'"),
        ("schema = 1\nschedule = 3\n", "f.toml", "unknown key 'schedule'"),
        ("schema = 1\nschedule = [3]\n", "f.toml, schedule 1", "no table"),
        ("schema = 1\n[[schedule]]\n", "f.toml, line 2", "no program"),
        (GOOD.replace(DIGEST, "abc"), "f.toml, line 2", "program is 'abc'"),
        (GOOD.replace('"sm_90"', "90"), "f.toml, line 2", "device is 90"),
        (GOOD + "stepps = []\n", "f.toml, line 2", "unknown key 'stepps'"),
        (GOOD + "steps = 3\n", "f.toml, line 2", "not a list of texts"),
        (GOOD + "steps = ['Spilt()']\n", "f.toml, line 2", "step 0, Spilt(): there is no step 'Spilt'"),
        (GOOD + "steps = ['Split(1)']\n", "f.toml, line 2", "missing 4 required"),
        (GOOD + "steps = ['exit(1)']\n", "f.toml, line 2", "no step 'exit'"),
        (GOOD + "steps = ['ComputeRoot(exit(1))']\n", "f.toml, line 2", "cannot be read as a step"),
        (GOOD + "steps = ['ComputeRoot(']\n", "f.toml, line 2", "cannot be read as a step"),
        (GOOD + "steps = ['ComputeRoot(**{})']\n", "f.toml, line 2", "cannot be read as a step"),
        (GOOD + 'funcs = { 3 = "shared" }\n', "f.toml, line 2", "funcs and no steps"),
        (GOOD + 'steps = []\nfuncs = { 3 = "quick" }\n', "f.toml, line 2", "funcs has 3 = 'quick'"),
        (GOOD + 'steps = []\nfuncs = { x = "shared" }\n', "f.toml, line 2", "funcs has x = 'shared'"),
        (GOOD + "sizes = { x0 = 3 }\n", "f.toml, line 2", "sizes has x0 = 3"),
        (GOOD + "threads = 3\n", "f.toml, line 2", "threads is 3"),
        (GOOD + "threads = [1]\n", "f.toml, line 2", "threads is [1]"),
        (GOOD + "threads = [1, true]\n", "f.toml, line 2", "threads is [1, True]"),
        (GOOD + "[schedule.knobs]\na.b = 3\n", "f.toml, line 2", "knob 'a' is {'b': 3}"),
        (GOOD + "[schedule.knobs]\na = 3.5\n", "f.toml, line 2", "knob 'a' is 3.5"),
        (GOOD + "knobs = 3\n", "f.toml, line 2", "knobs is 3"),
        (GOOD + GOOD.partition("\n")[2], "f.toml, line 5", "has a schedule before: f.toml, line 2"),
        (GOOD[:-3], "f.toml", "not TOML"),
        (GOOD + "\0", "f.toml", "not TOML"),
        (GOOD + "steps = " + "[" * 5000, "f.toml", "not TOML"),
    ],
)
def test_what_is_wrong_is_said(text: str, where: str, what: str) -> None:
    with pytest.raises(ScheduleFileError) as caught:
        parse(text.encode(), "f.toml")
    assert caught.value.where == where and caught.value.cure
    assert what in caught.value.what


def test_a_newer_schema_asks_for_a_newer_version() -> None:
    with pytest.raises(ScheduleFileError, match="update halide_backend"):
        parse(b"schema = 3", "f")
    with pytest.raises(ScheduleFileError, match="dump"):
        parse(b"schema = 0", "f")


@pytest.mark.parametrize(
    "make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_bytes(b"schema = 1 # \xff")]
)
def test_an_unreadable_file_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "a.toml")
    with pytest.raises(ScheduleFileError) as caught:
        read(tmp_path / "a.toml")
    assert caught.value.where == str(tmp_path / "a.toml")


def test_a_file_that_was_cut_off_is_refused_wherever_it_ends() -> None:
    """Or what is left of it is a whole file with fewer entries, knobs or keys: never another setting."""
    whole = text_of([ENTRY, ScheduleEntry("f" * 64, "sm_90", ENTRY.knobs)])
    for end in range(len(whole)):
        try:
            found = parse(whole[:end].encode(), "f")
        except (ScheduleFileError, IllegalPlan):
            continue
        for entry in found:
            known = dict(ENTRY.knobs)
            assert all(known[key] == setting or key == "transposes.side" for key, setting in entry.knobs)


def test_what_was_there_stays_if_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.toml"
    write(path, [ENTRY])

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, full)
            with pytest.raises(ScheduleFileError, match="No space left"):
                write(path, [])
        assert read(path) == (ENTRY,)
        assert os.listdir(tmp_path) == ["a.toml"]
    with pytest.raises(ScheduleFileError, match="cannot be written"):
        write(tmp_path / "none" / "a.toml", [ENTRY])


def test_a_file_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_file, "_MOST_BYTES", 100)
    (tmp_path / "a.toml").write_text(text_of([ENTRY]))
    with pytest.raises(ScheduleFileError, match="too long"):
        read(tmp_path / "a.toml")


def test_files_are_toml_to_others() -> None:
    found = tomllib.loads(text_of([ENTRY]))["schedule"][0]
    assert found["knobs"]["transposes.side"] == 16
    assert found["steps"][0] == "Split('out_ptr0', 'x0', 'x0_o', 'x0_i', 8)"


PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "schedule-files.md").read_text()


def test_the_page_of_the_format_has_every_key_and_its_example_is_read() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (entry,) = parse(example.encode(), "page")
    assert entry.knobs == (("transposes.side", 16),) and entry.sizes == (SizeRange("x0", 256, 1023),)
    assert entry.steps is not None and len(entry.steps) == 2 and entry.funcs == ((3, Role.SHARED),)
    table = PAGE.partition("| key |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {"schema", *schedule_file._KEYS}
    assert f"schema = {schedule_file.SCHEMA}\n" in example
