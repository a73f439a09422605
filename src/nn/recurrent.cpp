#include "egret/nn/recurrent.h"

#include "egret/functional.h"
#include "support/fail.h"

#include <cmath>

namespace egret::nn {

namespace {

std::int64_t gates_of(Cell cell) {
  return cell == Cell::Lstm ? 4 : cell == Cell::Gru ? 3 : 1;
}

struct Step {
  Tensor hidden, cell;
};

/// One time step: `inputs` is W x + b of all gates, [batch, gates · width].
Step advanced(Cell cell, const Tensor& inputs, const Tensor& recurrent, const Step& before) {
  const std::int64_t width = before.hidden.size(-1);
  auto gate = [&](const Tensor& all, std::int64_t i) { return all.narrow(-1, i * width, width); };
  switch (cell) {
  case Cell::Tanh:
    return {tanh(inputs + recurrent), {}};
  case Cell::Relu:
    return {relu(inputs + recurrent), {}};
  case Cell::Lstm: {
    const Tensor all = inputs + recurrent;
    const Tensor kept = sigmoid(gate(all, 1)) * before.cell;
    const Tensor now = kept + sigmoid(gate(all, 0)) * tanh(gate(all, 2));
    return {sigmoid(gate(all, 3)) * tanh(now), now};
  }
  case Cell::Gru: {
    const Tensor r = sigmoid(gate(inputs, 0) + gate(recurrent, 0));
    const Tensor z = sigmoid(gate(inputs, 1) + gate(recurrent, 1));
    const Tensor n = tanh(gate(inputs, 2) + r * gate(recurrent, 2));
    return {(1.0 - z) * n + z * before.hidden, {}};
  }
  }
  fail(ErrorKind::Value, "no such cell: {}", static_cast<int>(cell));
}

Tensor bias_or_none(const std::optional<Tensor>& bias) {
  return bias ? *bias : Tensor();
}

/// Where direction `number` starts: part of `given`, or zeros.
Tensor start_of(const Tensor& given, std::size_t number, std::size_t count, const Tensor& x,
                std::int64_t width) {
  if (!given.defined())
    return zeros({x.shape()[0], width}, x.dtype());
  const Shape wanted = {static_cast<std::int64_t>(count), x.shape()[0], width};
  if (given.shape() != wanted)
    fail(ErrorKind::Shape, "Recurrent: a state of {} where {} is needed", to_string(given.shape()),
         to_string(wanted));
  return given[static_cast<std::int64_t>(number)];
}

} // namespace

Recurrent::Recurrent(Cell cell, std::int64_t inputs, std::int64_t width, Generator& generator,
                     const RecurrentOptions& o)
    : cell(cell), layers(o.layers), dropout(o.dropout) {
  if (inputs <= 0 || width <= 0 || o.layers <= 0)
    fail(ErrorKind::Value, "Recurrent: {} inputs, width {}, {} layers; all must be positive",
         inputs, width, o.layers);
  const double bound = 1 / std::sqrt(static_cast<double>(width));
  const std::int64_t rows = gates_of(cell) * width, sides = o.bidirectional ? 2 : 1;
  auto parameter = [&](const Shape& shape) {
    return uniform(shape, -bound, bound, generator).set_requires_grad();
  };
  for (std::int64_t i = 0; i < o.layers * sides; ++i) {
    Direction direction;
    direction.weight_ih = parameter({rows, i < sides ? inputs : sides * width});
    direction.weight_hh = parameter({rows, width});
    if (o.with_bias) {
      direction.bias_ih = parameter({rows});
      direction.bias_hh = parameter({rows});
    }
    directions.push_back(std::move(direction));
  }
}

RecurrentState Recurrent::step(const Operand& x, const RecurrentState& from) const {
  if (directions.size() != 1)
    fail(ErrorKind::Value, "Recurrent: a step of {} layers and directions; it is for one",
         directions.size());
  if (x.rank() != 2)
    fail(ErrorKind::Shape, "Recurrent: a step needs [batch, inputs], got {}", to_string(x.shape()));
  const Direction& d = directions[0];
  const std::int64_t width = d.weight_hh.size(1);
  auto start = [&](const Tensor& given) {
    return start_of(given.defined() ? given.unsqueeze(0) : given, 0, 1, x, width);
  };
  Step before = {start(from.hidden), {}};
  if (cell == Cell::Lstm)
    before.cell = start(from.cell);
  const Step now = advanced(cell, linear(x, d.weight_ih, bias_or_none(d.bias_ih)),
                            linear(before.hidden, d.weight_hh, bias_or_none(d.bias_hh)), before);
  return {now.hidden, now.cell};
}

RecurrentOutput Recurrent::operator()(const Operand& x, Generator* generator,
                                      const RecurrentState& from) const {
  if (x.rank() != 3)
    fail(ErrorKind::Shape, "Recurrent: needs [batch, time, inputs], got {}", to_string(x.shape()));
  const std::int64_t times = x.size(1), width = directions.at(0).weight_hh.size(1);
  if (times == 0)
    fail(ErrorKind::Shape, "Recurrent: no time in {}", to_string(x.shape()));
  const std::size_t sides = directions.size() / static_cast<std::size_t>(layers);
  Tensor sequence = x;
  std::vector<Tensor> hidden, cells;
  for (std::size_t first = 0; first < directions.size(); first += sides) {
    if (first > 0 && generator != nullptr && dropout > 0)
      sequence = egret::dropout(sequence, dropout, *generator);
    std::vector<Tensor> outputs;
    for (std::size_t side = 0; side < sides; ++side) {
      const std::size_t number = first + side;
      const Direction& d = directions[number];
      Step now = {start_of(from.hidden, number, directions.size(), x, width), {}};
      if (cell == Cell::Lstm)
        now.cell = start_of(from.cell, number, directions.size(), x, width);
      const Tensor inputs = linear(sequence, d.weight_ih, bias_or_none(d.bias_ih)); // of all times
      std::vector<Tensor> series(static_cast<std::size_t>(times));
      for (std::int64_t i = 0; i < times; ++i) {
        const std::int64_t time = side == 0 ? i : times - 1 - i;
        now = advanced(cell, inputs.select(1, time),
                       linear(now.hidden, d.weight_hh, bias_or_none(d.bias_hh)), now);
        series[static_cast<std::size_t>(time)] = now.hidden;
      }
      outputs.push_back(stack(series, 1));
      hidden.push_back(now.hidden);
      if (now.cell.defined())
        cells.push_back(now.cell);
    }
    sequence = sides == 1 ? outputs[0] : cat(outputs, -1);
  }
  return {sequence, {stack(hidden, 0), cells.empty() ? Tensor() : stack(cells, 0)}};
}

} // namespace egret::nn
