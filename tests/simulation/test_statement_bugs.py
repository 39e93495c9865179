"""Bugs of statements that their simulation must find, from a known seed on."""

from __future__ import annotations

import pytest

from airflow_provider_onelake.commit import change, delete, merge, statement_proposal, transaction
from airflow_provider_onelake.commit.earlier import Starts
from airflow_provider_onelake.commit.key_range import _Key
from airflow_provider_onelake.commit.rounds import Rounds
from airflow_provider_onelake.rows import where
from airflow_provider_onelake.staging import rounds
from airflow_provider_onelake.work import change as work_change
from tests.simulation.mutants import Change as Changed
from tests.simulation.mutants import check_found
from tests.simulation.statements.runner import simulate_statements

_Change, _Merging, _Delete = change.Change, merge._Merging, delete._Delete
_Transaction = transaction._Transaction

OWN_COMMIT_UNKNOWN = Changed(_Transaction, "_attempt", {"commit.txn_id == self._txn_id": "False"})
NOT_IT = "is not s. done to"

# What is changed, and what the judge must say of it. Where production has a second line of defence that would hide the
# bug, it is taken down too, and a comment says so.
BUGS = [
    pytest.param(
        [
            Changed(
                _Change,
                "decide",
                {
                    "self.done.unseen(present)": "[f for f in self.done.unseen(present) if not any("
                    "c.operation == 'UPDATE' and file_key(a) == file_key(f) for c in view.winners for a in c.adds)]"
                },
            )
        ],
        NOT_IT,
        id="the-winner-was-only-an-update",
    ),
    pytest.param(
        [Changed(_Change, "_needs_round", {"bool(unseen) and": "bool(unseen) and not self.done.ran and"})],
        NOT_IT,
        id="what-came-after-the-first-round-is-not-looked-at",
    ),
    pytest.param(
        [
            Changed(
                Rounds,
                "drop_lost",
                {"if not all(_is_as_it_was(file, present) for file in piece.removed):": "if False:"},
            )
        ],
        "which is not live",
        id="piece-of-a-vanished-file-kept",
    ),
    pytest.param(
        [Changed(Rounds, "drop_lost", {"if not all(": "if not any("})],
        "which is not live",
        id="piece-kept-while-one-of-its-files-is-there",
    ),
    pytest.param(
        # The commit removes what is left of the files that the piece replaces, and adds all that it wrote.
        [
            Changed(
                Rounds,
                "drop_lost",
                {
                    "self._drop(pieces, piece)": "pieces[pieces.index(piece)] = __import__('attrs').evolve(piece, removed=tuple("
                    "f for f in piece.removed if file_key(f) in present)); "
                    "[self.seen.pop(file_key(f), None) for f in piece.removed]"
                },
            )
        ],
        NOT_IT,
        id="half-a-piece-kept",
    ),
    pytest.param(
        [Changed(Rounds, "_drop", {"self.seen.pop(file_key(file), None)": "pass"})],
        NOT_IT,
        id="what-is-left-of-a-dropped-piece-counts-as-read",
    ),
    pytest.param(
        [
            Changed(
                rounds,
                "_pieces",
                {
                    "pieces.append(_piece(of_old, of_again, of_new, of_cdc, vectors))": "pieces += ["
                    "_piece([f], [a for a in of_again if a['path'] == f['path']], of_new * (f is of_old[0]), of_cdc * (f is of_old[0]), vectors) for f in of_old]"
                },
            )
        ],
        NOT_IT,
        id="files-of-a-partition-published-one-by-one",
    ),
    pytest.param(
        # Whoever reads a round finds rows that no piece has, and takes it as one piece.
        [
            Changed(work_change.RowChange, "_reading", {"is_update and may_move_rows": "False and may_move_rows"}),
            Changed(rounds, "_pieces", {"if kept != len(": "if False and kept != len("}),
        ],
        "BufferInvalidError|is not",
        id="rows-that-come-into-another-partition-published-without-it",
    ),
    pytest.param(
        [
            Changed(
                _Change,
                "_all_later",
                {"self._later(view).keys() >= set(": "self._later(view).keys() & set("},
            )
        ],
        NOT_IT,
        id="what-came-beside-an-append-counts-as-later",
    ),
    pytest.param(
        [Changed(_Change, "_later", {"if commit.version > last and commit.blind_append and not commit.removes": ""})],
        NOT_IT,
        id="any-winner-counts-as-later",
    ),
    pytest.param(
        [Changed(_Change, "_later", {"if commit.version > last and commit.blind_append": "if commit.blind_append"})],
        NOT_IT,
        id="append-that-another-may-have-read-counts-as-later",
    ),
    pytest.param(
        [Changed(_Change, "_skipped", {"elif earlier.before is not None:": "elif False:"})],
        "rows were changed since",
        id="start-skipped-beside-an-append-that-counts-as-later",
    ),
    pytest.param(
        [Changed(_Change, "_later", {"self._isolation is Isolation.SERIALIZABLE or": ""})],
        NOT_IT,
        id="appends-count-as-later-where-nobody-asked-for-it",
    ),
    pytest.param(
        [OWN_COMMIT_UNKNOWN, Changed(_Change, "_ended", {"earlier is not None and not": "False and"})],
        "does again what|fails with ZombieWriterError",
        id="statement-done-twice-after-a-lost-answer",
    ),
    pytest.param(
        [Changed(Starts, "_follows_us", {"return not is_first or (": "return False and ("})],
        "has done it since",
        id="zombie-does-it-again",
    ),
    pytest.param(
        [Changed(_Change, "_fence", {"if self._starts.follows else": "if False else"})],
        "has said since",
        id="statement-with-nothing-to-do-leaves-older-ones-at-work",
    ),
    pytest.param(
        [Changed(_Change, "_skipped", {"if changed else None": "if False else None"})],
        "rows were changed since",
        id="start-skipped-though-rows-were-changed-since",
    ),
    pytest.param(
        [
            Changed(
                change,
                "_already",
                {
                    "Status.ALREADY,\n        version=earlier.commit.version": "Status.DONE,\n        version=earlier.commit.version"
                },
            )
        ],
        "which is not of it",
        id="what-an-earlier-start-did-reported-as-done",
    ),
    pytest.param(
        [Changed(_Change, "_ended", {"earlier is not None and not earlier.is_undone": "earlier is not None"})],
        "was taken back",
        id="statement-that-a-restore-took-back-counts-as-done",
    ),
    pytest.param(
        [
            Changed(
                _Change, "_entry", {"stamp(info, added, snapshot, now)": "stamp(info, [*again, *added], snapshot, now)"}
            )
        ],
        "other row ids|otherwise than",
        id="file-under-another-vector-gets-other-row-ids",
    ),
    pytest.param(
        [Changed(Rounds, "bring_vectors_home", {"in piece.vectors.items():": "in ():"})],
        "the deletion vector of .* is gone",
        id="vectors-not-brought-home",
    ),
    pytest.param(
        [Changed(_Change, "_check_fits", {"if reason is not None:": "if False:"})],
        "and the table has another",
        id="round-under-another-definition-published",
    ),
    # -- MERGE ---------------------------------------------------------------------------------------------------------
    pytest.param(
        [
            Changed(
                _Merging,
                "_drop_lost",
                {"if lost or (unseen and not later):": "if lost:"},
            )
        ],
        NOT_IT,
        id="append-of-a-key-makes-an-inserting-merge-look-at-that-alone",
    ),
    pytest.param(
        [
            Changed(
                _Merging,
                "_drop_lost",
                {"if lost or (unseen and not later):": "if lost:"},
            ),
            Changed(
                _Merging, "_needs_round", {"super()._needs_round(unseen, view) or": "(unseen and not self.done.ran) or"}
            ),
        ],
        NOT_IT,
        id="append-of-a-key-does-not-matter-to-an-inserting-merge",
    ),
    pytest.param(
        [
            Changed(
                _Merging,
                "_drop_lost",
                {"set() if self._mode.touches_matches else self.done.seen.keys() - present.keys()": "set()"},
            )
        ],
        NOT_IT,
        id="file-that-was-left-alone-held-no-match-whatever-the-clauses",
    ),
    pytest.param(
        [
            Changed(
                _Merging,
                "_drop_lost",
                {"lost = gone or not self.done.hold(present)": "lost = set()"},
            )
        ],
        f"{NOT_IT}|which is not live",
        id="file-that-held-a-match-may-go",
    ),
    pytest.param(
        [Changed(_Merging, "_drop_lost", {"if not self._mode.inserts:": "if True:"})],
        NOT_IT,
        id="inserting-merge-takes-rounds-as-one-that-maps-rows",
    ),
    pytest.param(
        [Changed(_Merging, "_needs_round", {" or (self._mode.inserts and not self.done.ran)": ""})],
        f"{NOT_IT}|nothing to do",
        id="nothing-is-inserted-where-no-file-may-match",
    ),
    pytest.param(
        [
            Changed(
                where,
                "_possible",
                {"return high is None or COMPARISONS[sign](high, literal)": "return high is None or high > literal"},
            )
        ],
        f"{NOT_IT}|nothing to do",
        id="file-whose-greatest-value-is-the-least-that-matches-is-ruled-out",
    ),
    pytest.param(
        [
            Changed(
                _Key,
                "overlaps",
                {"and _at_most(least, self.greatest, self.type)": "and not _at_most(self.greatest, least, self.type)"},
            )
        ],
        f"{NOT_IT}|nothing to do",
        id="file-that-begins-with-the-greatest-key-is-not-looked-at",
    ),
    pytest.param(
        [Changed(_Merging, "_in_range", {" or self._mode.looks_everywhere": ""})],
        f"{NOT_IT}|nothing to do",
        id="rows-without-a-source-sought-among-its-keys",
    ),
    pytest.param(
        [OWN_COMMIT_UNKNOWN, Changed(_Merging, "_ended", {"if stored == generation:": "if False:"})],
        "does again what",
        id="merge-done-twice-after-a-lost-answer",
    ),
    pytest.param(
        [Changed(_Merging, "_ended", {"if stored > generation:": "if False:"})],
        "has done it since",
        id="zombie-merges-again",
    ),
    pytest.param(
        [Changed(_Merging, "_fence", {"if older or self._retried else": "if False else"})],
        "has said since",
        id="merge-with-nothing-to-do-leaves-older-ones-at-work",
    ),
    # -- whole files ---------------------------------------------------------------------------------------------------
    pytest.param(
        [OWN_COMMIT_UNKNOWN, Changed(delete, "_done_before", {"if earlier is None or earlier.is_undone:": "if True:"})],
        "does again what|nothing to do",
        id="partitions-deleted-twice-after-a-lost-answer",
    ),
    pytest.param(
        [Changed(statement_proposal.StatementProposal, "files", {"self._live[1].follow(view.winners)": "pass"})],
        f"{NOT_IT}|which is not live",
        id="winners-files-not-followed",
    ),
]

