"""Writes text.json: small tokenizers of each kind with what Hugging Face's `tokenizers` (0.23.3) makes of some texts, and small templates
with what Jinja (3.1.6) makes of them. Run in a virtual environment that has both; ../oracle/templates.py sets Jinja up."""
import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "oracle"))
import templates  # noqa: E402

TEXTS = ["", "Hello world", "  the cat's hat, 12345 times!\n\n\tAnd  again.  ", "naïve café ½ Straße İ ﬁ", "日本語と한국어 🎉👍🏽", "e\u0301 and é",
         "<s>the user's <mask> users</s> x", "a\u00a0b\u3000c\u200bd\u180ee", "\x00\x01\x7f", "THE QUICK brown fox JUMPS over 3.14 lazy dogs",
         "▁the ▁▁ cat", "x" * 120 + " yy"]
LINES = ["the quick brown fox jumps over the lazy dog", "the cat and the hat and the users again", "Hello world, hello there", "12345 naïve café"] * 8
LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def build():
    def special(t):
        t.add_special_tokens([AddedToken("<s>", lstrip=True), AddedToken("</s>", rstrip=True)])
        t.add_tokens([AddedToken("user", single_word=True), AddedToken("<mask>", normalized=False)])

    t = Tokenizer(models.BPE(ignore_merges=True))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=330, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    special(t)
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", t.token_to_id("<s>"))])
    yield "byte-level bpe", t

    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"] + [f"<0x{b:02X}>" for b in range(256)], show_progress=False))
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    yield "bpe with byte fallback", Tokenizer.from_str(json.dumps(j))

    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(LINES, trainers.UnigramTrainer(vocab_size=90, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False))
    special(t)
    yield "unigram", t

    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(LINES, trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    yield "wordpiece", t

    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        t = Tokenizer(models.WordLevel(unk_token="?"))
        t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\s|[aeiou]\w?"), behavior), pre_tokenizers.Digits(True), pre_tokenizers.Punctuation()])
        t.train_from_iterator(LINES, trainers.WordLevelTrainer(vocab_size=60, special_tokens=["?"], show_progress=False))
        yield f"split {behavior}", t


def main():
    out = {"tokenizers": [], "templates": []}
    for name, t in build():
        cases = []
        for text in TEXTS:
            ids = t.encode(text).ids
            cases.append({"text": text, "ids": ids, "back": t.decode(ids, skip_special_tokens=False), "plain": t.decode(ids)})
        out["tokenizers"].append({"name": name, "tokenizer": json.loads(t.to_str()), "cases": cases})
    env = templates.environment()
    for template in templates.CONSTRUCTS.strip("\n").split("\n"):
        try:
            out["templates"].append({"template": template, "text": env.from_string(template).render()})
        except Exception:
            out["templates"].append({"template": template, "text": None})
    whole = templates.CONSTRUCTS.split("{{ undefinedname.attribute")[0]
    out["templates"].append({"template": whole, "text": env.from_string(whole).render()})
    (here / "text.json").write_text(json.dumps(out, ensure_ascii=True, separators=(",", ":")).replace('{"name"', '\n{"name"').replace('{"template"', '\n{"template"') + "\n")


main()
