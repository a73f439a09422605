// Causal attention by its formula, and its gradients.
#include "bench.h"

#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace egret::tool::bench {

namespace {

using Tensors = std::vector<Tensor>;
using ManyFunction = std::function<Tensors(const Tensors&)>;

/// The formula with a causal mask, or, for some of the rows, with their masks as a fourth input.
Tensor attention(const Tensors& in) {
  const double lowest = -std::numeric_limits<double>::infinity();
  Tensor scores = matmul(in[0], in[1].transpose()).to(DType::F32) /
                  std::sqrt(static_cast<double>(in[0].size(-1)));
  scores = in.size() > 3 ? scores + in[3]
                         : where(causal_mask(in[0].size(-2), in[1].size(-2)), scores, lowest);
  Tensor e = exp(scores - scores.max(-1, true));
  return matmul((e / e.sum(-1, true)).to(in[2].dtype()), in[2]);
}

/// The gradients by queries, keys and values; the last input is the gradient of the result. As a
/// softmax is the same with any number taken off, none goes through the maximum.
Tensors attention_gradients(const Tensors& in) {
  Tensors leaves(in.begin(), in.end() - 1);
  for (Tensor& leaf : leaves)
    leaf = leaf.detach().set_requires_grad();
  const double lowest = -std::numeric_limits<double>::infinity();
  const Tensor scores = matmul(leaves[0], leaves[1].transpose()).to(DType::F32) /
                        std::sqrt(static_cast<double>(leaves[0].size(-1)));
  const Tensor seen = where(causal_mask(leaves[0].size(-2), leaves[1].size(-2)), scores, lowest);
  const Tensor mixed = matmul(softmax(seen, -1).to(leaves[2].dtype()), leaves[2]);
  return grad(Tensors{mixed}, leaves, Tensors{in.back()});
}

struct Attention {
  std::int64_t batch, heads, positions, width;
  double columns() const { return static_cast<double>(batch * heads * width); }
  /// Of the causal half of one product.
  double flops() const {
    return columns() * static_cast<double>(positions) * static_cast<double>(positions);
  }
};

Tensor mask_of(std::int64_t positions) {
  Tensor mask =
      where(causal_mask(positions, positions), 0.0, -std::numeric_limits<float>::infinity());
  return mask.eval();
}

/// Queries, keys and values; with `count` 4 the gradient of the result, too.
Tensors attention_inputs(const Attention& a, DType dtype, std::uint64_t set,
                         std::uint64_t count = 3) {
  Tensors inputs;
  for (std::uint64_t i = 1; i <= count; ++i)
    inputs.push_back(random_tensor({a.batch, a.heads, a.positions, a.width}, 16 * set + i, dtype));
  return inputs;
}

/// The last head, [positions, width].
Tensor last_head(const Tensor& t) {
  return t.select(0, t.size(0) - 1).select(0, t.size(1) - 1);
}

/// Where rows of the last head lie in a tensor of all heads.
std::vector<std::int64_t> elements_of_rows(const Attention& a,
                                           const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> elements;
  for (std::int64_t row : rows)
    for (std::int64_t i = 0; i < a.width; ++i)
      elements.push_back(((a.batch * a.heads - 1) * a.positions + row) * a.width + i);
  return elements;
}

Case attention_case(const std::string& name, const Attention& a, DType dtype) {
  const Tensor mask = mask_of(a.positions);
  auto make = [=](std::uint64_t set) { return attention_inputs(a, dtype, set); };
  auto sample = [=](const Tensors& inputs) {
    auto rows = sample_rows(a.positions, 8);
    auto as_input = [&](const Tensor& t) { return t.reshape({1, 1, t.size(0), a.width}); };
    Sample s;
    s.inputs = {as_input(some_rows(last_head(inputs[0]), rows)), as_input(last_head(inputs[1])),
                as_input(last_head(inputs[2])), some_rows(mask, rows)};
    s.elements = elements_of_rows(a, rows);
    return s;
  };
  Case c = pure_case(name, attention, make, sample, dtype == DType::F32 ? 1e-5 : 1.6e-2);
  c.flops = 2 * a.flops();
  c.bytes =
      4 * static_cast<double>(size_of(dtype)) * a.columns() * static_cast<double>(a.positions);
  return c;
}

/// Gradients of one head at some positions, in f64 but for the inner products.
struct HeadGradients {
  std::vector<double> queries, keys, values; ///< [positions asked for, width] each
};

class HeadReference {
public:
  explicit HeadReference(const Tensors& in)
      : n_(static_cast<std::size_t>(in[0].size(-2))),
        width_(static_cast<std::size_t>(in[0].size(-1))) {
    for (const Tensor& t : in)
      heads_.push_back(last_head(t).to_vector<float>());
    for (const std::size_t i : {1u, 2u})
      turned_.push_back(turned(heads_[i]));
  }

