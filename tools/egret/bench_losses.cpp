// Cross-entropy, and the gradients of norms and of it.
#include "bench.h"

#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace egret::tool::bench {

namespace {

using Tensors = std::vector<Tensor>;
using ManyFunction = std::function<Tensors(const Tensors&)>;

/// Norm of the rows of in[0], times in[1], plus in[2] when it is there.
Tensor norm(const Tensors& in) {
  Tensor x = in[0].to(DType::F32);
  if (in.size() > 2)
    x = x - x.mean(-1, true);
  Tensor y = x * rsqrt((x * x).mean(-1, true) + 1e-5) * in[1].to(DType::F32);
  return (in.size() > 2 ? y + in[2].to(DType::F32) : y).to(in[0].dtype());
}

/// The gradients of norm() by all its inputs; the last input is the gradient of what it gives.
Tensors norm_gradients(const Tensors& in) {
  Tensors leaves(in.begin(), in.end() - 1);
  for (Tensor& leaf : leaves)
    leaf = leaf.detach().set_requires_grad();
  return grad(Tensors{norm(leaves)}, leaves, Tensors{in.back()});
}

/// What the gradients of the weight and the bias are at a few columns, from all rows, in f64.
std::vector<double> column_gradients(const Tensors& in, const std::vector<std::int64_t>& columns) {
  const auto width = static_cast<std::size_t>(in[0].size(1));
  const auto x = in[0].to_vector<float>(), g = in.back().to_vector<float>();
  const bool centre = in.size() > 3;
  std::vector<double> of_weight(columns.size()), of_bias(columns.size());
  for (std::size_t row = 0; row < x.size(); row += width) {
    double sum = 0, squares = 0;
    for (std::size_t i = row; i < row + width; ++i) {
      sum += x[i];
      squares += static_cast<double>(x[i]) * x[i];
    }
    const auto n = static_cast<double>(width);
    const double mean = centre ? sum / n : 0;
    const double scale = 1 / std::sqrt(squares / n - mean * mean + 1e-5);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::size_t i = row + static_cast<std::size_t>(columns[c]);
      of_weight[c] += g[i] * (x[i] - mean) * scale;
      of_bias[c] += g[i];
    }
  }
  if (centre)
    of_weight.insert(of_weight.end(), of_bias.begin(), of_bias.end());
  return of_weight;
}

std::vector<double> at(const Tensor& tensor, const std::vector<std::int64_t>& places) {
  const auto all = tensor.to_vector<float>();
  std::vector<double> values;
  for (std::int64_t i : places)
    values.push_back(all[static_cast<std::size_t>(i)]);
  return values;
}

Tensors norm_inputs(bool layer, std::int64_t rows, std::int64_t width) {
  const DType dtype = DType::BF16;
  Tensors inputs = {random_tensor({rows, width}, 1, dtype), random_tensor({width}, 2, dtype)};
  if (layer)
    inputs.push_back(random_tensor({width}, 3, dtype));
  inputs.push_back(random_tensor({rows, width}, 4, dtype));
  return inputs;
}

Case norm_gradient_case(const std::string& name, bool layer, std::int64_t rows,
                        std::int64_t width) {
  const Tensors inputs = norm_inputs(layer, rows, width);
  auto compiled =
      std::make_shared<Compiled<ManyFunction>>(compile(ManyFunction(norm_gradients), {name}));
  Case c;
  c.run = [=] { return (*compiled)(inputs); };
  c.check = [=](const Tensors& outputs) {
    // The gradient of a row depends on that row only.
    const auto chosen = sample_rows(rows, 8);
    Tensors few = inputs;
    few.front() = some_rows(inputs.front(), chosen);
    few.back() = some_rows(inputs.back(), chosen);
    Check check = compare(some_rows(outputs[0], chosen).to_vector<double>(),
                          by_reference([&] { return norm_gradients(few)[0]; }), 8e-3);
    const auto columns = sample_rows(width, 16);
    std::vector<double> actual;
    for (std::size_t i = 1; i < outputs.size(); ++i) {
      const auto values = at(outputs[i], columns);
      actual.insert(actual.end(), values.begin(), values.end());
    }
    check.include(compare(actual, column_gradients(inputs, columns), 8e-3));
    return check;
  };
  const auto elements = static_cast<double>(rows * width);
  c.flops = (layer ? 14 : 11) * elements;
  c.bytes = 2 * (3 * elements + (layer ? 4 : 2) * static_cast<double>(width));
  return c;
}

