"""The Blob endpoint, request by request, as obstore and deltalake send them."""

from __future__ import annotations

import base64
import hashlib
from email.utils import formatdate
from xml.etree import ElementTree

import httpx

from include.local_onelake.tests.conftest import Clients, code
from tests.support.onelake import WORKSPACE

BLOCKS = '<?xml version="1.0"?><BlockList>{}</BlockList>'


def names(onelake: Clients, answer: httpx.Response, by: str = "names") -> list[str]:
    """What a list names, below the test's directory."""
    assert answer.status_code == 200, answer.text
    found = ElementTree.fromstring(answer.content).findall("Blobs/*/Name")
    directory = onelake.at("", by).partition("/")[2]
    return [(name.text or "").removeprefix(f"{directory}/") for name in found]


def marker(answer: httpx.Response) -> str:
    return ElementTree.fromstring(answer.content).findtext("NextMarker") or ""


def test_a_file_is_put_and_read_whole_and_by_ranges(onelake: Clients) -> None:
    put = onelake.put("a", b"0123456789")
    assert put.status_code == 201
    read = onelake.blob("GET", "a")
    assert (read.content, read.headers["etag"]) == (b"0123456789", put.headers["etag"])
    assert put.headers["etag"].startswith('"0x8D')
    for asked, expected in (("bytes=2-4", b"234"), ("bytes=7-", b"789"), ("bytes=-2", b"89"), ("bytes=8-99", b"89")):
        for header in ("Range", "x-ms-range"):
            part = onelake.blob("GET", "a", headers={header: asked})
            assert (part.status_code, part.content) == (206, expected)
    assert part.headers["content-range"] == "bytes 8-9/10"
    for beyond in ("bytes=10-", "bytes=10-11", "bytes=-0"):
        assert code(onelake.blob("GET", "a", headers={"Range": beyond})) == (416, "InvalidRange")
    assert code(onelake.blob("GET", "a", headers={"Range": "lines=1-2"})) == (400, "InvalidHeaderValue")
    head = onelake.blob("HEAD", "a")
    assert (head.headers["content-length"], head.headers["x-ms-blob-type"]) == ("10", "BlockBlob")


def test_what_a_client_has_already_is_not_sent_again(onelake: Clients) -> None:
    etag = onelake.put("a", b"1").headers["etag"]
    for condition in ({"If-None-Match": etag}, {"If-None-Match": "*"}, {"If-Modified-Since": formatdate(usegmt=True)}):
        for method in ("GET", "HEAD"):
            answer = onelake.blob(method, "a", headers=condition)
            assert (answer.status_code, answer.content) == (304, b"")
    old = {"If-Unmodified-Since": formatdate(0, usegmt=True)}
    assert code(onelake.blob("GET", "a", headers=old)) == (412, "ConditionNotMet")
    assert code(onelake.blob("GET", "a", headers={"If-Modified-Since": "yesterday"})) == (400, "InvalidHeaderValue")


def test_a_body_that_is_not_what_its_checksum_says_is_not_kept(onelake: Clients) -> None:
    right = base64.b64encode(hashlib.md5(b"abc").digest()).decode()
    assert code(onelake.put("a", b"abd", Content_MD5=right)) == (400, "Md5Mismatch")
    assert onelake.blob("HEAD", "a").status_code == 404
    assert onelake.put("a", b"abc", Content_MD5=right).status_code == 201


def test_a_block_list_whose_answer_was_lost_is_sent_again(onelake: Clients) -> None:
    onelake.blob("PUT", "a", params={"comp": "block", "blockid": "QQ=="}, content=b"A")
    lists, listed = {"comp": "blocklist"}, BLOCKS.format("<Latest>QQ==</Latest>")
    first = onelake.blob("PUT", "a", params=lists, content=listed)
    again = onelake.blob("PUT", "a", params=lists, content=listed)
    assert (again.status_code, again.headers["etag"]) == (201, first.headers["etag"])
    create_only = onelake.blob("PUT", "a", params=lists, content=listed, headers={"If-None-Match": "*"})
    assert code(create_only) == (409, "BlobAlreadyExists")
    onelake.put("a", b"another")
    assert code(onelake.blob("PUT", "a", params=lists, content=listed)) == (400, "InvalidBlockList")


