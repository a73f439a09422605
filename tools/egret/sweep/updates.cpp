// Many small updates, and recurrences.
#include "sweep/sweep.h"

#include "egret/functional.h"
#include "egret/nn/recurrent.h"

#include <algorithm>
#include <cmath>

namespace egret::tool::sweep {

namespace {

using Sizes = std::vector<std::int64_t>;

std::size_t states(const std::string& op) {
  return op == "adam" ? 4 : op == "momentum" ? 3 : op == "sgd" ? 2 : 0;
}

/// Parameter, gradient and moments, to the new parameter and moments.
void update(const std::string& op, const Tensor* in, Tensors& out) {
  if (op == "sgd") {
    out.push_back(in[0] - in[1] * 0.01);
  } else if (op == "momentum") {
    const Tensor moment = in[2] * 0.9 + in[1];
    out.push_back(in[0] - moment * 0.01);
    out.push_back(moment);
  } else {
    const Tensor first = in[2] * 0.9 + in[1] * 0.1, second = in[3] * 0.99 + in[1] * in[1] * 0.01;
    out.push_back(in[0] - first * 0.001 / (sqrt(abs(second)) + 1e-4));
    out.push_back(first);
    out.push_back(second);
  }
}

} // namespace

Json draw_small(Dice& dice, const Limits& limits) {
  const auto op = dice.one_of<std::string>({"sgd", "momentum", "adam"});
  const double most = limits.bytes / 4 / 5000 / 7; // at 5000 elements each, in and out
  const std::int64_t count =
      dice.size(1, std::clamp<std::int64_t>(static_cast<std::int64_t>(most), 1, 300));
  Json inputs = Json::array();
  for (std::int64_t i = 0; i < count; ++i) {
    const Sizes shape = dice.shape(dice.whole(1, 2), static_cast<double>(dice.size(1, 5000)));
    for (std::size_t s = 0; s < states(op); ++s)
      inputs.push_back(input(shape, DType::F32));
  }
  return {{"inputs", inputs}, {"op", op}};
}

Program small(const Json& p) {
  Program program;
  const auto op = p.at("op").get<std::string>();
  if (states(op) == 0)
    fail_unknown(op);
  program.elements = true;
  program.run = [op](const Tensors& in) {
    Tensors out;
    for (std::size_t i = 0; i < in.size(); i += states(op))
      update(op, &in[i], out);
    return out;
  };
  return program;
}

Json draw_recurrent(Dice& dice, const Limits& limits) {
  const auto cell = dice.one_of<std::string>({"lstm", "gru", "tanh"});
  const std::int64_t gates = cell == "lstm" ? 4 : cell == "gru" ? 3 : 1;
  const std::int64_t batch = dice.size(1, 64), width = dice.size(4, 256), in = dice.size(1, 256),
                     most = static_cast<std::int64_t>(
                         limits.flops / 4 /
                         static_cast<double>(2 * batch * gates * width * (width + in)));
  const std::int64_t fits =
      static_cast<std::int64_t>(limits.bytes / 4 / static_cast<double>(batch * (width + in) * 2));
  const std::int64_t steps = dice.size(1, std::clamp<std::int64_t>(std::min(most, fits), 1, 128));
  const DType dtype = dice.chance(0.75) ? DType::F32 : DType::BF16;
  Json inputs = Json::array({input({batch, steps, in}, dtype), input({gates * width, in}, dtype),
                             input({gates * width, width}, dtype), input({gates * width}, dtype),
                             input({gates * width}, dtype)});
  return {{"inputs", inputs}, {"cell", cell}, {"steps", steps}, {"width", width}};
}

Program recurrent(const Json& p) {
  Program program;
  const auto cell = p.at("cell").get<std::string>();
  const nn::Cell kind = cell == "lstm"  ? nn::Cell::Lstm
                        : cell == "gru" ? nn::Cell::Gru
                                        : nn::Cell::Tanh;
  const auto width = p.at("width").get<std::int64_t>();
  program.run = [=](const Tensors& in) {
    // Weights as layers have them at their start: ±1/√width.
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    nn::Recurrent layer;
    layer.cell = kind;
    layer.directions.push_back({in[1] * scale, in[2] * scale, in[3] * scale, in[4] * scale});
    return Tensors{layer(in[0]).output};
  };
  const Json& inputs = p.at("inputs");
  const Sizes x = sizes_of(inputs[0].at("shape"));
  program.steps = static_cast<int>(x[1]);
  const double weights = bytes_of(Json::array({inputs[2], inputs[4]}));
  program.bytes = weights * static_cast<double>(x[1]) + bytes_of(inputs);
  program.products = dtype_of(inputs[0]);
  program.flops = 2.0 * static_cast<double>(x[0] * x[1] * (x[2] + width)) *
                  static_cast<double>(inputs[1].at("shape")[0].get<std::int64_t>());
  program.lines = {{{0, -1, -1, -1, -1}, {0}}};
  return program;
}

} // namespace egret::tool::sweep
