// Reductions of the last axis and of others, and scans.
#include "sweep/sweep.h"

#include "egret/functional.h"

#include <algorithm>
#include <set>

namespace egret::tool::sweep {

namespace {

using Sizes = std::vector<std::int64_t>;

/// Operations that keep the reduced axes.
const std::set<std::string> kKeeps = {"softmax", "log_softmax", "layer_norm", "rms_norm"};
/// Operations of one axis.
const std::set<std::string> kOneAxis = {"softmax", "log_softmax", "logsumexp", "argmax"};

DType reduced_dtype(Dice& dice) {
  return dice.one_of<DType>(
      {DType::F32, DType::F32, DType::F32, DType::BF16, DType::BF16, DType::F16});
}

/// With one axis of the shape to stand for the lines that other axes leave alone.
void add_lines(Program& program, const Sizes& shape, const std::vector<std::int64_t>& axes,
               bool keeps, std::size_t whole_inputs, std::size_t outputs) {
  int place = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool reduced =
        std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) != axes.end();
    if (!reduced) {
      Lines lines{{static_cast<int>(i)}, {}};
      lines.inputs.resize(1 + whole_inputs, -1);
      lines.outputs.assign(outputs, place);
      program.lines.push_back(lines);
    }
    place += !reduced || keeps;
  }
}

Tensor reduced(const std::string& op, const Tensors& in, const std::vector<std::int64_t>& axes) {
  const Tensor& a = in[0];
  if (op == "sum")
    return sum(a, axes);
  if (op == "mean")
    return mean(a, axes);
  if (op == "max")
    return max(a, axes);
  if (op == "var")
    return var(a, axes, false, 0);
  if (op == "norm")
    return norm(a, axes);
  if (op == "argmax")
    return argmax(a, axes[0]);
  if (op == "logsumexp")
    return logsumexp(a, axes[0]);
  if (op == "softmax")
    return softmax(a, axes[0]);
  if (op == "log_softmax")
    return log_softmax(a, axes[0]);
  if (op == "layer_norm")
    return layer_norm(a, in[1], in[2]);
  if (op == "rms_norm")
    return rms_norm(a, in[1]);
  fail_unknown(op);
}

Json reduction_of(Dice& dice, const Sizes& shape, std::vector<std::string> ops, const Sizes& axes) {
  DType dtype = reduced_dtype(dice);
  const std::string op = dice.one_of(ops);
  if ((op == "sum" || op == "max") && dice.chance(0.15))
    dtype = DType::I32;
  Json inputs = Json::array({input(dice, shape, dtype)});
  for (int i = 0; i < (op == "layer_norm" ? 2 : op == "rms_norm" ? 1 : 0); ++i)
    inputs.push_back(input({shape.back()}, dtype));
  return {{"inputs", inputs}, {"op", op}, {"axes", axes}};
}

} // namespace

Json draw_rows(Dice& dice, const Limits& limits) {
  const std::int64_t rank = dice.whole(1, 3);
  const Sizes shape = dice.shape(rank, limits.bytes / 10);
  return reduction_of(dice, shape,
                      {"sum", "mean", "max", "var", "norm", "argmax", "logsumexp", "softmax",
                       "log_softmax", "layer_norm", "rms_norm"},
                      {rank - 1});
}

Json draw_columns(Dice& dice, const Limits& limits) {
  const std::int64_t rank = dice.whole(2, 4);
  const Sizes shape = dice.shape(rank, limits.bytes / 10);
  Sizes axes;
  do {
    axes.clear();
    for (std::int64_t i = 0; i < rank; ++i)
      if (dice.chance(0.5))
        axes.push_back(i);
  } while (axes.empty() || (axes.size() == 1 && axes[0] == rank - 1));
  std::vector<std::string> ops = {"sum", "mean", "max", "var", "norm"};
  if (axes.size() == 1)
    ops.insert(ops.end(), kOneAxis.begin(), kOneAxis.end());
  return reduction_of(dice, shape, ops, axes);
}

Program reduction(const Json& parameters) {
  Program program;
  const auto op = parameters.at("op").get<std::string>();
  const Sizes axes = sizes_of(parameters.at("axes"));
  program.run = [=](const Tensors& in) { return Tensors{reduced(op, in, axes)}; };
  program.elements = true;
  const Json& inputs = parameters.at("inputs");
  add_lines(program, sizes_of(inputs[0].at("shape")), axes, kKeeps.contains(op), inputs.size() - 1,
            1);
  return program;
}

Json draw_scan(Dice& dice, const Limits& limits) {
  const std::int64_t rank = dice.whole(1, 3);
  const Sizes shape = dice.shape(rank, limits.bytes / 16);
  const auto op =
      dice.one_of<std::string>({"cumsum", "cumsum", "cumsum", "cummax", "logcumsumexp"});
  const DType dtype = op == "cumsum"
                          ? dice.one_of<DType>({DType::F32, DType::F32, DType::BF16, DType::I32})
                          : DType::F32;
  return {{"inputs", {input(dice, shape, dtype)}}, {"op", op}, {"axis", dice.whole(0, rank - 1)}};
}

Program scan(const Json& parameters) {
  Program program;
  const auto op = parameters.at("op").get<std::string>();
  const auto axis = parameters.at("axis").get<std::int64_t>();
  program.run = [=](const Tensors& in) -> Tensors {
    if (op == "cumsum")
      return {cumsum(in[0], axis)};
    if (op == "logcumsumexp")
      return {logcumsumexp(in[0], axis)};
    if (op != "cummax")
      fail_unknown(op);
    const Extreme found = cummax(in[0], axis);
    return {found.values, found.indices};
  };
  add_lines(program, sizes_of(parameters.at("inputs")[0].at("shape")), {axis}, true, 0,
            op == "cummax" ? 2 : 1);
  return program;
}

} // namespace egret::tool::sweep
