// What LanguageModel and GenerationBatch share.
#pragma once

#include "egret/language_model.h"
#include "models/language/cached_model.h"

namespace egret::models {

struct LanguageModel::Impl {
  Impl(language::CachedModel made, GenerateOptions proposed)
      : model(std::move(made)), defaults(std::move(proposed)) {}
  language::CachedModel model;
  GenerateOptions defaults;
};

} // namespace egret::models