/// The mean over rows of -log softmax(logits)[target].
Tensor cross_entropy_of(const Tensors& in) {
  const Tensor logits = in[0].to(DType::F32);
  Tensor low = logits - logits.max(-1, true).detach();
  Tensor log_p = low - log(exp(low).sum(-1, true));
  return -(log_p * one_hot(in[1], logits.size(-1))).sum(-1).mean();
}

Tensor cross_entropy_gradient(const Tensors& in) {
  const Tensor logits = in[0].detach().set_requires_grad();
  return grad(cross_entropy_of({logits, in[1]}), logits);
}

struct Losses {
  std::string name;
  std::int64_t rows, classes;
  Tensors inputs() const {
    Generator g(2);
    Tensor targets = randint({rows}, 0, classes, g);
    targets.eval();
    return {random_tensor({rows, classes}, 1, DType::BF16), targets};
  }
  double elements() const { return static_cast<double>(rows * classes); }
};

/// In f64, row by row.
double mean_loss(const Tensors& in) {
  const auto logits = in[0].to_vector<float>();
  const auto targets = in[1].to_vector<std::int64_t>();
  const std::size_t classes = logits.size() / targets.size();
  double total = 0;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const float* of_row = logits.data() + row * classes;
    double sum = 0; // normal numbers: exp cannot overflow
    for (std::size_t i = 0; i < classes; ++i)
      sum += std::exp(static_cast<double>(of_row[i]));
    total += std::log(sum) - of_row[targets[row]];
  }
  return total / static_cast<double>(targets.size());
}

Case loss_case(const Losses& sizes) {
  auto inputs = sizes.inputs();
  auto compiled = std::make_shared<Compiled<Function>>(
      compile(Function(cross_entropy_of), {.name = sizes.name}));
  Case c;
  c.run = [=] { return Tensors{(*compiled)(inputs)}; };
  c.check = [=](const Tensors& outputs) {
    return compare({outputs[0].item()}, {mean_loss(inputs)}, 1e-5);
  };
  c.flops = 5 * sizes.elements();
  c.bytes = 2 * sizes.elements();
  return c;
}

Case loss_gradient_case(const Losses& sizes) {
  auto inputs = sizes.inputs();
  auto compiled = std::make_shared<Compiled<Function>>(
      compile(Function(cross_entropy_gradient), {.name = sizes.name}));
  Case c;
  c.run = [=] { return Tensors{(*compiled)(inputs)}; };
  c.check = [=](const Tensors& outputs) {
    // Of a few rows; the mean over fewer rows has gradients that are larger by as much.
    const auto chosen = sample_rows(sizes.rows, 4);
    const Tensors few = {some_rows(inputs[0], chosen), some_rows(inputs[1], chosen)};
    auto expected = by_reference([&] { return cross_entropy_gradient(few).to(DType::F32); });
    for (double& e : expected)
      e *= static_cast<double>(chosen.size()) / static_cast<double>(sizes.rows);
    return compare(some_rows(outputs[0], chosen).to_vector<double>(), expected, 8e-3);
  };
  c.flops = 6 * sizes.elements();
  c.bytes = 4 * sizes.elements();
  return c;
}

/// Of each row x of in[0], the cross-entropy of the logits x in[1]^T with its target in[2].
Tensor linear_cross_entropy(const Tensors& in) {
  const Tensor logits = matmul(in[0], in[1].transpose()).to(DType::F32);
  const Tensor low = logits - logits.max(-1, true);
  const Tensor log_p = low - log(exp(low).sum(-1, true));
  return -(log_p * one_hot(in[2], logits.size(-1))).sum(-1);
}

Tensors linear_inputs(std::int64_t rows, std::int64_t width, std::int64_t classes) {
  Generator g(2);
  Tensor targets = randint({rows}, 0, classes, g);
  targets.eval();
  return {
      random_tensor({rows, width}, 1, DType::BF16),
      random_tensor({classes, width}, 3, DType::BF16, 1 / std::sqrt(static_cast<double>(width))),
      targets};
}

