// How parameters start. Weights are [outputs, inputs, kernel...]; results are values of f32 that
// require no gradient yet:
//
//   layer.weight = nn::init::kaiming_normal({64, 3, 7, 7}, generator).set_requires_grad();
#pragma once

#include "egret/random.h"
#include "egret/tensor.h"

namespace egret::nn::init {

/// How many inputs each output has, and how many outputs each input. Error(Shape) for fewer than
/// two axes or symbolic ones.
struct Fans {
  double in, out;
};
Fans fans_of(const Shape& shape);

/// Uniform in ± gain √(6 / (in + out)), normal with deviation gain √(2 / (in + out)) (Glorot and
/// Bengio 2010).
Tensor xavier_uniform(const Shape& shape, Generator& generator, double gain = 1);
Tensor xavier_normal(const Shape& shape, Generator& generator, double gain = 1);

struct KaimingOptions {
  double slope = 0; ///< of the leaky relu that follows
  bool out = false; ///< keeps the variance of gradients instead of activations
};
/// Uniform in ± √(6 / ((1 + slope²) n)), normal with deviation √(2 / ((1 + slope²) n)), n the
/// inputs or outputs (He et al. 2015).
Tensor kaiming_uniform(const Shape& shape, Generator& generator,
                       const KaimingOptions& options = {});
Tensor kaiming_normal(const Shape& shape, Generator& generator, const KaimingOptions& options = {});

/// A matrix [outputs, all the rest] whose rows or columns, the fewer ones, are orthogonal with norm
/// `gain` (Saxe et al. 2014). Computed on the host.
Tensor orthogonal(const Shape& shape, Generator& generator, double gain = 1);

/// Normal, but only what lies in [low, high]; on the host. Error(Value) unless low < high and
/// deviation > 0.
Tensor truncated_normal(const Shape& shape, Generator& generator, double mean = 0,
                        double deviation = 1, double low = -2, double high = 2);

} // namespace egret::nn::init
