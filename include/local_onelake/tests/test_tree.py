"""The path table: like a dictionary whatever comes, and one winner of everything that only one may do."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from local_onelake import tree as table
from local_onelake.clock import Clock
from local_onelake.locks import PathLocks
from local_onelake.names import Names, NameTakenError
from local_onelake.tree import CREATE_ONLY, Condition, Entry, Tree, TreeError

_T = TypeVar("_T")


@attrs.define
class Made:
    """A path table of one test."""

    root: Path
    scratch: Path
    tree: Tree = attrs.field(init=False)
    numbers: int = 0

    def __attrs_post_init__(self) -> None:
        self.root.mkdir()
        self.scratch.mkdir()
        self.tree = Tree(self.root, self.scratch)

    def part(self, data: bytes) -> Path:
        self.numbers += 1
        file = self.scratch / f"{threading.get_ident()}-{self.numbers}"
        file.write_bytes(data)
        return file

    def put(self, path: str, data: bytes, condition: Condition = table.ALWAYS) -> Entry:
        return self.tree.put(path, self.part(data), condition)

    def read(self, path: str) -> bytes:
        file, _ = self.tree.open(path)
        with file:
            return file.read()


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "root", tmp_path / "scratch")


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
CONDITIONS = st.sampled_from(["always", "create-only", "same", "other"])


class AsADictionary(RuleBasedStateMachine):
    """The table does what a dictionary of paths does: bytes for a file, ``None`` for a directory."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        at = Path(self.directory.name)
        self.made = Made(at / "root", at / "scratch")
        self.known: dict[str, bytes | None] = {}
        self.tags: dict[str, str] = {}
        self.given: set[str] = set()

    def teardown(self) -> None:
        self.directory.cleanup()

    def condition(self, path: str, kind: str) -> tuple[Condition, type[TreeError] | None]:
        """The condition, and the error that it must raise for what is known of the path."""
        entry = self.made.tree.stat(path)
        match kind:
            case "create-only":
                return CREATE_ONLY, table.ExistsError if path in self.known else None
            case "same" if entry is not None:
                return Condition(match=entry.etag), None
            case "other" | "same":
                return Condition(match="0x1"), table.ChangedError
        return table.ALWAYS, None

    def above(self, path: str) -> list[str]:
        names = path.split("/")
        return ["/".join(names[:length]) for length in range(1, len(names))]

    def below(self, path: str) -> list[str]:
        return [known for known in self.known if known.startswith(f"{path}/")]

    def expect(self, error: type[TreeError] | None, act: Callable[[], object]) -> bool:
        if error is None:
            act()
            return True
        with pytest.raises(TreeError) as raised:
            act()
        assert type(raised.value) is error
        return False

    @rule(path=PATHS, data=st.binary(max_size=4), kind=CONDITIONS)
    def put(self, path: str, data: bytes, kind: str) -> None:
        condition, error = self.condition(path, kind)
        if error is None and (path in self.known and self.known[path] is None):
            error = table.MismatchError
        if error is None and any(self.known.get(above, None) is not None for above in self.above(path)):
            error = table.MismatchError
        if self.expect(error, lambda: self.made.put(path, data, condition)):
            self.known |= dict.fromkeys(self.above(path), None) | {path: data}
            entry = self.made.tree.stat(path)
            assert entry is not None
            assert entry.etag not in self.given
            self.given.add(entry.etag)
            self.tags[path] = entry.etag

    @rule(path=PATHS, kind=st.sampled_from(["always", "create-only"]))
    def make_directory(self, path: str, kind: str) -> None:
        condition, error = self.condition(path, kind)
        if error is None and self.known.get(path) is not None:
            error = table.ExistsError
        if error is None and any(self.known.get(above) is not None for above in self.above(path)):
            error = table.MismatchError
        if self.expect(error, lambda: self.made.tree.make_directory(path, condition)):
            self.known |= dict.fromkeys([*self.above(path), path], None)

    @rule(old=PATHS, new=PATHS, kind=CONDITIONS)
    def rename(self, old: str, new: str, kind: str) -> None:
        condition, error = self.condition(new, kind)
        if old not in self.known:
            error = table.SourceMissingError
        if error is None and f"{new}/".startswith(f"{old}/"):
            error = table.MismatchError
        if error is None and new in self.known and None in (self.known[old], self.known[new]):
            error = table.ExistsError
        if error is None and any(self.known.get(above, b"") is not None for above in self.above(new)):
            error = table.NoParentError
        if self.expect(error, lambda: self.made.tree.rename(old, new, condition)):
            for known in [old, *self.below(old)]:
                moved = f"{new}{known.removeprefix(old)}"
                self.known[moved] = self.known.pop(known)
                if known in self.tags:
                    self.tags[moved] = self.tags.pop(known)

    @rule(path=PATHS, recursive=st.booleans(), kind=st.sampled_from(["always", "other"]))
    def delete(self, path: str, recursive: bool, kind: str) -> None:
        condition, error = self.condition(path, kind)
        if path not in self.known:
            error = table.MissingError
        if error is None and self.below(path) and not recursive:
            error = table.NotEmptyError
        if self.expect(error, lambda: self.made.tree.delete(path, condition, recursive=recursive)):
            for known in [path, *self.below(path)]:
                del self.known[known]
                self.tags.pop(known, None)

    @rule()
    def start_again(self) -> None:
        self.made.tree = Tree(self.made.root, self.made.scratch)

    @invariant()
    def it_holds_the_same(self) -> None:
        entries = {entry.path: entry for entry in self.made.tree.walk("")}
        held = {path: None if entry.is_directory else self.made.read(path) for path, entry in entries.items()}
        assert held == self.known
        assert {path: entries[path].etag for path in self.tags} == self.tags
        for path, data in self.known.items():
            assert entries[path].size == len(data or b"")


