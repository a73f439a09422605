"""Models that egret exports, in ONNX Runtime: onnx_models.py DRIVER [RANDOM_GRAPHS] [PART_OF_A_NAME] (the built oracle_onnx).

Each passes onnx.checker with shapes inferred, and has egret's values within the tolerances of its reference. ONNX Runtime's own
functions have other last digits, so those of the reference are multiplied."""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
import onnxruntime

SCALE = 8
DTYPES = {
    "bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16,
    "u32": np.uint32, "u64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}
# NumPy knows them not, so they are passed as f32.
FOREIGN = {onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT8E4M3FN, onnx.TensorProto.FLOAT8E5M2}


def pass_as_f32(model):
    graph, casts = model.graph, []
    for value in graph.input:
        # Infinities stay what they are.
        exact = {"saturate": 0} if value.type.tensor_type.elem_type != onnx.TensorProto.BFLOAT16 else {}
        if value.type.tensor_type.elem_type in FOREIGN:
            casts.append(onnx.helper.make_node("Cast", [value.name + ".f32"], [value.name], to=value.type.tensor_type.elem_type, **exact))
            value.name, value.type.tensor_type.elem_type = value.name + ".f32", onnx.TensorProto.FLOAT
    nodes = casts + list(graph.node)
    for value in graph.output:
        if value.type.tensor_type.elem_type in FOREIGN:
            nodes.append(onnx.helper.make_node("Cast", [value.name], [value.name + ".f32"], to=onnx.TensorProto.FLOAT))
            value.name, value.type.tensor_type.elem_type = value.name + ".f32", onnx.TensorProto.FLOAT
    del graph.node[:]
    graph.node.extend(nodes)


def array(data, where):
    dtype = np.dtype(DTYPES[where["dtype"]])
    count = int(np.prod(where["dims"], dtype=np.int64))
    return np.frombuffer(data, dtype, count, where["offset"]).reshape(where["dims"])


# Where ONNX Runtime 1.32 departs from the standard, which says what NumPy computes. Each: what it does, the operators and element types
# of a model in which it may, and whether it explains that `found` stands for `wanted`, given the inputs.
DEVIATIONS = [
    ("ReduceSum and ReduceProd of i64 go through f64", {"ReduceSum", "ReduceProd"}, None,
     lambda found, wanted, inputs: found.dtype.kind in "iu" and any(
         magnitude(x, np.sum) >= 2**53 or magnitude(x, np.prod) >= 2**53 for x in inputs if x.dtype.kind in "iu")),
    ("Sin and Cos of f64 have an error of 2^-52 beside 1", {"Sin", "Cos"}, {onnx.TensorProto.DOUBLE},
     lambda found, wanted, inputs: np.abs(found - wanted) <= 2**-52),
    ("Where gives 0 for -0", {"Where"}, None,
     lambda found, wanted, inputs: np.isinf(found) & (found == -wanted)),
]


def magnitude(x, fold):
    return fold(np.maximum(np.abs(x.astype(object)), 1)) if x.size else 0


def deviation_of(model, found, wanted, wrong, inputs):
    """Why ONNX Runtime differs there, or nothing."""
    operators = {node.op_type for node in model.graph.node}
    types = {value.type.tensor_type.elem_type for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]}
    for reason, of, with_types, explains in DEVIATIONS:
        if of & operators and (with_types is None or with_types & types):
            with np.errstate(all="ignore"):
                if np.all(explains(found[wrong], wanted[wrong], inputs)):
                    return reason
    return ""


