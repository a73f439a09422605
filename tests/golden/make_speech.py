#!/usr/bin/env python3
"""Makes tests/golden/speech/whisper.json: what transformers computes for a small Whisper of random weights.

    pip install torch==2.13.0 transformers==5.23.0 safetensors   (CPU builds are enough)
    python3 tests/golden/make_speech.py tests/golden/speech

The file has config.json, generation_config.json, names and shapes of tensors (filled as make_language.py says), the log-mel spectrogram
of a sound, hidden states of the encoder, logits of the decoder, and the tokens of transcriptions: of one window without times, and of
three windows with times. The model hears windows of one second.
"""
import json
import os
import sys
import tempfile

import numpy as np
import safetensors.numpy
import torch
import transformers
from transformers.generation.logits_process import (SuppressTokensAtBeginLogitsProcessor, SuppressTokensLogitsProcessor,
                                                    WhisperTimeStampLogitsProcessor)

from make_language import described, filled, numbers

SEED = 4000
POSITIONS = 50  # of the encoder: one second
TEXT, EOT, SOT, EN, DE, TRANSLATE, TRANSCRIBE, NO_TIMES, TIMES = 50, 50, 51, 52, 53, 54, 55, 56, 57
CONFIG = dict(vocab_size=TIMES + POSITIONS + 1, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2,
              encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
              max_source_positions=POSITIONS, max_target_positions=24, pad_token_id=EOT, bos_token_id=EOT, eos_token_id=EOT,
              decoder_start_token_id=SOT)
GENERATION = dict(is_multilingual=True, lang_to_id={"<|en|>": EN, "<|de|>": DE}, task_to_id={"translate": TRANSLATE, "transcribe": TRANSCRIBE},
                  no_timestamps_token_id=NO_TIMES, max_initial_timestamp_index=20, suppress_tokens=[3, 7, SOT, EN, DE, TRANSLATE, TRANSCRIBE],
                  begin_suppress_tokens=[5, EOT], decoder_start_token_id=SOT, eos_token_id=EOT, pad_token_id=EOT, bos_token_id=EOT,
                  max_length=24, return_timestamps=False, prev_sot_token_id=TIMES + POSITIONS)


def sound(seconds):
    """Noise whose loudness changes every tenth of a second, at 16 kHz."""
    count = int(seconds * 16000)
    steps = np.arange(count) // 1600 * 7 % 5
    return (numbers(count, SEED - 1) * steps / 8).astype(np.float32)


def rounded(tensor):
    return [float(f"{v:.6g}") for v in np.asarray(tensor).flatten().tolist()]


def written(model, mel, prompt, times):
    """Greedy tokens behind a prompt, by the rules of transformers for suppressed tokens and times."""
    tokens = list(prompt)
    rules = [SuppressTokensLogitsProcessor(GENERATION["suppress_tokens"]),
             SuppressTokensAtBeginLogitsProcessor(GENERATION["begin_suppress_tokens"], len(prompt))]
    if times:
        rules.append(WhisperTimeStampLogitsProcessor(transformers.GenerationConfig(**GENERATION), len(prompt)))
    closest = np.inf
    while len(tokens) < CONFIG["max_target_positions"]:
        scores = model(mel, decoder_input_ids=torch.tensor([tokens])).logits[:, -1]
        for rule in rules:
            scores = rule(torch.tensor([tokens]), scores)
        if not times:
            scores[:, NO_TIMES:] = -np.inf
        best = torch.topk(scores[0], 2).values
        closest = min(closest, float(best[0] - best[1]))
        tokens.append(int(scores.argmax()))
        if tokens[-1] == EOT:
            break
    print(f"closest race {closest:.4f}")
    return [t for t in tokens[len(prompt):] if t != EOT]


def segmented(model, mels, frames):
    """Windows after each other, each from where the times of the one before end (transcribe.py of OpenAI's whisper)."""
    seek, segments, windows = 0, [], []
    while seek < frames:
        tokens = written(model, mels[:, :, seek:seek + 2 * POSITIONS], [SOT, DE, TRANSLATE], times=True)
        windows.append(tokens)
        begin = seek * 0.01
        is_time = [t >= TIMES for t in tokens]
        pairs = [i + 1 for i in range(len(tokens) - 1) if is_time[i] and is_time[i + 1]]
        single = is_time[-2:] == [False, True]
        if pairs:
            first = 0
            for end in pairs + ([len(tokens)] if single else []):
                part = tokens[first:end]
                segments.append([begin + (part[0] - TIMES) * 0.02, begin + (part[-1] - TIMES) * 0.02, [t for t in part if t < EOT]])
                first = end
            seek += min(2 * POSITIONS, frames - seek) if single else (tokens[first - 1] - TIMES) * 2
        else:
            length = min(2 * POSITIONS, frames - seek) * 0.01
            times = [t for t in tokens if t >= TIMES]
            if times and times[-1] != TIMES:
                length = (times[-1] - TIMES) * 0.02
            segments.append([begin, begin + length, [t for t in tokens if t < EOT]])
            seek += min(2 * POSITIONS, frames - seek)
    return [{"begin": round(b, 4), "end": round(e, 4), "tokens": t} for b, e, t in segments], windows


def make(folder):
    config = transformers.WhisperConfig(**CONFIG)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as path:
        transformers.WhisperForConditionalGeneration(config).save_pretrained(path)
        file = os.path.join(path, "model.safetensors")
        rules = described({key: list(value.shape) for key, value in safetensors.numpy.load_file(file).items()}, 2)
        rules["model.decoder.embed_tokens.weight"]["scale"] = 1.0
        safetensors.numpy.save_file(filled(rules, SEED), file, metadata={"format": "pt"})
        generation = transformers.GenerationConfig(**GENERATION)
        generation.save_pretrained(path)
        saved = json.load(open(os.path.join(path, "config.json")))
        saved_generation = json.load(open(os.path.join(path, "generation_config.json")))
        model = transformers.WhisperForConditionalGeneration.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager").eval()
    listen = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=1)
    short, long = sound(0.83), sound(2.3)
    mel = listen(short, sampling_rate=16000, return_tensors="pt").input_features
    prompt = [SOT, EN, TRANSCRIBE, NO_TIMES, 11, 40]
    with torch.no_grad():
        states = model.model.encoder(mel).last_hidden_state
        logits = model(mel, decoder_input_ids=torch.tensor([prompt])).logits[0]
        plain = written(model, mel, [SOT, EN, TRANSCRIBE, NO_TIMES], times=False)
        mels = listen(np.concatenate([long, np.zeros(16000, np.float32)]), sampling_rate=16000, return_tensors="pt",
                      truncation=False, padding="longest").input_features
        segments, windows = segmented(model, mels, len(long) // 160)
        start = model(mel, decoder_input_ids=torch.tensor([[SOT]])).logits[0, 0]
        language = "en" if start[EN] > start[DE] else "de"
    print("plain", plain, "\ntimed", windows, segments, "\nlanguage", language)
    out = {"config": saved, "generation_config": saved_generation, "tensors": rules, "seed": SEED, "seconds": [0.83, 2.3],
           "mel": rounded(mel[0, :, ::7]), "states": rounded(states[0, ::7]), "prompt": prompt, "logits": rounded(logits),
           "plain": plain, "timed": segments, "windows": windows, "language": language}
    with open(os.path.join(folder, "whisper.json"), "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    make(sys.argv[1])
