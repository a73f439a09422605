#include "models/language/matrix.h"

#include "egret/functional.h"
#include "support/overloaded.h"

namespace egret::models::language {

namespace {

Tensor values_of(const Quantized& q, DType dtype) {
  return dequantize({q.packed, q.scale.to(DType::F32), q.bits, q.group}).to(dtype);
}

/// Rows, or matrices, that `part` takes of each tensor along its first axis.
template <class F>
Matrix parts_of(const Matrix& matrix, F part) {
  return std::visit(overloaded{[&](const Tensor& floats) -> Matrix { return part(floats); },
                               [&](const Quantized& q) -> Matrix {
                                 return Quantized{part(q.packed), part(q.scale), q.bits, q.group};
                               },
                               [&](io::BlockQuantized b) -> Matrix {
                                 for (Tensor* each : {&b.packed, &b.unit, &b.count})
                                   *each = part(*each);
                                 for (std::optional<Tensor>* each : {&b.low_unit, &b.low_count})
                                   if (*each)
                                     *each = part(**each);
                                 return b;
                               }},
                    matrix);
}

} // namespace

Tensor dense(const Matrix& matrix, DType dtype) {
  return std::visit(
      overloaded{[](const Tensor& floats) { return floats; },
                 [&](const Quantized& q) { return values_of(q, dtype); },
                 [&](const io::BlockQuantized& b) { return io::dequantize(b).to(dtype); }},
      matrix);
}

Tensor rows_at(const Matrix& table, const Tensor& index, DType dtype) {
  if (const auto* floats = std::get_if<Tensor>(&table))
    return embedding(*floats, index);
  return dense(taken(table, index), dtype);
}

Matrix narrowed(const Matrix& matrix, std::int64_t begin, std::int64_t count) {
  return parts_of(matrix, [&](const Tensor& a) { return a.narrow(0, begin, count); });
}

Matrix taken(const Matrix& matrices, const Tensor& index) {
  return parts_of(matrices, [&](const Tensor& a) { return take(a, index, 0); });
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
                        },
                        [](io::BlockQuantized& b) {
                          for (Tensor* each : {&b.packed, &b.unit, &b.count})
                            each->eval();
                          for (std::optional<Tensor>* each : {&b.low_unit, &b.low_count})
                            if (*each)
                              (*each)->eval();
                        }},
             matrix);
}

Tensor Projection::operator()(const Tensor& x) const {
  const Tensor y = linear(x, dense(weight, x.dtype()), bias ? *bias : Tensor());
  return update ? y + (*update)(x) : y;
}

} // namespace egret::models::language
