// The op table in CUDA C, and conversions bit for bit as the table defines cast.
#include "backend/cuda/renderer.h"

#include <cmath>

namespace egret::backend::cuda {

namespace {

int bits_of(DType type) {
  return static_cast<int>(8 * size_of(type));
}

std::string widened(const std::string& v, DType from) {
  return fmt::format("eg_from_{}({})", name_of(from), v);
}

std::string narrowed(const std::string& v, DType to) {
  return fmt::format("eg_to_{}({})", name_of(to), v);
}

std::string float_to_int(const std::string& v, DType from, DType to) {
  const char* f = from == DType::F64 ? "double" : "float";
  const bool is_sig = is_signed(to);
  if (bits_of(to) < 32)
    return fmt::format("({})min(max(({} == {} ? __{}2int_rz({}) : 0), {}), {})", register_type(to),
                       v, v, f, v, is_sig ? -(1 << (bits_of(to) - 1)) : 0,
                       is_sig ? (1 << (bits_of(to) - 1)) - 1 : (1 << bits_of(to)) - 1);
  const char* kind = bits_of(to) == 64 ? (is_sig ? "ll" : "ull") : (is_sig ? "int" : "uint");
  // A negative number is 0 of an unsigned type.
  const std::string fit = is_sig ? fmt::format("{0} == {0}", v) : fmt::format("{} > 0", v);
  return fmt::format("({} ? ({})__{}2{}_rz({}) : ({})0)", fit, register_type(to), f, kind, v,
                     register_type(to));
}

std::string float_op(Op op, DType type, const std::vector<std::string>& a) {
  const char* f = type == DType::F64 ? "" : "f";
  auto call = [&](const char* name) { return fmt::format("{}{}({})", name, f, a[0]); };
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
    return fmt::format("eg_max({}, {})", a[0], a[1]);
  case Op::Mod:
    return fmt::format("eg_mod({}, {})", a[0], a[1]);
  case Op::Pow:
    return fmt::format("pow{}({}, {})", f, a[0], a[1]);
  case Op::Sqrt:
    return call("sqrt");
  case Op::Floor:
    return call("floor");
  case Op::Trunc:
    return call("trunc");
  case Op::Exp:
    return call("exp");
  case Op::Exp2:
    return call("exp2");
  case Op::Expm1:
    return call("expm1");
  case Op::Log:
    return call("log");
  case Op::Log2:
    return call("log2");
  case Op::Log1p:
    return call("log1p");
  case Op::Sin:
    return call("sin");
  case Op::Cos:
    return call("cos");
  case Op::Tanh:
    return call("tanh");
  case Op::Erf:
    return call("erf");
  case Op::Sigmoid:
    return fmt::format("eg_sigmoid({})", a[0]);
  default:
    break;
  }
  ensure(false, "cuda renderer: {} has no code for floats", info_of(op).name);
  return {};
}

// Arithmetic is done unsigned, where it wraps, and goes back to the type.
std::string int_op(Op op, DType type, const std::vector<std::string>& a) {
  const char* t = register_type(type);
  const char* u = bits_of(type) == 64 ? "unsigned long long" : "unsigned";
  auto wrapped = [&](const char* sign) {
    return fmt::format("({})(({}){} {} ({}){})", t, u, a[0], sign, u, a[1]);
  };
  switch (op) {
  case Op::Add:
    return wrapped("+");
  case Op::Mul:
    return wrapped("*");
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
    return fmt::format("eg_idiv<{}>({}, {})", t, a[0], a[1]);
  case Op::Mod:
    return fmt::format("eg_imod<{}>({}, {})", t, a[0], a[1]);
  case Op::Shl:
    return fmt::format("eg_shl<{}>({}, {})", t, a[0], a[1]);
  case Op::Shr:
    return fmt::format("eg_shr<{}>({}, {})", t, a[0], a[1]);
  default:
    break;
  }
  ensure(false, "cuda renderer: {} is not defined for {}", info_of(op).name, name_of(type));
  return {};
}

std::string bitcast_text(const std::string& v, DType from, DType to) {
  if (from == to)
    return v;
  if (to == DType::Bool)
    return fmt::format("{} != 0", v);
  if (from == DType::F32)
    return fmt::format("({})__float_as_uint({})", register_type(to), v);
  if (to == DType::F32)
    return fmt::format("__uint_as_float((unsigned){})", v);
  if (from == DType::F64)
    return fmt::format("({})__double_as_longlong({})", register_type(to), v);
  if (to == DType::F64)
    return fmt::format("__longlong_as_double((long long){})", v);
  return fmt::format("({}){}", register_type(to), v);
}

} // namespace

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

std::string constant_text(const Scalar& value) {
  switch (value.dtype) {
  case DType::Bool:
    return value.bits != 0 ? "true" : "false";
  case DType::F32: {
    const double v = value.as_double();
    if (!std::isfinite(v) || (v == 0 && std::signbit(v)))
      return fmt::format("__uint_as_float(0x{:08x}u)", value.bits);
    std::string text = fmt::format("{}", static_cast<float>(v));
    if (text.find_first_of(".e") == std::string::npos)
      text += ".0";
    return v < 0 ? "(" + text + "f)" : text + "f";
  }
  case DType::F64: {
    const double v = value.as_double();
    if (!std::isfinite(v) || (v == 0 && std::signbit(v)))
      return fmt::format("__longlong_as_double((long long)0x{:016x}ull)", value.bits);
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

std::string cast_text(const std::string& v, DType from, DType to) {
  if (from == to)
    return v;
  if (is_low(from)) {
    if (to == DType::Bool)
      return fmt::format("({} & 0x{:x}) != 0", v, (1 << (bits_of(from) - 1)) - 1);
    return to == DType::F32 ? widened(v, from) : cast_text(widened(v, from), DType::F32, to);
  }
  if (to == DType::Bool)
    return fmt::format("{} != 0", v);
  if (is_low(to)) {
    if (from == DType::F32)
      return narrowed(v, to);
    if (from == DType::F64)
      return narrowed(fmt::format("eg_odd({})", v), to);
    if (from == DType::Bool || bits_of(from) <= 16)
      return narrowed(fmt::format("(float){}", v), to);
    return narrowed(
        fmt::format("eg_odd(({}){})", is_signed(from) ? "long long" : "unsigned long long", v), to);
  }
  if (is_float(from) && !is_float(to))
    return float_to_int(v, from, to);
  return fmt::format("({}){}", register_type(to), v);
}

std::string op_text(Op op, DType result, DType operand, const std::vector<std::string>& args) {
  switch (op) {
  case Op::Cast:
    return cast_text(args[0], operand, result);
  case Op::Bitcast:
    return bitcast_text(args[0], operand, result);
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

std::string combine_text(Monoid monoid, DType type, const std::string& a, const std::string& b) {
  if (type == DType::Bool && monoid == Monoid::Max)
    return fmt::format("(bool)({} | {})", a, b);
  return op_text(op_of(monoid), type, type, {a, b});
}

} // namespace egret::backend::cuda
