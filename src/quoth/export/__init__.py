"""Export: a model as an ONNX graph, in float32 or int8, compared with torch before it is accepted."""