TestAsADictionary = AsADictionary.TestCase
TestAsADictionary.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def at_once(threads: int, act: Callable[[int], object]) -> list[object]:
    """Let threads do something at the same time; what each came to, errors of the table too."""
    ready = threading.Barrier(threads)

    def one(number: int) -> object:
        ready.wait()
        try:
            return act(number)
        except TreeError as error:
            return error

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, range(threads)))


def the_only(winners: list[_T]) -> _T:
    assert len(winners) == 1
    return winners[0]


def test_of_many_create_only_puts_at_one_path_one_wins(made: Made) -> None:
    for number in range(50):
        parts = [made.part(bytes([thread])) for thread in range(8)]
        came = at_once(8, lambda thread: made.tree.put(f"t/{number}", parts[thread], CREATE_ONLY))  # noqa: B023
        winner = the_only([thread for thread, outcome in enumerate(came) if isinstance(outcome, Entry)])
        assert {type(lost) for lost in came if not isinstance(lost, Entry)} == {table.ExistsError}
        assert made.read(f"t/{number}") == bytes([winner])


def test_of_many_renames_to_one_path_one_wins_and_the_others_stay_where_they_are(made: Made) -> None:
    made.tree.make_directory("log")
    for number in range(50):
        for thread in range(8):
            made.put(f"tmp/{thread}", bytes([thread]))
        came = at_once(8, lambda thread: made.tree.rename(f"tmp/{thread}", f"log/{number}", CREATE_ONLY))  # noqa: B023
        winner = the_only([thread for thread, outcome in enumerate(came) if isinstance(outcome, Entry)])
        assert made.read(f"log/{number}") == bytes([winner])
        assert sorted(entry.path for entry in made.tree.children("tmp")) == [
            f"tmp/{thread}" for thread in range(8) if thread != winner
        ]


def test_of_many_puts_on_one_etag_one_wins(made: Made) -> None:
    entry = made.put("counter", b"")
    for _ in range(50):
        parts = [made.part(b"") for _ in range(8)]
        came = at_once(8, lambda thread: made.tree.put("counter", parts[thread], Condition(match=entry.etag)))  # noqa: B023
        entry = the_only([outcome for outcome in came if isinstance(outcome, Entry)])


def test_a_rename_onto_a_file_needs_no_condition_or_the_right_one(made: Made) -> None:
    made.put("a", b"a")
    there = made.put("b", b"b")
    for condition, error in ((CREATE_ONLY, table.ExistsError), (Condition(match="0x1"), table.ChangedError)):
        with pytest.raises(error):
            made.tree.rename("a", "b", condition)
    with pytest.raises(table.ChangedError):
        made.tree.rename("a", "b", source_condition=Condition(match="0x1"))
    assert made.read("b") == b"b"
    made.tree.rename("a", "b", Condition(match=there.etag))
    assert made.read("b") == b"a"


