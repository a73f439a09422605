// The plain side: arrays of doubles, and what is drawn.
#include "functions.h"

#include <algorithm>
#include <numeric>

namespace egret::testing {

std::int64_t count_of(const Sizes& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

void each(const Sizes& shape, const std::function<void(const Sizes&)>& visit) {
  Sizes at(shape.size(), 0);
  for (std::int64_t left = count_of(shape); left > 0; --left) {
    visit(at);
    for (std::size_t i = shape.size(); i-- > 0 && ++at[i] == shape[i];)
      at[i] = 0;
  }
}

Array::Array(const Sizes& shape, const std::function<double(const Sizes&)>& value) : Array(shape) {
  std::size_t i = 0;
  each(shape, [&](const Sizes& at) { values[i++] = value(at); });
}

std::size_t Array::place(const Sizes& at) const {
  std::int64_t flat = 0;
  for (std::size_t i = 0; i < shape.size(); ++i)
    flat = flat * shape[i] + at[i];
  return static_cast<std::size_t>(flat);
}

double Array::wide(const Sizes& at) const {
  Sizes here(at.end() - static_cast<std::ptrdiff_t>(shape.size()), at.end());
  for (std::size_t i = 0; i < here.size(); ++i)
    here[i] = shape[i] == 1 ? 0 : here[i];
  return (*this)[here];
}

Sizes broadcast(const Sizes& a, const Sizes& b) {
  Sizes result(std::max(a.size(), b.size()), 1);
  for (const Sizes* s : {&a, &b})
    for (std::size_t i = 0; i < s->size(); ++i)
      if ((*s)[i] != 1)
        result[result.size() - s->size() + i] = (*s)[i];
  return result;
}

Array map(const Array& a, const std::function<double(double)>& f) {
  Array result(a.shape);
  std::transform(a.values.begin(), a.values.end(), result.values.begin(), f);
  return result;
}

Array zip(const Array& a, const Array& b, const std::function<double(double, double)>& f) {
  return Array(broadcast(a.shape, b.shape),
               [&](const Sizes& at) { return f(a.wide(at), b.wide(at)); });
}

Array slices(const Array& a, std::vector<std::size_t> axes, bool keepdim,
             const std::function<double(const std::vector<double>&)>& f) {
  if (axes.empty()) // all
    for (std::size_t i = 0; i < a.rank(); ++i)
      axes.push_back(i);
  std::vector<bool> gone(a.rank());
  for (std::size_t axis : axes)
    gone[axis] = true;
  Sizes inner, outer, kept;
  for (std::size_t i = 0; i < a.rank(); ++i) {
    inner.push_back(gone[i] ? a.shape[i] : 1);
    outer.push_back(gone[i] ? 1 : a.shape[i]);
    if (!gone[i] || keepdim)
      kept.push_back(outer.back());
  }
  Array result(kept);
  std::size_t at = 0;
  each(outer, [&](const Sizes& o) {
    std::vector<double> values;
    each(inner, [&](const Sizes& i) {
      Sizes whole = o;
      for (std::size_t k = 0; k < whole.size(); ++k)
        whole[k] += i[k];
      values.push_back(a[whole]);
    });
    result.values[at++] = f(values);
  });
  return result;
}

Array lines(const Array& a, std::size_t axis,
            const std::function<std::vector<double>(const std::vector<double>&)>& f) {
  Sizes outer = a.shape;
  outer[axis] = 1;
  std::vector<std::vector<double>> results;
  each(outer, [&](Sizes at) {
    std::vector<double> line;
    for (at[axis] = 0; at[axis] < a.shape[axis]; ++at[axis])
      line.push_back(a[at]);
    results.push_back(f(line));
  });
  Sizes shape = a.shape;
  shape[axis] = results.empty()
                    ? static_cast<std::int64_t>(
                          f(std::vector<double>(static_cast<std::size_t>(a.shape[axis]))).size())
                    : static_cast<std::int64_t>(results[0].size());
  const Array numbers(outer); // for the places of lines
  return Array(shape, [&](Sizes at) {
    const auto i = static_cast<std::size_t>(at[axis]);
    at[axis] = 0;
    return results[numbers.place(at)][i];
  });
}

Sizes Draw::shape(std::int64_t low_rank, std::int64_t high_rank, bool filled,
                  std::int64_t largest) {
  Sizes result(static_cast<std::size_t>(between(low_rank, high_rank)));
  for (auto& size : result)
    size = !filled && chance(0.05) ? 0 : chance(0.2) ? 1 : between(1, largest);
  return result;
}

Sizes Draw::broadcastable(const Sizes& shape) {
  Sizes result(shape.begin() + below(static_cast<std::int64_t>(shape.size()) + 1), shape.end());
  for (auto& size : result)
    if (chance(0.25))
      size = 1;
  return result;
}

Array Draw::array(const Sizes& shape, double low, double high) {
  Array a(shape);
  const bool wild = special && chance(0.5);
  for (double& value : a.values) {
    value = rng.uniform(low, high);
    if (whole(dtype))
      value = dtype == DType::Bool ? double(chance()) : std::floor(value * 4);
    else if (wild && chance(0.3))
      value = pick({kNan, kInf, -kInf, 0.0, -0.0, 1.0, -1.0, 2.0});
    else if (special && chance(0.1))
      value = pick({0.0, -0.0, 1.0, -1.0, 0.5});
  }
  if (!shape.empty() && chance(0.15)) { // for operands that are broadcast in memory
    const std::size_t axis = this->axis(shape.size()).axis;
    a = Array(shape, [&](Sizes at) {
      at[axis] = 0;
      return a[at];
    });
    a.repeated = {axis};
  }
  return a;
}

Array Draw::distinct(const Sizes& shape, double low, double high) {
  Array a(shape);
  std::vector<std::size_t> order(a.values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(below(static_cast<std::int64_t>(i)))]);
  for (std::size_t i = 0; i < order.size(); ++i)
    a.values[i] = whole(dtype)
                      ? double(order[i])
                      : low + (high - low) * (double(order[i]) + 0.5) / double(order.size());
  return a;
}

Array Draw::integers(const Sizes& shape, std::int64_t low, std::int64_t high, DType type) {
  Array a(shape);
  for (double& value : a.values)
    value = double(between(low, high));
  a.type = type;
  return a;
}

Array Draw::mask(const Sizes& shape) {
  return integers(shape, 0, 1, DType::Bool);
}

Draw::Axis Draw::axis(std::size_t rank) {
  const std::int64_t axis = below(static_cast<std::int64_t>(rank));
  return {static_cast<std::size_t>(axis), chance() ? axis : axis - static_cast<std::int64_t>(rank)};
}

std::vector<std::size_t> Draw::axes(std::size_t rank) {
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < rank; ++i)
    if (chance())
      list.push_back(i);
  return list;
}

Instance one(Arrays operands, std::function<Tensor(const Tensors&)> call,
             std::function<Array(const Arrays&)> reference) {
  return {std::move(operands), [call](const Tensors& t) { return Tensors{call(t)}; },
          [reference](const Arrays& a) { return Arrays{reference(a)}; }};
}

} // namespace egret::testing
