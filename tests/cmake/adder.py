"""A program with one model that adds its weights to its input, as a project; knows what its build prints."""

from __future__ import annotations

import json

import numpy as np
import pytest
from runners.consumer import HEAD, OLDEST, Consumer

CMAKES = ["cmake", OLDEST]
GENERATORS = ["Ninja", "Unix Makefiles", "Ninja Multi-Config"]

ADD_ONE = """
relaybuild_add_model(adder MODEL models/net.onnx NAME net TARGET_ISA c CONFIG config.cmake
  OPTIONS --summary ${CMAKE_CURRENT_BINARY_DIR}/net.json)
add_executable(main main.c)
target_link_libraries(main PRIVATE adder)
"""
MAIN = r"""
#include <stdio.h>
#include "net.h"
int main(void) {
  static float x[NET_INPUT_X_SIZE] = {1, 2, 3}, y[NET_OUTPUT_Y_SIZE];
  const RbModelInfo *info = net_describe();
  DLTensor in = rb_tensor(&info->inputs[0], x), out = rb_tensor(&info->outputs[0], y);
  const DLTensor *ins[] = {&in};
  DLTensor *outs[] = {&out};
  RbInstance *instance;
  if (net_create(1, &instance) || net_run(instance, ins, 1, outs, 1)) return 1;
  net_destroy(instance);
  printf("%g %g %g\n", y[0], y[1], y[2]);
  return 0;
}
"""
MODEL, SOURCE, LIBRARY, PROGRAM = (
    "Compiling the model models/net.onnx",
    "Building C object CMakeFiles/main.dir/main.c.o",
    "Linking RELAYBUILD shared library libadder.so",
    "Linking C executable main",
)


def add(consumer: Consumer, weights: tuple[float, ...], *, is_external: bool = False, name: str = "y") -> None:
    """The model: its input and these weights, added; they are in a file of their own if `is_external`."""
    onnx = pytest.importorskip("onnx")
    size = len(weights)
    # onnx leaves small tensors in the model
    value = onnx.numpy_helper.from_array(np.resize(np.array(weights, "float32"), (400, size)), "w")
    ports = [onnx.helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, (400, size)) for each in ("x", name)]
    node = onnx.helper.make_node("Add", ["x", "w"], [name])
    graph = onnx.helper.make_graph([node], "net", ports[:1], ports[1:], [value])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    folder = consumer.folder / "models"
    folder.mkdir(exist_ok=True)
    if is_external:
        # onnx appends to a file that is there
        (folder / "net.data").unlink(missing_ok=True)
        onnx.save(model, folder / "net.onnx", save_as_external_data=True, location="net.data")
    else:
        onnx.save(model, folder / "net.onnx")


def project(consumer: Consumer, text: str = ADD_ONE, *, is_external: bool = False) -> Consumer:
    consumer.write("CMakeLists.txt", HEAD + text)
    consumer.write("main.c", MAIN)
    consumer.write("config.cmake", "include(${CMAKE_CURRENT_LIST_DIR}/more.cmake)\n")
    consumer.write("more.cmake", "set(USE_CODEGENC OFF)\n")
    add(consumer, (1, 2, 3), is_external=is_external)
    return consumer


def places(consumer: Consumer) -> tuple[str, str]:
    """The library and the program, relative to the folder of the build."""
    sub = "Debug/" if "Multi" in consumer.generator else ""
    return f"{sub}libadder.so", f"{sub}main"


def summary(consumer: Consumer) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads((consumer.build / "net.json").read_text())
    return found


def did(consumer: Consumer) -> set[str]:
    """What a build did, without the folder that the configuration is in."""
    return {line.replace("Debug/", "").replace("/Debug", "").removesuffix("\x1b[0m") for line in consumer.work()}
