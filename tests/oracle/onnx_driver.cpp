// Writes ONNX models, inputs and egret's values of their outputs for tests/oracle/onnx_models.py.
//
// usage: oracle_onnx FOLDER RANDOM_GRAPHS
//
// FOLDER/cases.jsonl has one line a model: its file, and the dtype, dims and place in
// FOLDER/data.bin of each input, each output and each output's tolerances (f64, one an element).
#include "backend/reference/reference.h"
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/models.h"
#include "egret/nn.h"
#include "egret/random.h"
#include "onnx/export.h"
#include "support/op_cases.h"
#include "support/random_graph.h"
#include "support/typed_graphs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>

namespace egret {
namespace {

using backend::reference::Dims;
using backend::reference::Expected;
using backend::reference::HostArray;

class Cases {
public:
  explicit Cases(const std::string& folder)
      : folder_(folder), list_(folder + "/cases.jsonl"),
        data_(folder + "/data.bin", std::ios::binary) {}

  std::string file() { return fmt::format("{}/{}.onnx", folder_, number_); }

  void add(const std::string& name, const std::vector<HostArray>& inputs,
           const std::vector<Expected>& outputs) {
    std::vector<std::string> in, out;
    for (const HostArray& input : inputs)
      in.push_back(placed(input));
    for (const Expected& output : outputs) {
      std::vector<double> error = output.error;
      error.resize(static_cast<std::size_t>(output.value.size()));
      const std::string value = placed(output.value);
      out.push_back(fmt::format("[{},{}]", value, place(std::as_bytes(std::span(error)))));
    }
    list_ << fmt::format(R"({{"name":"{}","file":"{}.onnx","inputs":[{}],"outputs":[{}]}})", name,
                         number_++, fmt::join(in, ","), fmt::join(out, ","))
          << '\n';
  }

  /// Also those that ONNX has no operators for, with the reason.
  void refused(const std::string& name, const std::string& reason) {
    std::string text;
    for (const char c : reason)
      text += c == '"' || c == '\\' ? '\'' : c;
    list_ << fmt::format(R"({{"name":"{}","refused":"{}"}})", name, text) << '\n';
  }

private:
  std::size_t place(std::span<const std::byte> bytes) {
    const std::size_t at = end_;
    data_.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
    end_ += bytes.size();
    return at;
  }
  std::string placed(const HostArray& array) {
    return fmt::format(R"({{"dtype":"{}","dims":[{}],"offset":{}}})", name_of(array.dtype),
                       fmt::join(array.dims, ","), place(array.bytes));
  }

  std::string folder_;
  std::ofstream list_, data_;
  std::size_t number_ = 0, end_ = 0;
};

void add_graph(Cases& cases, const std::string& name, const ir::Graph& graph,
               const std::vector<HostArray>& inputs) {
  try {
    onnx::write_model(cases.file(), graph, onnx::interface_of(graph, name));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Unsupported)
      throw;
    return cases.refused(name, error.what());
  }
  cases.add(name, inputs, backend::reference::expect(graph, inputs));
}

HostArray array_of(const Tensor& tensor) {
  Dims dims;
  for (const Expr& size : tensor.shape())
    dims.push_back(size.value());
  const std::vector<double> values = tensor.to(DType::F64).to_vector<double>();
  return HostArray(tensor.dtype(), dims, values);
}

// The last digits of long sums differ: tolerances are a share of the largest value.
Expected expected_of(const Tensor& tensor, double share) {
  Expected expected{array_of(tensor), {}};
  if (!is_float(tensor.dtype()))
    return expected;
  double largest = 1e-3;
  for (const double value : expected.value.doubles())
    if (std::isfinite(value))
      largest = std::max(largest, std::abs(value));
  expected.error.assign(static_cast<std::size_t>(expected.value.size()), share * largest);
  return expected;
}

/// A compiled function, called and exported; `states` are inputs before the arguments, and outputs
/// after the results.
template <class F, class... A>
void add_function(Cases& cases, const std::string& name, F&& function, const A&... arguments) {
  auto compiled = compile(std::forward<F>(function), {.name = name});
  auto result = compiled(arguments...);
  std::vector<Expected> outputs;
  for (const Tensor& tensor : detail::result_tensors(result))
    outputs.push_back(expected_of(tensor, 2e-5));
  compiled.export_onnx(cases.file());
  cases.add(name, {array_of(arguments)...}, outputs);
}

Tensor tokens(std::int64_t batch, std::int64_t length, std::int64_t vocabulary) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < batch * length; ++i)
    ids.push_back(i * 7 % vocabulary);
  return tensor(ids).reshape({batch, length});
}

Tensor leaf(Tensor x) {
  x.set_requires_grad();
  return x;
}

struct Mlp {
  nn::Linear in, out;
  Tensor operator()(const Tensor& x) const { return out(relu(in(x))); }
  EGRET_FIELDS(in, out)
};

