"""adlfs, by which fsspec, pandas and Dask reach OneLake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import adlfs
import pytest

from tests.support.onelake import BY_GUIDS, BY_NAMES, TOKEN, OneLake


@pytest.fixture(scope="module")
def files() -> Iterator[Any]:
    # adlfs writes https:// before every host itself, but for that of a connection string.
    with OneLake(lists_by_names=True) as server:
        connection = f"BlobEndpoint={server.url}/onelake;SharedAccessSignature=sv=2024-11-04&sig={TOKEN}"
        yield adlfs.AzureBlobFileSystem(connection_string=connection, skip_instance_cache=True)


@pytest.mark.parametrize("root", [BY_NAMES, BY_GUIDS])
def test_files_are_written_read_listed_and_deleted(files: Any, root: str) -> None:
    at = f"{root.removeprefix('onelake://')}/Files/{root[-3:]}"
    files.pipe_file(f"{at}/x", b"abc")
    assert files.cat_file(f"{at}/x") == b"abc"
    assert files.cat_file(f"{at}/x", 1, 2) == b"b"
    large = bytes(range(256)) * 8192
    with files.open(f"{at}/d/y", "wb", block_size=1 << 20) as out:
        out.write(large)
    with files.open(f"{at}/d/y", "rb", block_size=1 << 20) as back:
        back.seek(5)
        assert back.read() == large[5:]
    assert files.find(at) == [f"{at}/d/y", f"{at}/x"]
    assert files.glob(f"{at}/*") == [f"{at}/d", f"{at}/x"]
    assert {entry["name"]: entry["type"] for entry in files.ls(at, detail=True)} == {
        f"{at}/d": "directory",
        f"{at}/x": "file",
    }
    assert next(directories for _, directories, _ in files.walk(at)) == ["d"]
    assert (files.info(f"{at}/x")["size"], files.info(f"{at}/d")["type"]) == (3, "directory")
    assert (files.exists(f"{at}/x"), files.exists(f"{at}/no")) == (True, False)
    with pytest.raises(FileNotFoundError):
        files.cat_file(f"{at}/no")
    files.rm_file(f"{at}/x")
    files.rm(at, recursive=True)
    files.invalidate_cache()
    assert not files.exists(at)
