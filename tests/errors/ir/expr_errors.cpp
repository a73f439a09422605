// Every message of dtypes, scalars, expressions and index maps: its kind and its words.
#include "egret/error.h"
#include "egret/index_map.h"

#include <gtest/gtest.h>

#include <functional>

namespace egret {
namespace {

void expect_error(ErrorKind kind, const std::string& words, const std::function<void()>& act) {
  try {
    act();
    ADD_FAILURE() << "nothing was thrown; expected: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(DTypeErrors, UnknownNames) {
  expect_error(ErrorKind::DType, "'f8' is not an element type; there are bool, i8",
               [] { dtype_named("f8"); });
}

TEST(ScalarErrors, TextThatIsNoValue) {
  expect_error(ErrorKind::Parse, "cannot read 'x' as i32: not a number",
               [] { parse_scalar(DType::I32, "x"); });
  expect_error(ErrorKind::Parse, "cannot read '1.5' as i32: not a number",
               [] { parse_scalar(DType::I32, "1.5"); });
  expect_error(ErrorKind::Parse, "cannot read '128' as i8: out of range",
               [] { parse_scalar(DType::I8, "128"); });
  expect_error(ErrorKind::Parse, "cannot read '-1' as u64: not a number",
               [] { parse_scalar(DType::U64, "-1"); });
  expect_error(ErrorKind::Parse, "cannot read '70000' as f16: out of range",
               [] { parse_scalar(DType::F16, "70000"); });
  expect_error(ErrorKind::Parse, "cannot read '1e999' as f32: out of range",
               [] { parse_scalar(DType::F32, "1e999"); });
  expect_error(ErrorKind::Parse, "cannot read 'infinity' as f32: not a number",
               [] { parse_scalar(DType::F32, "infinity"); });
  expect_error(ErrorKind::Parse, "not the bits of a NaN",
               [] { parse_scalar(DType::F32, "nan(0x1)"); });
  expect_error(ErrorKind::Parse, "cannot read '1' as bool: it is 'true' or 'false'",
               [] { parse_scalar(DType::Bool, "1"); });
  expect_error(ErrorKind::Parse, "cannot read '' as f64", [] { parse_scalar(DType::F64, ""); });
}

TEST(ExprErrors, ArithmeticThatDoesNotFit) {
  const Expr large(INT64_MAX);
  expect_error(ErrorKind::Value, "9223372036854775807 + 1 does not fit 64 bits",
               [&] { (void)(large + 1); });
  expect_error(ErrorKind::Value, "does not fit 64 bits", [&] { (void)(large * 2); });
  expect_error(ErrorKind::Value, "does not fit 64 bits", [&] { (void)(-Expr(INT64_MIN)); });
  const Expr x = Expr::symbol("x", 0, INT64_MAX);
  expect_error(ErrorKind::Value, "does not fit 64 bits", [&] { (void)(large * x * 2); });
  expect_error(ErrorKind::Value, "does not fit 64 bits",
               [&] { (void)evaluate(2 * x, [](const Expr&) { return INT64_MAX; }); });
  expect_error(ErrorKind::Value, "does not fit 64 bits",
               [] { (void)floordiv(Expr(INT64_MIN), -1); });
}

TEST(ExprErrors, DivisorsThatMayBeZero) {
  const Expr x = Expr::symbol("x", 0, 9);
  expect_error(ErrorKind::Value, "floordiv: the divisor x may be 0; it lies in [0, 9]",
               [&] { (void)floordiv(8, x); });
  expect_error(ErrorKind::Value, "floormod: the divisor 0 may be 0", [&] { (void)floormod(x, 0); });
  expect_error(ErrorKind::Value, "ceildiv: the divisor x-1 may be 0",
               [&] { (void)ceildiv(x, x - 1); });
}

TEST(ExprErrors, SymbolsWithoutValues) {
  expect_error(ErrorKind::Value, "'s' has no value: its bounds are [3, 2]",
               [] { Expr::symbol("s", 3, 2); });
  expect_error(ErrorKind::Value, "'s' has divisor 0", [] { Expr::symbol("s", 1, 2, 0); });
  expect_error(ErrorKind::Value, "the name is empty", [] { Expr::symbol("", 1, 2); });
  expect_error(ErrorKind::Value, "number -1 is negative", [] { Expr::axis(-1, 2); });
  expect_error(ErrorKind::Value, "x+1 is not a constant",
               [] { (void)(Expr::symbol("x", 0, 9) + 1).value(); });
}

TEST(ExprErrors, ProductsThatWouldExplode) {
  expect_error(ErrorKind::Value, "is too large", [] {
    Expr product(1);
    for (int i = 0; i < 40; ++i)
      product = product * (Expr::symbol("x" + std::to_string(i), 1, 2) + 1);
  });
}

TEST(ExprErrors, TextThatIsNoExpression) {
  const auto x = [](std::string_view name) {
    return name == "x" ? std::optional<Expr>(Expr::symbol("x", 0, 9)) : std::nullopt;
  };
  const auto refused = [&](std::string_view text, const std::string& words) {
    expect_error(ErrorKind::Parse, words, [&] { parse_expr(text, x, 10); });
  };
  refused("", "column 10: expected a number, a name or '(' at the end");
  refused("x+", "column 12: expected a number");
  refused("x+y", "column 12: unknown name 'y'");
  refused("(x", "column 12: expected ')' at the end");
  refused("x x", "column 12: unexpected 'x'");
  refused("min(x 3)", "column 16: expected ',' before '3'");
  refused("99999999999999999999", "does not fit 64 bits");
  refused("3//x", "the divisor x may be 0");
  refused("x*/3", "column 12: expected a number");
  refused(std::string(5000, '('), "nested too deeply");
}

TEST(IndexMapErrors, ShapesThatDoNotFit) {
  const std::vector<std::int64_t> twice{0, 0}, far{0, 2};
  const std::vector<Expr> one{1};
  expect_error(ErrorKind::Shape, "reshape: [2,3] has 6 elements and [4] has 4", [] {
    IndexMap::reshape({2, 3}, {4});
  });
  expect_error(ErrorKind::Shape, "reshape: [0] has 0 elements and [1] has 1",
               [] { IndexMap::reshape({0}, {1}); });
  expect_error(ErrorKind::Axis, "permute: axis 0 is named twice", [&] {
    IndexMap::permute({2, 3}, twice);
  });
  expect_error(ErrorKind::Axis, "permute: axis 2 is out of range for [2,3]", [&] {
    IndexMap::permute({2, 3}, far);
  });
  expect_error(ErrorKind::Axis, "flip: axis 2 is out of range", [&] { IndexMap::flip({2}, far); });
  expect_error(ErrorKind::Shape, "expand: [2] does not expand to [3]: dim 0 is 2 and not 1",
               [] { IndexMap::expand({2}, {3}); });
  expect_error(ErrorKind::Shape, "pad: 1 values for the 2 dims of [2,3]", [&] {
    IndexMap::pad({2, 3}, one, one, Scalar{});
  });
  expect_error(ErrorKind::Shape, "shrink: 1 values for the 2 dims", [&] {
    IndexMap::shrink({2, 3}, one, one);
  });
}

} // namespace
} // namespace egret
