// Elementwise chains of random operations, and transposes.
#include "sweep/sweep.h"

#include "egret/functional.h"

#include <algorithm>

namespace egret::tool::sweep {

namespace {

using Sizes = std::vector<std::int64_t>;

/// An operation of a chain: [name, operands...], each operand an input or the result of an earlier
/// operation, counted on from the inputs.
Tensor applied(const std::string& name, const Tensors& operands) {
  const Tensor& a = operands[0];
  const Tensor& b = operands[std::min<std::size_t>(1, operands.size() - 1)];
  if (name == "add")
    return a + b;
  if (name == "sub")
    return a - b;
  if (name == "mul")
    return a * b;
  if (name == "max")
    return maximum(a, b);
  if (name == "min")
    return minimum(a, b);
  if (name == "pick") // the larger one of the first two, or the third
    return where(a > b, a, operands[2]);
  if (name == "tanh")
    return tanh(a);
  if (name == "sigmoid")
    return sigmoid(a);
  if (name == "relu")
    return relu(a);
  if (name == "abs")
    return abs(a);
  if (name == "cos")
    return cos(a);
  if (name == "square")
    return square(a);
  if (name == "damp") // keeps what follows small
    return a / (abs(a) + 1);
  if (name == "root")
    return sqrt(abs(a) + 0.5);
  if (name == "affine")
    return a * 2 + 1;
  fail_unknown(name);
}

bool needs_floats(const std::string& name) {
  return name == "tanh" || name == "sigmoid" || name == "cos" || name == "damp" || name == "root";
}

} // namespace

void fail_unknown(const std::string& name) {
  throw Error(ErrorKind::Value,
              fmt::format("sweep: parameters name an unknown operation '{}'", name));
}

Json draw_elementwise(Dice& dice, const Limits& limits) {
  const DType first = dice.one_of<DType>({DType::F32, DType::F32, DType::F32, DType::BF16,
                                          DType::BF16, DType::F16, DType::F64, DType::I32});
  const std::int64_t count = dice.whole(1, 4);
  const Sizes shape =
      dice.shape(dice.whole(1, 4), limits.bytes / 8 / static_cast<double>(count + 1) / 2);
  Json inputs = Json::array(), chain = Json::array();
  bool floats = false;
  for (std::int64_t i = 0; i < count; ++i) {
    const DType dtype = i > 0 && dice.chance(0.2)
                            ? dice.one_of<DType>({DType::F32, DType::BF16, DType::I32})
                            : first;
    floats = floats || is_float(dtype);
    Sizes sizes = shape;
    if (i > 0 && dice.chance(0.3))
      for (std::int64_t& size : sizes)
        size = dice.chance(0.5) ? 1 : size;
    inputs.push_back(input(dice, sizes, dtype));
  }
  std::int64_t last = 0, next = count;
  const auto push = [&](Json operation) {
    chain.push_back(std::move(operation));
    last = next++;
  };
  for (std::int64_t i = 1; i < count; ++i)
    push({dice.one_of<std::string>({"add", "sub", "mul", "max", "min"}), last, i});
  for (std::int64_t left = dice.whole(1, 5); left > 0; --left) {
    const auto name = dice.one_of<std::string>({"tanh", "sigmoid", "relu", "abs", "cos", "square",
                                                "damp", "root", "affine", "pick", "add"});
    if (needs_floats(name) && !floats)
      push({"affine", last});
    else if (name == "square" || name == "cos") {
      push({floats ? "damp" : "abs", last}); // large arguments have no accuracy
      push({name == "cos" && !floats ? "relu" : name, last});
    } else if (name == "pick")
      push({name, last, 0, dice.whole(0, next - 1)});
    else if (name == "add")
      push({name, last, dice.whole(0, next - 1)});
    else
      push({name, last});
  }
  return {{"inputs", inputs}, {"chain", chain}};
}

Program elementwise(const Json& parameters) {
  Program program;
  program.elements = true;
  program.run = [chain = parameters.at("chain")](const Tensors& in) {
    Tensors values = in;
    for (const Json& operation : chain) {
      Tensors operands;
      for (std::size_t i = 1; i < operation.size(); ++i)
        operands.push_back(values[operation[i].get<std::size_t>()]);
      values.push_back(applied(operation[0].get<std::string>(), operands));
    }
    return Tensors{values.back()};
  };
  // Any axis along which all inputs have the result's size.
  const Json& inputs = parameters.at("inputs");
  const std::size_t rank = inputs[0].at("shape").size();
  for (std::size_t axis = 0; axis < rank; ++axis) {
    Lines lines;
    for (const Json& each : inputs)
      lines.inputs.push_back(
          each.at("shape")[axis] == inputs[0].at("shape")[axis] ? static_cast<int>(axis) : -1);
    lines.outputs = {static_cast<int>(axis)};
    program.lines.push_back(lines);
  }
  return program;
}

Json draw_transpose(Dice& dice, const Limits& limits) {
  const DType dtype =
      dice.one_of<DType>({DType::F32, DType::F32, DType::BF16, DType::U8, DType::F64});
  const std::int64_t rank = dice.whole(2, 5);
  const Sizes shape = dice.shape(rank, limits.bytes / 3 / static_cast<double>(size_of(dtype)));
  Sizes permute = dice.order(rank);
  if (std::is_sorted(permute.begin(), permute.end()))
    std::reverse(permute.begin(), permute.end());
  return {{"inputs", {input(dice, shape, dtype, {0, 0.2})}},
          {"permute", permute},
          {"affine", dtype != DType::U8 && dice.chance(0.3)}};
}

Program transposed(const Json& parameters) {
  Program program;
  const Sizes permute = sizes_of(parameters.at("permute"));
  program.run = [permute, affine = parameters.at("affine").get<bool>()](const Tensors& in) {
    const Tensor turned = in[0].permute(permute);
    return Tensors{affine ? turned * 2 + 1 : turned};
  };
  for (std::size_t i = 0; i < permute.size(); ++i)
    program.lines.push_back({{static_cast<int>(permute[i])}, {static_cast<int>(i)}});
  return program;
}

} // namespace egret::tool::sweep
