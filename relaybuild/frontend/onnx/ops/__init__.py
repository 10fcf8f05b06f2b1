"""Converters of ONNX operators, one small family per file, found by folder."""
