// Workloads that order, select, count and scatter.
#include "bench.h"

#include "egret/functional.h"

#include <algorithm>
#include <random>

namespace egret::tool::bench {

namespace {

/// What the whole result must be, or the elements of it that are looked at.
struct Expected {
  std::vector<double> values;
  std::vector<std::int64_t> elements; ///< empty: all
};
using Expect = std::function<Expected(const std::vector<Tensor>&)>;

/// A case whose run is one compiled function of inputs, checked by a plain loop over them.
Case ordered_case(const std::string& name, const Function& function, const MakeInputs& make,
                  Expect expect, double tolerance) {
  auto compiled = std::make_shared<Compiled<Function>>(compile(function, {.name = name}));
  auto sets = std::make_shared<std::vector<std::vector<Tensor>>>();
  sets->push_back(make(0));
  double bytes = 0;
  for (const Tensor& input : sets->front())
    bytes += static_cast<double>(input.numel()) * static_cast<double>(size_of(input.dtype()));
  for (std::uint64_t i = 1; i < sets_of(bytes); ++i)
    sets->push_back(make(i));
  auto last = std::make_shared<std::size_t>(0); // the set of the run before
  Case result;
  result.run = [=] {
    *last = (*last + 1) % sets->size();
    return std::vector<Tensor>{(*compiled)((*sets)[*last])};
  };
  result.check = [=, expect = std::move(expect)](const std::vector<Tensor>& outputs) {
    const Expected expected = expect((*sets)[*last]);
    std::vector<double> all = outputs[0].to_vector<double>();
    if (expected.elements.empty())
      return compare(all, expected.values, tolerance);
    std::vector<double> some;
    for (const std::int64_t element : expected.elements)
      some.push_back(all[static_cast<std::size_t>(element)]);
    return compare(some, expected.values, tolerance);
  };
  return result;
}

Tensor random_indices(std::int64_t count, std::int64_t below, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  for (std::int32_t& value : values)
    value = static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(below));
  return tensor(values, Shape{count});
}

/// The first `count` values of each row in ascending or descending order.
std::vector<double> first_of_rows(std::vector<double> values, std::int64_t rows, std::int64_t count,
                                  bool descending) {
  const auto length = static_cast<std::ptrdiff_t>(values.size()) / rows;
  std::vector<double> result;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto begin = values.begin() + r * length, end = begin + length;
    if (descending)
      std::sort(begin, end, std::greater<>());
    else
      std::sort(begin, end);
    result.insert(result.end(), begin, begin + count);
  }
  return result;
}

Workload sorted_rows(const std::string& name, std::int64_t rows, std::int64_t length) {
  Workload w{
      name, "sort of the last axis", name_of(DType::F32), Limit::Copy, [=] {
        Case c = ordered_case(
            name, [](const std::vector<Tensor>& in) { return sort(in[0], -1).values; },
            [=](std::uint64_t set) {
              return std::vector<Tensor>{random_tensor({rows, length}, 16 * set + 1)};
            },
            [=](const std::vector<Tensor>& in) {
              return Expected{first_of_rows(in[0].to_vector<double>(), rows, length, false), {}};
            },
            0);
        c.bytes = 2 * sizeof(float) * static_cast<double>(rows * length);
        return c;
      }};
  w.judged = Judged::Both;
  w.memory = 64.0 * static_cast<double>(rows * length);
  w.small = [] {
    return traced([](const Tensor& x) { return sort(x, -1).values; }, random_tensor({3, 40}, 1));
  };
  return w;
}

Workload largest_of_rows(const std::string& name, std::int64_t rows, std::int64_t length,
                         std::int64_t count) {
  Workload w{
      name, "largest of the last axis, in order", name_of(DType::F32), Limit::Read, [=] {
        Case c = ordered_case(
            name, [=](const std::vector<Tensor>& in) { return topk(in[0], count, -1).values; },
            [=](std::uint64_t set) {
              return std::vector<Tensor>{random_tensor({rows, length}, 16 * set + 1)};
            },
            [=](const std::vector<Tensor>& in) {
              return Expected{first_of_rows(in[0].to_vector<double>(), rows, count, true), {}};
            },
            0);
        c.bytes = sizeof(float) * static_cast<double>(rows * length);
        return c;
      }};
  w.judged = Judged::Both;
  w.memory = 16.0 * static_cast<double>(rows * length);
  w.small = [] {
    return traced([](const Tensor& x) { return topk(x, 3, -1).values; }, random_tensor({3, 40}, 1));
  };
  return w;
}

