#include "egret/nn/low_rank.h"

#include "egret/functional.h"
#include "support/fail.h"

#include <cmath>

namespace egret::nn {

LowRank::LowRank(Tensor a_matrix, Tensor b_matrix, double its_scale)
    : a(std::move(a_matrix)), b(std::move(b_matrix)), scale(its_scale) {}

LowRank::LowRank(std::int64_t in, std::int64_t out, std::int64_t rank, double alpha,
                 Generator& generator, const Shape& leading) {
  if (in <= 0 || out <= 0 || rank <= 0 || !(alpha > 0))
    fail(ErrorKind::Value, "LowRank: sizes {} and {}, rank {} and alpha {} must be positive", in,
         out, rank, alpha);
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  const auto shape = [&](std::int64_t rows, std::int64_t columns) {
    Shape all = leading;
    all.insert(all.end(), {rows, columns});
    return all;
  };
  a = uniform(shape(rank, in), -bound, bound, generator).set_requires_grad();
  b = zeros(shape(out, rank)).set_requires_grad();
  scale = alpha / static_cast<double>(rank);
}

Tensor LowRank::operator()(const Tensor& x) const {
  const auto product = [](const Tensor& of, const Tensor& matrix) {
    return matmul(of, matrix.to(of.dtype()).transpose());
  };
  return product(product(x, a), b) * scale;
}

Tensor LowRank::matrix() const {
  return matmul(b.to(DType::F32), a.to(DType::F32)) * scale;
}

} // namespace egret::nn
