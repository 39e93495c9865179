"""The DFS endpoint, request by request, as ABFS and Azure's SDK send them."""

from __future__ import annotations

import json

import httpx
import pytest

from include.local_onelake.tests.conftest import Clients, code
from tests.support.onelake import LAKEHOUSE_GUID, WORKSPACE


def test_appends_come_in_any_order_and_a_repeated_one_counts_once(onelake: Clients) -> None:
    onelake.create("a")
    for position, data in ((3, b"def"), (0, b"abc"), (0, b"abc"), (6, b"")):
        assert onelake.append("a", position, data).status_code == 202
    assert onelake.flush("a", 6).status_code == 200
    assert onelake.flush("a", 6).status_code == 200
    assert onelake.dfs("GET", "a").content == b"abcdef"


@pytest.mark.parametrize(
    ("position", "appends"), [(4, [(0, b"abc")]), (2, [(0, b"abc")]), (6, [(0, b"abc"), (4, b"ef")])]
)
def test_a_flush_that_is_not_the_end_of_what_was_appended_is_refused(
    onelake: Clients, position: int, appends: list[tuple[int, bytes]]
) -> None:
    onelake.create("a")
    for at, data in appends:
        onelake.append("a", at, data)
    assert code(onelake.flush("a", position)) == (400, "InvalidFlushPosition")
    assert onelake.dfs("GET", "a").content == b""


def test_what_was_appended_and_not_flushed_is_dropped_unless_it_is_to_be_kept(onelake: Clients) -> None:
    onelake.create("a")
    for retain in ("true", "false"):
        size = int(onelake.dfs("HEAD", "a").headers["content-length"])
        onelake.append("a", size, b"1")
        onelake.append("a", size + 1, b"2")
        assert onelake.flush("a", size + 1, retainUncommittedData=retain).status_code == 200
        assert code(onelake.flush("a", size + 2)) == ((200, "") if retain == "true" else (400, "InvalidFlushPosition"))
    assert onelake.dfs("GET", "a").content == b"121"


def test_a_new_file_at_a_path_has_nothing_of_what_was_appended_to_the_old_one(onelake: Clients) -> None:
    onelake.create("a")
    onelake.append("a", 0, b"old")
    onelake.create("a")
    assert code(onelake.flush("a", 3)) == (400, "InvalidFlushPosition")


def test_a_create_that_is_refused_leaves_another_writers_appends(onelake: Clients) -> None:
    onelake.create("a")
    onelake.append("a", 0, b"mine")
    assert code(onelake.create("a", If_None_Match="*")) == (409, "PathAlreadyExists")
    assert code(onelake.put("a", b"x", If_None_Match="*")) == (409, "BlobAlreadyExists")
    assert onelake.flush("a", 4).status_code == 200


def test_an_append_to_nothing_or_before_the_end_is_refused(onelake: Clients) -> None:
    assert code(onelake.append("a", 0, b"x")) == (404, "PathNotFound")
    onelake.create("a")
    onelake.append("a", 0, b"abc", flush="true")
    assert code(onelake.append("a", 1, b"x")) == (400, "InvalidQueryParameterValue")
    assert code(onelake.dfs("PATCH", "a", params={"action": "append"})) == (400, "InvalidQueryParameterValue")


def test_a_create_and_a_flush_have_a_content_length_of_zero(onelake: Clients) -> None:
    refused = onelake.dfs("PUT", "a", params={"resource": "file"}, content=b"x")
    assert code(refused) == (400, "ContentLengthMustBeZero")
    assert refused.json()["error"]["code"] == "ContentLengthMustBeZero"
    chunked = onelake.dfs("PUT", "a", params={"resource": "file"}, content=iter([b""]))
    assert code(chunked) == (400, "ContentLengthMustBeZero")
    onelake.create("a")
    flush = onelake.dfs("PATCH", "a", params={"action": "flush", "position": 0}, content=b"x")
    assert code(flush) == (400, "ContentLengthMustBeZero")