def difference(found, wanted, error, model, inputs):
    """Empty, or where the arrays differ; a deviation of ONNX Runtime begins with "deviates: "."""
    if found.shape != wanted.shape:
        return f"shape {found.shape}, not {wanted.shape}"
    found, wanted = (a.astype(np.float64) if a.dtype.kind not in "iub" else a for a in (found, wanted))
    with np.errstate(all="ignore"):
        right = found == wanted
        if wanted.dtype.kind == "f":
            right |= np.isnan(found) & np.isnan(wanted)
            right |= ~np.isnan(found) & ~np.isnan(wanted) & (np.abs(found - wanted) <= SCALE * error) & np.isfinite(wanted)
            right |= np.isinf(error)
    if right.all():
        return ""
    reason = deviation_of(model, found, wanted, ~right, inputs)
    if reason:
        return f"deviates: {reason}"
    at = np.unravel_index(np.argmin(right), right.shape)
    return f"{np.sum(~right)} of {right.size} differ: at {tuple(map(int, at))} {found[at]}, not {wanted[at]} (tolerance {error[at]})"


def run(folder, case, data):
    path = folder / case["file"]
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(str(path))
    pass_as_f32(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if "NOT_IMPLEMENTED" in str(error):
            return "no kernel: " + str(error).split(": ")[-1]
        raise
    inputs = {}
    for value, where in zip(session.get_inputs(), case["inputs"], strict=True):
        given = array(data, where)
        inputs[value.name] = given.astype(np.float32) if where["dtype"] in ("bf16", "f8e4m3", "f8e5m2") else given
    problems = []
    for (wanted, errors), found in zip(case["outputs"], session.run(None, inputs), strict=True):
        expected = array(data, wanted)
        error = np.frombuffer(data, np.float64, expected.size, errors).reshape(expected.shape)
        problems.append(difference(np.asarray(found), expected, error, model, [array(data, where) for where in case["inputs"]]))
    serious = "; ".join(f"output {i}: {p}" for i, p in enumerate(problems) if p and not p.startswith("deviates: "))
    return serious or next((p for p in problems if p), "")


def problem_of(folder, case, data):
    try:
        return run(folder, case, data)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"


def problems_of(folder, cases, data):
    """Of each case, in turn, by a process that may be ended by a case: that is its problem then."""
    done = folder / "problems.jsonl"
    found = []
    while len(found) < len(cases):
        done.write_text("")
        child = os.fork()
        if child == 0:
            with done.open("w") as out:
                for case in cases[len(found):]:
                    print(json.dumps(problem_of(folder, case, data)), file=out, flush=True)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        found += [json.loads(line) for line in done.read_text().splitlines()]
        if status != 0:
            found.append(f"ONNX Runtime ended the process: {os.waitstatus_to_exitcode(status)}")
    return found


def main():
    driver, graphs = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "300"
    part = sys.argv[3] if len(sys.argv) > 3 else ""
    np.seterr(all="ignore")
    counts, failures, kinds = collections.Counter(), [], collections.Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        subprocess.run([driver, folder, graphs], check=True)
        data = (folder / "data.bin").read_bytes()
        cases = []
        for line in (folder / "cases.jsonl").read_text().splitlines():
            case = json.loads(line)
            if "refused" in case:
                counts["refused"] += 1
                kinds[case["refused"].split(": ")[-1]] += 1
            elif part in case["name"]:
                cases.append(case)
        for case, problem in zip(cases, problems_of(folder, cases, data), strict=True):
            if problem.startswith("no kernel: "):
                counts["without a kernel"] += 1
                kinds[problem] += 1
            elif problem.startswith("deviates: "):
                counts["deviate"] += 1
                kinds["ONNX Runtime deviates: " + problem.removeprefix("deviates: ")] += 1
            elif problem:
                failures.append(f"{case['name']}: {problem}")
            else:
                counts["equal"] += 1
    for kind, count in kinds.items():
        print(f"{count} x {kind}")
    for failure in failures:
        print("FAILED", failure)
    print(f"ONNX Runtime {onnxruntime.__version__}:", ", ".join(f"{n} {what}" for what, n in counts.items()), f"{len(failures)} differ")
    sys.exit(1 if failures or (not part and counts["equal"] < 1000) else 0)


main()
