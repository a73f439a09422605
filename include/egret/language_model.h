// Decoder-only language models from the checkpoints that people have: folders in the layout of
// Hugging Face's hub (config.json, generation_config.json, safetensors) and GGUF files.
#pragma once

#include "egret/gguf.h"
#include "egret/nn.h"
#include "egret/pooling.h"
#include "egret/tensor.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret {
class TokenGrammar;
}

namespace egret::models {

/// Rotary positions: what a pair of dims turns by at each position, worked out from the model's
/// kind of scaling (default, linear, dynamic lengths of llama3, yarn, longrope).
struct Rotary {
  std::vector<float> frequencies; ///< of each pair; dims behind 2 · size() are not turned
  double factor = 1;              ///< of cosine and sine
  bool interleaved = false;       ///< pairs are neighbours; otherwise i and i + size()
};

/// The sizes and choices of a model, read from config.json or the metadata of a GGUF file.
struct LanguageConfig {
  std::string architecture; ///< model_type of config.json, or general.architecture
  std::int64_t vocabulary = 0, width = 0, layers = 0;
  std::int64_t heads = 0, kv_heads = 0, head_size = 0;
  std::int64_t hidden = 0;           ///< of the feed-forward part
  std::int64_t context = 0;          ///< most positions that the model was made for
  std::int64_t original_context = 0; ///< before a scaling of positions extended it; 0: not said
  std::optional<bool> tied; ///< the embedding's table makes the logits; empty: if there is no other
  double norm_eps = 1e-6;
  nn::Activation activation = nn::Activation::Silu;
  Rotary rotary;                        ///< none (no frequencies) with learned positions
  std::optional<Rotary> sliding_rotary; ///< of sliding layers where they have their own
  std::int64_t window = 0;   ///< keys that a query of a sliding layer sees, itself included
  std::vector<bool> sliding; ///< of each layer
  double attention_scale = 1;
  double embedding_scale = 1;
  std::optional<double> attention_softcap, logit_softcap;
  bool attention_bias = false, mlp_bias = false; ///< where the architecture leaves it open
  std::int64_t experts = 0, experts_used = 0, expert_hidden = 0; ///< 0: none
  bool normalize_experts = true;  ///< weights of the experts used sum to 1
  std::vector<bool> expert_layer; ///< of each layer
  std::vector<int> stop;          ///< tokens that end a text
  std::optional<DType> dtype;     ///< that the file says its weights have
};

struct LanguageModelOptions {
  std::string device = {};         ///< as use_device(); empty: the one in use
  std::optional<DType> dtype = {}; ///< of weights and states; empty: that of the checkpoint, f32
                                   ///< for quantized tensors
  /// Of the keys and values in the cache: a float, F8E4M3 and F8E5M2 among them, or I8 with a scale
  /// for each head and position; empty: as the states.
  std::optional<DType> cache = {};
  bool dequantize = false;    ///< packed weights become floats of `dtype` when they are loaded
  std::int64_t context = 0;   ///< positions of a text; 0: what the model has, at most 4096
  std::int64_t sequences = 1; ///< texts that are written at once
  /// Most bytes of keys and values. The cache is paged: its blocks are handed out as texts grow,
  /// and shared by texts that begin alike. 0: as many blocks as all texts have at their most.
  std::int64_t cache_bytes = 0;
  std::int64_t chunk = 512; ///< most tokens of a prompt that are read in one step
  /// A folder with a LoRA adapter as PEFT stores it (adapter_config.json,
  /// adapter_model.safetensors), whose updates are added to what the matrices of a folder's model
  /// give, in `dtype`; empty: none.
  std::filesystem::path adapter = {};
  /// Keys of config.json (or of the metadata) that egret does not know and that may be ignored.
  std::vector<std::string> ignored_keys = {};
};

struct GenerateOptions {
  std::int64_t max_new = 256; ///< most tokens to write
  double temperature = 0;     ///< divides the logits; 0: always the likeliest
  std::int64_t top_k = 0;     ///< only the k likeliest; 0: all
  double top_p = 1;           ///< only the likeliest whose probabilities sum to p
  double min_p = 0;           ///< only those at least so likely, relative to the likeliest
  double repetition_penalty =
      1;                        ///< logits of tokens seen: divided by it if positive, else times it
  double presence_penalty = 0;  ///< taken from the logits of tokens that were written
  double frequency_penalty = 0; ///< likewise, times how often each was
  std::uint64_t seed = 0;
  /// Tokens that end the text; empty: those of the model.
  /// That the text follows (egret/grammar.h): other tokens are never sampled, a stop token only
  /// where the text is complete. A text also ends, with StopReason::Stop, where nothing may follow.
  std::optional<std::vector<int>> stop = {};
  std::shared_ptr<const TokenGrammar> grammar = {};
  std::int64_t top_logprobs = -1; ///< log-probabilities of the sampled token and of so many
                                  ///< likeliest ones; -1: none
  std::int64_t lookup = 0;        ///< most tokens that generate() guesses at once, up to 63
};

/// The natural logarithms of probabilities: softmax of the logits as the model gives them, without
/// temperature, penalties and grammar.
struct TokenLogprob {
  int token = 0;
  float value = 0;
};
struct Logprobs {
  float value = 0;               ///< of the sampled token
  std::vector<TokenLogprob> top; ///< the likeliest first
};

enum class StopReason : std::uint8_t {
  Stop,    ///< a stop token came
  Length,  ///< max_new tokens were written
  Context, ///< the cache is full
  Caller   ///< the callback returned false
};

struct Generated {
  std::vector<int> tokens; ///< without the prompt and the stop token
  StopReason reason = StopReason::Length;
  std::int64_t guessed = 0, accepted = 0; ///< tokens, with GenerateOptions::lookup
};

/// Blocks of the cache (PagedAttention, Kwon et al. 2023).
struct CacheBlocks {
  std::int64_t positions = 0; ///< of a block
  std::int64_t all = 0;
  std::int64_t used = 0;     ///< by texts that are being written; the others are free
  std::int64_t shared = 0;   ///< by several of them
  std::int64_t cached = 0;   ///< free blocks whose tokens are not read again where a text has them
  std::uint64_t copied = 0;  ///< before a text went on in them otherwise (copy on write)
  std::uint64_t evicted = 0; ///< taken from `cached` for others
};

/// A model with its weights and a paged cache of keys and values. One thread at a time.
class LanguageModel {
public:
  /// Reads a folder or a GGUF file (docs/models.md lists the architectures). Configuration and list
  /// of tensors are checked before any weight is read: Error(Unsupported) for an architecture or a
  /// key that egret does not know, Error(File) for damaged files and for a tensor that is missing,
  /// superfluous or of another shape than the configuration says; each names file and thing.
  /// Likewise for the adapter: Error(Unsupported) for kinds other than plain LoRA and beside a GGUF
  /// file, Error(File) for one that is damaged or was made for another model. Error(Value) for
  /// options out of range. Error(Memory), before any weight is read, where weights and cache need
  /// more than is free, or than set_memory_limit() allows, with what would fit.
  static LanguageModel load(const std::filesystem::path& path,
                            const LanguageModelOptions& options = {});
  ~LanguageModel();
  LanguageModel(LanguageModel&&) noexcept;
  LanguageModel& operator=(LanguageModel&&) noexcept;

