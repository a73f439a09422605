#include "models/language/matrix.h"

#include "egret/functional.h"
#include "support/overloaded.h"

namespace egret::models::language {

namespace {

Tensor values_of(const Quantized& q, DType dtype) {
  return dequantize({q.packed, q.scale.to(DType::F32), q.bits, q.group}).to(dtype);
}

} // namespace

Tensor dense(const Matrix& matrix, DType dtype) {
  return std::visit(overloaded{[](const Tensor& floats) { return floats; },
                               [&](const Quantized& q) { return values_of(q, dtype); }},
                    matrix);
}

Tensor rows_at(const Matrix& table, const Tensor& index, DType dtype) {
  return std::visit(overloaded{[&](const Tensor& floats) { return embedding(floats, index); },
                               [&](const Quantized& q) {
                                 return values_of({take(q.packed, index, 0),
                                                   take(q.scale, index, 0), q.bits, q.group},
                                                  dtype);
                               }},
                    table);
}

Matrix narrowed(const Matrix& matrix, std::int64_t begin, std::int64_t count) {
  return std::visit(
      overloaded{[&](const Tensor& floats) -> Matrix { return floats.narrow(0, begin, count); },
                 [&](const Quantized& q) -> Matrix {
                   return Quantized{q.packed.narrow(0, begin, count),
                                    q.scale.narrow(0, begin, count), q.bits, q.group};
                 }},
      matrix);
}

Matrix stacked(const std::vector<Matrix>& each) {
  std::vector<Tensor> floats, packed, scales;
  for (const Matrix& one : each) {
    if (const auto* tensor = std::get_if<Tensor>(&one)) {
      floats.push_back(*tensor);
      continue;
    }
    const Quantized& q = std::get<Quantized>(one);
    packed.push_back(q.packed);
    scales.push_back(q.scale);
  }
  if (packed.empty())
    return stack(floats);
  const Quantized& first = std::get<Quantized>(each[0]);
  return Quantized{stack(packed), stack(scales), first.bits, first.group};
}

void evaluate(Matrix& matrix) {
  std::visit(overloaded{[](Tensor& floats) { floats.eval(); },
                        [](Quantized& q) {
                          q.packed.eval();
                          q.scale.eval();
                        }},
             matrix);
}

Tensor Projection::operator()(const Tensor& x) const {
  const Tensor y = linear(x, dense(weight, x.dtype()), bias ? *bias : Tensor());
  return update ? y + (*update)(x) : y;
}

} // namespace egret::models::language