def test_files_and_directories_do_not_replace_each_other(onelake: Clients) -> None:
    onelake.create("d", "directory")
    onelake.create("f")
    assert code(onelake.create("d")) == (409, "PathAlreadyExists")
    assert code(onelake.create("f", "directory")) == (409, "PathAlreadyExists")
    assert onelake.create("d", "directory").status_code == 201
    assert code(onelake.create("d", "directory", If_None_Match="*")) == (409, "PathAlreadyExists")
    assert code(onelake.create("f/x")) == (409, "ResourceTypeMismatch")


def test_a_rename_onto_what_is_there_is_refused_where_it_must_not_be(onelake: Clients) -> None:
    for name in ("tmp", "final"):
        onelake.put(name, name.encode())
    assert code(onelake.rename("tmp", "final", If_None_Match="*")) == (409, "PathAlreadyExists")
    assert code(onelake.rename("tmp", "final", If_Match="0x1")) == (412, "ConditionNotMet")
    assert code(onelake.rename("tmp", "final", x_ms_source_if_match="0x1")) == (412, "ConditionNotMet")
    assert onelake.dfs("GET", "final").content == b"final"
    there = onelake.dfs("HEAD", "final").headers["etag"]
    assert onelake.rename("tmp", "final", If_Match=there).status_code == 201
    assert onelake.dfs("GET", "final").content == b"tmp"
    assert code(onelake.dfs("HEAD", "tmp")) == (404, "PathNotFound")


def test_a_rename_whose_answer_was_lost_is_known_by_its_etag(onelake: Clients) -> None:
    onelake.put("tmp", b"x")
    before = onelake.dfs("HEAD", "tmp").headers["etag"]
    assert onelake.rename("tmp", "final", If_None_Match="*").status_code == 201
    assert code(onelake.rename("tmp", "final", If_None_Match="*")) == (404, "SourcePathNotFound")
    assert onelake.dfs("HEAD", "final").headers["etag"] == before


def test_what_cannot_be_renamed(onelake: Clients) -> None:
    onelake.put("a/b", b"")
    assert code(onelake.rename("no", "x")) == (404, "SourcePathNotFound")
    assert code(onelake.rename("a/b", "no/x")) == (404, "RenameDestinationParentPathNotFound")
    assert code(onelake.rename("a", "a/b/c")) == (409, "ResourceTypeMismatch")
    onelake.create("d", "directory")
    assert code(onelake.rename("a", "d")) == (409, "PathAlreadyExists")
    assert onelake.rename("a", "e").status_code == 201
    assert onelake.dfs("GET", "e/b").status_code == 200


def test_a_rename_takes_sources_that_are_percent_encoded(onelake: Clients) -> None:
    onelake.put("a%20b=%C3%BC", b"x")
    source = f"/{onelake.at('')}/a%20b=%C3%BC"
    assert onelake.dfs("PUT", "c", headers={"x-ms-rename-source": source}).status_code == 201


def test_a_list_comes_in_pages_and_says_what_is_a_directory(onelake: Clients) -> None:
    for number in range(7):
        onelake.put(f"t/p={number}/x", b"12")
    onelake.put("t/f", b"")
    directory = f"{onelake.at('t').partition('/')[2]}"

    def listed(**query: str) -> list[dict[str, str]]:
        rows: list[dict[str, str]] = []
        mark = ""
        while True:
            query = {"resource": "filesystem", "directory": directory, "maxResults": "3", **query}
            answer = onelake.plain.get(
                f"/{WORKSPACE}",
                params={**query, "continuation": mark},
                headers={"Host": "onelake.dfs.fabric.microsoft.com"},
            )
            assert len(answer.json()["paths"]) <= 3
            rows += answer.json()["paths"]
            mark = answer.headers.get("x-ms-continuation", "")
            if not mark:
                return rows

    flat = listed(recursive="false")
    assert [row["name"].removeprefix(f"{directory}/") for row in flat] == ["f", *(f"p={n}" for n in range(7))]
    assert [row.get("isDirectory") for row in flat] == [None, *["true"] * 7]
    deep = listed(recursive="true")
    assert sum(row["contentLength"] == "2" for row in deep) == 7
    assert len(deep) == 15
    assert {row["owner"] for row in deep} == {"$superuser"}
    (itself,) = onelake.plain.get(
        f"/{WORKSPACE}",
        params={"resource": "filesystem", "directory": f"{directory}/f"},
        headers={"Host": "onelake.dfs.fabric.microsoft.com"},
    ).json()["paths"]
    assert itself["name"] == f"{directory}/f"


