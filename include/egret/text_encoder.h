// Encoders of text from published checkpoints: BERT and its kin, for embeddings.
#pragma once

#include "egret/nn.h"
#include "egret/pooling.h"
#include "egret/tensor.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace egret::models {

/// Sizes and choices of an encoder, read from config.json.
struct TextEncoderConfig {
  std::string architecture; ///< model_type
  std::int64_t vocabulary = 0, width = 0, layers = 0, heads = 0;
  std::int64_t hidden = 0;           ///< of the feed-forward part
  std::int64_t embedding_width = 0;  ///< of the tables; another than width is projected to it
  std::int64_t positions = 0;        ///< rows of the table of positions
  std::int64_t first_position = 0;   ///< the row of a text's first token
  std::int64_t types = 0;            ///< kinds of tokens: 0 without a table of them
  std::int64_t pad = 0;              ///< the token behind the end of shorter texts
  std::int64_t distance_buckets = 0; ///< of relative positions: 0 without a table of them
  double norm_eps = 1e-12;
  nn::Activation activation = nn::Activation::Gelu;
};

struct TextEncoderOptions {
  std::string device = {};         ///< as use_device(); empty: the one in use
  std::optional<DType> dtype = {}; ///< of weights and states; empty: that of the checkpoint
  std::int64_t batch = 16;         ///< most texts that are read in one run
  std::vector<std::string> ignored_keys = {}; ///< of config.json that egret does not know
};

/// An encoder with its weights. One thread at a time.
class TextEncoder {
public:
  /// Reads a folder in the layout of Hugging Face's hub (docs/encoders.md lists the architectures).
  /// Heads of other tasks in the files are left alone. Configuration and list of tensors are
  /// checked before any weight is read: Error(Unsupported) for an architecture, a key of
  /// config.json or a module of modules.json that egret does not know, Error(File) for damaged
  /// files and for a tensor that is missing, superfluous, no float or of another shape than the
  /// configuration says; each names file and thing. Error(Value) for options out of range.
  static TextEncoder load(const std::filesystem::path& folder,
                          const TextEncoderOptions& options = {});
  ~TextEncoder();
  TextEncoder(TextEncoder&&) noexcept;
  TextEncoder& operator=(TextEncoder&&) noexcept;

  const TextEncoderConfig& config() const noexcept;
  /// Most tokens of a text: positions, or what sentence_bert_config.json says where that is less.
  std::int64_t context() const noexcept;
  std::int64_t weight_bytes() const noexcept;
  /// What the folder says of embeddings (1_Pooling/config.json of sentence-transformers), else
  /// Mean.
  Pooling pooling() const noexcept;

  /// Hidden states f32 [tokens, width] behind the last layer. `types` of the tokens, 0 where empty.
  /// Error(Value) for no tokens, more than context(), tokens that are not in the vocabulary, and
  /// types that are not as many or out of range.
  Tensor hidden(std::span<const int> tokens, std::span<const int> types = {});

  /// The embedding of each text, of length 1, f32 [width], by pooling() unless another is given.
  /// Errors as hidden().
  std::vector<std::vector<float>> embeddings(std::span<const std::vector<int>> texts,
                                             std::optional<Pooling> pooling = {});

private:
  struct Impl;
  explicit TextEncoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The architectures that TextEncoder reads, by the names in config.json.
std::vector<std::string> text_encoder_architectures();

} // namespace egret::models
