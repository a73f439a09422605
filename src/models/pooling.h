// Embeddings of texts from hidden states.
#pragma once

#include "egret/pooling.h"
#include "egret/tensor.h"

#include <filesystem>
#include <vector>

namespace egret::models {

/// What 1_Pooling/config.json of a folder says, as sentence-transformers writes it; Mean without
/// it. Error(Unsupported) for a module of modules.json beside the transformer, its pooling and the
/// normalization, and for other kinds of pooling.
Pooling pooling_in(const std::filesystem::path& folder);

/// f32 [rows, width] of hidden states f32 [rows, tokens, width]; `lengths` i64 [rows] are the
/// tokens of each text, without them all.
Tensor pooled(const Tensor& hidden, Pooling pooling, const Tensor* lengths = nullptr);

/// Divides by the length; a vector of zeros stays.
void make_unit(std::vector<float>& values);

} // namespace egret::models