/// The same of some rows, in f64.
std::vector<double> linear_losses(const Tensors& in, const std::vector<std::int64_t>& rows) {
  const auto x = some_rows(in[0], rows).to_vector<float>(), w = in[1].to_vector<float>();
  const auto targets = in[2].to_vector<std::int64_t>();
  const auto width = static_cast<std::size_t>(in[0].size(1)), classes = w.size() / width;
  std::vector<double> losses;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    double sum = 0, chosen = 0; // normal numbers: exp cannot overflow
    for (std::size_t c = 0; c < classes; ++c) {
      double logit = 0;
      for (std::size_t k = 0; k < width; ++k)
        logit += static_cast<double>(x[r * width + k]) * static_cast<double>(w[c * width + k]);
      sum += std::exp(logit);
      if (static_cast<std::int64_t>(c) == targets[static_cast<std::size_t>(rows[r])])
        chosen = logit;
    }
    losses.push_back(std::log(sum) - chosen);
  }
  return losses;
}

Workload linear_loss(const std::string& name, std::int64_t rows, std::int64_t width,
                     std::int64_t classes) {
  const auto m = static_cast<double>(rows), n = static_cast<double>(classes),
             k = static_cast<double>(width);
  Workload w{name, "cross-entropy of each row's logits x@w^T", "bf16"};
  w.make = [=] {
    const Tensors inputs = linear_inputs(rows, width, classes);
    auto compiled = std::make_shared<Compiled<Function>>(
        compile(Function(linear_cross_entropy), {.name = name}));
    Case c;
    c.run = [=] { return Tensors{(*compiled)(inputs)}; };
    c.check = [=](const Tensors& outputs) {
      const auto chosen = sample_rows(rows, 4);
      return compare(at(outputs[0], chosen), linear_losses(inputs, chosen), 8e-3);
    };
    c.flops = 2 * m * n * k;
    c.bytes = 2 * (m * k + n * k) + 12 * m;
    c.product = Product{rows, classes, width, DType::BF16, true};
    return c;
  };
  w.judged = Judged::Cuda;
  w.memory = 2 * (m * k + m * n) + 10 * n * k; // random numbers that the weights are made from
  w.small = [] { return traced(linear_cross_entropy, linear_inputs(6, 72, 264)); };
  return w;
}

} // namespace

std::vector<Workload> loss_workloads() {
  auto make = [](const std::string& name, const char* what, Limit limit, double memory,
                 std::function<Case()> of, std::function<std::string()> small) {
    return Workload{name, what,         "bf16", limit,           std::move(of),
                    0,    Judged::Cuda, memory, std::move(small)};
  };
  const Losses few{"", 6, 264};
  const double rows = 2.0 * 16384 * 4096;
  const double logits = 2.0 * 8192 * 50304;
  const std::string rms = "rmsnorm_bwd_bf16_16384x4096", layer = "layernorm_bwd_bf16_16384x4096";
  const Losses forward{"xent_bf16_8192x50304", 8192, 50304};
  const Losses backward{"xent_bwd_bf16_8192x50304", 8192, 50304};
  return {make(
              rms, "the gradients of an RMS norm: of its rows and its weight", Limit::Copy,
              5 * rows, [rms] { return norm_gradient_case(rms, false, 16384, 4096); },
              [] { return traced(norm_gradients, norm_inputs(false, 12, 264)); }),
          make(
              layer, "the gradients of a layer norm: of its rows, weight and bias", Limit::Copy,
              5 * rows, [layer] { return norm_gradient_case(layer, true, 16384, 4096); },
              [] { return traced(norm_gradients, norm_inputs(true, 12, 264)); }),
          make(
              forward.name, "the mean cross-entropy of logits, computed in f32", Limit::Read,
              2 * logits, [forward] { return loss_case(forward); },
              [few] { return traced(cross_entropy_of, few.inputs()); }),
          make(
              backward.name, "the gradient of the mean cross-entropy by its logits", Limit::Copy,
              4 * logits, [backward] { return loss_gradient_case(backward); },
              [few] { return traced(cross_entropy_gradient, few.inputs()); }),
          linear_loss("linear_xent_bf16_8192x4096x128256", 8192, 4096, 128256)};
}

} // namespace egret::tool::bench
