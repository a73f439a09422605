// Programs that take longer to compile than to run: what is looked at is compile_seconds.
#include "bench.h"

#include "egret/compile.h"
#include "egret/functional.h"

#include <memory>
#include <numeric>

namespace egret::tool::bench {

namespace {

constexpr std::int64_t kBatch = 16, kInput = 64, kHidden = 128;

/// All hidden states [steps, batch, hidden] of an LSTM whose steps are unrolled. `in`: x [steps,
/// batch, input], the weights [input, 4 hidden] and [hidden, 4 hidden], and the bias.
Tensor unrolled_lstm(const std::vector<Tensor>& in) {
  Tensor h = zeros({kBatch, kHidden}), c = zeros({kBatch, kHidden});
  std::vector<Tensor> all;
  for (std::int64_t t = 0; t < in[0].size(0); ++t) {
    const Tensor x = in[0].narrow(0, t, 1).reshape({kBatch, kInput});
    const Tensor z = matmul(x, in[1]) + matmul(h, in[2]) + in[3];
    const auto gate = [&](std::int64_t i) { return z.narrow(1, i * kHidden, kHidden); };
    c = sigmoid(gate(0)) * c + sigmoid(gate(1)) * tanh(gate(2));
    h = sigmoid(gate(3)) * tanh(c);
    all.push_back(h);
  }
  return stack(all);
}

std::vector<Tensor> lstm_inputs(std::int64_t steps, std::uint64_t set) {
  return {random_tensor({steps, kBatch, kInput}, 4 * set + 1),
          random_tensor({kInput, 4 * kHidden}, 4 * set + 2, DType::F32, 0.1),
          random_tensor({kHidden, 4 * kHidden}, 4 * set + 3, DType::F32, 0.1),
          random_tensor({4 * kHidden}, 4 * set + 4)};
}

Case lstm_case(const std::string& name, std::int64_t steps) {
  const MakeInputs make = [=](std::uint64_t set) { return lstm_inputs(steps, set); };
  const auto sample = [=](const std::vector<Tensor>& inputs) {
    constexpr std::int64_t kSteps = 2; // whose results do not depend on later ones
    Sample s{inputs, {}};
    s.inputs[0] = inputs[0].narrow(0, 0, kSteps);
    s.elements.resize(kSteps * kBatch * kHidden);
    std::iota(s.elements.begin(), s.elements.end(), std::int64_t{0});
    return s;
  };
  Case c = pure_case(name, unrolled_lstm, make, sample, 1e-4);
  c.flops = 2.0 * static_cast<double>(steps * kBatch * 4 * kHidden * (kInput + kHidden));
  return c;
}

Workload lstm(const std::string& name, std::int64_t steps) {
  Workload w{name, fmt::format("an LSTM of {} unrolled steps: the time to compile it", steps),
             name_of(DType::F32), Limit::None, [=] { return lstm_case(name, steps); }};
  w.judged = Judged::Both;
  w.small = [] { return traced(unrolled_lstm, lstm_inputs(6, 0)); };
  return w;
}

/// What Adam keeps of many small parameters.
struct Moments {
  std::vector<Tensor> parameters, gradients, means, squares;
  EGRET_FIELDS(parameters, gradients, means, squares)
};

/// From the host's memory: to compute each would take a program each.
Moments make_moments(std::size_t count) {
  Moments m;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = 1 + i * 2741 % 5000;
    std::vector<float> values(size), gradients(size);
    for (std::size_t j = 0; j < size; ++j) {
      values[j] = static_cast<float>((i + j) % 17) / 8 - 1;
      gradients[j] = static_cast<float>((i + 3 * j) % 29) / 16 - 0.8F;
    }
    m.parameters.push_back(tensor(values));
    m.gradients.push_back(tensor(gradients));
    m.means.push_back(tensor(std::vector<float>(size, 0)));
    m.squares.push_back(tensor(std::vector<float>(size, 0)));
  }
  return m;
}

/// One step of Adam (Kingma & Ba 2015) without the correction of its means.
void adam_step(Moments& m) {
  for (std::size_t i = 0; i < m.parameters.size(); ++i) {
    const Tensor& gradient = m.gradients[i];
    m.means[i] = 0.9 * m.means[i] + 0.1 * gradient;
    m.squares[i] = 0.999 * m.squares[i] + 0.001 * (gradient * gradient);
    m.parameters[i] = m.parameters[i] - 0.001 * m.means[i] / (sqrt(m.squares[i]) + 1e-8);
  }
}

std::vector<double> parameters_of(const Moments& m) {
  std::vector<double> all;
  for (const Tensor& parameter : m.parameters) {
    const auto values = parameter.to_vector<double>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

Case adam_case(const std::string& name, std::size_t count) {
  auto moments = std::make_shared<Moments>(make_moments(count));
  auto step = std::make_shared<Compiled<void (*)(Moments&)>>(compile(&adam_step, {.name = name}));
  Case c;
  c.run = [=] {
    (*step)(*moments);
    return moments->parameters;
  };
  c.check = [=](const std::vector<Tensor>&) {
    Moments fresh = make_moments(count);
    (*step)(fresh);
    return compare(parameters_of(fresh), values_by_reference([=] {
                     Moments plain = make_moments(count);
                     adam_step(plain);
                     return parameters_of(plain);
                   }),
                   1e-5);
  };
  double elements = 0;
  for (const Tensor& parameter : moments->parameters)
    elements += static_cast<double>(parameter.numel());
  c.bytes = 7 * sizeof(float) * elements;
  return c;
}

Workload adam(const std::string& name, std::size_t count) {
  Workload w{
      name,
      fmt::format("Adam on {} parameters of 1 to 5000 elements: the time to compile it", count),
      name_of(DType::F32), Limit::None, [=] { return adam_case(name, count); }};
  w.judged = Judged::Both;
  w.small = [] {
    Moments moments = make_moments(5);
    return traced(&adam_step, moments);
  };
  return w;
}

} // namespace

std::vector<Workload> compile_workloads() {
  return {lstm("compile_lstm_128", 128), adam("compile_adam_300", 300)};
}

} // namespace egret::tool::bench
