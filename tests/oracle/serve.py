"""Drives `egret serve` with the official client of OpenAI's API.

usage: serve.py EGRET

EGRET is the command. Makes a small model with random weights and a tokenizer of single characters, serves it, and calls every endpoint through the
client: whole and streamed answers must agree, seeds must repeat, JSON must validate with jsonschema, tools must be called with valid arguments,
errors must come as the client's own exceptions. Exit code 1 where one does not.
"""
import array
import concurrent.futures
import json
import math
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile

import jsonschema
import openai

WIDTH, LAYERS, HEADS, KV_HEADS, HIDDEN = 32, 2, 4, 2, 64
SPECIAL = ["<s>", "</s>", "<|user|>", "<|system|>", "<|assistant|>", "<|end|>"]
PRINTED = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
OTHERS = [b for b in range(256) if b not in PRINTED]
CHARACTERS = [chr(b) if b in PRINTED else chr(256 + OTHERS.index(b)) for b in range(256)]  # GPT-2's alphabet of bytes
TEMPLATE = ("{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}<tool_call>{\"name\": , \"arguments\": }</tool_call>{% endif %}"
            "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def write_model(folder):
    tokens = SPECIAL + CHARACTERS
    config = {"model_type": "llama", "vocab_size": len(tokens), "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "intermediate_size": HIDDEN,
              "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": False, "eos_token_id": 1, "bos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    kv = WIDTH // HEADS * KV_HEADS
    shapes = {"model.embed_tokens.weight": [len(tokens), WIDTH], "model.norm.weight": [WIDTH], "lm_head.weight": [len(tokens), WIDTH]}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        shapes |= {layer + "input_layernorm.weight": [WIDTH], layer + "post_attention_layernorm.weight": [WIDTH],
                   layer + "self_attn.q_proj.weight": [WIDTH, WIDTH], layer + "self_attn.k_proj.weight": [kv, WIDTH],
                   layer + "self_attn.v_proj.weight": [kv, WIDTH], layer + "self_attn.o_proj.weight": [WIDTH, WIDTH],
                   layer + "mlp.gate_proj.weight": [HIDDEN, WIDTH], layer + "mlp.up_proj.weight": [HIDDEN, WIDTH],
                   layer + "mlp.down_proj.weight": [WIDTH, HIDDEN]}
    rng, header, data = random.Random(1), {}, b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = array.array("f", [1.0] * count if len(shape) == 1 else [rng.gauss(0, 0.3) for _ in range(count)])
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    added = [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
             for i, t in enumerate(SPECIAL)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": TEMPLATE}))


SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 5}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
                                           "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}},
          "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA}}]


def expect(held, what):
    if not held:
        sys.exit(f"serve.py: {what}")
    print(f"ok: {what}")


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    sys.exit(f"serve.py: no {kind.__name__}")


def check(url):
    client = openai.OpenAI(base_url=url, api_key="key", max_retries=0)
    messages = [{"role": "system", "content": "be good"}, {"role": "user", "content": "hello"}]

    def chat(**more):
        return client.chat.completions.create(model="small", messages=messages, max_tokens=24, temperature=0.8, **more)

    expect([m.id for m in client.models.list()] == ["small"] and client.models.retrieve("small").id == "small", "models")
    whole = chat(seed=5)
    text = first_text = whole.choices[0].message.content
    expect(whole.usage.completion_tokens <= 24 and whole.choices[0].finish_reason in ("stop", "length"), "chat")
    expect(chat(seed=5).choices[0].message.content == text, "a seed repeats")
    expect(any(chat().choices[0].message.content != text for _ in range(5)), "no seed does not")
    events = list(chat(seed=5, stream=True, stream_options={"include_usage": True}))
    streamed = "".join(e.choices[0].delta.content or "" for e in events if e.choices)
    expect(streamed == text, "the streamed chat is the whole one")
    expect(events[-1].usage.completion_tokens == whole.usage.completion_tokens, "usage at the end of the stream")
    stop = text[5:7]
    expect(chat(seed=5, stop=[stop]).choices[0].message.content == text[:text.index(stop)], "stop strings")
    expect(chat(seed=5, extra_body={"top_k": 1}).choices[0].message.content ==
           client.chat.completions.create(model="small", messages=messages, max_tokens=24, temperature=0).choices[0].message.content,
           "top_k of 1 is greedy")
    prompt = client.completions.create(model="small", prompt="abc", max_tokens=10, temperature=0)
    parts = client.completions.create(model="small", prompt="abc", max_tokens=10, temperature=0, stream=True)
    expect("".join(p.choices[0].text for p in parts) == prompt.choices[0].text, "completions, whole and streamed")
    ids = client.post("/../tokenize", body={"prompt": "abc"}, cast_to=object)["tokens"]
    expect(client.completions.create(model="small", prompt=ids, max_tokens=10, temperature=0).choices[0].text == prompt.choices[0].text,
           "token ids of /tokenize as a prompt")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        all_texts = list(pool.map(lambda seed: chat(seed=seed).choices[0].message.content, [5, 6, 7, 8] * 8))
    expect(all_texts[0::4] == [text] * 8 and all(len(set(all_texts[i::4])) == 1 for i in range(4)), "16 clients at once")
    stream = chat(stream=True, extra_body={"max_completion_tokens": 24})
    next(iter(stream))
    stream.close()
    expect(chat(seed=5).choices[0].message.content == text, "after a client that left")

    def long_chat(**more):
        return client.chat.completions.create(model="small", messages=messages, max_tokens=600, **more)

    form = {"type": "json_schema", "json_schema": {"name": "stay", "schema": SCHEMA, "strict": True}}
    answers = long_chat(seed=1, n=8, temperature=1.0, response_format=form).choices
    ended = [c.message.content for c in answers if c.finish_reason == "stop"]
    for text in ended:
        jsonschema.validate(json.loads(text), SCHEMA)
    expect(len(answers) == 8 and len(ended) >= 4 and len(set(ended)) > 1, f"{len(ended)} of 8 texts by a schema ended, and validate")
    ended = [c.message.content for c in long_chat(seed=2, n=8, response_format={"type": "json_object"}).choices if c.finish_reason == "stop"]
    expect(ended and all(isinstance(json.loads(text), dict) for text in ended), f"{len(ended)} JSON objects")
    for choice in ["required", {"type": "function", "function": {"name": "weather"}}]:
        answer = long_chat(seed=3, tools=TOOLS, tool_choice=choice).choices[0]
        call = answer.message.tool_calls[0]
        jsonschema.validate(json.loads(call.function.arguments), SCHEMA)
        expect(call.function.name == "weather" and answer.finish_reason == "tool_calls" and answer.message.content is None, "a tool is called")
        after = messages + [answer.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        expect(client.chat.completions.create(model="small", messages=after, tools=TOOLS, max_tokens=5).choices, "the turn behind a call")
    streamed = [c for e in long_chat(seed=3, tools=TOOLS, tool_choice="required", stream=True) for c in e.choices]
    calls = [t for c in streamed for t in c.delta.tool_calls or []]
    jsonschema.validate(json.loads(calls[0].function.arguments), SCHEMA)
    expect(streamed[-1].finish_reason == "tool_calls", "a tool is called in a stream")

    several = chat(seed=5, n=3)
    expect(several.choices[0].message.content == first_text and len({c.message.content for c in several.choices}) == 3, "n texts")
    expect([c.message.content for c in chat(seed=5, n=3).choices] == [c.message.content for c in several.choices], "n texts repeat")
    parts = {}
    for event in chat(seed=5, n=3, stream=True):
        for c in event.choices:
            parts[c.index] = parts.get(c.index, "") + (c.delta.content or "")
    expect([parts[i] for i in range(3)] == [c.message.content for c in several.choices], "n texts in a stream")
    given = chat(seed=5, logprobs=True, top_logprobs=3)
    tokens = given.choices[0].logprobs.content
    told = b"".join(bytes(t.bytes) for t in tokens if t.token not in SPECIAL).decode(errors="replace")
    expect(len(tokens) == given.usage.completion_tokens and told == given.choices[0].message.content,
           "log-probabilities have the tokens of the text")
    expect(all(len(t.top_logprobs) == 3 and t.top_logprobs[0].logprob >= t.logprob for t in tokens), "and the likeliest")
    given = client.completions.create(model="small", prompt="abc", max_tokens=4, temperature=0, logprobs=2).choices[0].logprobs
    expect(all(max(top.values()) == value for top, value in zip(given.top_logprobs, given.token_logprobs)), "greedy tokens are the likeliest")
    vectors = [d.embedding for d in client.embeddings.create(model="small", input=["abc", "hello"]).data]
    plain = [d.embedding for d in client.embeddings.create(model="small", input=["abc", "hello"], encoding_format="float").data]
    expect(all(abs(math.fsum(x * x for x in v) - 1) < 1e-5 for v in vectors) and
           all(abs(x - y) < 1e-6 for v, w in zip(vectors, plain) for x, y in zip(v, w)), "embeddings, as base64 and as numbers")

    error = raises(openai.BadRequestError, lambda: chat(n=17))
    expect(error.param == "n" and error.status_code == 400, "n above 16 is a BadRequestError")
    error = raises(openai.BadRequestError, lambda: chat(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"not": {}}}}))
    expect("'not' is not supported" in str(error), "a schema beyond the subset is a BadRequestError")
    error = raises(openai.NotFoundError, lambda: client.completions.create(model="big", prompt="a"))
    expect(error.code == "model_not_found", "an unknown model is a NotFoundError")
    raises(openai.AuthenticationError, lambda: openai.OpenAI(base_url=url, api_key="other", max_retries=0).models.list())
    error = raises(openai.BadRequestError, lambda: client.completions.create(model="small", prompt="a" * 5000))
    expect(error.code == "context_length_exceeded", "a prompt beyond the context is a BadRequestError")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder)
        (folder / "key").write_text("key\n")
        server = subprocess.Popen([sys.argv[1], "serve", "--model", name, "--name", "small", "--port", "0", "--context", "1024",
                                   "--api-key-file", str(folder / "key")], stderr=subprocess.PIPE, text=True)
        try:
            line = server.stderr.readline()
            expect("http://" in line, "starts: " + line.strip())
            check("http://" + line.split("http://")[1].split(",")[0])
            server.send_signal(signal.SIGINT)
            expect(server.wait(60) == 0, "ends at an interrupt")
        finally:
            server.kill()


main()
