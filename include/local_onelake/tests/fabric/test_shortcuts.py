"""Shortcuts by Fabric's REST: made, got, listed, deleted, refused."""

from __future__ import annotations

import pytest

from include.local_onelake.tests.fabric.conftest import ITEM, WORKSPACE, Fabric, error
from tests.support.onelake import LAKEHOUSE_GUID, WORKSPACE_GUID

LINKS = f"{ITEM}/shortcuts"
NOBODY = "11111111-2222-4333-8444-555555555555"


def one_lake(path: str, item: str = LAKEHOUSE_GUID) -> dict[str, object]:
    return {"oneLake": {"workspaceId": WORKSPACE_GUID, "itemId": item, "path": path}}


def test_a_shortcut_is_made_got_listed_and_deleted(fabric: Fabric) -> None:
    gold = fabric.lakehouse("gold")
    fabric.put("Tables/trips/a.parquet", item=gold)
    made = fabric.link("Tables/trips", "Tables/trips", item=gold)
    assert made.status_code == 201
    assert made.headers["location"].endswith(f"{LINKS}/Tables/trips")
    assert made.json() == {
        "path": "Tables",
        "name": "trips",
        "target": {"type": "OneLake", **one_lake("Tables/trips", gold)},
    }
    assert fabric.rest.get(f"{LINKS}/Tables/trips").json() == made.json()
    assert fabric.rest.get(LINKS).json() == {"value": [made.json()]}
    assert fabric.rest.delete(f"{LINKS}/Tables/trips").status_code == 200
    for asked in (fabric.rest.get, fabric.rest.delete):
        assert error(asked(f"{LINKS}/Tables/trips")) == (404, "ShortcutNotFound")
    assert (fabric.server.directory / "taxi/gold.Lakehouse/Tables/trips/a.parquet").exists()
    assert not (fabric.server.directory / "taxi/raw.Lakehouse/Tables/trips").exists()


def test_conflict_policies(fabric: Fabric) -> None:
    for name in ("one", "two"):
        fabric.put(f"Files/{name}/a")
    assert error(fabric.link("Files/x", "Files/one", shortcutConflictPolicy="OverwriteOnly")) == (
        404,
        "ShortcutNotFound",
    )
    assert fabric.link("Files/x", "Files/one").status_code == 201
    assert error(fabric.link("Files/x", "Files/two")) == (409, "EntityConflict")
    unique = fabric.link("Files/x", "Files/two", shortcutConflictPolicy="GenerateUniqueName")
    assert (unique.status_code, unique.json()["name"]) == (201, "x_1")
    for policy in ("CreateOrOverwrite", "OverwriteOnly"):
        assert fabric.link("Files/x", "Files/two", shortcutConflictPolicy=policy).status_code == 200
    assert fabric.rest.get(f"{LINKS}/Files/x").json()["target"]["oneLake"]["path"] == "Files/two"
    # A folder that is there is never replaced.
    assert error(fabric.link("Files/one", "Files/two", shortcutConflictPolicy="CreateOrOverwrite"))[0] == 409
    assert error(fabric.link("Files/y", "Files/two", shortcutConflictPolicy="Maybe")) == (400, "InvalidParameter")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"path": "Files", "name": "a%b", "target": one_lake("Files/t")}, (400, "InvalidRequest")),
        ({"path": "Files", "name": "größe", "target": one_lake("Files/t")}, (400, "InvalidRequest")),
        ({"path": "Notes", "name": "a", "target": one_lake("Files/t")}, (400, "InvalidRequest")),
        ({"path": "Files/../..", "name": "a", "target": one_lake("Files/t")}, (400, "InvalidRequest")),
        ({"path": "Tables/dbo", "name": "a", "target": one_lake("Files/t")}, (400, "InvalidRequest")),
        ({"path": "Files", "name": "a", "target": {}}, (400, "InvalidRequest")),
        ({"path": "Files", "name": "a", "target": one_lake("Files/none")}, (404, "ShortcutTargetNotFound")),
        ({"path": "Files", "name": "a", "target": one_lake("Files/t", NOBODY)}, (400, "ShortcutTargetNotFound")),
        ({"path": "Files", "name": "a", "target": one_lake("Files")}, (400, "ShortcutCycle")),
        ({"path": "Files/t", "name": "a", "target": one_lake("Files/t")}, (400, "ShortcutCycle")),
        ({"path": "Files/link", "name": "a", "target": one_lake("Files/t")}, (409, "EntityConflict")),
        ({"path": "Files/t/file", "name": "a", "target": one_lake("Files/u")}, (409, "EntityConflict")),
    ],
)
def test_a_shortcut_that_cannot_be_is_refused_and_not_made(
    fabric: Fabric, body: dict[str, object], expected: tuple[int, str]
) -> None:
    fabric.put("Files/t/file")
    fabric.put("Files/u/file")
    fabric.link("Files/link", "Files/t")
    assert error(fabric.rest.post(LINKS, json=body)) == expected
    assert [each["name"] for each in fabric.rest.get(LINKS).json()["value"]] == ["link"]


def test_a_circle_over_several_items_is_refused(fabric: Fabric) -> None:
    gold = fabric.lakehouse("gold")
    fabric.put("Files/a/x")
    fabric.put("Files/b/x", item=gold)
    assert fabric.link("Files/a/to_b", "Files/b", item=gold).status_code == 201
    assert error(fabric.link("Files/b/to_a", "Files/a", of=gold)) == (400, "ShortcutCycle")
    assert fabric.link("Files/b2", "Files/a", of=gold).status_code == 201


def test_more_than_five_links_one_after_the_other_are_refused(fabric: Fabric) -> None:
    fabric.put("Files/l0/x")
    for number in range(1, 6):
        assert fabric.link(f"Files/l{number}", f"Files/l{number - 1}").status_code == 201
    assert error(fabric.link("Files/l6", "Files/l5")) == (400, "TooManyShortcuts")


def test_a_target_of_another_store_is_kept(fabric: Fabric) -> None:
    target = {"amazonS3": {"location": "https://b.s3.eu-west-1.amazonaws.com", "subpath": "/x", "connectionId": NOBODY}}
    body = {"path": "Files", "name": "s3", "target": target}
    assert fabric.rest.post(LINKS, json=body).status_code == 201
    assert fabric.rest.get(f"{LINKS}/Files/s3").json()["target"] == {"type": "AmazonS3", **target}
    assert error(fabric.link("Files/deep/er", "Files/s3/in"))[0] == 400


def test_who_may_not_see_a_target_sees_its_type_only(fabric: Fabric) -> None:
    fabric.put("Files/secret/x")
    fabric.put("Files/open/x")
    fabric.link("Files/a", "Files/secret")
    fabric.link("Files/b", "Files/open")
    fabric.give("Viewer")
    fabric.permit("/Files/open", "Read")
    said = {each["name"]: each["target"] for each in fabric.ann.get(LINKS).json()["value"]}
    assert said["a"] == {"type": "OneLake"}
    assert said["b"]["oneLake"]["path"] == "Files/open"


def test_a_shortcut_to_a_deleted_item_stays_and_names_it(fabric: Fabric) -> None:
    gold = fabric.lakehouse("gold")
    fabric.put("Files/a/x", item=gold)
    fabric.link("Files/a", "Files/a", item=gold)
    fabric.rest.delete(f"{WORKSPACE}/items/{gold}")
    assert fabric.rest.get(f"{LINKS}/Files/a").json()["target"]["oneLake"]["itemId"] == gold
    assert fabric.rest.delete(f"{LINKS}/Files/a").status_code == 200
