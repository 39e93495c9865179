"""A local OneLake with clients of its Fabric REST, of which one may be given fewer rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import httpx
import pytest

from local_onelake.access import principal_id
from local_onelake.batches import Batches
from tests.support.livy import batches_on, script
from tests.support.onelake import LAKEHOUSE, LAKEHOUSE_GUID, OTHER_IDENTITY, OTHER_TOKEN, TOKEN, WORKSPACE_GUID, OneLake

ITEM = f"/workspaces/{WORKSPACE_GUID}/items/{LAKEHOUSE_GUID}"
WORKSPACE = f"/workspaces/{WORKSPACE_GUID}"


@attrs.frozen
class Fabric:
    """Clients of one server.

    :param rest: Fabric's REST, as an Admin.
    :param ann: the same, as an identity that a test gives another role.
    :param blob: the Blob endpoint, as an Admin.
    :param ann_blob: the same, as that identity.
    """

    server: OneLake
    rest: httpx.Client
    ann: httpx.Client
    blob: httpx.Client
    ann_blob: httpx.Client

    def give(self, role: str | None) -> None:
        """Let the other identity have this role only."""
        assignment = f"{WORKSPACE}/roleAssignments"
        self.rest.delete(f"{assignment}/{principal_id(OTHER_IDENTITY)}")
        if role is not None:
            body = {"principal": {"id": principal_id(OTHER_IDENTITY), "type": "User"}, "role": role}
            assert self.rest.post(assignment, json=body).status_code == 201

    def permit(self, path: str, *actions: str, **more: object) -> None:
        """Let the other identity read, or write, a path of the item."""
        rule = {
            "effect": "Permit",
            "permission": [
                {"attributeName": "Path", "attributeValueIncludedIn": [path]},
                {"attributeName": "Action", "attributeValueIncludedIn": list(actions)},
            ],
            **more,
        }
        members = {"microsoftEntraMembers": [{"tenantId": "t", "objectId": principal_id(OTHER_IDENTITY)}]}
        role = {"name": "readers", "kind": "Policy", "decisionRules": [rule], "members": members}
        assert self.rest.put(f"{ITEM}/dataAccessRoles", json={"value": [role]}).status_code == 200

    def lakehouse(self, name: str, **payload: object) -> str:
        """Make a lakehouse, and return its GUID."""
        body = {"displayName": name, "type": "Lakehouse", "creationPayload": payload}
        made = self.rest.post(f"{WORKSPACE}/items", json=body)
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    def put(self, path: str, data: bytes = b"x", item: str = LAKEHOUSE_GUID) -> httpx.Response:
        """Put a file by Blob."""
        return self.blob.put(path_of(path, item), content=data, headers={"x-ms-blob-type": "BlockBlob"})

    def link(
        self, where: str, to: str, item: str = LAKEHOUSE_GUID, of: str = LAKEHOUSE_GUID, **query: str
    ) -> httpx.Response:
        """Make a shortcut at a path of an item."""
        path, _, name = where.rpartition("/")
        target = {"oneLake": {"workspaceId": WORKSPACE_GUID, "itemId": item, "path": to}}
        body = {"path": path, "name": name, "target": target}
        return self.rest.post(f"{WORKSPACE}/items/{of}/shortcuts", json=body, params=query)


def path_of(path: str, item: str = LAKEHOUSE_GUID) -> str:
    return f"/{WORKSPACE_GUID}/{item}/{path}"


def error(answer: httpx.Response) -> tuple[int, str]:
    """Status and error code of an answer, in Fabric's form."""
    said = answer.json()
    assert set(said) == {"requestId", "errorCode", "message"}
    assert said["requestId"] == answer.headers["x-ms-request-id"]
    return answer.status_code, said["errorCode"]


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with OneLake(lists_by_names=True) as server:
        base = f"{server.url}/api.fabric.microsoft.com/v1"
        me, ann = ({"Authorization": f"Bearer {token}"} for token in (TOKEN, OTHER_TOKEN))
        with (
            httpx.Client(base_url=base, headers=me) as rest,
            httpx.Client(base_url=base, headers=ann) as ann_rest,
            httpx.Client(base_url=server.url, headers=me) as blob,
            httpx.Client(base_url=server.url, headers=ann) as ann_blob,
        ):
            yield Fabric(server, rest, ann_rest, blob, ann_blob)


@pytest.fixture
def spark(fabric: Fabric, tmp_path: Path) -> Iterator[Callable[[str], Batches]]:
    """Lets batches and runs do something."""
    with batches_on(fabric.server, tmp_path, script(tmp_path, fabric.server, ""), {"spark.y": "z"}) as found:

        def does(body: str) -> Batches:
            script(tmp_path, fabric.server, body)
            return found

        yield does


__all__ = ["ITEM", "LAKEHOUSE", "WORKSPACE", "Fabric", "error", "fabric", "path_of", "spark"]
