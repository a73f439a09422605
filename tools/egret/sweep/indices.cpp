// Gathers, scatters and histograms; sorts and selections.
#include "sweep/sweep.h"

#include "egret/functional.h"

#include <algorithm>

namespace egret::tool::sweep {

namespace {

using Sizes = std::vector<std::int64_t>;

DType gathered_dtype(Dice& dice) {
  return dice.one_of<DType>({DType::F32, DType::F32, DType::BF16});
}

double width(const Json& input) {
  return static_cast<double>(size_of(dtype_of(input)));
}

} // namespace

Json draw_gather(Dice& dice, const Limits& limits) {
  const auto op = dice.one_of<std::string>({"take", "take", "gather"});
  const std::int64_t rank = dice.whole(1, 3), axis = dice.whole(0, rank - 1);
  const Sizes shape = dice.shape(rank, limits.bytes / 24);
  const std::int64_t size = shape[static_cast<std::size_t>(axis)];
  const auto others = static_cast<double>(product(shape)) / static_cast<double>(size);
  const auto most = static_cast<std::int64_t>(std::max(1.0, limits.bytes / 24 / others));
  Sizes positions = {dice.size(1, most)};
  if (op == "gather") {
    positions = shape;
    positions[static_cast<std::size_t>(axis)] = dice.size(1, most);
  } else if (dice.chance(0.3)) {
    positions = dice.shape(2, static_cast<double>(positions[0]));
  }
  return {{"inputs", {input(dice, shape, gathered_dtype(dice)), indices(dice, positions, size)}},
          {"op", op},
          {"axis", axis}};
}

Program gathered(const Json& p) {
  Program program;
  const auto op = p.at("op").get<std::string>();
  const auto axis = p.at("axis").get<std::int64_t>();
  program.run = [=](const Tensors& in) {
    return Tensors{op == "take" ? take(in[0], in[1], axis) : gather(in[0], axis, in[1])};
  };
  const Json& inputs = p.at("inputs");
  const Sizes shape = sizes_of(inputs[0].at("shape")), positions = sizes_of(inputs[1].at("shape"));
  const auto data = static_cast<double>(product(shape)),
             count = static_cast<double>(product(positions));
  const double result =
      op == "take" ? data / static_cast<double>(shape[static_cast<std::size_t>(axis)]) * count
                   : count;
  program.bytes = width(inputs[1]) * count + width(inputs[0]) * (result + std::min(data, result));
  const int at = static_cast<int>(axis), more = static_cast<int>(positions.size()) - 1;
  if (op == "take") {
    program.lines.push_back({{-1, 0}, {at}});
    for (int i = 0; i < static_cast<int>(shape.size()); ++i)
      if (i != at)
        program.lines.push_back({{i, -1}, {i < at ? i : i + more}});
  } else {
    for (int i = 0; i < static_cast<int>(shape.size()); ++i)
      program.lines.push_back({{i == at ? -1 : i, i}, {i}});
  }
  return program;
}

Json draw_scatter(Dice& dice, const Limits& limits) {
  const auto op = dice.one_of<std::string>(
      {"index_add", "scatter_add", "bincount", "index_put", "scatter_max"});
  if (op == "bincount") {
    const std::int64_t count = dice.shape(1, limits.bytes / 16)[0];
    const std::int64_t bins =
        dice.size(1, std::min<std::int64_t>(1 << 20, std::max<std::int64_t>(2, count)));
    return {{"inputs", {indices(dice, {count}, bins)}}, {"op", op}, {"bins", bins}};
  }
  const std::int64_t rank = dice.whole(1, 3), axis = dice.whole(0, rank - 1);
  const Sizes shape = dice.shape(rank, limits.bytes / 32);
  const std::int64_t size = shape[static_cast<std::size_t>(axis)];
  const double others = static_cast<double>(product(shape)) / static_cast<double>(size);
  Sizes updates = shape;
  updates[static_cast<std::size_t>(axis)] =
      dice.size(1, static_cast<std::int64_t>(std::max(1.0, limits.bytes / 32 / others)));
  const bool lines = op.starts_with("index");
  const DType dtype = dice.one_of<DType>({DType::F32, DType::F32, DType::F32, DType::BF16});
  return {{"inputs",
           {input(shape, dtype),
            indices(dice, lines ? Sizes{updates[static_cast<std::size_t>(axis)]} : updates, size),
            input(dice, updates, dtype, {0.1, 0.1})}},
          {"op", op},
          {"axis", axis}};
}

Program scattered(const Json& p) {
  Program program;
  const auto op = p.at("op").get<std::string>();
  const Json& inputs = p.at("inputs");
  if (op == "bincount") {
    program.run = [bins = p.at("bins").get<std::int64_t>()](const Tensors& in) {
      return Tensors{bincount(in[0], bins)};
    };
    return program;
  }
  const auto axis = p.at("axis").get<std::int64_t>();
  program.run = [=](const Tensors& in) -> Tensors {
    if (op == "index_add")
      return {index_add(in[0], in[1], in[2], axis)};
    if (op == "index_put")
      return {index_put(in[0], in[1], in[2], axis)};
    if (op == "scatter_add")
      return {scatter_add(in[0], axis, in[1], in[2])};
    if (op != "scatter_max")
      fail_unknown(op);
    return {scatter(in[0], axis, in[1], in[2], Scatter::Max)};
  };
  for (int i = 0; i < static_cast<int>(inputs[0].at("shape").size()); ++i)
    if (i != axis)
      program.lines.push_back({{i, op.starts_with("index") ? -1 : i, i}, {i}});
  return program;
}

namespace {

Json draw_order(Dice& dice, const Limits& limits, const std::vector<std::string>& ops) {
  const std::int64_t rank = dice.whole(1, 3);
  const Sizes shape = dice.shape(rank, limits.bytes / 32);
  const auto op = dice.one_of(ops);
  const DType dtype =
      dice.one_of<DType>({DType::F32, DType::F32, DType::BF16, DType::I32, DType::I64});
  const std::int64_t axis = dice.chance(0.7) ? rank - 1 : dice.whole(0, rank - 1);
  Json p = {{"inputs", Json::array({input(dice, shape, dtype, {0.1, 0.1})})},
            {"op", op},
            {"axis", axis},
            {"descending", dice.chance(0.5)}};
  if (dtype == DType::I32 || dtype == DType::I64) {
    p["inputs"][0]["below"] = dice.size(2, 1 << 30);
    p["inputs"][0]["spread"] = dice.one_of<std::string>({"uniform", "uniform", "ascending", "few"});
  }
  if (op == "topk") {
    const std::int64_t size = shape[static_cast<std::size_t>(axis)];
    p["k"] = dice.size(1, std::min<std::int64_t>(size, 256));
    p["descending"] = dice.chance(0.8);
  }
  return p;
}

} // namespace

Json draw_sort(Dice& dice, const Limits& limits) {
  return draw_order(dice, limits, {"sort", "sort", "argsort"});
}

Json draw_topk(Dice& dice, const Limits& limits) {
  return draw_order(dice, limits, {"topk"});
}

Program ordered(const Json& p) {
  Program program;
  const auto op = p.at("op").get<std::string>();
  const auto axis = p.at("axis").get<std::int64_t>();
  const bool descending = p.at("descending").get<bool>();
  program.run = [=, k = p.value("k", std::int64_t{1})](const Tensors& in) -> Tensors {
    if (op == "argsort")
      return {argsort(in[0], axis, descending)};
    const Sorted sorted =
        op == "topk" ? topk(in[0], k, axis, descending) : sort(in[0], axis, descending);
    return {sorted.values, sorted.indices};
  };
  const int outputs = op == "argsort" ? 1 : 2;
  for (int i = 0; i < static_cast<int>(p.at("inputs")[0].at("shape").size()); ++i)
    if (i != axis)
      program.lines.push_back({{i}, std::vector<int>(static_cast<std::size_t>(outputs), i)});
  return program;
}

} // namespace egret::tool::sweep
