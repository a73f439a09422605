#include "backend/clike/language.h"

#include "support/fail.h"

#include <cmath>

namespace egret::backend::clike {

namespace {

int width_of(DType type) {
  return static_cast<int>(8 * size_of(type));
}

std::string widened(const std::string& v, DType from) {
  return fmt::format("eg_from_{}({})", name_of(from), v);
}

std::string narrowed(const std::string& v, DType to) {
  return fmt::format("eg_to_{}({})", name_of(to), v);
}

} // namespace

std::string Language::float_op(Op op, DType type, const std::vector<std::string>& a) const {
  const char* f = type == DType::F64 ? "" : "f";
  auto math = [&](const char* name) { return fmt::format("{}{}({})", name, f, a[0]); };
  switch (op) {
  case Op::Add:
    return fmt::format("{} + {}", a[0], a[1]);
  case Op::Mul:
    return fmt::format("{} * {}", a[0], a[1]);
  case Op::Div:
    return fmt::format("{} / {}", a[0], a[1]);
  case Op::Recip:
    return fmt::format("{} / {}", type == DType::F64 ? "1.0" : "1.0f", a[0]);
  case Op::Eq:
    return fmt::format("{} == {}", a[0], a[1]);
  case Op::Lt:
    return fmt::format("{} < {}", a[0], a[1]);
  case Op::Max:
    return call("max", type, a[0] + ", " + a[1]);
  case Op::Mod:
    return call("mod", type, a[0] + ", " + a[1]);
  case Op::Pow:
    return call("pow", type, a[0] + ", " + a[1]);
  case Op::Sqrt:
    return math("sqrt");
  case Op::Floor:
    return math("floor");
  case Op::Trunc:
    return math("trunc");
  case Op::Exp:
    return math("exp");
  case Op::Exp2:
    return math("exp2");
  case Op::Expm1:
    return math("expm1");
  case Op::Log:
    return math("log");
  case Op::Log2:
    return math("log2");
  case Op::Log1p:
    return math("log1p");
  case Op::Sin:
    return math("sin");
  case Op::Cos:
    return math("cos");
  case Op::Tanh:
    return math("tanh");
  case Op::Erf:
    return math("erf");
  case Op::Sigmoid:
    return call("sigmoid", type, a[0]);
  default:
    break;
  }
  ensure(false, "renderer: {} has no code for floats", info_of(op).name);
  return {};
}

// Done unsigned, where it wraps, and back to the type.
std::string Language::wrapped(std::string_view sign, DType type, const std::string& a,
                              const std::string& b) const {
  const char* u = width_of(type) == 64 ? "unsigned long long" : "unsigned";
  return fmt::format("({})(({}){} {} ({}){})", register_type(type), u, a, sign, u, b);
}

std::string Language::int_op(Op op, DType type, const std::vector<std::string>& a) const {
  const char* t = register_type(type);
  switch (op) {
  case Op::Add:
    return wrapped("+", type, a[0], a[1]);
  case Op::Mul:
    return wrapped("*", type, a[0], a[1]);
  case Op::And:
    return fmt::format("({})({} & {})", t, a[0], a[1]);
  case Op::Or:
    return fmt::format("({})({} | {})", t, a[0], a[1]);
  case Op::Xor:
    return fmt::format("({})({} ^ {})", t, a[0], a[1]);
  case Op::Eq:
    return fmt::format("{} == {}", a[0], a[1]);
  case Op::Lt:
    return fmt::format("{} < {}", a[0], a[1]);
  case Op::Max:
    return fmt::format("{0} < {1} ? {1} : {0}", a[0], a[1]);
  case Op::IDiv:
    return call("idiv", type, a[0] + ", " + a[1]);
  case Op::Mod:
    return call("imod", type, a[0] + ", " + a[1]);
  case Op::Shl:
    return call("shl", type, a[0] + ", " + a[1]);
  case Op::Shr:
    return call("shr", type, a[0] + ", " + a[1]);
  default:
    break;
  }
  ensure(false, "renderer: {} is not defined for {}", info_of(op).name, name_of(type));
  return {};
}

std::string Language::bitcast(const std::string& v, DType from, DType to) const {
  if (from == to)
    return v;
  if (to == DType::Bool)
    return fmt::format("{} != 0", v);
  if (from == DType::F32 || from == DType::F64)
    return fmt::format("({}){}", register_type(to), bits_of(from, v));
  if (to == DType::F32)
    return from_bits(to, "(unsigned)" + v);
  if (to == DType::F64)
    return from_bits(to, v);
  return fmt::format("({}){}", register_type(to), v);
}

const char* register_type(DType type) {
  switch (type) {
  case DType::Bool:
    return "bool";
  case DType::I8:
    return "signed char";
  case DType::I16:
    return "short";
  case DType::I32:
    return "int";
  case DType::I64:
    return "long long";
  case DType::U8:
  case DType::F8E4M3:
  case DType::F8E5M2:
    return "unsigned char";
  case DType::U16:
  case DType::F16:
  case DType::BF16:
    return "unsigned short";
  case DType::U32:
    return "unsigned";
  case DType::U64:
    return "unsigned long long";
  case DType::F32:
    return "float";
  case DType::F64:
    return "double";
  }
  return "?";
}

const char* memory_type(DType type) {
  return type == DType::Bool ? "unsigned char" : register_type(type);
}

std::string Language::constant(const Scalar& value) const {
  switch (value.dtype) {
  case DType::Bool:
    return value.bits != 0 ? "true" : "false";
  case DType::F32: {
    const double v = value.as_double();
    if (!std::isfinite(v) || (v == 0 && std::signbit(v)))
      return from_bits(value.dtype, fmt::format("0x{:08x}u", value.bits));
    std::string text = fmt::format("{}", static_cast<float>(v));
    if (text.find_first_of(".e") == std::string::npos)
      text += ".0";
    return v < 0 ? "(" + text + "f)" : text + "f";
  }
  case DType::F64: {
    const double v = value.as_double();
    if (!std::isfinite(v) || (v == 0 && std::signbit(v)))
      return from_bits(value.dtype, fmt::format("0x{:016x}ull", value.bits));
    std::string text = fmt::format("{}", v);
    if (text.find_first_of(".e") == std::string::npos)
      text += ".0";
    return v < 0 ? "(" + text + ")" : text;
  }
  case DType::F16:
  case DType::BF16:
    return fmt::format("(unsigned short)0x{:04x}", value.bits);
  case DType::F8E4M3:
  case DType::F8E5M2:
    return fmt::format("(unsigned char)0x{:02x}", value.bits);
  case DType::U32:
    return fmt::format("{}u", value.bits & 0xffffffffu);
  case DType::U64:
    return fmt::format("{}ull", value.bits);
  case DType::I64:
    return value.as_int() == INT64_MIN ? "(-9223372036854775807LL - 1)"
                                       : fmt::format("({}LL)", value.as_int());
  case DType::I32:
    return value.as_int() == INT32_MIN ? "(-2147483647 - 1)" : fmt::format("({})", value.as_int());
  default:
    return fmt::format("(({}){})", register_type(value.dtype), value.as_int());
  }
}

std::string Language::cast(const std::string& v, DType from, DType to) const {
  if (from == to)
    return v;
  if (is_low(from)) {
    if (to == DType::Bool)
      return fmt::format("({} & 0x{:x}) != 0", v, (1 << (width_of(from) - 1)) - 1);
    return to == DType::F32 ? widened(v, from) : cast(widened(v, from), DType::F32, to);
  }
  if (to == DType::Bool)
    return fmt::format("{} != 0", v);
  if (is_low(to))
    return narrowed(f32_to_round(v, from), to);
  if (is_float(from) && !is_float(to))
    return float_to_int(v, from, to);
  return fmt::format("({}){}", register_type(to), v);
}

std::string Language::f32_to_round(const std::string& v, DType from) const {
  if (from == DType::F32)
    return v;
  if (from == DType::Bool || (!is_float(from) && width_of(from) <= 16))
    return fmt::format("(float){}", v);
  return call("odd", from, v);
}

std::string Language::op(Op op, DType result, DType operand,
                         const std::vector<std::string>& args) const {
  switch (op) {
  case Op::Cast:
    return cast(args[0], operand, result);
  case Op::Bitcast:
    return bitcast(args[0], operand, result);
  case Op::Select:
    return fmt::format("{} ? {} : {}", args[0], args[1], args[2]);
  case Op::StopGradient:
    return args[0];
  default:
    break;
  }
  if (is_low(operand)) {
    // Only comparisons come in these types.
    std::vector<std::string> wide;
    for (const std::string& a : args)
      wide.push_back(widened(a, operand));
    const std::string made = float_op(op, DType::F32, wide);
    return result == DType::Bool ? made : narrowed(made, result);
  }
  return is_float(operand) ? float_op(op, operand, args) : int_op(op, operand, args);
}

std::string Language::combine(Monoid monoid, DType type, const std::string& a,
                              const std::string& b) const {
  if (type == DType::Bool && monoid == Monoid::Max)
    return fmt::format("(bool)({} | {})", a, b);
  return op(op_of(monoid), type, type, {a, b});
}

} // namespace egret::backend::clike
