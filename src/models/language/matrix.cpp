#include "models/language/matrix.h"

#include "egret/functional.h"
#include "support/overloaded.h"

namespace egret::models::language {

namespace {

/// In f32.
Tensor values_of(const Grouped& q) {
  const Tensor scale = q.scale.to(DType::F32);
  const bool integers = q.values.dtype() == DType::U8;
  if (integers && !q.zero)
    return dequantize(Quantized{q.values, scale, q.bits, q.group});
  Tensor values =
      (integers && q.bits < 8 ? unpack_bits(q.values, q.bits) : q.values).to(DType::F32);
  const Shape shape = values.shape();
  Shape groups(shape.begin(), shape.end() - 1);
  groups.insert(groups.end(), {scale.size(-1), q.group});
  values = values.reshape(groups);
  if (q.zero)
    values = values - q.zero->to(DType::F32).unsqueeze(-1);
  return (values * scale.unsqueeze(-1)).reshape(shape);
}

/// Rows, or matrices, that `part` takes of each tensor along its first axis.
template <class F>
Matrix parts_of(const Matrix& matrix, F part) {
  return std::visit(overloaded{[&](const Tensor& floats) -> Matrix { return part(floats); },
                               [&](Grouped q) -> Matrix {
                                 q.values = part(q.values);
                                 q.scale = part(q.scale);
                                 if (q.zero)
                                   q.zero = part(*q.zero);
                                 return q;
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
                 [&](const Grouped& q) { return values_of(q).to(dtype); },
                 [&](const io::BlockQuantized& b) { return io::dequantize(b).to(dtype); }},
      matrix);
}

Tensor rows_at(const Matrix& table, const Tensor& index, DType dtype) {
  if (const auto* floats = std::get_if<Tensor>(&table))
    return embedding(*floats, index);
  return dense(taken(table, index), dtype);
}

std::int64_t count_of(const Matrix& matrix) {
  return std::visit(overloaded{[](const Tensor& floats) { return floats.size(0); },
                               [](const Grouped& q) { return q.values.size(0); },
                               [](const io::BlockQuantized& b) { return b.packed.size(0); }},
                    matrix);
}

Matrix narrowed(const Matrix& matrix, std::int64_t begin, std::int64_t count) {
  return parts_of(matrix, [&](const Tensor& a) { return a.narrow(0, begin, count); });
}

Matrix taken(const Matrix& matrices, const Tensor& index) {
  return parts_of(matrices, [&](const Tensor& a) { return take(a, index, 0); });
}

void evaluate(Matrix& matrix) {
  std::visit(overloaded{[](Tensor& floats) { floats.eval(); },
                        [](Grouped& q) {
                          q.values.eval();
                          q.scale.eval();
                          if (q.zero)
                            q.zero->eval();
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
