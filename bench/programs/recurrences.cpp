// Recurrent networks, as loops over time.
#include "programs.h"

namespace egret::programs {

namespace {

/// x [batch, time, inputs] to the states at all times, by a step of the inputs at one.
template <class Step>
Tensor over_time(const Tensor& x, Tensor state, const Step& step) {
  Tensors states;
  for (std::int64_t t = 0; t < x.size(1); ++t) {
    state = step(x.select(1, t), state);
    states.push_back(state);
  }
  return stack(states, 1);
}

Tensor lstm(const Tensors& t) { // x, w [4h, i], u [4h, h], b
  const std::int64_t batch = t[0].size(0), width = t[2].size(1);
  Tensor h = zeros({batch, width}, t[0].dtype()), c = h;
  Tensors outputs;
  for (std::int64_t i = 0; i < t[0].size(1); ++i) {
    const Tensor gates = linear(t[0].select(1, i), t[1]) + linear(h, t[2]) + t[3];
    const std::vector<Tensor> g = chunk(gates, 4, 1);
    c = sigmoid(g[1]) * c + sigmoid(g[0]) * tanh(g[2]);
    h = sigmoid(g[3]) * tanh(c);
    outputs.push_back(h);
  }
  return stack(outputs, 1);
}

Tensor gru(const Tensors& t) { // x, w [3h, i], u [3h, h], b, c
  return over_time(t[0], zeros({t[0].size(0), t[2].size(1)}),
                   [&](const Tensor& x, const Tensor& h) {
                     const std::vector<Tensor> a = chunk(linear(x, t[1], t[3]), 3, 1),
                                               b = chunk(linear(h, t[2], t[4]), 3, 1);
                     const Tensor r = sigmoid(a[0] + b[0]), z = sigmoid(a[1] + b[1]);
                     return (1 - z) * tanh(a[2] + r * b[2]) + z * h;
                   });
}

Tensor vanilla(const Tensors& t) { // x, w, u, b
  return over_time(t[0], zeros({t[0].size(0), t[2].size(1)}),
                   [&](const Tensor& x, const Tensor& h) {
                     return tanh(linear(x, t[1]) + linear(h, t[2]) + t[3]);
                   });
}

Tensor minimal_gated(const Tensors& t) { // x, wf, uf, wh, uh
  return over_time(t[0], zeros({t[0].size(0), t[2].size(1)}),
                   [&](const Tensor& x, const Tensor& h) {
                     const Tensor f = sigmoid(linear(x, t[1]) + linear(h, t[2]));
                     return (1 - f) * h + f * tanh(linear(x, t[3]) + linear(f * h, t[4]));
                   });
}

/// Mamba's recurrence (Gu and Dao 2023): x, dt [b, l, d], a [d, n], b, c [b, l, n].
Tensor selective_scan(const Tensors& t) {
  const Tensor& a = t[2];
  Tensor state = zeros({t[0].size(0), a.size(0), a.size(1)});
  Tensors outputs;
  for (std::int64_t i = 0; i < t[0].size(1); ++i) {
    const Tensor x = t[0].select(1, i), dt = softplus(t[1].select(1, i));
    const Tensor b = t[3].select(1, i), c = t[4].select(1, i);
    const Tensor decay = exp(dt.unsqueeze(-1) * -exp(a));
    state = decay * state + (dt * x).unsqueeze(-1) * b.unsqueeze(1);
    outputs.push_back((state * c.unsqueeze(1)).sum(-1));
  }
  return stack(outputs, 1);
}

Tensor linear_recurrence(const Tensors& t) {
  Tensor h = zeros({t[0].size(0), t[0].size(2)});
  Tensors outputs;
  for (std::int64_t i = 0; i < t[0].size(1); ++i) {
    h = sigmoid(t[1].select(1, i)) * h + t[0].select(1, i);
    outputs.push_back(h);
  }
  return stack(outputs, 1);
}

void add_both(Programs& p, const std::string& name, const std::vector<Input>& inputs,
              Tensor (*forward)(const Tensors&)) {
  p.add(name, inputs, [forward](const Tensors& t) -> Tensors { return {forward(t)}; });
  p.train(name + "_train", inputs,
          [forward](const Tensors& t) { return with_gradients(forward(t).square().mean(), t); });
}

} // namespace

void add_recurrences(Programs& p) {
  const std::int64_t batch = p.size(32, 3), time = p.size(32, 5), in = p.size(96, 6),
                     h = p.size(128, 8);
  const Input x = data({batch, time, in});
  add_both(p, "recurrent/lstm",
           {x, weight({4 * h, in}, in), weight({4 * h, h}, h), data({4 * h}, DType::F32, 0.1)},
           lstm);
  p.add("recurrent/lstm_bf16",
        {data({batch, p.size(16, 5), in}, DType::BF16), weight({4 * h, in}, in, DType::BF16),
         weight({4 * h, h}, h, DType::BF16), data({4 * h}, DType::BF16, 0.1)},
        [](const Tensors& t) -> Tensors { return {lstm(t)}; });
  add_both(p, "recurrent/gru",
           {x, weight({3 * h, in}, in), weight({3 * h, h}, h), data({3 * h}, DType::F32, 0.1),
            data({3 * h}, DType::F32, 0.1)},
           gru);
  add_both(p, "recurrent/vanilla",
           {data({p.size(16, 2), p.size(64, 6), in}), weight({h, in}, in), weight({h, h}, h),
            data({h}, DType::F32, 0.1)},
           vanilla);
  add_both(p, "recurrent/minimal_gated",
           {x, weight({h, in}, in), weight({h, h}, h), weight({h, in}, in), weight({h, h}, h)},
           minimal_gated);
  const std::int64_t b = p.size(4, 2), l = p.size(48, 5), d = p.size(128, 6), n = p.size(16, 4);
  add_both(p, "recurrent/selective_scan",
           {data({b, l, d}), data({b, l, d}), data({d, n}), data({b, l, n}), data({b, l, n})},
           selective_scan);
  const Input line = data({p.size(16, 2), p.size(128, 7), p.size(256, 5)});
  add_both(p, "recurrent/linear_recurrence", {line, line}, linear_recurrence);
}

} // namespace egret::programs
