// Small whole programs, written as users write them: bench/peers/families has the same in PyTorch.
#pragma once

#include <egret/egret.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace egret::programs {

using Tensors = std::vector<Tensor>;
using Sizes = std::vector<std::int64_t>;

/// One input: floats are scale · u + shift in f64, rounded to f32 and then to `dtype`, u uniform in
/// [-1, 1); with `below` integers (or bools) of 0 .. below-1. inputs.cpp has the generator.
struct Input {
  Sizes shape;
  DType dtype = DType::F32;
  double scale = 1, shift = 0;
  std::int64_t below = 0;
};

/// Values in [shift - scale, shift + scale).
Input data(Sizes shape, DType dtype = DType::F32, double scale = 1, double shift = 0);
/// Of variance 1 / fan.
Input weight(Sizes shape, std::int64_t fan, DType dtype = DType::F32);
/// Integers of 0 .. below-1.
Input whole(Sizes shape, std::int64_t below, DType dtype = DType::I64);

/// The values of an input; other ones for each pair of numbers. In memory of the device in use.
Tensor make(const Input& input, std::uint64_t set, std::uint64_t number);

using Run = std::function<Tensors(const Tensors&)>;

struct Program {
  std::string name; ///< family/name
  std::vector<Input> inputs;
  Run run;
  bool differentiates = false; ///< inputs of floats require a gradient
};

/// Programs of one scale.
class Programs {
public:
  explicit Programs(bool small) : small_(small) {}
  std::int64_t size(std::int64_t full, std::int64_t small) const { return small_ ? small : full; }
  void add(std::string name, std::vector<Input> inputs, Run run) {
    list_.push_back({std::move(name), std::move(inputs), std::move(run)});
  }
  /// One that asks for gradients.
  void train(std::string name, std::vector<Input> inputs, Run run) {
    list_.push_back({std::move(name), std::move(inputs), std::move(run), true});
  }
  const std::vector<Program>& list() const { return list_; }

private:
  bool small_;
  std::vector<Program> list_;
};

/// A loss and its gradients.
inline Tensors with_gradients(const Tensor& loss, const Tensors& by) {
  Tensors result = {loss};
  const Tensor outputs[] = {loss};
  for (Tensor& gradient : grad(outputs, by))
    result.push_back(std::move(gradient));
  return result;
}
/// Inputs first .. last-1.
inline Tensors some(const Tensors& all, std::size_t first, std::size_t last) {
  return {all.begin() + static_cast<std::ptrdiff_t>(first),
          all.begin() + static_cast<std::ptrdiff_t>(last)};
}

// --- families, a file each
void add_convolutions(Programs& p);
void add_recurrences(Programs& p);
void add_orders(Programs& p);
void add_scatters(Programs& p);
void add_windows(Programs& p);
void add_samplings(Programs& p);
void add_products(Programs& p);
void add_layouts(Programs& p);
void add_updates(Programs& p);
void add_attentions(Programs& p);
void add_experts(Programs& p);
void add_losses(Programs& p);
void add_statistics(Programs& p);
void add_networks(Programs& p);
void add_backbones(Programs& p);
void add_simulations(Programs& p);
void add_algorithms(Programs& p);

} // namespace egret::programs
