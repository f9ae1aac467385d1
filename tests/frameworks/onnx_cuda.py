# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's CUDA provider, where this machine has it; the model is made here by hand."""

from cases import Skip, case, expect, hash_of, main, need, note


def provider():
    runtime = need("onnxruntime")
    have = runtime.get_available_providers()
    if "CUDAExecutionProvider" not in have:
        raise Skip(f"this ONNX Runtime has only {', '.join(have)}")
    if hasattr(runtime, "preload_dlls"):
        runtime.preload_dlls()
    return runtime


def model():
    import numpy
    onnx = need("onnx")
    from onnx import TensorProto, helper, numpy_helper
    draw = numpy.random.default_rng(0)
    weights = {"w": draw.standard_normal((8, 3, 3, 3)), "m": draw.standard_normal((8, 10)), "b": draw.standard_normal(10)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("GlobalAveragePool", ["r"], ["p"]), helper.make_node("Flatten", ["p"], ["f"]),
             helper.make_node("Gemm", ["f", "m", "b"], ["g"]), helper.make_node("Softmax", ["g"], ["y"], axis=1)]
    graph = helper.make_graph(nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3, 32, 32])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 10])],
                              [numpy_helper.from_array(v.astype("float32"), k) for k, v in weights.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def run(options):
    import numpy
    runtime = provider()
    session = runtime.InferenceSession(model(), providers=[("CUDAExecutionProvider", options)])
    used = session.get_providers()
    expect(used[0] == "CUDAExecutionProvider", f"the session uses {used}")
    note(used)
    x = numpy.random.default_rng(1).standard_normal((4, 3, 32, 32)).astype("float32")
    out = [session.run(None, {"x": x * i})[0] for i in range(1, 4)]
    expect(abs(float(out[0].sum()) - 4) < 1e-3, "the softmax does not add up")
    return hash_of(out)


@case("inference")
def _():
    return run({"cudnn_conv_algo_search": "DEFAULT"})


@case("inference with exhaustive search of algorithms")
def _():
    run({"cudnn_conv_algo_search": "EXHAUSTIVE"})
    return "ran"


if __name__ == "__main__":
    main()