def test_a_list_of_a_workspace_and_of_nothing(onelake: Clients) -> None:
    def ask(workspace: str, directory: str) -> httpx.Response:
        return onelake.plain.get(
            f"/onelake.dfs.fabric.microsoft.com/{workspace}",
            params={"resource": "filesystem", "recursive": "false", "directory": directory},
        )

    assert [row["name"] for row in ask(WORKSPACE, "").json()["paths"]] == ["raw.Lakehouse"]
    assert [row["name"] for row in ask(WORKSPACE, "raw.Lakehouse").json()["paths"]] == [
        "raw.Lakehouse/Files",
        "raw.Lakehouse/Tables",
    ]
    by_guid = ask(onelake.at("", "guids").partition("/")[0], LAKEHOUSE_GUID)
    assert [row["name"] for row in by_guid.json()["paths"]] == [f"{LAKEHOUSE_GUID}/Files", f"{LAKEHOUSE_GUID}/Tables"]
    assert code(ask(WORKSPACE, "raw.Lakehouse/Files/no")) == (404, "PathNotFound")
    spelled = onelake.plain.get("/onelake.dfs.fabric.microsoft.com/", params={"resource": "account"})
    assert [each["name"] for each in spelled.json()["filesystems"]] == [WORKSPACE]


@pytest.mark.parametrize("action", ["setAccessControl", "setAccessControlRecursive"])
def test_setting_access_control_is_rejected(onelake: Clients, action: str) -> None:
    onelake.create("a")
    assert onelake.dfs("PATCH", "a", params={"action": action}, headers={"x-ms-acl": "user::rwx"}).status_code == 400


def test_headers_that_are_ignored_are_named(onelake: Clients) -> None:
    created = onelake.create("a", x_ms_permissions="0755", x_ms_owner="me", x_ms_umask="0022")
    assert created.status_code == 201
    assert created.headers["x-ms-rejected-headers"] == "x-ms-owner,x-ms-permissions"
    assert "x-ms-rejected-headers" not in onelake.create("b").headers


@pytest.mark.parametrize("header", ["x-ms-properties", "x-ms-meta-hdi_isfolder", "x-ms-copy-source", "x-ms-lease-id"])
def test_what_would_have_to_be_kept_is_refused_and_not_forgotten(onelake: Clients, header: str) -> None:
    assert code(onelake.dfs("PUT", "a", params={"resource": "file"}, headers={header: "x"})) == (
        400,
        "UnsupportedHeader",
    )
    assert onelake.dfs("HEAD", "a").status_code == 404


def test_what_is_not_served_is_refused_by_name(onelake: Clients) -> None:
    assert code(onelake.dfs("POST", "a", headers={"x-ms-lease-action": "acquire"})) == (
        400,
        "UnsupportedQueryParameter",
    )
    assert code(onelake.dfs("PATCH", "a", params={"action": "setProperties"})) == (400, "UnsupportedQueryParameter")
    wrong_face = onelake.dfs("PUT", "a", headers={"x-ms-blob-type": "BlockBlob"})
    assert "this is DFS" in json.loads(wrong_face.content)["error"]["message"]
    assert "this is Blob" in onelake.blob("PUT", "a", params={"resource": "file"}).text
