#!/usr/bin/env python3
"""Makes tests/golden/gguf/tokenizers.json: vocabularies as GGUF files have them, with the ids that the libraries they come from give.

    pip install sentencepiece==0.2.3 tokenizers==0.23.3
    python3 tests/golden/make_gguf_tokenizers.py tests/golden/gguf

"llama" is a model of sentencepiece (BPE with bytes), "gpt2" one of tokenizers (byte-level BPE with the pattern of Llama 3).
"""
import io
import json
import os
import sys

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from make_text import LINES, LLAMA, TEXTS

CASES = [text for text in TEXTS if "\x00" not in text] + ["<|user|>the cat</s>\nhat", "the  cats   hat 1234567"]


def sentence_piece():
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=out, vocab_size=330, model_type="bpe", byte_fallback=True, split_digits=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=1.0, user_defined_symbols=["<|user|>"],
        hard_vocab_limit=False, allow_whitespace_only_pieces=True, minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    types = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 4 if sp.id_to_piece(i) == "<|user|>" else 1
             for i in range(sp.vocab_size())]
    # Control tokens in a text are recognized by GGUF's readers, not by sentencepiece.
    texts = [text for text in CASES if "</s>" not in text and "<s>" not in text]
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": [sp.id_to_piece(i) for i in range(sp.vocab_size())],
            "tokenizer.ggml.scores": [sp.get_score(i) for i in range(sp.vocab_size())], "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.bos_token_id": sp.bos_id(), "tokenizer.ggml.eos_token_id": sp.eos_id(),
            "cases": [{"text": text, "ids": [sp.bos_id()] + sp.encode(text)} for text in texts]}


def byte_level():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=330, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                                     show_progress=False))
    t.add_special_tokens([AddedToken("<s>"), AddedToken("</s>")])
    t.add_tokens([AddedToken("<|user|>", normalized=False)])
    vocabulary = sorted(t.get_vocab().items(), key=lambda item: item[1])
    types = [3 if token in ("<s>", "</s>") else 4 if token == "<|user|>" else 1 for token, _ in vocabulary]
    merges = json.loads(t.to_str())["model"]["merges"]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.tokens": [token for token, _ in vocabulary],
            "tokenizer.ggml.merges": [" ".join(pair) for pair in merges], "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.bos_token_id": t.token_to_id("<s>"), "tokenizer.ggml.eos_token_id": t.token_to_id("</s>"),
            "tokenizer.ggml.add_bos_token": False, "cases": [{"text": text, "ids": t.encode(text).ids} for text in CASES]}


if __name__ == "__main__":
    with open(os.path.join(sys.argv[1], "tokenizers.json"), "w") as f:
        json.dump([sentence_piece(), byte_level()], f, separators=(",", ":"))
        f.write("\n")
