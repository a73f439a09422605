// Instructions, loads and stores.
#include "backend/c/renderer.h"
#include "support/fail.h"

namespace egret::backend::c {

using clike::kEachLane;
using clike::register_type;
using kernel::Inst;
using kernel::Type;
using kernel::ValueId;

const CRenderer::Held& CRenderer::held(ValueId id) const {
  const Held& held = values_.at(static_cast<std::size_t>(id));
  ensure(!held.text.empty(), "c renderer: kernel {} uses value {} before it is made", program_.name,
         id);
  return held;
}

std::string CRenderer::lane_text(ValueId id, int lane) const {
  const Held& value = held(id);
  if (!value.array)
    return value.text;
  return lane == kEachLane ? value.text + "[l]" : fmt::format("{}[{}]", value.text, lane);
}

bool CRenderer::varies(const Expr& e) const {
  for (const Expr& v : variables_of(e)) {
    const auto id = kernel::value_of(v);
    if (kernel::lanes_of(v) || (id && held(*id).array))
      return true;
  }
  return false;
}

bool CRenderer::varies(const std::vector<Guard>& mask) const {
  for (const Guard& g : mask)
    if (varies(g.value) || varies(g.lo) || varies(g.hi))
      return true;
  return false;
}

template <class F>
void CRenderer::define(ValueId target, bool varies, const F& text) {
  const Type& type = program_.values[static_cast<std::size_t>(target)];
  Held& made = values_[static_cast<std::size_t>(target)];
  const std::string name = fmt::format("v{}", target);
  if (varies && type.lanes > 1) {
    line("{} {}[{}];", register_type(type.dtype), name, type.lanes);
    line("for (int l = 0; l < {}; ++l) {}[l] = {};", type.lanes, name, text(kEachLane));
    made = {name, true};
  } else {
    line("const {} {} = {};", register_type(type.dtype), name, text(0));
    made = {name, false};
  }
}

void CRenderer::let(ValueId target, const Inst& inst) {
  using namespace kernel::inst;
  if (!live_.values[static_cast<std::size_t>(target)])
    return;
  const Type type = inst.type;
  Held& made = values_[static_cast<std::size_t>(target)];
  std::visit(overloaded{[&](const Constant& x) {
                          made = {language_.constant(x.value), false};
                        },
                        [&](const Argument& x) {
                          define(target, false,
                                 [&](int) { return argument(type.dtype, scalar_number(x)); });
                        },
                        [&](const Index& x) {
                          define(target, varies(x.expr), [&](int lane) {
                            return type.dtype == DType::I64 || type.dtype == DType::I32
                                       ? fmt::format("({}){}", register_type(type.dtype),
                                                     index_.text(x.expr, lane))
                                       : language_.cast("(" + index_.wide_text(x.expr, lane) + ")",
                                                        DType::I64, type.dtype);
                          });
                        },
                        [&](const Apply& x) { apply(target, x, type); },
                        [&](const Fma& x) { fma(target, x, type); },
                        [&](const Load& x) { load(target, x, type); },
                        [&](const Read& x) {
                          define(target, type.lanes > 1, [&](int lane) {
                            return fmt::format("r{}{}", x.variable, lane == kEachLane ? "[l]" : "");
                          });
                        },
                        [&](const Splat& x) {
                          made = {lane_text(x.value, 0), false};
                        },
                        [&](const Extract& x) {
                          made = {lane_text(x.value, x.lane), false};
                        },
                        [&](const ReduceLanes& x) { reduce_lanes(target, x); },
                        [&](const Shuffle& x) { shuffle(target, x, type); },
                        [&](const Test& x) {
                          define(target, varies(x.mask), [&](int lane) {
                            const std::string held = index_.condition(x.mask, lane);
                            return held.empty() ? std::string("true") : held;
                          });
                        },
                        [&](const kernel::Intrinsic& x) {
                          ensure(false, "kernel {}: {} makes no value on a CPU", program_.name,
                                 info_of(x.id).name);
                        }},
             inst.op);
}

std::string CRenderer::argument(DType type, const std::string& number) const {
  const std::string word = fmt::format("args->scalars[{}]", number);
  switch (type) {
  case DType::Bool:
    return fmt::format("({} & 255) != 0", word);
  case DType::F32:
    return language_.from_bits(type, "(unsigned)" + word);
  case DType::F64:
    return language_.from_bits(type, word);
  default:
    return fmt::format("({}){}", register_type(type), word);
  }
}

void CRenderer::apply(ValueId target, const kernel::inst::Apply& inst, Type type) {
  const ValueId first = inst.args.at(0);
  if (inst.op == Op::Bitcast && lanes_of(first) != type.lanes) { // pairs
    const Held& pairs = held(first);
    const auto half = [&](int lane, int upper) {
      if (!pairs.array)
        return pairs.text;
      return lane == kEachLane ? fmt::format("{}[2 * l + {}]", pairs.text, upper)
                               : lane_text(first, 2 * lane + upper);
    };
    define(target, pairs.array, [&](int lane) {
      return fmt::format("(unsigned)(unsigned short){} | (unsigned)(unsigned short){} << 16",
                         half(lane, 0), half(lane, 1));
    });
    return;
  }
  define(target, any_array(inst.args), [&](int lane) {
    std::vector<std::string> args;
    for (ValueId id : inst.args)
      args.push_back(lane_text(id, lane));
    return language_.op(inst.op, type.dtype, dtype_of(inst.args.back()), args);
  });
}

void CRenderer::fma(ValueId target, const kernel::inst::Fma& inst, Type type) {
  const bool pairs = type.dtype != DType::U32 && dtype_of(inst.args[0]) == DType::U32;
  ensure(type.dtype == DType::F32 || type.dtype == DType::F64 || !is_float(type.dtype),
         "c renderer: fma of {}", name_of(type.dtype));
  define(target, any_array(inst.args), [&](int lane) {
    const std::string a = lane_text(inst.args[0], lane), b = lane_text(inst.args[1], lane),
                      c = lane_text(inst.args[2], lane);
    if (pairs)
      return fmt::format("{}({}, {}, {})",
                         type.dtype == DType::F32 ? "eg_fma_pairs" : "eg_add_products", a, b, c);
    if (!is_float(type.dtype))
      return language_.op(Op::Add, type.dtype, type.dtype,
                          {"(" + language_.op(Op::Mul, type.dtype, type.dtype, {a, b}) + ")", c});
    return fmt::format("{}({}, {}, {})", type.dtype == DType::F32 ? "fmaf" : "fma", a, b, c);
  });
}

void CRenderer::load(ValueId target, const kernel::inst::Load& inst, Type type) {
  define(target, varies(inst.from.index) || varies(inst.mask), [&](int lane) {
    std::string value =
        fmt::format("b{}[{}]", inst.from.buffer, index_.text(inst.from.index, lane));
    if (type.dtype == DType::Bool)
      value += " != 0";
    const std::string held = index_.condition(inst.mask, lane);
    return held.empty() ? value
                        : fmt::format("({}) ? {} : ({})0", held, value, register_type(type.dtype));
  });
}

void CRenderer::shuffle(ValueId target, const kernel::inst::Shuffle& inst, Type type) {
  const int first = lanes_of(inst.args.at(0));
  std::vector<std::string> lanes;
  for (int from : inst.lanes_from)
    lanes.push_back(from < first ? lane_text(inst.args[0], from)
                                 : lane_text(inst.args.at(1), from - first));
  Held& made = values_[static_cast<std::size_t>(target)];
  if (type.lanes == 1) {
    made = {lanes[0], false};
    return;
  }
  made = {fmt::format("v{}", target), true};
  line("const {} {}[{}] = {{{}}};", register_type(type.dtype), made.text, type.lanes,
       fmt::join(lanes, ", "));
}

// Lane i with lane i + lanes/2, and so on.
void CRenderer::reduce_lanes(ValueId target, const kernel::inst::ReduceLanes& inst) {
  const DType type = dtype_of(inst.value);
  const int lanes = lanes_of(inst.value);
  Held& made = values_[static_cast<std::size_t>(target)];
  if (lanes == 1) {
    made = {lane_text(inst.value, 0), false};
    return;
  }
  const std::string parts = fmt::format("w{}", names_++);
  line("{} {}[{}];", register_type(type), parts, lanes / 2);
  for (int half = lanes / 2; half > 0; half /= 2) {
    std::string low = parts + "[l]", high = fmt::format("{}[l + {}]", parts, half);
    if (const Held& whole = held(inst.value); half == lanes / 2) {
      low = lane_text(inst.value, kEachLane);
      high = whole.array ? fmt::format("{}[l + {}]", whole.text, half) : whole.text;
    }
    line("for (int l = 0; l < {}; ++l) {}[l] = {};", half, parts,
         language_.combine(inst.monoid, type, low, high));
  }
  made = {parts + "[0]", false};
}

void CRenderer::store(const kernel::Store& stmt) {
  const int lanes = lanes_of(stmt.value);
  const auto put = [&](int lane, int value_lane) {
    const std::string held = index_.condition(stmt.mask, lane);
    return fmt::format("{}b{}[{}] = {};", held.empty() ? "" : fmt::format("if ({}) ", held),
                       stmt.to.buffer, index_.text(stmt.to.index, lane),
                       lane_text(stmt.value, value_lane));
  };
  // In order: of lanes that go to one place the last one stays.
  if (lanes > 1 && (varies(stmt.to.index) || varies(stmt.mask)))
    line("for (int l = 0; l < {}; ++l) {}", lanes, put(kEachLane, kEachLane));
  else
    line("{}", put(0, lanes - 1));
}

} // namespace egret::backend::c
