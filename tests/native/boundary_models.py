"""Small models whose libraries have something to do at every boundary: regions of several backends, calls, threads."""

from __future__ import annotations

import relaybuild

CALLS = """#[version = "0.0.5"]
def @main(%x: Tensor[(64), float32], %d: float32) -> Tensor[(64), float32] {
  if (less(%d, -5f)) { tanh(%x) } else { add(@main(multiply(%x, 0.9f), subtract(%d, 1f)), %x) }
}
"""


def calls() -> relaybuild.IRModule:
    """A function that calls itself a few times, so that memory for its calls is needed."""
    return relaybuild.parse(CALLS)


def regions() -> relaybuild.IRModule:
    """Convolution and product for oneDNN, element-wise arithmetic for two more, and softmax and mean for the host."""
    relay = relaybuild.relay
    x = relay.var("x", shape=(1, 8, 20, 20))
    weight = relay.const([[[[0.1 * (i - k)] * 3] * 3 for i in range(8)] for k in range(8)], "float32")
    conv = relay.nn.conv2d(x, weight, padding=(1, 1, 1, 1), channels=8, kernel_size=(3, 3))
    rounded = relay.add(relay.round(relay.multiply(conv, x)), x)
    tanh = relay.tanh(relay.subtract(rounded, relay.negative(x)))
    matrix = relay.const([[0.01 * ((i * k) % 7) for i in range(8)] for k in range(5)], "float32")
    dense = relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(tanh)), matrix, units=5)
    return relaybuild.IRModule.from_expr(relay.Function([x], relay.Tuple([relay.nn.softmax(dense), tanh])))
