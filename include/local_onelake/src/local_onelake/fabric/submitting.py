"""What batches of Livy and runs of Spark job definitions have in common: the capacity, and files that Spark sees."""

from __future__ import annotations

from collections.abc import Sequence

from local_onelake.batches import Batch, Batches, Submission
from local_onelake.calls import Call
from local_onelake.refusals import RefusalError, wrong

_SCHEMES = ("abfss://", "abfs://")
_FULL = (
    "[TooManyRequestsForCapacity] This spark job can't be run because you have hit a spark compute or API rate limit, "
    "as the fault asks for."
)


def batches_of(call: Call) -> Batches:
    """Return what runs Spark.

    :raises RefusalError: the server was started without it.
    """
    if call.lake.batches is None:
        raise RefusalError(404, "UnsupportedOperation", "This server has no Spark: start it with --spark-submit.")
    return call.lake.batches


def start(call: Call, item: str, submission: Submission) -> Batch:
    """Start a ``spark-submit`` as the caller, unless a fault says that the capacity is full.

    :param call: the request.
    :param item: the GUID of the item that it is asked of.
    :param submission: what is to run.
    :raises RefusalError: the capacity is full.
    """
    if fault := call.strikes("livy_full"):
        after = {"Retry-After": f"{fault.seconds:.0f}"}
        raise RefusalError(430, "TooManyRequestsForCapacity", _FULL, headers=after)
    refused = _FULL if call.strikes("livy_refused") else None
    token = call.lake.identities.tokens[call.identity]
    return batches_of(call).start(item, call.identity, token, submission, refused)


def check_addresses(addresses: Sequence[object]) -> None:
    """Refuse files that Fabric's Spark does not see, such as those on a disk of this machine.

    :raises RefusalError: an address is none of OneLake.
    """
    for address in addresses:
        if not isinstance(address, str) or not address.startswith(_SCHEMES) or "," in address:
            raise wrong(f"{address!r} is no address of a file in OneLake, as abfss://….", "InvalidRequest")