def test_a_list_from_an_offset_includes_it_and_comes_in_pages(onelake: Clients) -> None:
    for number in range(7):
        onelake.put(f"log/{number:03}")
    directory = onelake.at("").partition("/")[2]
    assert names(onelake, onelake.list("log/", startFrom=f"{directory}/log/003")) == [f"log/00{n}" for n in range(3, 7)]
    assert names(onelake, onelake.list("log/00")) == [f"log/00{n}" for n in range(7)]
    found, mark = [], ""
    while True:
        page = onelake.list("log/", maxresults="3", marker=mark)
        found += names(onelake, page)
        mark = marker(page)
        if not mark:
            break
    assert found == [f"log/00{n}" for n in range(7)]
    assert code(onelake.list("log/", marker="x")) == (400, "InvalidQueryParameterValue")
    assert names(onelake, onelake.list("no/")) == []


def test_a_list_spells_items_as_the_client_does(onelake: Clients) -> None:
    onelake.put("a")
    assert names(onelake, onelake.list("", "guids"), "guids") == ["a"]
    (blob,) = ElementTree.fromstring(onelake.list("", "guids").content).findall("Blobs/Blob/Name")
    assert (blob.text or "").startswith(onelake.at("", "guids").split("/")[1])
    items = onelake.plain.get(f"/{WORKSPACE}", params={"restype": "container", "comp": "list", "delimiter": "/"})
    assert names(onelake, items) == ["raw.Lakehouse/"]
    workspaces = onelake.plain.get("/", params={"comp": "list"})
    assert [name.text for name in ElementTree.fromstring(workspaces.content).iter("Name")] == [WORKSPACE]
    assert onelake.plain.head(f"/{WORKSPACE}", params={"restype": "container"}).status_code == 200


def test_directories_are_there_as_in_a_hierarchical_store(onelake: Clients) -> None:
    onelake.put("d/f")
    assert onelake.blob("HEAD", "d").headers["x-ms-meta-hdi_isfolder"] == "true"
    assert code(onelake.put("d")) == (409, "ResourceTypeMismatch")
    assert code(onelake.put("d/f/g")) == (409, "ResourceTypeMismatch")
    assert code(onelake.blob("GET", "d")) == (409, "ResourceTypeMismatch")
    assert code(onelake.blob("DELETE", "d")) == (409, "DirectoryIsNotEmpty")
    assert onelake.blob("DELETE", "d/f").status_code == 202
    assert onelake.blob("HEAD", "d").status_code == 200
    assert onelake.blob("DELETE", "d").status_code == 202
    assert code(onelake.blob("DELETE", "d")) == (404, "BlobNotFound")


def test_a_batch_of_deletes_is_refused_as_onelake_does_and_carried_out_where_that_is_switched_off(
    onelake: Clients,
) -> None:
    onelake.put("a")
    body = "".join(
        f"--b\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
        f"DELETE /{onelake.at(name)} HTTP/1.1\r\n\r\n\r\n"
        for number, name in enumerate(("a", "no"))
    )
    ask = {"params": {"restype": "container", "comp": "batch"}, "content": f"{body}--b--\r\n"}
    headers = {"Content-Type": "multipart/mixed; boundary=b"}
    refused = onelake.plain.post(f"/{WORKSPACE}", **ask, headers=headers)  # type: ignore[arg-type]
    assert code(refused) == (400, "BadRequest")
    assert "Either WorkspaceId or ArtifactId are missing" in refused.json()["error"]["message"]
    onelake.server.served.faults.clear("batch_delete_refused")
    done = onelake.plain.post(f"/{WORKSPACE}", **ask, headers=headers)  # type: ignore[arg-type]
    assert done.status_code == 202
    assert "HTTP/1.1 202" in done.text
    assert "HTTP/1.1 404 BlobNotFound" in done.text
    assert onelake.blob("HEAD", "a").status_code == 404


def test_what_is_not_served_is_refused_by_name(onelake: Clients) -> None:
    assert code(onelake.put("b", b"", x_ms_copy_source="http://x")) == (400, "UnsupportedHeader")
    assert code(onelake.blob("PUT", "a", params={"comp": "lease"})) == (400, "UnsupportedQueryParameter")
    assert code(onelake.blob("GET", "a", params={"comp": "blocklist"})) == (400, "UnsupportedQueryParameter")
