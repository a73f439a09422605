#!/usr/bin/env python3
"""Makes gguf/types.gguf, a file with a tensor of 256 values of each type of GGML that egret reads, and gguf/types.json, the values
that the Python package gguf reads from it.

    pip install gguf
    python3 tests/golden/make_gguf.py tests/golden/gguf
"""
import json
import os
import sys

import gguf
import numpy as np

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
# Bytes of a block at which scales in f16 stand.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}

random = np.random.default_rng(1)
folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
writer = gguf.GGUFWriter(os.path.join(folder, "types.gguf"), "none")
writer.add_uint32("test.u32", 7)
writer.add_int32("test.i32", -7)
writer.add_float32("test.f32", 0.5)
writer.add_bool("test.bool", True)
writer.add_string("test.text", "häh")
writer.add_array("test.texts", ["a", "", "bc"])
writer.add_array("test.numbers", [1, 2, 3])
values = {}
for name in TYPES:
    kind = gguf.GGMLQuantizationType[name]
    size, of_bytes = gguf.GGML_QUANT_SIZES[kind]
    if name in HALVES:
        blocks = random.integers(0, 256, (256 // size, of_bytes), dtype=np.uint8)
        for at in HALVES[name]:
            halves = random.uniform(-0.1, 0.1, (len(blocks), 1)).astype(np.float16)
            blocks[:, at:at + 2] = halves.view(np.uint8)
        data = blocks.reshape(1, -1)
    else:
        numbers = random.uniform(-2, 2, (1, 256)).astype(np.float32)
        data = numbers if name == "F32" else gguf.quants.quantize(numbers, kind)
    writer.add_tensor(name.lower(), data, raw_dtype=kind)
    values[name.lower()] = [float(f"{v:.7g}") for v in gguf.quants.dequantize(data, kind).flatten().tolist()]
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
with open(os.path.join(folder, "types.json"), "w") as f:
    json.dump(values, f, separators=(",", ":"))
    f.write("\n")
