// Inputs of draws: what their parameters say, the arrays behind them, and what views show of them.
#include "sweep/sweep.h"

#include "backend/reference/host_array.h"

#include <algorithm>
#include <cstring>

namespace egret::tool::sweep {

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  std::int64_t result = 1;
  for (const std::int64_t size : sizes)
    result *= size;
  return result;
}

namespace {

using Sizes = std::vector<std::int64_t>;

/// Nearly normal: the sum of four uniform numbers, scaled to deviation 1.
double bell(std::uint64_t bits) {
  double sum = 0;
  for (int i = 0; i < 4; ++i, bits >>= 16)
    sum += static_cast<double>(bits & 0xffff) / 65536 - 0.5;
  return 1.7320508 * sum;
}

std::int64_t place(Dice& dice, const std::string& spread, std::int64_t below, std::int64_t i,
                   std::int64_t count) {
  if (spread == "one")
    return below / 2;
  if (spread == "ascending")
    return static_cast<std::int64_t>(static_cast<double>(i) / static_cast<double>(count) *
                                     static_cast<double>(below));
  if (spread == "few" && dice.bits() % 8 != 0)
    return static_cast<std::int64_t>(dice.bits() %
                                     static_cast<std::uint64_t>(std::min<std::int64_t>(below, 4)));
  return static_cast<std::int64_t>(dice.bits() % static_cast<std::uint64_t>(below));
}

} // namespace

Json input(const Sizes& shape, DType dtype) {
  return {{"shape", shape}, {"dtype", name_of(dtype)}};
}

Json input(Dice& dice, const Sizes& shape, DType dtype, const Layouts& layouts) {
  Json result = input(shape, dtype);
  const auto rank = static_cast<std::int64_t>(shape.size());
  const bool permuted = rank > 1 && dice.chance(layouts.permuted),
             sliced = rank > 0 && dice.chance(layouts.sliced);
  if (!permuted && !sliced)
    return result;
  Sizes permute = dice.order(rank), base(shape.size()), begin(shape.size(), 0),
        step(shape.size(), 1);
  if (!permuted)
    std::sort(permute.begin(), permute.end());
  for (std::size_t i = 0; i < shape.size(); ++i)
    base[static_cast<std::size_t>(permute[i])] = shape[i];
  if (sliced) {
    // A short axis would grow to a multiple.
    auto axis = static_cast<std::size_t>(dice.whole(0, rank - 1));
    if (base[axis] < 16)
      axis = static_cast<std::size_t>(std::max_element(base.begin(), base.end()) - base.begin());
    begin[axis] = dice.whole(0, 3);
    step[axis] = dice.whole(1, 2);
    base[axis] = begin[axis] + (base[axis] - 1) * step[axis] + 1 + dice.whole(0, 3);
  }
  result["base"] = base;
  result["begin"] = begin;
  result["step"] = step;
  result["permute"] = permute;
  return result;
}

Json indices(Dice& dice, const Sizes& shape, std::int64_t below) {
  Json result = input(shape, dice.chance(0.5) ? DType::I64 : DType::I32);
  result["below"] = below;
  result["spread"] =
      dice.one_of<std::string>({"uniform", "uniform", "uniform", "ascending", "few", "one"});
  return result;
}

Sizes sizes_of(const Json& list) {
  return list.get<Sizes>();
}

DType dtype_of(const Json& input) {
  return dtype_named(input.at("dtype").get<std::string>());
}

double bytes_of(const Json& inputs) {
  double sum = 0;
  for (const Json& each : inputs)
    sum += static_cast<double>(size_of(dtype_of(each))) *
           static_cast<double>(product(sizes_of(each.at("shape"))));
  return sum;
}

Tensors make_inputs(const Json& inputs, std::uint64_t number) {
  Tensors result;
  for (const Json& each : inputs) {
    const DType dtype = dtype_of(each);
    const Sizes sizes = sizes_of(each.at(each.contains("base") ? "base" : "shape"));
    backend::reference::HostArray array(dtype, sizes);
    Dice dice("input", number, result.size());
    const std::int64_t count = array.size();
    const std::int64_t below = each.value("below", std::int64_t{0});
    const std::string spread = each.value("spread", std::string("uniform"));
    for (std::int64_t i = 0; i < count; ++i) {
      if (below > 0)
        array.set(i, {0, place(dice, spread, below, i, count)});
      else if (is_float(dtype))
        array.set(i, {bell(dice.bits()), 0});
      else // bools and small integers
        array.set(i,
                  {0, static_cast<std::int64_t>(dice.bits() % 201) - (is_signed(dtype) ? 100 : 0)});
    }
    result.push_back(from_bytes(dtype, Shape(sizes.begin(), sizes.end()), array.bytes));
    result.back().eval();
  }
  return result;
}

Tensor view(const Tensor& base, const Json& input) {
  if (!input.contains("base"))
    return base;
  const Sizes sizes = sizes_of(input.at("base")), begin = sizes_of(input.at("begin")),
              step = sizes_of(input.at("step")), permute = sizes_of(input.at("permute")),
              shape = sizes_of(input.at("shape"));
  std::vector<Index> slices(sizes.size(), Index(Slice::all()));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const auto axis = static_cast<std::size_t>(permute[i]);
    slices[axis] = Slice(begin[axis], begin[axis] + (shape[i] - 1) * step[axis] + 1, step[axis]);
  }
  return base.index(slices).permute(permute);
}

Tensor shown(const Tensor& base, const Json& input, const Chosen& chosen) {
  const Sizes shape = sizes_of(input.at("shape"));
  Sizes steps(shape.size(), 1); // of each axis of the view, in elements of the base
  std::int64_t first = 0;
  if (input.contains("base")) {
    const Sizes sizes = sizes_of(input.at("base")), begin = sizes_of(input.at("begin")),
                step = sizes_of(input.at("step")), permute = sizes_of(input.at("permute"));
    Sizes strides(sizes.size(), 1);
    for (std::size_t i = sizes.size(); i-- > 1;)
      strides[i - 1] = strides[i] * sizes[i];
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const auto axis = static_cast<std::size_t>(permute[i]);
      steps[i] = strides[axis] * step[axis];
      first += strides[axis] * begin[axis];
    }
  } else {
    for (std::size_t i = shape.size(); i-- > 1;)
      steps[i - 1] = steps[i] * shape[i];
  }
  std::vector<Sizes> positions(shape.size());
  Sizes sizes = shape;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    for (const auto& [axis, list] : chosen)
      if (axis == static_cast<int>(i))
        positions[i] = list;
    if (positions[i].empty())
      for (std::int64_t p = 0; p < shape[i]; ++p)
        positions[i].push_back(p);
    sizes[i] = static_cast<std::int64_t>(positions[i].size());
  }
  const std::vector<std::byte> from = base.to_bytes();
  const std::size_t width = size_of(base.dtype());
  std::vector<std::byte> to;
  to.reserve(static_cast<std::size_t>(product(sizes)) * width);
  backend::reference::for_each_point(sizes, [&](const Sizes& point, std::int64_t) {
    std::int64_t at = first;
    for (std::size_t i = 0; i < point.size(); ++i)
      at += steps[i] * positions[i][static_cast<std::size_t>(point[i])];
    const std::byte* element = from.data() + static_cast<std::size_t>(at) * width;
    to.insert(to.end(), element, element + width);
  });
  return from_bytes(base.dtype(), Shape(sizes.begin(), sizes.end()), to);
}

} // namespace egret::tool::sweep
