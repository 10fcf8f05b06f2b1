"""The whole artifact as one action of the cache: everything that a compiled model depends on, found without compiling.

Nothing here imports numpy, onnx or the IR unless the model, or what was registered, is an object of theirs.
"""
