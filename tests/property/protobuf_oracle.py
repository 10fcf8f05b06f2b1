"""A process that encodes messages of the remote-execution API by the protocol buffers that BuildGrid brings.

Run by the interpreter of BuildGrid's environment. Each line of the input is JSON, `[name, fields]`; the answer is a
line of hexadecimal digits.
"""

from __future__ import annotations

import json
import sys

from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2
from buildgrid._protos.google.bytestream import bytestream_pb2
from buildgrid._protos.google.rpc import error_details_pb2, status_pb2
from google.protobuf.json_format import ParseDict

# Details of a status are found by their type in what was imported.
MODULES = (remote_execution_pb2, bytestream_pb2, status_pb2, error_details_pb2)


def message(name: str) -> type:
    head, *rest = name.split(".")
    found: type = next(getattr(module, head) for module in MODULES if hasattr(module, head))
    for each in rest:
        found = getattr(found, each)
    return found


def main() -> None:
    for line in sys.stdin:
        name, fields = json.loads(line)
        print(ParseDict(fields, message(name)()).SerializeToString(deterministic=True).hex(), flush=True)


if __name__ == "__main__":
    main()
