"""Which kinds of stores there are, also for a thread that asks while another one still imports them."""

from __future__ import annotations

import subprocess
import sys

# As in a web server or a triggerer, where the first threads come at the same time: the first one is held before it
# imports a kind of store, until the second has an address, or waits for the first.
TWO_AT_ONCE = """
import builtins, sys, threading

def parse():
    from airflow_provider_onelake.storage.addresses import TableAddress
    seen.append(str(TableAddress.parse("s3://bucket/t")))

def waits():
    frame = sys._current_frames().get(thread.ident)
    return frame is not None and "importlib" in frame.f_code.co_filename and frame.f_code.co_name == "acquire"

def held(name, *more):
    # The kind of OneLake imports it, and is locked meanwhile.
    if name == "airflow_provider_onelake.storage.azure" and thread.ident is None:
        thread.start()
        while thread.is_alive() and not waits():
            thread.join(0.001)
    return imported(name, *more)

seen, thread, imported = [], threading.Thread(target=parse, daemon=True), builtins.__import__
builtins.__import__ = held
parse()
thread.join()
print(seen)
"""


def test_a_thread_that_comes_while_another_one_imports_the_kinds_knows_all_of_them() -> None:
    program = [sys.executable, "-c", TWO_AT_ONCE]
    run = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert (run.stdout.strip(), run.stderr) == ("['s3://bucket/t', 's3://bucket/t']", "")
