// A GPT whose products are computed in fewer bits than its parameters have.
#pragma once

#include "egret/models.h"

namespace egret::tool {

/// What model(tokens) computes, with the operands of all products rounded to `dtype` first, as
/// autocast does in PyTorch: parameters, norms, sums of blocks and softmax stay in the parameters'
/// type. Logits [batch, positions, vocabulary] are of `dtype`.
Tensor mixed_logits(const models::Gpt& model, const Tensor& tokens, DType dtype);

} // namespace egret::tool
