"""Train the digit classifier and write the files of this folder; knows nothing of relaybuild.

Needs PyTorch, scikit-learn, onnx and numpy (`pip install torch==2.13.0 scikit-learn onnx numpy`), and takes half a
minute on a CPU. `python train.py` rewrites, beside itself:

- `digits.onnx`: opset 17, input `image` float32 (1, 1, 8, 8) in 0..1, output `scores` float32 (1, 10), which sum to 1.
  Batch normalization stays in the graph as nodes of its own.
- `heldout.npz`: the 360 of scikit-learn's 1,797 digits that training never saw: `images` uint8 (360, 8, 8) in 0..16,
  and `labels` uint8 (360,).
- `samples/0.pgm` to `samples/9.pgm`: the first held-out image of each digit, as plain-text PGM.

The number of epochs is fixed beforehand: the held-out images choose nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).resolve().parent
SEED = 0
EPOCHS = 80
BATCH = 64
WHITE = 16


def build_network() -> nn.Sequential:
    """The classifier up to its logits: (n, 1, 8, 8) to (n, 10), 24,058 trainable parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def shift_randomly(images: torch.Tensor) -> torch.Tensor:
    """The images, each moved by -1, 0 or 1 pixel along both axes; what enters is black."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    corners = torch.randint(0, 3, (len(images), 2)).tolist()
    return torch.stack([image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(padded, corners)])


def train(network: nn.Sequential, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Fit the network in place, and leave it in evaluation mode."""
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=0.01)
    steps = -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, epochs=EPOCHS, steps_per_epoch=steps)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.02)
    network.train()
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(images)), BATCH):
            optimizer.zero_grad()
            loss_of(network(shift_randomly(images[batch])), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    network.eval()


def convert_layer(layer: nn.Module) -> tuple[str, dict[str, Any], dict[str, torch.Tensor]]:
    """The ONNX operator of one layer: its type, its attributes, and its weights in the order of its inputs."""
    if isinstance(layer, nn.Conv2d):
        padding = [int(pad) for pad in layer.padding]
        return "Conv", {"kernel_shape": list(layer.kernel_size), "pads": padding * 2}, {"weight": layer.weight}
    if isinstance(layer, nn.BatchNorm2d):
        statistics = {name: layer.get_buffer(f"running_{name}") for name in ("mean", "var")}
        return "BatchNormalization", {"epsilon": layer.eps}, {"scale": layer.weight, "bias": layer.bias, **statistics}
    if isinstance(layer, nn.ReLU):
        return "Relu", {}, {}
    if isinstance(layer, nn.MaxPool2d):
        return "MaxPool", {"kernel_shape": [layer.kernel_size] * 2, "strides": [layer.stride] * 2}, {}
    if isinstance(layer, nn.AdaptiveAvgPool2d):
        return "GlobalAveragePool", {}, {}
    if isinstance(layer, nn.Flatten):
        return "Flatten", {"axis": layer.start_dim}, {}
    if isinstance(layer, nn.Linear):
        return "Gemm", {"transB": 1}, {"weight": layer.weight, "bias": layer.bias}
    if isinstance(layer, nn.Softmax):
        return "Softmax", {"axis": layer.dim}, {}
    raise TypeError(f"no ONNX operator for the layer {layer}")


def to_onnx(network: nn.Sequential) -> onnx.ModelProto:
    """The trained network with a softmax at its end, one ONNX node per layer, for one image at a time."""
    layers = [*network, nn.Softmax(1)]
    nodes: list[onnx.NodeProto] = []
    initializers: list[onnx.TensorProto] = []
    for layer in layers:
        operator, attributes, weights = convert_layer(layer)
        name = f"{operator.lower()}{1 + sum(node.op_type == operator for node in nodes)}"
        inputs = [nodes[-1].output[0] if nodes else "image", *(f"{name}.{field}" for field in weights)]
        output = "scores" if layer is layers[-1] else f"{name}.out"
        nodes.append(helper.make_node(operator, inputs, [output], name=name, **attributes))
        values = [tensor.detach().numpy().astype(np.float32) for tensor in weights.values()]
        initializers += map(numpy_helper.from_array, values, inputs[1:])
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 10])],
        initializers,
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, producer_name="examples/digits", ir_version=8, opset_imports=opset)
    onnx.checker.check_model(model, full_check=True)
    return model


def pgm_text(image: np.ndarray) -> str:
    """One uint8 (8, 8) image in 0..16 as a plain PGM file."""
    rows = "\n".join(" ".join(f"{pixel:2d}" for pixel in row) for row in image)
    return f"P2\n8 8\n{WHITE}\n{rows}\n"


def write_samples(images: np.ndarray, labels: np.ndarray) -> None:
    """Write `heldout.npz`, and the first image of each digit under `samples/`."""
    np.savez_compressed(HERE / "heldout.npz", images=images, labels=labels)
    folder = HERE / "samples"
    folder.mkdir(exist_ok=True)
    for digit in range(10):
        (folder / f"{digit}.pgm").write_text(pgm_text(images[np.argmax(labels == digit)]))


def main() -> None:
    torch.manual_seed(SEED)
    digits: Any = load_digits()
    images = digits.images.astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    seen, heldout, seen_labels, heldout_labels = train_test_split(
        images, labels, test_size=0.2, random_state=SEED, stratify=labels
    )
    network = build_network()
    train(network, torch.from_numpy(seen[:, None] / np.float32(WHITE)), torch.from_numpy(seen_labels.astype(np.int64)))

    model = to_onnx(network)
    evaluator = onnx.reference.ReferenceEvaluator(model)
    inputs = heldout[:, None, None] / np.float32(WHITE)
    results: list[Any] = [evaluator.run(None, {"image": image}) for image in inputs]
    scores = np.concatenate([result[0] for result in results])
    with torch.no_grad():
        expected = torch.softmax(network(torch.from_numpy(inputs[:, 0])), 1).numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-5)

    onnx.save(model, HERE / "digits.onnx")
    write_samples(heldout, heldout_labels)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    right = int((scores.argmax(1) == heldout_labels).sum())
    print(f"{parameters} parameters; {right} of {len(heldout)} held-out digits recognised ({right / len(heldout):.2%})")


if __name__ == "__main__":
    main()
