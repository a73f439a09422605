// The models: what turns a piece of text into tokens.
#pragma once

#include "text/json_fields.h"
#include "text/tables.h"

#include <memory>
#include <string_view>
#include <vector>

namespace egret::text {

/// What one thread needs while it tokenizes; models derive their own.
struct ModelScratch {
  virtual ~ModelScratch() = default;
};

class Model {
public:
  virtual ~Model() = default;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  virtual std::unique_ptr<ModelScratch> scratch() const { return std::make_unique<ModelScratch>(); }
  /// Appends the tokens of a piece of valid UTF-8 that is not empty. `scratch` is one of this
  /// model's.
  virtual void tokenize(std::string_view piece, std::vector<Id>& out,
                        ModelScratch& scratch) const = 0;

protected:
  /// Reads {"token": id ...} into the vocabulary.
  void read_vocabulary(const Field& vocab);
  Vocabulary vocabulary_;
};

/// From "model" of tokenizer.json: BPE, Unigram, WordPiece, WordLevel.
std::unique_ptr<Model> make_model(const Field& model);

std::unique_ptr<Model> make_bpe(const Field& model);
std::unique_ptr<Model> make_unigram(const Field& model);
std::unique_ptr<Model> make_word_piece(const Field& model);
std::unique_ptr<Model> make_word_level(const Field& model);

/// The ids of "<0x00>" to "<0xFF>"; -1 for those that the vocabulary lacks.
std::vector<Id> byte_tokens(const Vocabulary& vocabulary);
/// Appends the byte tokens of a text; false, and nothing is appended, when one is missing.
bool append_byte_tokens(std::string_view text, const std::vector<Id>& bytes, std::vector<Id>& out);

} // namespace egret::text
