// Activation checkpointing: gradients of a chain of parts with the memory of one of them. The
// values between parts are kept, those within a part are computed again on the way back (Chen et
// al. 2016, "Training Deep Nets with Sublinear Memory Cost").
//
//   std::vector<nn::Part> parts;
//   for (const auto& block : model.blocks)
//     parts.push_back([&](const Tensor& x, Generator* g) { return block(x, g); });
//   Tensor loss = nn::backward_in_parts(parts, x, [&](const Tensor& y) { return mse_loss(y,
//   target); },
//                                       nn::named_parameters(model), &generator);
//   optimizer.step();
#pragma once

#include "egret/nn/module.h"
#include "egret/random.h"

#include <functional>
#include <vector>

namespace egret::nn {

/// One part of a model. It draws from the generator that it is given, if any, and from no other.
using Part = std::function<Tensor(const Tensor& x, Generator* generator)>;

/// loss(parts[n-1](... parts[0](x))), whose gradients are added to those of `parameters`, as
/// backward() would add them; x gets none. Each part runs twice, with the same random numbers, and
/// layers that update statistics (BatchNorm) do so at both runs. It computes at once, part by part.
/// Within a compiled function it is backward() through the chain: there each part runs once, and
/// CompileOptions::memory_limit decides what is computed again.
Tensor backward_in_parts(const std::vector<Part>& parts, const Tensor& x,
                         const std::function<Tensor(const Tensor&)>& loss,
                         const std::vector<NamedTensor>& parameters,
                         Generator* generator = nullptr);

} // namespace egret::nn
