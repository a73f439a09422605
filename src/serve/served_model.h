// What a server has: a language model, or an encoder of texts, which gives embeddings only.
#pragma once

#include "egret/language_model.h"
#include "egret/text_encoder.h"

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace egret::serve {

class ServedModel {
public:
  explicit ServedModel(models::LanguageModel model) : model_(std::move(model)) {}
  explicit ServedModel(models::TextEncoder model) : model_(std::move(model)) {}

  /// Null for an encoder.
  models::LanguageModel* language() noexcept { return std::get_if<models::LanguageModel>(&model_); }
  const models::LanguageModel* language() const noexcept {
    return std::get_if<models::LanguageModel>(&model_);
  }
  /// Most tokens of a text.
  std::int64_t context() const {
    return std::visit([](const auto& model) { return model.context(); }, model_);
  }
  std::int64_t vocabulary() const {
    return std::visit([](const auto& model) { return model.config().vocabulary; }, model_);
  }
  /// Texts that are written at once.
  std::int64_t sequences() const { return language() != nullptr ? language()->sequences() : 1; }

  /// By the pooling of the model's folder.
  std::vector<float> embedding(const std::vector<int>& tokens) {
    if (auto* encoder = std::get_if<models::TextEncoder>(&model_))
      return encoder->embeddings(std::vector<std::vector<int>>{tokens}).at(0);
    return language()->embedding(tokens, language()->pooling());
  }

private:
  std::variant<models::LanguageModel, models::TextEncoder> model_;
};

} // namespace egret::serve
