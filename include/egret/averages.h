// Means over steps: of gradients, so that several batches make one step, and of parameters.
#pragma once

#include "egret/nn.h"
#include "egret/tensor.h"
#include "egret/tree.h"

#include <map>
#include <string>
#include <vector>

namespace egret::optim {

/// Adds up the gradients of several batches and then gives their mean, as if they were one batch.
/// Its sums are a tree, so both halves may be compiled functions:
///
///   auto part = compile([](Model& m, optim::Accumulator& sums, const Tensor& x, const Tensor& y) {
///     Tensor loss = mse_loss(m(x), y);
///     loss.backward();
///     sums.add();
///     return loss;
///   });
///   auto whole = compile([](optim::AdamW& optimizer, optim::Accumulator& sums) {
///     sums.give();
///     optimizer.step();
///     optimizer.zero_grad();
///   });
class Accumulator {
public:
  explicit Accumulator(std::vector<NamedTensor> parameters);
  /// Adds the parameters' gradients to the sums and removes them. One that has none adds 0.
  void add();
  /// Puts sums / count into the parameters' gradients and starts from 0. With a count of 0 they
  /// are 0.
  void give();

  Tensor count; ///< f32, rank 0: how often something was added
  std::map<std::string, Tensor> sums;

  template <class V>
  void visit(V& v) {
    v("count", count);
    v("sums", sums);
  }

private:
  std::vector<NamedTensor> parameters_;
};

/// Exponential moving averages of parameters: a = decay a + (1 - decay) p at each update, from
/// their first values on. With `warmup` the decay of update n (from 1) is min(decay, (1 + n) / (10
/// + n)), so that the first values are soon forgotten.
class Ema {
public:
  explicit Ema(std::vector<NamedTensor> parameters, double decay = 0.999, bool warmup = false);
  void update();
  /// Exchanges the averages with the parameters; again, and all is as before. For measurements
  /// with the averages.
  void swap();

  Tensor updates; ///< f32, rank 0
  std::map<std::string, Tensor> averages;

  template <class V>
  void visit(V& v) {
    v("updates", updates);
    v("averages", averages);
  }

private:
  std::vector<NamedTensor> parameters_;
  double decay_;
  bool warmup_;
};

} // namespace egret::optim