  const LanguageConfig& config() const noexcept;
  std::int64_t context() const noexcept;      ///< most positions of a text
  std::int64_t sequences() const noexcept;    ///< texts that are written at once
  std::int64_t weight_bytes() const noexcept; ///< of all weights in memory
  std::int64_t cache_bytes() const noexcept;  ///< of keys and values in memory
  CacheBlocks cache_blocks() const noexcept;
  /// What generation_config.json proposes, defaults without it.
  const GenerateOptions& defaults() const noexcept;

  /// Logits f32 [tokens, vocabulary] of a whole text, without the cache. Error(Value) for no
  /// tokens, for more than context() and for one that is not in the vocabulary.
  Tensor logits(std::span<const int> tokens);

  /// The natural logarithm of the probability of each token but the first, given those before it.
  /// Error(Value) as logits(), and for fewer than two tokens.
  std::vector<float> log_probabilities(std::span<const int> tokens);

  /// What the folder says of embeddings (1_Pooling/config.json of sentence-transformers), else
  /// Mean.
  Pooling pooling() const noexcept;
  /// The embedding of a text, of length 1, f32 [width]. Errors as logits().
  std::vector<float> embedding(std::span<const int> tokens, Pooling pooling);

  /// Writes on after `prompt`, a token at a time, each given to `written` as it comes, until a stop
  /// token, max_new tokens, a full cache or a callback that returns false. The part of the prompt
  /// that the cache holds from calls before is not read again. Equal prompt, options and model
  /// give equal tokens. With `lookup`, what followed the last tokens where they stood before is
  /// guessed and checked in one run (speculative decoding, Leviathan et al. 2023, by prompt lookup,
  /// Saxena 2023); the tokens are those that come without, up to the rounding of the kernels.
  /// Error(Value) for a prompt that is empty, longer than context() or not of the vocabulary, for
  /// options out of range, for a model that gives NaN, and for a grammar that no token of the
  /// vocabulary continues. Error(Memory) for a prompt that needs more blocks than are free.
  Generated generate(std::span<const int> prompt, const GenerateOptions& options = {},
                     const std::function<bool(int)>& written = {});

private:
  friend class GenerationBatch;
  struct Impl;
  explicit LanguageModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct PerplexityOptions {
  std::int64_t length = 0; ///< tokens of a window; 0: the model's context()
  std::int64_t stride = 0; ///< tokens between the beginnings of windows; 0: half of a window
};

struct Perplexity {
  double loss = 0;         ///< mean of -log p of the tokens that were scored, in nats
  double value = 0;        ///< e^loss
  std::int64_t tokens = 0; ///< scored
};

/// How well a model predicts a text. The text is read in windows that overlap unless stride is
/// length; each token is scored once, in the first window that has it, but for the first one of a
/// window. `read` is told how many tokens have been read, and may return false to end it there.
/// Error(Value) for fewer than two tokens, a length below 2 or above context(), a stride above the
/// length, and a model that gives NaN.
Perplexity perplexity(LanguageModel& model, std::span<const int> tokens,
                      const PerplexityOptions& options = {},
                      const std::function<bool(std::int64_t read)>& read = {});

/// Several texts that one model writes at the same time, by continuous batching (Orca, Yu et al.
/// 2022): each step reads at most one chunk of one prompt and writes one token of every text whose
/// prompt has been read, in one run of the model. Texts join and leave between steps. What the
/// cache holds of a prompt's beginning is shared, not read again. A text waits while there are no
/// blocks for its prompt; where texts that run need more than there are, those that came last wait
/// again, and what they had is read again later. One thread at a time.
class GenerationBatch {
public:
  using Id = std::uint64_t;

