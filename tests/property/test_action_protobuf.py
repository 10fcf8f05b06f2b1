"""Messages that are encoded by hand are those of real protocol buffers, byte for byte, and theirs are understood."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaybuild.build.cache.action import FORMAT, ActionBuilder, canonical_json
from relaybuild.build.cache.record import Output, Result
from relaybuild.build.cache.remote import reapi_messages as messages
from relaybuild.digest import Digest, digest_bytes

ORACLE = Path(__file__).with_name("protobuf_oracle.py")
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
# Sizes of one to nine bytes on the wire.
DIGESTS = st.builds(
    lambda seed, size: Digest(digest_bytes(seed).hex, size), st.binary(max_size=3), st.integers(0, 2**62) | st.just(0)
)
INPUTS = st.dictionaries(PATHS, DIGESTS, max_size=5).filter(
    lambda inputs: not any(b.startswith(f"{a}/") for a, b in itertools.permutations(inputs, 2))
)
INSTANCES = st.sampled_from(["", "main", "team/main"])

Oracle = Callable[[str, Mapping[str, Any]], bytes]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """The bytes of a message by its name and fields."""
    found = shutil.which("bgd")
    if found is None:
        pytest.skip("there is no 'bgd' (the package buildgrid), which brings the protocol buffers")
    interpreter = Path(found).resolve().read_text().partition("\n")[0].removeprefix("#!")
    with subprocess.Popen(
        [interpreter, str(ORACLE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(name: str, fields: Mapping[str, Any]) -> bytes:
            print(json.dumps([name, fields]), file=process.stdin, flush=True)
            return bytes.fromhex(process.stdout.readline())

        yield ask
        process.stdin.close()
        process.wait(30)


def digest(of: Digest) -> dict[str, Any]:
    return {"hash": of.hex, "size_bytes": of.size}


def blob(data: bytes) -> str:
    return base64.b64encode(data).decode()


def time_of(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def below_of(inputs: Mapping[str, Digest], folder: str) -> dict[str, Digest]:
    return {name[len(folder) + 1 :]: each for name, each in inputs.items() if name.startswith(f"{folder}/")}


def tree(oracle: Oracle, inputs: Mapping[str, Digest]) -> list[bytes]:
    """The directories that hold some files, the root first, by protocol buffers."""
    heads = sorted({name.partition("/")[0] for name in inputs}, key=str.encode)
    below = {head: tree(oracle, below_of(inputs, head)) for head in heads if head not in inputs}
    root = oracle(
        "Directory",
        {
            "files": [{"name": head, "digest": digest(inputs[head])} for head in heads if head in inputs],
            "directories": [{"name": head, "digest": digest(digest_bytes(found[0]))} for head, found in below.items()],
        },
    )
    return [root, *itertools.chain.from_iterable(below.values())]


@settings(deadline=None, max_examples=60)
@given(
    inputs=INPUTS,
    variables=st.dictionaries(NAMES, TEXTS, max_size=3),
    outputs=st.sets(PATHS, max_size=3),
    option=st.none() | st.integers() | TEXTS,
    namespace=st.sampled_from(["main", "pr-1", "ü"]),
)
def test_actions(
    oracle: Oracle,
    inputs: dict[str, Digest],
    variables: dict[str, str],
    outputs: set[str],
    option: int | str | None,
    namespace: str,
) -> None:
    builder = ActionBuilder("pass", "Fold").option("option", option).output(*outputs)
    for name, each in inputs.items():
        builder.input(name, each)
    for name, value in variables.items():
        builder.environment(name, value)
    action = builder.build()
    command = oracle(
        "Command",
        {
            "arguments": ["relaybuild", "pass", "Fold", canonical_json({"option": option})],
            "environment_variables": [{"name": name, "value": value} for name, value in sorted(variables.items())],
            "output_paths": sorted(outputs),
        },
    )
    directories = tree(oracle, inputs)
    assert action.command == command
    assert list(action.directories) == directories
    assert action.message(namespace) == oracle(
        "Action",
        {
            "command_digest": digest(digest_bytes(command)),
            "input_root_digest": digest(digest_bytes(directories[0])),
            "salt": blob(f"relaybuild/{FORMAT}/{namespace}".encode()),
        },
    )


@settings(deadline=None, max_examples=60)
@given(
    blobs=st.dictionaries(PATHS, st.tuples(DIGESTS, st.booleans()), max_size=3),
    inline=st.binary(max_size=40),
    half_seconds=st.integers(0, 2**33),
    half_seconds_taken=st.integers(0, 2**12),
    origin=TEXTS,
)
def test_results(
    oracle: Oracle,
    blobs: dict[str, tuple[Digest, bool]],
    inline: bytes,
    half_seconds: int,
    half_seconds_taken: int,
    origin: str,
) -> None:
    outputs = [Output(name, each, is_executable) for name, (each, is_executable) in sorted(blobs.items())]
    outputs.append(Output("inline", digest_bytes(inline), contents=inline))
    ended, taken = half_seconds / 2, half_seconds_taken / 2
    began = max(half_seconds - half_seconds_taken, 0)
    assert Result(tuple(outputs), ended, taken, origin).encode() == oracle(
        "ActionResult",
        {
            "output_files": [
                {
                    "path": output.name,
                    "digest": digest(output.digest),
                    "is_executable": output.is_executable,
                    "contents": blob(output.contents or b""),
                }
                for output in outputs
            ],
            "execution_metadata": {
                "worker": origin,
                "worker_start_timestamp": time_of(began * 5 * 10**8),
                "worker_completed_timestamp": time_of(half_seconds * 5 * 10**8),
            },
        },
    )


@settings(deadline=None, max_examples=40)
@given(
    instance=INSTANCES,
    digests=st.lists(DIGESTS, max_size=3),
    data=st.binary(max_size=200),
    offset=st.integers(0, 2**40),
    is_last=st.booleans(),
)
def test_requests(
    oracle: Oracle, instance: str, digests: list[Digest], data: bytes, offset: int, is_last: bool
) -> None:
    listed = [digest(each) for each in digests]
    named = {"instance_name": instance}
    one = digest_bytes(data)
    result = Result((Output("out", one),)).encode()
    assert messages.get_capabilities(instance) == oracle("GetCapabilitiesRequest", named)
    assert messages.find_missing(instance, digests) == oracle(
        "FindMissingBlobsRequest", {**named, "blob_digests": listed}
    )
    assert messages.batch_read(instance, digests) == oracle("BatchReadBlobsRequest", {**named, "digests": listed})
    assert messages.batch_update(instance, [(one, data)] * 2) == oracle(
        "BatchUpdateBlobsRequest", {**named, "requests": [{"digest": digest(one), "data": blob(data)}] * 2}
    )
    assert messages.get_action_result(instance, one) == oracle(
        "GetActionResultRequest", {**named, "action_digest": digest(one)}
    )
    update = messages.update_action_result(instance, one, result)
    rest = oracle("UpdateActionResultRequest", {**named, "action_digest": digest(one)})
    assert update.startswith(rest)
    assert update.endswith(result)
    assert messages.stream_read(instance) == oracle("ReadRequest", {"resource_name": instance})
    assert messages.stream_write(instance, offset, data, is_last=is_last) == oracle(
        "WriteRequest",
        {"resource_name": instance, "write_offset": offset, "finish_write": is_last, "data": blob(data)},
    )
    assert messages.request_metadata("it") == oracle("RequestMetadata", {"tool_details": {"tool_name": "it"}})


@settings(deadline=None, max_examples=40)
@given(
    digests=st.lists(DIGESTS, max_size=4, unique=True),
    data=st.binary(max_size=200),
    code=st.integers(0, 16),
    text=TEXTS,
    size=st.integers(0, 2**40),
    functions=st.lists(st.sampled_from([1, 2, 3, 9]), max_size=3),
    wait=st.none() | st.integers(0, 10**6),
)
def test_answers(
    oracle: Oracle,
    digests: list[Digest],
    data: bytes,
    code: int,
    text: str,
    size: int,
    functions: list[int],
    wait: int | None,
) -> None:
    listed = [digest(each) for each in digests]
    hint = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retry_delay": f"{wait}.5s"}
    status = {"code": code, "message": text, "details": [] if wait is None else [hint]}
    meant = messages.Status(code, text, None if wait is None else wait + 0.5)
    assert messages.read_status(oracle("Status", status)) == meant
    found = messages.read_missing(oracle("FindMissingBlobsResponse", {"missing_blob_digests": listed}))
    assert found == set(digests)
    updated = oracle("BatchUpdateBlobsResponse", {"responses": [{"digest": each, "status": status} for each in listed]})
    assert list(messages.read_updated(updated)) == [(each, meant) for each in digests]
    responses = [{"digest": each, "status": status, "data": blob(data)} for each in listed]
    blobs = messages.read_blobs(oracle("BatchReadBlobsResponse", {"responses": responses}))
    assert list(blobs) == [(each, data, meant) for each in digests]
    assert messages.read_chunk(oracle("ReadResponse", {"data": blob(data)})) == data
    assert messages.read_committed(oracle("WriteResponse", {"committed_size": size})) == size
    capabilities = {
        "cache_capabilities": {
            "digest_functions": functions,
            "action_cache_update_capabilities": {"update_enabled": bool(code)},
            "max_batch_total_size_bytes": size,
        },
        "execution_capabilities": {"exec_enabled": True},
        "low_api_version": {"major": 2},
        "high_api_version": {"major": 2, "minor": 3},
    }
    assert messages.read_capabilities(oracle("ServerCapabilities", capabilities)) == messages.Capabilities(
        frozenset(functions), bool(code), size, (2, 0), (2, 3)
    )
