"""Yesterday's runs go on with today's code: every kept history replays, commit by commit, to how its run stood then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.model.history import Event, Op
from perdure.testing import replay
from tests.golden import record, replaying
from tests.golden.programs import PROGRAMS, before_the_patches, steps
from tests.golden.replaying import HISTORIES, load, standing, standings

NAMES = sorted(path.stem for path in HISTORIES.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_history_replays_to_how_its_run_stood(name: str) -> None:
    assert name in PROGRAMS, f"the program of {name}.json is gone: its run could not go on"
    recording, expected = load(name)
    assert standings(PROGRAMS[name].today, recording) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_recording_passes_the_helper_that_users_have(name: str) -> None:
    replay(PROGRAMS[name].today, load(name)[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_has_a_kept_history_and_records_one_today(name: str) -> None:
    assert name in NAMES, f"record it: python -m tests.golden.record {name}"
    today = json.loads(record.golden(PROGRAMS[name]).dump())
    assert not [
        one for one in today["standings"] if isinstance(one[1]["outcome"], dict) and "blocked" in one[1]["outcome"]
    ]


def test_every_kind_of_operation_and_of_entry_is_in_one_of_them() -> None:
    entries = [entry for name in NAMES for entry in load(name)[0].history]
    assert {entry.event for entry in entries} == set(Event)
    assert {entry.op for entry in entries} == {*Op, None}


@pytest.mark.parametrize("name", NAMES)
def test_no_history_says_where_it_was_recorded(name: str) -> None:
    assert 'File \\"' not in (HISTORIES / f"{name}.json").read_text()


def test_what_does_not_fit_is_found() -> None:
    recording, expected = load("steps")
    stood = standing(before_the_patches, recording, recording.history)
    assert "non-determinism at golden#0" in stood["outcome"]["blocked"]
    assert standing(steps, recording, recording.history[:-1]) != expected[-1][1]


def test_a_kept_history_is_never_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "HISTORIES", tmp_path)
    record.main(["failed"])
    before = (tmp_path / "failed.json").read_bytes()
    with pytest.raises(SystemExit, match="there already"):
        record.main(["failed"])
    assert (tmp_path / "failed.json").read_bytes() == before
    monkeypatch.setattr(replaying, "HISTORIES", tmp_path)
    recording, expected = load("failed")
    assert standings(PROGRAMS["failed"].today, recording) == expected


@pytest.mark.parametrize("names", [[], ["nothing"]])
def test_only_programs_are_recorded(names: list[str]) -> None:
    with pytest.raises(SystemExit, match="usage:"):
        record.main(names)