  /// All rows are gone through: each adds to the gradients of the keys and values before it.
  HeadGradients at(const std::vector<std::int64_t>& positions) const {
    HeadGradients g;
    for (auto* list : {&g.queries, &g.keys, &g.values})
      list->assign(positions.size() * width_, 0);
    std::vector<float> scores(n_), products(n_);
    std::vector<double> weights(n_);
    const double scale = 1 / std::sqrt(static_cast<double>(width_));
    for (std::size_t row = 0; row < n_; ++row) {
      times(heads_[0], row, turned_[0], scores);
      times(heads_[3], row, turned_[1], products);
      double sum = 0, mixed = 0;
      const float most = *std::max_element(scores.begin(), scores.begin() + signed_of(row) + 1);
      for (std::size_t j = 0; j <= row; ++j)
        sum += weights[j] = std::exp((scores[j] - most) * scale);
      for (std::size_t j = 0; j <= row; ++j)
        mixed += (weights[j] /= sum) * products[j];
      for (std::size_t p = 0; p < positions.size(); ++p) {
        const auto place = static_cast<std::size_t>(positions[p]);
        if (place <= row) {
          add(g.keys, p, weights[place] * (products[place] - mixed) * scale, heads_[0], row);
          add(g.values, p, weights[place], heads_[3], row);
        }
        for (std::size_t j = 0; place == row && j <= row; ++j)
          add(g.queries, p, weights[j] * (products[j] - mixed) * scale, heads_[1], j);
      }
    }
    return g;
  }

private:
  static std::ptrdiff_t signed_of(std::size_t n) { return static_cast<std::ptrdiff_t>(n); }

  std::vector<float> turned(const std::vector<float>& head) const {
    std::vector<float> t(head.size());
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t d = 0; d < width_; ++d)
        t[d * n_ + i] = head[i * width_ + d];
    return t;
  }

  /// A row's inner products with what stands at the positions up to its own.
  void times(const std::vector<float>& head, std::size_t row, const std::vector<float>& others,
             std::vector<float>& result) const {
    std::fill_n(result.begin(), row + 1, 0.0F);
    for (std::size_t d = 0; d < width_; ++d) {
      const float factor = head[row * width_ + d];
      for (std::size_t j = 0; j <= row; ++j)
        result[j] += factor * others[d * n_ + j];
    }
  }

  /// Adds a row of a head, times a factor, to that of position number p.
  void add(std::vector<double>& sums, std::size_t p, double factor, const std::vector<float>& head,
           std::size_t row) const {
    for (std::size_t d = 0; d < width_; ++d)
      sums[p * width_ + d] += factor * head[row * width_ + d];
  }

  std::size_t n_, width_;
  std::vector<std::vector<float>> heads_, turned_; ///< of all inputs; of keys and values
};

Case gradient_case(const std::string& name, const Attention& a, DType dtype) {
  const Tensors inputs = attention_inputs(a, dtype, 0, 4);
  auto compiled =
      std::make_shared<Compiled<ManyFunction>>(compile(ManyFunction(attention_gradients), {name}));
  Case c;
  c.run = [=] { return (*compiled)(inputs); };
  c.check = [=](const Tensors& outputs) {
    const auto chosen = sample_rows(a.positions, 8);
    const HeadGradients expected = HeadReference(inputs).at(chosen);
    const std::vector<double>* each[] = {&expected.queries, &expected.keys, &expected.values};
    Check check{true, 0};
    for (std::size_t o = 0; o < 3; ++o) {
      const auto all = outputs[o].to_vector<float>();
      std::vector<double> actual;
      for (std::int64_t element : elements_of_rows(a, chosen))
        actual.push_back(all[static_cast<std::size_t>(element)]);
      check.include(compare(actual, *each[o], dtype == DType::F32 ? 1e-5 : 1.6e-2));
    }
    return check;
  };
  c.flops = 5 * a.flops();
  c.bytes =
      7 * static_cast<double>(size_of(dtype)) * a.columns() * static_cast<double>(a.positions);
  return c;
}

/// Bytes, should `tensors` of the size of the scores be stored.
double memory_of(const Attention& a, DType dtype, double tensors) {
  return tensors * static_cast<double>(size_of(dtype)) *
         static_cast<double>(a.batch * a.heads * a.positions * (a.positions + 2 * a.width));
}

Workload forward(const std::string& name, const Attention& a, DType dtype, Judged judged) {
  Workload w{name, "softmax of q@k^T/sqrt(d), causally masked, times v", name_of(dtype),
             dtype == DType::F32 ? Limit::PeakFma : Limit::None,
             [=] { return attention_case(name, a, dtype); }};
  w.judged = judged;
  w.memory = memory_of(a, dtype, 3);
  w.small = [=] { return traced(attention, attention_inputs({1, 2, 24, 16}, dtype, 0)); };
  return w;
}

Workload backward(const std::string& name, const Attention& a, DType dtype, Judged judged) {
  Workload w{name, "the gradients of causal attention by q, k and v", name_of(dtype), Limit::None,
             [=] { return gradient_case(name, a, dtype); }};
  w.judged = judged;
  w.memory = memory_of(a, dtype, 6);
  w.small = [=] {
    return traced(attention_gradients, attention_inputs({1, 2, 24, 16}, dtype, 0, 4));
  };
  return w;
}

} // namespace

std::vector<Workload> attention_workloads() {
  const Attention small{1, 8, 1024, 64}, wide{4, 32, 4096, 128}, many{16, 12, 1024, 64};
  return {forward("attention_causal_f32_b1h8s1024d64", small, DType::F32, Judged::Cpu),
          forward("attention_causal_bf16_b4h32s4096d128", wide, DType::BF16, Judged::Cuda),
          forward("attention_causal_bf16_b16h12s1024d64", many, DType::BF16, Judged::Cuda),
          backward("attention_causal_bwd_bf16_b4h32s4096d128", wide, DType::BF16, Judged::Cuda),
          backward("attention_causal_bwd_bf16_b16h12s1024d64", many, DType::BF16, Judged::Cuda)};
}

} // namespace egret::tool::bench