Workload counted(const std::string& name, std::int64_t count, std::int64_t bins) {
  Workload w{name, "how often each index occurs", name_of(DType::I32), Limit::Read, [=] {
               Case c = ordered_case(
                   name, [=](const std::vector<Tensor>& in) { return bincount(in[0], bins); },
                   [=](std::uint64_t set) {
                     return std::vector<Tensor>{random_indices(count, bins, set + 1)};
                   },
                   [=](const std::vector<Tensor>& in) {
                     Expected e{std::vector<double>(static_cast<std::size_t>(bins)), {}};
                     for (const std::int32_t i : in[0].to_vector<std::int32_t>())
                       ++e.values[static_cast<std::size_t>(i)];
                     return e;
                   },
                   0);
               c.bytes = sizeof(std::int32_t) * static_cast<double>(count);
               return c;
             }};
  w.judged = Judged::Both;
  w.memory = 24.0 * static_cast<double>(count);
  w.small = [] {
    return traced([](const Tensor& i) { return bincount(i, 5); }, random_indices(40, 5, 1));
  };
  return w;
}

/// Sums of rows of updates by their index, as an embedding's gradient makes.
Workload added_rows(const std::string& name, const std::string& what, std::int64_t rows,
                    std::int64_t columns, std::int64_t updates) {
  const auto function = [=](const std::vector<Tensor>& in) {
    return index_add(zeros({rows, columns}), in[0], in[1], 0);
  };
  Workload w{name, what, name_of(DType::F32), Limit::Copy, [=] {
               Case c = ordered_case(
                   name, function,
                   [=](std::uint64_t set) {
                     return std::vector<Tensor>{random_indices(updates, rows, set + 1),
                                                random_tensor({updates, columns}, 16 * set + 2)};
                   },
                   [=](const std::vector<Tensor>& in) {
                     const auto index = in[0].to_vector<std::int32_t>();
                     const auto values = in[1].to_vector<float>();
                     Expected e;
                     for (const std::int64_t row : sample_rows(rows, 32)) {
                       std::vector<double> sums(static_cast<std::size_t>(columns));
                       for (std::size_t u = 0; u < index.size(); ++u)
                         if (index[u] == row)
                           for (std::size_t i = 0; i < sums.size(); ++i)
                             sums[i] += values[u * sums.size() + i];
                       for (std::size_t i = 0; i < sums.size(); ++i)
                         e.elements.push_back(row * columns + static_cast<std::int64_t>(i));
                       e.values.insert(e.values.end(), sums.begin(), sums.end());
                     }
                     return e;
                   },
                   1e-5);
               c.bytes = sizeof(float) * static_cast<double>((rows + updates) * columns);
               return c;
             }};
  w.judged = Judged::Both;
  w.memory =
      12.0 * static_cast<double>((rows + updates) * columns) + 48.0 * static_cast<double>(updates);
  w.small = [] {
    return traced(
        [](const Tensor& i, const Tensor& x) {
          return index_add(zeros({7, 3}), i, x, 0);
        },
        random_indices(20, 7, 1), random_tensor({20, 3}, 1));
  };
  return w;
}

} // namespace

std::vector<Workload> order_workloads() {
  return {
      sorted_rows("sort_f32_1m", 1, 1 << 20),
      sorted_rows("sort_f32_4096x1000", 4096, 1000),
      largest_of_rows("topk50_f32_16x128256", 16, 128256, 50),
      counted("bincount_i32_16m_256", 1 << 24, 256),
      added_rows("embedding_grad_f32", "sums of an embedding's gradient by token", 50257, 768,
                 1 << 14),
      added_rows("scatter_add_f32", "sums of numbers by their index", 1 << 20, 1, 1 << 22),
  };
}

} // namespace egret::tool::bench