# Histories that show them. Where production or scenarios have changed, the search goes on from there; where it takes long,
# write down what it finds.
SHOWN_BY = {
    "files-of-a-partition-published-one-by-one": 702,
    "what-came-beside-an-append-counts-as-later": 167,
    "append-that-another-may-have-read-counts-as-later": 190,
    "start-skipped-beside-an-append-that-counts-as-later": 235,
    "statement-that-a-restore-took-back-counts-as-done": 234,
    "round-under-another-definition-published": 241,
    "append-of-a-key-does-not-matter-to-an-inserting-merge": 116,
    "file-that-was-left-alone-held-no-match-whatever-the-clauses": 424,
    "zombie-merges-again": 133,
    "partitions-deleted-twice-after-a-lost-answer": 91,
    "statement-with-nothing-to-do-leaves-older-ones-at-work": 678,
    "merge-with-nothing-to-do-leaves-older-ones-at-work": 1773,
    "append-of-a-key-makes-an-inserting-merge-look-at-that-alone": 102,
    "inserting-merge-takes-rounds-as-one-that-maps-rows": 102,
    "file-that-held-a-match-may-go": 77,
}


@pytest.mark.parametrize(("changes", "says"), BUGS)
def test_simulation_of_statements_finds(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, changes: list[Changed], says: str
) -> None:
    for one in changes:
        one.apply(monkeypatch)
    check_found(simulate_statements, says, SHOWN_BY.get(request.node.callspec.id, 0))