  /// What became of a text in a step: a token, its end, or both.
  struct Event {
    Id id = 0;
    std::optional<int> token;         ///< written; stop tokens are not
    std::optional<Logprobs> logprobs; ///< of the token, with GenerateOptions::top_logprobs
    std::optional<StopReason> ends;   ///< the text is done, its id no longer known
    std::size_t reused = 0;           ///< tokens of its prompt that the cache held already
    std::string error; ///< why it ended where the model failed: it gives NaN, or memory is short
  };

  /// `model` outlives the batch.
  explicit GenerationBatch(LanguageModel& model);
  ~GenerationBatch();
  GenerationBatch(GenerationBatch&&) noexcept;

  /// A text to be written; it waits while as many as sequences() run. Errors as
  /// LanguageModel::generate(), thrown here; Error(Memory) for a prompt that needs more blocks than
  /// the cache has.
  Id add(std::vector<int> prompt, const GenerateOptions& options = {});
  /// Ends a text without an event; nothing for an unknown id.
  void cancel(Id id);
  std::size_t running() const noexcept; ///< texts whose tokens are in the cache
  std::size_t waiting() const noexcept;
  /// How often a text that ran had to wait again because blocks were missing.
  std::uint64_t preempted() const noexcept;
  /// One step; the events in the order in which texts were added. Empty without texts, and where
  /// only a part of a prompt was read. Where the model fails, the texts that it ran for end with an
  /// error and give their blocks back; others, and later ones, are as if those had never been.
  std::vector<Event> step();

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// How quantize_language_model() stores a matrix, with a scale for each group of neighbours in a
/// row.
enum class WeightForm : std::uint8_t {
  Int8,  ///< integers around 0
  Int4,  ///< likewise, two in a byte
  Uint4, ///< 0 to 15, and for each group the integer that stands for 0
  F8E4M3 ///< floats of 8 bits
};
/// int8, int4, uint4, f8e4m3: in this order.
std::vector<std::string> weight_form_names();
/// Error(Value) for another name, with those known.
WeightForm weight_form_named(std::string_view name);

struct QuantizeOptions {
  WeightForm form = WeightForm::Int4;
  std::int64_t group = 0; ///< neighbours with one scale; 0: 32 where values have 4 bits, else a row
  std::vector<std::string> ignored_keys = {}; ///< as in LanguageModelOptions
};

/// What became of a matrix.
struct QuantizedMatrix {
  std::string name;
  double error = 0; ///< 2-norm of the difference over that of the matrix
  std::int64_t bytes_before = 0, bytes_after = 0;
  std::string type; ///< as what it is stored
};

/// Writes a folder that LanguageModel reads, with every matrix of products and the table of tokens
/// in `form`; norms, biases and routers as they are, files of the tokenizer copied. One tensor is
/// in memory at a time, and on an error nothing is left at `out`. Errors as LanguageModel::load()
/// for `folder`, Error(Value) for options out of range and for groups that do not divide a row,
/// Error(File) for an `out` that is not empty or cannot be written.
std::vector<QuantizedMatrix> quantize_language_model(const std::filesystem::path& folder,
                                                     const std::filesystem::path& out,
                                                     const QuantizeOptions& options = {});

struct DequantizeOptions {
  std::optional<DType> dtype = {}; ///< a float, of the matrices; empty: that of each one's scales
  std::vector<std::string> ignored_keys = {}; ///< as in LanguageModelOptions
};

/// Writes a folder of quantize_language_model() as one that has floats only, with the names and
/// shapes that transformers knows: the matrices have the values that the model computes with,
/// rounded to their dtype. Memory, errors and `out` as quantize_language_model(); Error(Value)
/// where no matrix is quantized, Error(DType) for a dtype that is no float.
void dequantize_language_model(const std::filesystem::path& folder,
                               const std::filesystem::path& out,
                               const DequantizeOptions& options = {});

struct GgufExportOptions {
  io::GgmlType type = io::GgmlType::Q4_K;     ///< of matrices, one that quantized_blocks() makes
  std::vector<std::string> ignored_keys = {}; ///< as in LanguageModelOptions
};
struct GgufReport {
  std::vector<QuantizedMatrix> matrices;
  bool tokenizer = false; ///< the folder had one, and the file has it
  /// The keys for tokenizers cannot say it exactly: it stands in the file as a whole too, for egret
  /// and other programs that read tokenizer.huggingface.json.
  bool whole_tokenizer = false;
};

/// Writes a folder's model as a GGUF file with its tokenizer and chat template. Matrices whose rows
/// are not whole blocks of the type are stored as Q8_0, or F16; norms, biases, learned positions
/// and routers as F32. One tensor is in memory at a time. Errors as LanguageModel::load() for
/// `folder` and as GgufWriter for `out`; Error(Value) for weights that are quantized already,
/// Error(Unsupported) for what files of the architecture have no key for, such as another
/// activation.
GgufReport export_gguf(const std::filesystem::path& folder, const std::filesystem::path& out,
                       const GgufExportOptions& options = {});

struct GgufImportOptions {
  std::optional<DType>
      dtype; ///< a float, of the matrices; empty: F16 and BF16 stay, others are f32
  std::vector<std::string> ignored_keys = {}; ///< as in LanguageModelOptions
};

/// Writes a GGUF file's model as a folder that LanguageModel and transformers read: config.json,
/// generation_config.json, model.safetensors in floats, and the tokenizer with the chat template.
/// Blocks have the values that dequantized() gives, rounded to their dtype; norms and biases stay
/// f32. Gives whether the file has a tokenizer. One tensor of the file is in memory at a time, and
/// on an error nothing is left at `out`. Errors as LanguageModel::load() for `file`;
/// Error(Unsupported), before anything is written, for what config.json of the model type has no
/// key for and for a tokenizer that egret does not know; Error(DType) for a dtype that is no float;
/// Error(File) for an `out` that is not empty or cannot be written.
bool import_gguf(const std::filesystem::path& file, const std::filesystem::path& out,
                 const GgufImportOptions& options = {});

/// Writes a folder whose matrices have the updates of an adapter added, each rounded once from f32
/// to its dtype, with the tokenizer's files copied. One tensor is in memory at a time, and on an
/// error nothing is left at `out`. Errors as LanguageModel::load() for `folder`
/// and `adapter`, Error(Value) for quantized weights, Error(File) for an `out` that is not empty or
/// cannot be written.
void merge_adapter(const std::filesystem::path& folder, const std::filesystem::path& adapter,
                   const std::filesystem::path& out,
                   const std::vector<std::string>& ignored_keys = {});

/// The architectures that LanguageModel reads, by the names in config.json.
std::vector<std::string> language_architectures();

} // namespace egret::models
