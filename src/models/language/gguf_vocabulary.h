// What reading and writing the tokenizer of a GGUF file share. Keys are those of llama.cpp's
// gguf-py.
#pragma once

#include "egret/gguf.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace egret::models::language {

/// Kinds of tokens, by GGML's numbers.
enum TokenType : std::int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

/// How words are split, by tokenizer.ggml.pre.
struct WordPattern {
  const char* name;
  const char* pattern;      ///< nullptr: GPT-2's
  bool digits = false;      ///< each digit by itself first
  bool whole_words = false; ///< a word of the vocabulary is a token whatever its merges
  bool nfc = false;
};
inline constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::array kWordPatterns = {
    WordPattern{.name = "gpt-2", .pattern = nullptr},
    WordPattern{.name = "phi-2", .pattern = nullptr},
    WordPattern{.name = "olmo", .pattern = nullptr},
    WordPattern{.name = "smollm", .pattern = nullptr, .digits = true},
    WordPattern{.name = "starcoder", .pattern = nullptr, .digits = true},
    WordPattern{.name = "llama-bpe", .pattern = kLlama3, .whole_words = true},
    WordPattern{.name = "llama3", .pattern = kLlama3, .whole_words = true},
    WordPattern{.name = "dbrx", .pattern = kLlama3},
    WordPattern{.name = "qwen2", .pattern = kQwen2, .nfc = true},
    WordPattern{.name = "deepseek-r1-qwen", .pattern = kQwen2, .nfc = true},
    WordPattern{.name = "tekken", .pattern = kTekken, .whole_words = true},
    WordPattern{.name = "gpt-4o", .pattern = kGpt4o},
};

/// tokenizer.json and tokenizer_config.json as texts.
struct TokenizerFiles {
  std::string tokenizer, config;
};
/// Those of a GGUF file's tokenizer; errors as gguf_tokenizer().
TokenizerFiles tokenizer_files(const io::GgufMetadata& metadata, const std::string& name);

/// The whole tokenizer.json, for what the other keys cannot say.
inline constexpr const char* kTokenizerJson = "tokenizer.huggingface.json";

/// SentencePiece's BPE: two neighbours merge into the piece of the highest score. As ranks: all
/// ways to make a piece of two normal ones, by its score, then by their ids.
std::vector<std::pair<std::size_t, std::size_t>>
merges_by_scores(const std::vector<std::string>& tokens, const std::vector<std::int64_t>& types,
                 const std::vector<double>& scores,
                 const std::unordered_map<std::string_view, std::size_t>& ids);

/// How a tokenizer was put into metadata.
enum class WrittenTokenizer : std::uint8_t {
  None,  ///< the folder has none
  Plain, ///< the keys that all programs read give its ids
  Whole  ///< those keys cannot say it, or only nearly; egret reads kTokenizerJson beside them
};
/// The tokenizer and the chat template of a model's folder as tokenizer.ggml.* and the like, for
/// `vocabulary` rows of the table of tokens. Errors as Tokenizer::load().
WrittenTokenizer put_tokenizer(io::GgufMetadata& metadata, const std::filesystem::path& folder,
                               std::int64_t vocabulary);

} // namespace egret::models::language