def test_what_is_being_read_stays_the_same_though_the_file_is_replaced(made: Made) -> None:
    made.put("a", b"old")
    file, entry = made.tree.open("a")
    with file:
        made.put("a", b"newer")
        assert (file.read(), entry.size) == (b"old", 3)
    made.tree.delete("a")
    assert made.tree.stat("a") is None


def test_a_writer_that_dies_leaves_what_was_there(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.put("a", b"old")

    def die(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(SystemExit):
        made.put("a", b"half of the ne")
    assert made.read("a") == b"old"
    assert [entry.path for entry in made.tree.walk("")] == ["a"]


def test_a_recursive_delete_is_seen_at_once(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        made.put(f"d/e/{number}", b"")
    seen: list[object] = []
    monkeypatch.setattr(table.shutil, "rmtree", lambda _: seen.append(list(made.tree.walk(""))))
    made.tree.delete("d", recursive=True)
    assert seen == [[]]


def test_an_etag_is_given_once_also_if_the_clock_is_set_back(made: Made) -> None:
    ahead = 4_000_000_000 * 1_000_000_000
    assert Clock(ahead).next() == ahead + 100
    first = made.put("a", b"")
    later = Tree(made.root, made.scratch)
    assert later.put("a", made.part(b"")).modified > first.modified


def test_operations_wait_for_those_on_the_same_path_above_it_and_below_it_and_for_no_others() -> None:
    locks = PathLocks()
    came: list[str] = []

    def take(path: str) -> None:
        with locks.hold(path):
            came.append(path)

    with ThreadPoolExecutor(4) as pool:
        with locks.hold("a/b", "c"):
            waiting = [pool.submit(take, path) for path in ("a/b", "a", "a/b/d")]
            pool.submit(take, "a/bc").result(10)
            assert came == ["a/bc"]
        for each in waiting:
            each.result(10)
    assert sorted(came) == ["a", "a/b", "a/b/d", "a/bc"]


def test_a_link_of_the_directory_is_not_followed_whatever_is_asked(made: Made, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    made.put("a/b", b"1")
    (made.root / "a" / "file").symlink_to(outside / "secret")
    (made.root / "a" / "directory").symlink_to(outside)
    tree = made.tree
    assert {entry.path for entry in tree.walk("")} == {"a", "a/b"}
    assert tree.children("a/directory") == []
    for path in ("a/file", "a/directory", "a/directory/secret"):
        assert tree.stat(path) is None
        for asked in (
            lambda path=path: tree.open(path),
            lambda path=path: made.put(path, b"2"),
            lambda path=path: tree.rewrite(path, lambda there, at: None),
            lambda path=path: tree.make_directory(path),
            lambda path=path: tree.rename(path, "c"),
            lambda path=path: tree.rename("a/b", path),
            lambda path=path: tree.delete(path, recursive=True),
        ):
            with pytest.raises(TreeError):
                asked()
    tree.delete("a", recursive=True)
    assert not (made.root / "a").exists()
    assert {file.name: file.read_bytes() for file in outside.iterdir()} == {"secret": b"secret"}


def test_a_link_is_no_workspace_and_no_item(tmp_path: Path) -> None:
    served, outside = tmp_path / "served", tmp_path / "outside"
    (outside / "x.Lakehouse").mkdir(parents=True)
    (served / "taxi" / "raw.Lakehouse").mkdir(parents=True)
    (served / "link").symlink_to(outside)
    (served / "taxi" / "x.Lakehouse").symlink_to(outside / "x.Lakehouse")
    names = Names(served, tmp_path / "names.json")
    assert [(each.name, list(each.items)) for each in names.all()] == [("taxi", ["raw.Lakehouse"])]
    with pytest.raises(NameTakenError, match="symbolic link"):
        names.add_workspace("link")
    for add in (names.add_item, names.new_item):
        with pytest.raises(NameTakenError, match="symbolic link"):
            add("taxi", "x.Lakehouse")
    assert list((outside / "x.Lakehouse").iterdir()) == []