void add_models(Cases& cases) {
  Generator g(1);
  const Mlp mlp{nn::Linear(20, 33, g), nn::Linear(33, 7, g)};
  const Tensor x = leaf(randn({5, 20}, g));
  add_function(
      cases, "mlp", [&](const Tensor& a) { return softmax(mlp(a), -1); }, x);
  add_function(
      cases, "mlp gradients",
      [&](const Tensor& a, const Tensor& b) {
        return grad(mean(square(mlp(a) - b)), {a, mlp.in.weight});
      },
      x, randn({5, 7}, g));
  add_function(
      cases, "attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v) {
        return scaled_dot_product_attention(q, k, v, {.causal = true});
      },
      randn({2, 4, 9, 8}, g), randn({2, 4, 9, 8}, g), randn({2, 4, 9, 8}, g));
  const models::Gpt gpt({.vocabulary = 50, .context = 16, .layers = 2, .width = 32, .heads = 4}, g);
  add_function(
      cases, "gpt", [&](const Tensor& t) { return gpt(t); }, tokens(2, 12, 50));
  add_function(
      cases, "gpt loss and gradient",
      [&](const Tensor& t, const Tensor& next) {
        const Tensor loss = cross_entropy(gpt(t).reshape({24, 50}), next.reshape({24}));
        return std::vector<Tensor>{loss, grad(loss, {gpt.token_embedding.weight})[0]};
      },
      tokens(2, 12, 50), tokens(2, 12, 50));
  const models::ResNet resnet({.classes = 10, .width = 8, .blocks = {1, 1}}, g);
  add_function(
      cases, "resnet", [&](const Tensor& a) { return resnet(a); }, randn({2, 3, 32, 32}, g));
  const Tensor image = leaf(randn({2, 6, 13, 11}, g)), weight = leaf(randn({8, 3, 3, 2}, g));
  add_function(
      cases, "conv2d",
      [](const Tensor& a, const Tensor& w, const Tensor& b) {
        return conv2d(a, w, b,
                      {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2});
      },
      image, weight, randn({8}, g));
  add_function(
      cases, "conv2d gradients",
      [](const Tensor& a, const Tensor& w) {
        return grad(sum(square(conv2d(a, w, {}, {.stride = 2, .padding = 1, .groups = 2}))),
                    {a, w});
      },
      image, weight);
  add_function(
      cases, "conv1d",
      [](const Tensor& a, const Tensor& w) { return conv1d(a, w, {}, {.padding = 2}); },
      randn({3, 4, 17}, g), randn({5, 4, 3}, g));
  add_function(
      cases, "conv_transpose2d",
      [](const Tensor& a, const Tensor& w) { return conv_transpose2d(a, w, {}, {.stride = 2}); },
      randn({2, 4, 5, 6}, g), randn({4, 3, 3, 3}, g));
  add_function(
      cases, "pooling",
      [](const Tensor& a) {
        return std::vector<Tensor>{max_pool2d(a, 2), avg_pool2d(a, 3, {.stride = 2})};
      },
      image);
  add_function(
      cases, "losses",
      [](const Tensor& a, const Tensor& b) {
        return std::vector<Tensor>{mse_loss(a, b), l1_loss(a, b), huber_loss(a, b),
                                   kl_div(log_softmax(a, -1), softmax(b, -1)),
                                   binary_cross_entropy_with_logits(a, sigmoid(b))};
      },
      x, randn({5, 20}, g));
  add_function(
      cases, "sort and topk",
      [](const Tensor& a) {
        const Sorted down = sort(a, 1, true), first = topk(a, 3, 1), up = sort(a, 0);
        return std::vector<Tensor>{down.values, down.indices, first.values, first.indices,
                                   up.values,   up.indices,   argsort(a, 1)};
      },
      cat({x, full({5, 2}, std::nan("")), full({5, 2}, INFINITY), x, full({5, 1}, -INFINITY)}, 1));
  add_function(
      cases, "einsum and batches",
      [](const Tensor& a, const Tensor& b) {
        return std::vector<Tensor>{einsum("bij,bkj->bik", {a, b}), einsum("bij,ckj->bcik", {a, b}),
                                   einsum("bij,bkj->ik", {a, b}), matmul(a, b.transpose()),
                                   einsum("bij,bkl->ijkl", {a, b})};
      },
      randn({3, 4, 5}, g), randn({3, 6, 5}, g));
  add_function(
      cases, "gathers and scatters",
      [](const Tensor& a, const Tensor& at) {
        return std::vector<Tensor>{gather(a, 1, at), index_select(a, 0, at.select(0, 0)),
                                   scatter_add(a, 1, at, a.narrow(1, 0, 4)), embedding(a, at)};
      },
      x, tokens(5, 4, 5));
}

int run(const std::string& folder, int random_graphs) {
  Cases cases(folder);
  add_models(cases);
  for (const testing::OpCase& op : testing::op_cases())
    add_graph(cases, op.name, op.graph, testing::random_inputs(op.graph, 1));
  for (int seed = 1; seed <= random_graphs; ++seed) {
    const ir::Graph graph = testing::typed_graph(static_cast<std::uint64_t>(seed));
    if (graph.size() < 300)
      add_graph(
          cases, fmt::format("random graph {}", seed), graph,
          testing::random_inputs(graph, static_cast<std::uint64_t>(seed), {.special = false}));
  }
  return 0;
}

} // namespace
} // namespace egret

int main(int argc, char** argv) {
  if (argc != 3)
    return 2;
  try {
    return egret::run(argv[1], std::atoi(argv[2]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
