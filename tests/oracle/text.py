"""Compares egret's tokenizers and chat templates with Hugging Face's `tokenizers` and `transformers`.

usage: text.py DRIVER FOLDER [--strings N] [--conversations N]

DRIVER is the program oracle_text; FOLDER holds a folder for each real tokenizer, with tokenizer.json and perhaps tokenizer_config.json.
Further tokenizers of kinds that the folder lacks (Unigram, WordPiece ...) are trained here. Exit code 1 where anything differs.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

RANGES = [  # scripts, symbols, emoji, and what breaks splitters: controls, marks, unassigned and private characters
    (0x20, 0x7E), (0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F),
    (0xE00, 0xE7F), (0x1100, 0x11FF), (0x3040, 0x30FF), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0x1F300, 0x1F64F), (0x1F900, 0x1F9FF),
    (0x2000, 0x206F), (0x2190, 0x22FF), (0x300, 0x36F), (0xFE00, 0xFE0F), (0x0, 0x1F), (0x7F, 0x9F), (0xFF00, 0xFFEF), (0x1D400, 0x1D7FF),
    (0xE000, 0xE0FF), (0x20000, 0x200FF), (0x1F1E6, 0x1F1FF), (0x2460, 0x24FF), (0xF900, 0xFAFF), (0x1E00, 0x1EFF), (0x2581, 0x2581)]
WORDS = """the The HELLO world's don't I'll we've it'S 12345 3.14 1,000,000 foo_bar camelCase HTTPServer def return if (x==0): {} [] => != // /* */
#include <vector> std::string<T>&& λx.x naïve café Straße İstanbul ﬁne ½ ① 東京 こんにちは 안녕하세요 привет שלום مرحبا नमस्ते สวัสดี 👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️ é
\t \n \r\n \n\n\n    \u00a0 \u3000 \u200b \u200d \ufeff \u2028 ▁ ▁▁ <s> </s> <unk> <pad> [CLS] [SEP] <0x0A> <|endoftext|> <|im_start|> <|im_end|> <bos> <eos>
<start_of_turn> <|begin_of_text|> <|eot_id|> <think> </think> <tool_call> user assistant""".split(" ")


def make_text(rng, corpus):
    """A text as bytes: words, code, random characters of mixed scripts, runs of spaces, and at times bytes that are not UTF-8."""
    out = b""
    for _ in range(rng.choice([1, 2, 3, 5, 8, 20])):
        kind = rng.random()
        if kind < 0.35:
            out += rng.choice(WORDS).encode()
        elif kind < 0.5:
            low, high = rng.choice(RANGES)
            out += "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8))).encode()
        elif kind < 0.6:
            begin = rng.randrange(max(1, len(corpus)))
            out += corpus[begin:begin + rng.randint(1, 120)].encode()
        elif kind < 0.7:
            out += rng.choice([b" ", b"  ", b"\n", b"\t", b"\r\n", b"   \n  "]) * rng.randint(1, 4)
        elif kind < 0.75:
            out += bytes(rng.randrange(256) for _ in range(rng.randint(1, 6)))
        elif kind < 0.8:
            out += str(rng.randrange(10 ** rng.randint(1, 12))).encode()
        else:
            out += b" "
    return out


def trained(folder, corpus):
    """Small tokenizers of other kinds, from the corpus."""
    lines = corpus.split("\n")

    def save(name, tokenizer, trainer):
        tokenizer.train_from_iterator(lines, trainer)
        yield name, tokenizer

    specials = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=4000, special_tokens=specials, show_progress=False))
    t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    yield "trained-wordpiece", t

    for name, byte_fallback in (("trained-unigram", False), ("trained-unigram-bytes", True)):
        t = Tokenizer(models.Unigram())
        t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(__import__("tokenizers").Regex(" {2,}"), " ")])
        t.pre_tokenizer = pre_tokenizers.Metaspace()
        t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]) if byte_fallback else decoders.Metaspace()
        specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
        t.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=3000, unk_token="<unk>", special_tokens=specials, show_progress=False))
        t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
        if byte_fallback:  # byte tokens are no added tokens in real files
            j = json.loads(t.to_str())
            j["model"]["byte_fallback"] = True
            j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
            t = Tokenizer.from_str(json.dumps(j))
        yield name, t

    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="@@"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    t.decoder = decoders.BPEDecoder()
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=3000, special_tokens=["<unk>"], end_of_word_suffix="</w>", continuing_subword_prefix="@@", show_progress=False))
    yield "trained-bpe-affixes", t

    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            t = Tokenizer(models.BPE())
            t.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(__import__("tokenizers").Regex(r"\s|[aeiou]\w?"), behavior, invert), pre_tokenizers.Punctuation("contiguous"),
                pre_tokenizers.ByteLevel(add_prefix_space=invert)])
            t.decoder = decoders.ByteLevel()
            t.train_from_iterator(lines[:300], trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
            from tokenizers import AddedToken
            t.add_tokens([AddedToken("user", single_word=True), AddedToken("world", lstrip=True), AddedToken("naïve", rstrip=True, normalized=False)])
            t.add_special_tokens([AddedToken("<s>", lstrip=True, rstrip=True)])
            yield f"trained-{behavior}{'-inverted' if invert else ''}", t

    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.normalizer = normalizers.NFKD()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")])
    t.train_from_iterator(lines, trainers.WordLevelTrainer(vocab_size=3000, special_tokens=["<unk>"], show_progress=False))
    yield "trained-words", t


def take(stream, form):
    return struct.unpack(form, stream.read(struct.calcsize(form)))


def compare(driver, name, path, oracle, texts):
    """How many texts differ in ids, in the text back, or when streamed."""
    oracle.no_truncation()
    oracle.no_padding()
    with tempfile.TemporaryFile() as requests, tempfile.TemporaryFile() as answers:
        for text in texts:
            requests.write(struct.pack("<I", len(text)) + text)
        requests.seek(0)
        subprocess.run([driver, "tokenize", path], stdin=requests, stdout=answers, check=True)
        answers.seek(0)
        bad = 0
        for text in texts:
            (count,) = take(answers, "<I")
            ids = list(take(answers, f"<{count}I"))
            back, plain, streamed = (answers.read(take(answers, "<I")[0]) for _ in range(3))
            want = oracle.encode(text.decode("utf-8", "replace")).ids
            want_back = oracle.decode(want, skip_special_tokens=False).encode()
            want_plain = oracle.decode(want, skip_special_tokens=True).encode()
            wrong = [what for what, differs in (("ids", ids != want), ("text", back != want_back), ("text without special tokens", plain != want_plain),
                                                ("streamed text", streamed != back and "\ufffd".encode() not in back)) if differs]
            if wrong:
                bad += 1
                if bad <= 3:
                    print(f"  {name}: {', '.join(wrong)} of {text!r}\n    {ids}\n    {want}\n    {back!r}\n    {want_back!r}\n    {streamed!r}")
    print(f"{name}: {len(texts)} texts, {bad} differ", flush=True)
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--strings", type=int, default=20000)
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rng = random.Random(1)
    source = pathlib.Path(__file__).resolve().parents[2]
    corpus = "\n".join(p.read_text() for p in sorted((source / "docs").glob("*.md")))[:400000]
    texts = [make_text(rng, corpus) for _ in range(options.strings)]
    bad = 0
    for path in sorted(options.folder.glob("**/tokenizer.json")):
        name = str(path.parent.relative_to(options.folder)).split("/")[0]
        if options.only in name:
            bad += compare(options.driver, name, path, Tokenizer.from_file(str(path)), texts)
    with tempfile.TemporaryDirectory() as made:
        for name, tokenizer in trained(made, corpus):
            if options.only in name:
                path = pathlib.Path(made) / f"{name}.json"
                tokenizer.save(str(path))
                bad += compare(options.driver, name, path, tokenizer, texts[:options.strings // 4])
    if options.only in "templates":
        import templates
        bad += templates.compare(options.driver, options.folder, rng, options.conversations)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
