// Matrix products: expand, multiply, sum.
#include "support/fail.h"
#include "tensor/ops.h"

#include <numeric>

namespace egret {

using namespace detail;

namespace {

[[noreturn]] void refuse_inner(const Tensor& a, const Tensor& b, const Expr& left,
                               const Expr& right) {
  const Shape& s = b.shape();
  const bool turned = s.size() >= 2 && s.back() == left;
  fail(ErrorKind::Shape, "matmul: inner dimensions differ: {} x {} ({} != {}); {}", shape_of(a),
       shape_of(b), left.str(), right.str(),
       turned ? "did you mean matmul(a, b.transpose())?"
              : "the last dim of the left operand must equal the dim before the last of the right "
                "one");
}

// matmul(), or where `turned` that with the right operand as [.., n, k], which is the layout that
// sums are formed in: nothing is turned there and back.
Tensor product_of(const Operand& left_operand, const Operand& right_operand, bool turned) {
  const Tensor a = product_operand(left_operand), b = product_operand(right_operand);
  if (a.rank() == 0 || b.rank() == 0)
    fail(ErrorKind::Shape, "matmul: {} x {}: an operand is a single number; multiply with *",
         shape_of(a), shape_of(b));
  const DType type = promote(a.dtype(), b.dtype());
  if (type == DType::Bool)
    fail(ErrorKind::DType, "matmul: takes numbers, got bool; convert with to(DType::F32)");
  const bool row = a.rank() == 1, column = b.rank() == 1;
  const Expr inner_a = a.shape().back();
  const Expr inner_b = column || turned ? b.shape().back() : b.shape()[b.shape().size() - 2];
  if (!(inner_a == inner_b))
    refuse_inner(a, b, inner_a, inner_b);

  // Products and sums of f16 and bf16 are formed in f32: what is stored is rounded once.
  const DType wide = accumulator_of(type);
  const Tensor left = converted(a, wide), right = converted(b, wide);
  NodePtr x = Access::node(left, "matmul"), y = Access::node(right, "matmul");
  // left [.., m, k] -> [.., m, 1, k] and right [.., k, n] -> [.., 1, n, k], both broadcast to the
  // box; an operand of one axis has no m or n.
  Shape sx = x->form.shape, sy = y->form.shape;
  const Expr k = sx.back();
  Shape own; // of the result, behind the batch
  if (!row)
    own.push_back(sx[sx.size() - 2]);
  if (!column)
    own.push_back(turned ? sy[sy.size() - 2] : sy.back());
  sx.resize(sx.size() - (row ? 1 : 2), k);
  sy.resize(sy.size() - (column ? 1 : 2), k);
  Shape box = broadcast_shapes(sx, sy, "matmul (batch axes)");
  box.insert(box.end(), own.begin(), own.end());
  box.push_back(k);
  if (!column && !turned) {
    std::vector<std::int64_t> axes(y->form.shape.size());
    std::iota(axes.begin(), axes.end(), 0);
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    y = record(Op::Permute, std::move(y), {.axes = std::move(axes)});
  }
  if (!row && !column) {
    sx.insert(sx.end(), {own[0], 1, k});
    sy.insert(sy.end(), {1, own[1], k});
    x = record(Op::Reshape, std::move(x), {.shape = std::move(sx)});
    y = record(Op::Reshape, std::move(y), {.shape = std::move(sy)});
  }
  x = broadcast_node(std::move(x), box);
  y = broadcast_node(std::move(y), box);
  NodePtr total = record(Op::ReduceSum, apply_node(Op::Mul, {std::move(x), std::move(y)}, "matmul"),
                         {.axes = {static_cast<std::int64_t>(box.size()) - 1}});
  if (wide != type)
    total = record(Op::Cast, std::move(total), {.dtype = type});
  return Access::wrap(std::move(total));
}

} // namespace

Tensor matmul(const Operand& a, const Operand& b) {
  Access::held(a, "matmul");
  Access::held(b, "matmul");
  return product_of(a, b, false);
}

Tensor dot(const Operand& a, const Operand& b) {
  Access::held(a, "dot");
  Access::held(b, "dot");
  if (a.rank() != 1 || b.rank() != 1)
    fail(ErrorKind::Shape, "dot: {} and {}: both must have one axis; use matmul for others",
         shape_of(a), shape_of(b));
  return matmul(a, b);
}

Tensor inner(const Operand& a, const Operand& b) {
  constexpr const char* who = "inner";
  Access::held(a, who);
  Access::held(b, who);
  if (a.rank() == 0 || b.rank() == 0)
    return mul(a, b);
  if (!(a.shape().back() == b.shape().back()))
    fail(ErrorKind::Shape, "{}: {} and {}: the last axes must be equal", who, shape_of(a),
         shape_of(b));
  return named(who, [&] { return tensordot(a, b, {-1}, {-1}); });
}

Tensor vecdot(const Operand& a, const Operand& b, std::int64_t axis) {
  constexpr const char* who = "vecdot";
  const Pair p = matched(a, b, who);
  axis = axis_of(axis, p.a.rank(), p.a.shape(), who);
  return named(who, [&] { return sum(widened(p.a) * widened(p.b), axis).to(p.a.dtype()); });
}

Tensor outer(const Operand& a, const Operand& b) {
  Access::held(a, "outer");
  Access::held(b, "outer");
  if (a.rank() != 1 || b.rank() != 1)
    fail(ErrorKind::Shape, "outer: {} and {}: both must have one axis", shape_of(a), shape_of(b));
  return unsqueeze(a, 1) * unsqueeze(b, 0);
}

Tensor linear(const Operand& a, const Operand& weight, const Operand& bias) {
  Access::held(a, "linear");
  Access::held(weight, "linear");
  if (weight.rank() != 2 || a.rank() < 1 || !(a.shape().back() == weight.shape()[1]))
    fail(ErrorKind::Shape,
         "linear: weight {} does not fit {}; it must be [outputs, inputs] with as many inputs as "
         "the last dim",
         shape_of(weight), shape_of(a));
  const Tensor product = product_of(a, weight, true);
  if (!bias.defined())
    return product;
  if (bias.rank() != 1 || !(bias.shape()[0] == weight.shape()[0]))
    fail(ErrorKind::Shape, "linear: bias {} does not fit weight {}; it must be [outputs]",
         shape_of(bias), shape_of(weight));
  return product + product_operand(bias);
}

namespace {

void require_ranks(const Tensor& a, std::int64_t rank_a, const Tensor& b, std::int64_t rank_b,
                   const char* who) {
  Access::held(a, who);
  Access::held(b, who);
  if (a.rank() != rank_a || b.rank() != rank_b)
    fail(ErrorKind::Shape,
         "{}: {} and {}: operands must have {} and {} axes; use matmul for others", who,
         shape_of(a), shape_of(b), rank_a, rank_b);
}

Tensor plus_product(const Tensor& c, const Tensor& product, const Arg& beta, const Arg& alpha,
                    const char* who) {
  Access::held(c, who);
  if (!broadcasts_to(c.shape(), product.shape()))
    fail(ErrorKind::Shape, "{}: {} does not broadcast to the product's {}", who, shape_of(c),
         shape_of(product));
  return mul(c, beta) + mul(product, alpha);
}

} // namespace

Tensor mm(const Operand& a, const Operand& b) {
  require_ranks(a, 2, b, 2, "mm");
  return matmul(a, b);
}
Tensor bmm(const Operand& a, const Operand& b) {
  require_ranks(a, 3, b, 3, "bmm");
  if (!(a.shape()[0] == b.shape()[0]))
    fail(ErrorKind::Shape, "bmm: batches of {} and {} differ; use matmul to broadcast", shape_of(a),
         shape_of(b));
  return matmul(a, b);
}
Tensor mv(const Operand& a, const Operand& b) {
  require_ranks(a, 2, b, 1, "mv");
  return matmul(a, b);
}
Tensor addmm(const Operand& c, const Operand& a, const Operand& b, const Arg& beta,
             const Arg& alpha) {
  require_ranks(a, 2, b, 2, "addmm");
  return plus_product(c, matmul(a, b), beta, alpha, "addmm");
}
Tensor baddbmm(const Operand& c, const Operand& a, const Operand& b, const Arg& beta,
               const Arg& alpha) {
  require_ranks(a, 3, b, 3, "baddbmm");
  return plus_product(c, matmul(a, b), beta, alpha, "baddbmm");
}

Tensor addmv(const Operand& c, const Operand& a, const Operand& b, const Arg& beta,
             const Arg& alpha) {
  require_ranks(a, 2, b, 1, "addmv");
  return plus_product(c, matmul(a, b), beta, alpha, "addmv");
}
Tensor addr(const Operand& c, const Operand& a, const Operand& b, const Arg& beta,
            const Arg& alpha) {
  require_ranks(a, 1, b, 1, "addr");
  return plus_product(c, outer(a, b), beta, alpha, "addr");
}
Tensor addbmm(const Operand& c, const Operand& a, const Operand& b, const Arg& beta,
              const Arg& alpha) {
  require_ranks(a, 3, b, 3, "addbmm");
  return plus_product(c, einsum("bij,bjk->ik", {a, b}), beta, alpha, "addbmm");
}

Tensor bilinear(const Operand& a, const Operand& b, const Operand& weight, const Operand& bias) {
  constexpr const char* who = "bilinear";
  for (const Tensor* t : {&a, &b, &weight})
    Access::held(*t, who);
  if (weight.rank() != 3 || a.rank() < 1 || b.rank() < 1 ||
      !(a.shape().back() == weight.shape()[1]) || !(b.shape().back() == weight.shape()[2]))
    fail(ErrorKind::Shape, "{}: weight {} does not fit {} and {}; it must be [outputs, {}, {}]",
         who, shape_of(weight), shape_of(a), shape_of(b),
         a.rank() > 0 ? a.shape().back().str() : "1", b.rank() > 0 ? b.shape().back().str() : "1");
  const Tensor product = einsum("...i,oij,...j->...o", {a, weight, b});
  if (!bias.defined())
    return product;
  if (bias.shape() != Shape{weight.shape()[0]})
    fail(ErrorKind::Shape, "{}: bias {} does not fit weight {}; it must be [{}]", who,
         shape_of(bias), shape_of(weight), weight.shape()[0].str());
  return product + bias;
}

Tensor matrix_power(const Operand& a, std::int64_t n) {
  constexpr const char* who = "matrix_power";
  Access::held(a, who);
  if (a.rank() < 2 || !(a.shape()[static_cast<std::size_t>(a.rank()) - 2] == a.shape().back()))
    fail(ErrorKind::Shape, "{}: got {}; square matrices are needed", who, shape_of(a));
  if (n < 0)
    fail(ErrorKind::Value, "{}: a power of {}; it must not be negative", who, n);
  if (n == 0)
    return eye(a.size(-1), -1, a.dtype()).expand(a.shape());
  Tensor result, square = a;
  for (; n > 0; n /= 2) {
    if (n % 2 == 1)
      result = result.defined() ? matmul(result, square) : square;
    if (n > 1)
      square = matmul(square, square);
  }
  return result.clone();
}

} // namespace egret
