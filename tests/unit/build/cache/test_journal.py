"""Counts of a run come from its events."""

from __future__ import annotations

import json

from relaybuild.build.cache.journal import Answer, Asked, Change, Executed, Failed, Journal, Looked, MissReason, Storing


def journal() -> Journal:
    return Journal(
        [
            Looked("pass", "Fold", "m", "01", saved=250.0),
            Looked("pass", "Fuse", "m", "02", MissReason.CHANGED, "", (Change("in/module", "0", "1"),)),
            Looked("object", "cc", "", "03", MissReason.EVICTED),
        ],
        [
            Executed("pass", "Fuse", "m", "02", 1.5, Storing.STORED, stored_bytes=100),
            Executed("object", "cc", "", "03", 0.5, Storing.CONFLICT, "why", is_unstable=True, stored_bytes=50),
        ],
        [Failed("ENOSPC", "'x': No space left"), Failed("ENOSPC", "'y': No space left")],
    )


def test_a_summary_counts_by_layer_and_lists_misses_with_reasons() -> None:
    assert json.loads(json.dumps(journal().summary())) == {
        "executed": {"object": 1, "pass": 1},
        "cached": {"pass": 1},
        "misses": [
            {
                "layer": "pass",
                "name": "Fuse",
                "slot": "m",
                "key": "02",
                "reason": "changed",
                "detail": "",
                "changed": ["in/module"],
            },
            {
                "layer": "object",
                "name": "cc",
                "slot": "",
                "key": "03",
                "reason": "evicted",
                "detail": "",
                "changed": [],
            },
        ],
        "storing": {"determinism-conflict": 1, "stored": 1},
        "conflicts": ["03"],
        "errors": {"ENOSPC": 2},
        "stored_bytes": 150,
        "seconds_saved": 250.0,
        "remote": {},
    }


def test_a_line_says_it_for_people() -> None:
    assert journal().line() == "1/3 hits (33.3 %), saved 4m10s, 2 misses: changed, evicted, errors: 2 ENOSPC"
    assert Journal().line() == "nothing looked up"
    assert Journal([Looked("pass", "Fold", "", "01", saved=0.25)]).line() == "1/1 hits (100.0 %), saved 0.2s"


def test_reasons_are_the_closed_list() -> None:
    assert [reason.value for reason in MissReason] == (
        "never-seen changed evicted bypassed integrity incomplete-remote remote-unavailable racy-input "
        "nondeterministic trust format-version"
    ).split()


def test_what_a_remote_cache_answered_is_counted_with_its_bytes() -> None:
    asked = [Asked(Answer.HIT, read_bytes=7), Asked(Answer.HIT, 5), Asked(Answer.STORED, written_bytes=3)]
    found = Journal(asked=asked)
    assert found.summary()["remote"] == {"hits": 2, "stored": 1, "bytes_read": 12, "bytes_written": 3}
    assert found.line() == "nothing looked up, remote: 2 hits, 1 stored"
