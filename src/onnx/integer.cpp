// Quotients, remainders and shifts of integers, also where C leaves them open.
#include "onnx/lower.h"

#include "ir/structure.h"

namespace egret::onnx {

namespace {

/// What is known of a divisor: guards against 0 and -1 are left out where it is neither.
bool is_harmless(const ir::Graph& graph, ir::NodeId divisor) {
  const std::optional<Scalar> known = ir::known_value(graph, divisor);
  return known && known->as_int() != 0 && known->as_int() != -1;
}

/// A divisor with 1 instead of 0 and of -1, by which the lowest number cannot be divided.
struct Divisor {
  std::string safe, is_zero, is_minus_one; ///< conditions: empty where it is neither
};
Divisor guarded(Emitter& e, const std::string& b, DType carrier, bool harmless) {
  if (harmless)
    return {b, "", ""};
  const std::string is_zero = e.emit("Equal", {b, e.integer(carrier, 0)});
  const std::string is_minus_one = e.emit("Equal", {b, e.integer(carrier, -1)});
  return {where(e, either(e, is_zero, is_minus_one), e.integer(carrier, 1), b), is_zero,
          is_minus_one};
}

// Div rounds towards 0.
std::string floor_div(Emitter& e, const std::string& a, const std::string& b, DType carrier,
                      bool harmless) {
  const std::string zero = e.integer(carrier, 0);
  const Divisor by = guarded(e, b, carrier, harmless);
  const std::string quotient = e.emit("Div", {a, by.safe});
  const std::string rest = e.emit("Sub", {a, e.emit("Mul", {quotient, by.safe})});
  const std::string other_sign =
      e.emit("Xor", {e.emit("Less", {rest, zero}), e.emit("Less", {by.safe, zero})});
  const std::string one_less = both(e, e.emit("Not", {e.emit("Equal", {rest, zero})}), other_sign);
  const std::string down = e.emit("Sub", {quotient, e.convert(one_less, DType::Bool, carrier)});
  if (by.is_zero.empty())
    return down;
  return where(e, by.is_zero, zero, where(e, by.is_minus_one, e.emit("Sub", {zero, a}), down));
}

// Remainder and quotient of unsigned words, which are the bits of i64. The quotient is that of
// half the multiple of b below a, doubled, and one more if something is left (Hacker's Delight,
// 9-3).
std::string word_mod(Emitter& e, const std::string& a, const std::string& safe) {
  const std::string rest = e.emit(
      "Mod", {e.convert(a, DType::I64, DType::U64), e.convert(safe, DType::I64, DType::U64)});
  return e.convert(rest, DType::U64, DType::I64);
}

std::string word_div(Emitter& e, const std::string& a, const std::string& b) {
  const std::string zero = e.integer(DType::I64, 0), one = e.integer(DType::I64, 1);
  const std::string is_zero = e.emit("Equal", {b, zero});
  const std::string safe = where(e, is_zero, one, b);
  const std::string multiple = e.emit("Sub", {a, word_mod(e, a, safe)});
  const std::string half = e.convert(
      e.emit("BitShift", {e.convert(multiple, DType::I64, DType::U64), e.integer(DType::U64, 1)},
             {{"direction", std::string("RIGHT")}}),
      DType::U64, DType::I64);
  const auto something = [&](const std::string& x) {
    return e.convert(e.emit("Not", {e.emit("Equal", {x, zero})}), DType::Bool, DType::I64);
  };
  const std::string is_large = e.emit("Less", {safe, zero}); // at least 2^63
  const std::string small = where(e, is_large, one, safe);
  const std::string twice = e.emit("Mul", {e.emit("Div", {half, small}), e.integer(DType::I64, 2)});
  const std::string left = e.emit("Sub", {multiple, e.emit("Mul", {twice, small})});
  const std::string quotient =
      where(e, is_large, something(multiple), e.emit("Add", {twice, something(left)}));
  return where(e, is_zero, zero, quotient);
}

std::string shift(Emitter& e, const char* direction, const std::string& x,
                  const std::string& count) {
  const std::string shifted = e.emit(
      "BitShift", {e.convert(x, DType::I64, DType::U64), e.convert(count, DType::I64, DType::U64)},
      {{"direction", std::string(direction)}});
  return e.convert(shifted, DType::U64, DType::I64);
}

// In words of 64 bits, that of a signed number with its sign.
void lower_shift(Emitter& e, ir::NodeId id) {
  const ir::Node& node = e.graph()[id];
  const Names in = broadcast_operands(e, id, {DType::I64, DType::I64});
  const std::string zero = e.integer(DType::I64, 0);
  const auto width = static_cast<std::int64_t>(8 * size_of(node.dtype));
  const std::string fits = both(e, e.emit("GreaterOrEqual", {in[1], zero}),
                                e.emit("Less", {in[1], e.integer(DType::I64, width)}));
  const std::string count = where(e, fits, in[1], zero);
  const bool exact = node.dtype == DType::U64;
  if (node.op == Op::Shl)
    return e.define(where(e, fits, shift(e, "LEFT", in[0], count), zero), DType::I64, exact);
  if (!is_signed(node.dtype))
    return e.define(where(e, fits, shift(e, "RIGHT", in[0], count), zero), DType::I64, exact);
  const std::string below = e.emit("Less", {in[0], zero});
  const std::string positive = where(e, below, e.emit("BitwiseNot", {in[0]}), in[0]);
  const std::string shifted = where(e, fits, shift(e, "RIGHT", positive, count), zero);
  e.define(where(e, below, e.emit("BitwiseNot", {shifted}), shifted), DType::I64);
}

} // namespace

void lower_integer(Emitter& e, ir::NodeId id) {
  const ir::Node& node = e.graph()[id];
  if (node.op == Op::Shl || node.op == Op::Shr)
    return lower_shift(e, id);
  const DType carrier = carrier_of(node.dtype);
  const Names in = broadcast_operands(e, id, {carrier, carrier});
  if (node.dtype == DType::U64) {
    const std::string zero = e.integer(DType::I64, 0);
    if (node.op == Op::IDiv)
      return e.define(word_div(e, in[0], in[1]), carrier, true);
    const std::string safe =
        where(e, e.emit("Equal", {in[1], zero}), e.integer(DType::I64, 1), in[1]);
    return e.define(word_mod(e, in[0], safe), carrier, true);
  }
  const bool harmless = is_harmless(e.graph(), node.inputs[1]);
  if (node.op == Op::IDiv)
    return e.define(floor_div(e, in[0], in[1], carrier, harmless), carrier);
  e.define(e.emit("Mod", {in[0], guarded(e, in[1], carrier, harmless).safe}), carrier);
}

} // namespace egret::onnx
