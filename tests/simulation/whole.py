"""Whole writes: every version equals a serial order that the policy allows, in which each write is whole or not at all.

What a policy demands is said here in pairs: which write comes before which. Whether any order of all writes fulfils that
and leaves the rows that are there, :mod:`tests.simulation.serial` finds out, without looking at a file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import attrs

from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.staging.modes import Overwrite
from tests.simulation.scenario import PARTITIONS
from tests.simulation.serial import Candidate, SerialOrder, Write, difference
from tests.simulation.versions import Published, Versions, Writer, fail, original

_NOTHING = Write()
# How the paths of writers' own files begin.
_BUFFERS = "staged/w"
_EMPTY = tuple(frozenset[str]() for _ in PARTITIONS)


@attrs.frozen
class _Rival:
    """Another's write that changed rows which a write of ours replaces.

    :param partitions: where.
    :param vague: whether it does not say where, and it may have been elsewhere.
    """

    commit: Published
    partitions: frozenset[int]
    vague: bool = False


class WholeWrites:
    """Judges one version after another, once its structure is known to be sound.

    :param versions: of the table.
    """

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._counters = versions.counters
        self._order = SerialOrder(_EMPTY)

    def candidates(self, commit: Published) -> list[Candidate]:
        """Return what the next version may have done, and where its write may stand.

        :param commit: the version, not yet applied.
        """
        found = self._candidates(commit)
        if not commit.adds and not commit.removes:
            return [attrs.evolve(candidate, unseen=True) for candidate in found]
        if commit.saw_at is None:
            return found
        return [attrs.evolve(c, read=min(c.read, commit.saw_at), saw=commit.saw) for c in found]

    def judge(self, commit: Published, candidates: list[Candidate]) -> None:
        """Judge the newest version.

        :param commit: the version, applied.
        :param candidates: what it may have done.
        """
        expected = self._order.take_in(candidates, self._versions.states[-1])
        if expected is not None:
            where = "; ".join(difference(expected, self._versions.states[-1]))
            fail(
                f"version {commit.version} is not what a serial order of whole writes leaves (writes so far: "
                f"{self._order.order}, policy {commit.policy and commit.policy.value}): {where}"
            )
        newest = self._order.newest
        # Where others replaced all of it later, nothing of it was ever seen.
        later = [self._versions.commits[version] for version in newest.before]
        commit.ranges &= newest.write.wipes.difference(*(self._says(other) for other in later))
        if any(newest.write.puts.values()) and not commit.adds and not commit.removes:
            # The same, where the order that was found needs no version before another. The rules leave open whether it
            # has emptied partitions for which it had no rows.
            commit.unseen, commit.ranges = commit.ranges, frozenset()
        self._counters["writes placed before others"] += self._order.order[-1] != commit.version

    def _candidates(self, commit: Published) -> list[Candidate]:
        if not commit.ours:
            return [Candidate(self._of_others(commit), commit.version - 1)]
        if not commit.ranges:
            # Appends, and what takes appends back, come last.
            write = Write(drops=commit.taken_back, puts=commit.inside)
            return [Candidate(write, commit.version - 1, undoes=self._undone(commit))]
        rivals = [*self._of_the_same_load(commit), *self._rivals(commit)]
        self._counters["conflicts"] += bool(rivals)
        definite = [rival for rival in rivals if not rival.vague]
        match commit.policy:
            case None | Policy.FAIL:
                if definite:
                    fail(f"version {commit.version} passes over version {definite[0].commit.version}, a conflict")
                return [self._whole(commit)]
            case Policy.FIRST_WRITER_WINS:
                return self._if_first(commit, rivals)
            case Policy.LAST_WRITER_WINS:
                return self._by_finish(commit, definite, [rival for rival in rivals if rival.vague])
        return [candidate for read in _readings(rivals) for candidate in self._by_partition(commit, read)]

    def _of_others(self, commit: Published) -> Write:
        deed = self._versions.d.foreign_writes.get(commit.version)
        if deed is None:
            return _NOTHING
        if deed.restores is None:
            return deed.write
        before = self._versions.states[deed.restores]
        return Write(wipes=frozenset(PARTITIONS), puts=dict(enumerate(before)))

    def _whole(self, commit: Published) -> Candidate:
        return Candidate(Write(commit.ranges, self._spared(commit), puts=commit.inside), commit.read)

    def _spared(self, commit: Published) -> frozenset[str]:
        """Published together, a load's writers are one transaction, in however many versions it comes."""
        if not commit.together:
            return frozenset()
        theirs = self._versions.colleagues_rows(commit)
        known = {row for rows in self._versions.newest for row in rows if original(row) in theirs}
        return frozenset(theirs | known)

    # -- who is in whose way ---------------------------------------------------------------------------------------------

    def _rivals(self, commit: Published) -> Iterator[_Rival]:
        """Yield what others did to the rows that a write replaces, in the order of versions."""
        seen = self._counting_before(commit)
        for other in self._versions.commits[commit.read + 1 : commit.version]:
            if self._allied(commit, other):
                continue
            # Who counts before what the write was formed on would have emptied nothing of it.
            emptied, unseen = self._emptied(commit, other), other.unseen
            if other.version in seen:
                emptied = unseen = frozenset()
            partitions = (other.touched & commit.ranges) | emptied
            if partitions:
                yield _Rival(other, frozenset(partitions))
            if maybe := (unseen | self._maybe_replaced(commit, other)) & self._own(commit) - partitions:
                yield _Rival(other, maybe, vague=True)
            elif not partitions and self._is_vague(other):
                yield _Rival(other, frozenset(), vague=True)

    def _of_the_same_load(self, commit: Published) -> Iterator[_Rival]:
        """Yield the other writers of the load whose rows a write replaces, though it was formed on top of them."""
        versions = self._versions
        entry = versions.store.entries[commit.version]
        found: dict[int, list[_Rival]] = {}
        colleagues = versions.colleagues(commit) if commit.together else ()
        others = [w for w in versions.writers_of(commit.load) if w.app_id not in commit.generations]
        for identity in (writer for writer in others if writer not in colleagues):
            there = versions.txns.get(identity.app_id, 0)
            rerun = self._is_rerun(identity, there, entry.began, entry.step)
            # One that is being rerun will be a rival then.
            if rerun == {True}:
                continue
            published = [other for other in versions.commits[: commit.read + 1] if identity.app_id in other.generations]
            # Where a rerun has been published since, what an older generation left where it was counts all the same.
            since = not any(other.generations[identity.app_id] == there for other in published)
            for other in published[-1:] if since else published:
                if not since and other.generations[identity.app_id] != there:
                    continue
                # Rows of an older generation count too: a newer one without rows leaves them where they are.
                theirs = versions.rows_of(identity)
                held = {
                    path: file
                    for path, file in versions.live.items()
                    if file.version <= commit.read or identity.app_id not in versions.commits[file.version].generations
                }
                own = {path for path in held if path.startswith(f"{identity.directory}/")}
                met = {
                    file.partition
                    for path, file in held.items()
                    if path in own or not theirs.isdisjoint(map(original, file.rows))
                }
                if met & commit.ranges:
                    # Nobody knows of what was moved whether the rerun has brought it.
                    vague = True in rerun or (since and not any(held[path].partition in commit.ranges for path in own))
                    found.setdefault(other.version, []).append(_Rival(other, frozenset(met & commit.ranges), vague))
                # Whoever rewrote rows may have moved some of the writer's, as far as the log says. Where it was cleaned
                # up to the writer's first version, it does not say who rewrote rows and who only added some since.
                first = next(v for v, c in enumerate(versions.commits) if identity.app_id in c.generations)
                gone = any(v <= first and step < entry.step for v, step in versions.store.cleaned_up.items())
                rewritten = {
                    file.partition
                    for path, file in held.items()
                    if file.version > (first if gone else other.version)
                    and (gone or versions.commits[file.version].removes)
                    and not path.startswith(_BUFFERS)
                }
                if maybe := (rewritten - met) & commit.ranges:
                    found.setdefault(other.version, []).append(_Rival(other, frozenset(maybe), vague=True))
        for version in sorted(found):
            self._counters["writers of a load one after another"] += any(not rival.vague for rival in found[version])
            yield from found[version]

    def _is_rerun(self, writer: Writer, there: int, began: int, ended: int) -> set[bool]:
        """Say whether a writer was being rerun between two steps: at all of them, at none, or first one and then the other.

        One that was skipped has ended.

        :param there: its generation in the table.
        """
        store = self._versions.store
        claims = store.claims.get(writer.directory, {})
        notes = {g: steps for (directory, g), steps in store.skips.items() if directory == writer.directory}

        def at(now: int) -> bool:
            newest = max((g for g, step in claims.items() if step < now), default=0)
            return newest > there and sum(step < now for step in notes.get(newest, ())) % 2 == 0

        events = [*claims.values(), *(step for steps in notes.values() for step in steps)]
        return {at(now) for now in (began, *(step + 1 for step in events if began <= step < ended), ended)}

    def _allied(self, commit: Published, other: Published) -> bool:
        """Say whether a write is a colleague's of another, or what its own writers did before."""
        if other.plan is None or other.plan is not commit.plan:
            return False
        allies = {identity.app_id for identity in self._versions.colleagues(commit)} if commit.together else set()
        return all(a in allies or commit.generations.get(a, 0) > g for a, g in other.generations.items())

    def _emptied(self, commit: Published, other: Published) -> frozenset[int]:
        """Return the partitions that a write emptied, though it found nothing there, and for which the other has rows."""
        return (self._replaced(other) - other.touched) & self._own(commit)

    def _maybe_replaced(self, commit: Published, other: Published) -> frozenset[int]:
        """Return the partitions that another engine's overwrite may have replaced, as far as the log says.

        Its predicate has names of columns, and where columns can be renamed, a later version may have done so.
        """
        parameters = other.info.get("operationParameters") or {}
        by_predicate = parameters.get("mode") == "Overwrite" and parameters.get("predicate")
        if other.ours or not by_predicate or self._versions.d.scenario.table.mapping == "none":
            return frozenset()
        since = range(other.version + 1, commit.version)
        altered = any("metaData" in action for version in since for action in self._versions.actions(version))
        return frozenset(PARTITIONS) if altered else frozenset()

    @staticmethod
    def _own(commit: Published) -> frozenset[int]:
        return frozenset(partition for partition, rows in commit.inside.items() if rows)

    def _is_vague(self, commit: Published) -> bool:
        changed = [r for r in commit.removes if r.get("dataChange", True)]
        return any(not r.get("partitionValues") for r in changed)

    def _replaced(self, commit: Published) -> frozenset[int]:
        """Return the partitions that a write replaced, whatever was there."""
        if commit.ours:
            return commit.ranges
        deed = self._versions.d.foreign_writes.get(commit.version)
        return deed.write.wipes if deed is not None else frozenset()

    def _replaces_all_of(self, rival: _Rival, partition: int) -> bool:
        return partition in self._says(rival.commit) | rival.commit.unseen

    def _says(self, commit: Published) -> frozenset[int]:
        """Return the partitions of which a version says that it replaced whatever was there."""
        if commit.ours:
            return commit.ranges
        deed = self._versions.d.foreign_writes.get(commit.version)
        return deed.says if deed is not None else frozenset()

    # -- what the policies demand ------------------------------------------------------------------------------------------

    def _if_first(self, commit: Published, rivals: list[_Rival]) -> list[Candidate]:
        aside, whole = Candidate(_NOTHING, commit.version - 1), self._whole(commit)
        if all(rival.vague for rival in rivals):
            return [whole, aside] if rivals else [whole]
        self._counters["set aside"] += 1
        return [aside]

    def _by_finish(self, commit: Published, rivals: list[_Rival], vague: list[_Rival]) -> list[Candidate]:
        """Before the first rival, in the order so far, that finished later; and so before all after that one.

        A rival that counts before what the write was formed on is none of these.

        :param vague: rivals of which nobody knows whether they emptied a partition. One that finished later may have done
            so, and then it does not matter what another write would have done there.
        """
        rank = {version: at for at, version in enumerate(self._order.order)}
        rivals = sorted(rivals, key=lambda rival: rank[rival.commit.version])
        seen = self._counting_before(commit)
        ends: list[int] = []
        for at, rival in enumerate(rivals):
            if rival.commit.version in seen:
                continue
            if rival.commit.finished[0] >= commit.finished[0]:
                ends.append(at)
            if rival.commit.finished[0] > commit.finished[0]:
                break
        else:
            ends.append(len(rivals))
        if own := self._own_earlier(commit):
            # It replaces what its writers did before, so it may stand where that stands.
            there = rank[max(own)]
            ends = sorted({*ends, max(ends[0], sum(rank[rival.commit.version] < there for rival in rivals))})
        whole = self._whole(commit)
        candidates = []
        refused = ""
        vague = [rival for rival in vague if rival.commit.finished[0] >= commit.finished[0]]
        for end in reversed(ends):
            later = rivals[end:]
            unsaid = self._unsaid(later, vague)
            if unsaid is not None:
                refused = (
                    f"version {commit.version} should have been refused: version {unsaid.commit.version} came later"
                )
                continue
            after = frozenset(rival.commit.version for rival in rivals[:end])
            before = frozenset(rival.commit.version for rival in later)
            candidates.append(attrs.evolve(whole, after=after, before=before))
        if any(commit.together and rival.commit.plan is commit.plan for rival in rivals[ends[0] :]):
            # Writers of a load published together spare one another. But a reconciliation that knew of fewer of them
            # takes those it did not know for others.
            candidates.append(Candidate(_NOTHING, commit.version - 1))
        if not candidates:
            fail(f"{refused}, and nobody knows what it would have done to its rows")
        self._counters["replaced"] += bool(rivals[: ends[-1]])
        self._counters["kept beside or superseded"] += bool(rivals[ends[-1] :])
        return candidates

    def _counting_before(self, commit: Published) -> frozenset[int]:
        """Return the versions that count before what a write was formed on, and so before it, whenever they finished."""
        last = max((at for at, version in enumerate(self._order.order) if version <= commit.read), default=-1)
        return frozenset(self._order.order[: last + 1])

    def _own_earlier(self, commit: Published) -> frozenset[int]:
        """Return the versions in which earlier generations of a write's own writers were published."""
        return frozenset(
            other.version
            for other in self._versions.commits[: commit.version]
            if any(0 < other.generations.get(app_id, 0) < own for app_id, own in commit.generations.items())
        )

    def _undone(self, commit: Published) -> frozenset[int]:
        """Return the versions of a write's own writers of which nothing is left once it has taken their rows back."""
        if not commit.taken_back:
            return frozenset()
        left = {original(row) for rows in self._versions.newest for row in rows - commit.taken_back}
        put = {v: frozenset().union(*self._versions.commits[v].inside.values()) for v in self._own_earlier(commit)}
        return frozenset(version for version, rows in put.items() if left.isdisjoint(rows))

    def _unsaid(self, later: list[_Rival], vague: list[_Rival]) -> _Rival | None:
        """Return a write of which nobody can say what it would do to the rows of an earlier one, if any.

        :param vague: other later writes, which may have emptied their partitions.
        """
        replaced = {p for rival in (*later, *vague) for p in rival.partitions if self._replaces_all_of(rival, p)}
        for rival in later:
            removed = {self._versions.partition(r) for r in rival.commit.removes if r.get("dataChange", True)}
            for partition in rival.partitions - replaced:
                if not rival.commit.blind or partition in removed:
                    return rival
        return None

    def _by_partition(self, commit: Published, rivals: list[_Rival]) -> list[Candidate]:
        """Each partition by itself: of one write, some may be there and some not."""
        first = commit.policy is Policy.FIRST_WRITER_WINS_PER_PARTITION
        if first and commit.load.mode is Overwrite and rivals:
            return [Candidate(_NOTHING, commit.version - 1)]
        yielded: set[int] = set()
        kept: set[str] = set()
        replaced: set[int] = set()
        seen = self._counting_before(commit)
        for rival in rivals:
            # Writes that finished at the same instant, by a coarse clock, come in the order of their writers' app ids.
            earlier = rival.commit.version in seen or rival.commit.finished < commit.finished
            if not first and earlier:
                replaced.add(rival.commit.version)
                continue
            for partition in rival.partitions:
                rows = None if first else self._appended(rival.commit, partition)
                if rows is None:
                    yielded.add(partition)
                else:
                    kept |= rows
        self._counters["set aside in a partition"] += bool(yielded)
        puts = {p: rows for p, rows in commit.inside.items() if p not in yielded}
        last = Candidate(Write(commit.ranges - yielded, self._spared(commit) | kept, puts=puts), commit.version - 1)
        # For whole writes that come later, it counts before all that finished later, where one place is right for all.
        rank = {version: at for at, version in enumerate(self._order.order)}
        later = {rival.commit.version for rival in rivals} - replaced
        if first or not later or max((rank[v] for v in replaced), default=-1) > min(rank[v] for v in later):
            return [last]
        return [attrs.evolve(last, after=frozenset(replaced), before=frozenset(later)), last]

    def _appended(self, commit: Published, partition: int) -> set[str] | None:
        """Return what a commit appended to a partition, if its files can still be told from others'."""
        added = [a for a in commit.adds if a.get("dataChange", True) and self._versions.partition(a) == partition]
        files = [self._versions.live.get(a["path"]) for a in added]
        if not commit.blind or not files or any(file is None or file.merged for file in files):
            return None
        return {row for file in files if file for row in file.rows}


def _readings(rivals: list[_Rival]) -> Iterator[list[_Rival]]:
    """Yield the rivals as the log may be read, from all of them to those only of which it says where they were.

    A vague one may have been in some of its partitions and not in others.
    """
    unsure = sorted({partition for rival in rivals if rival.vague for partition in rival.partitions})
    for length in range(len(unsure), -1, -1):
        for there in itertools.combinations(unsure, length):
            read = [
                attrs.evolve(rival, partitions=rival.partitions.intersection(there)) if rival.vague else rival
                for rival in rivals
            ]
            yield [rival for rival in read if rival.partitions]
