// What LanguageModel and GenerationBatch share.
#pragma once

#include "egret/language_model.h"
#include "models/language/cached_model.h"

namespace egret::models {

struct LanguageModel::Impl {
  Impl(language::CachedModel made, GenerateOptions proposed, Pooling of_texts)
      : model(std::move(made)), defaults(std::move(proposed)), pooling(of_texts) {}
  language::CachedModel model;
  GenerateOptions defaults;
  Pooling pooling;
};

} // namespace egret::models
