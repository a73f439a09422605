#include "kernel/region.h"

#include "kernel/expr_text.h"
#include "support/fail.h"

namespace egret::kernel {

const char* monoid_name(Monoid m) {
  switch (m) {
  case Monoid::Sum:
    return "sum";
  case Monoid::Max:
    return "max";
  case Monoid::Prod:
    return "prod";
  case Monoid::ArgMax:
    return "argmax";
  case Monoid::Linear:
    return "linear";
  }
  return "?";
}

namespace {

const char* name_of(Combine c) {
  switch (c) {
  case Combine::Store:
    return "store";
  case Combine::Set:
    return "scatter set";
  case Combine::Add:
    return "scatter add";
  case Combine::Max:
    return "scatter max";
  }
  return "?";
}

std::string axis_name(const Region& region, int axis) {
  const std::string& name = region.axes.at(axis).name;
  return name.empty() ? fmt::format("d{}", axis) : name;
}

/// A stage's expression with its variables called as the region calls its axes.
std::string text_in(const Region& region, const std::vector<int>& axes, const Expr& e,
                    const std::vector<int>& indirect) {
  return text_of(e, [&](const Expr& v) {
    if (v.is_axis())
      return axis_name(region, axes.at(v.axis_number()));
    if (auto j = indirect_of(v))
      return fmt::format("%{}", indirect.at(*j));
    return v.node().name;
  });
}

std::string print_map(const Region& region, const std::vector<int>& axes, const IndexMap& map,
                      const std::vector<int>& indirect) {
  auto text = [&](const Expr& e) { return text_in(region, axes, e, indirect); };
  std::string out = "[";
  for (std::size_t i = 0; i < map.coords.size(); ++i)
    out += (i ? ", " : "") + text(map.coords[i]);
  out += "]";
  for (const Hole& hole : map.holes) {
    out += " if";
    for (std::size_t g = 0; g < hole.valid.size(); ++g)
      out += fmt::format("{} {} <= {} < {}", g ? " and" : "", text(hole.valid[g].lo),
                         text(hole.valid[g].value), text(hole.valid[g].hi));
    out += " else " + hole.fill.str();
  }
  return out;
}

std::string axis_names(const Region& region, const std::vector<int>& axes) {
  std::string out;
  for (int a : axes)
    out += (out.empty() ? "" : ",") + axis_name(region, a);
  return out;
}

std::string print_value(const Region& region, const Stage& stage, std::size_t i) {
  const BodyValue& v = stage.body[i];
  std::string out = fmt::format("    %{}: {} = ", i, egret::name_of(v.dtype));
  switch (v.kind) {
  case BodyValue::Kind::Constant:
    return out + v.constant.str() + "\n";
  case BodyValue::Kind::Load: {
    const Load& load = stage.loads[v.load];
    if (load.source == Source::Operand) {
      const Operand& operand = region.operands[load.number];
      out += operand.name.empty() ? fmt::format("operand{}", load.number) : operand.name;
    } else {
      out += fmt::format("stage{}.{}", load.number, load.component);
    }
    return out + print_map(region, stage.axes, load.map, load.indirect) + "\n";
  }
  case BodyValue::Kind::Index:
    return out + "index " + text_in(region, stage.axes, v.index, {}) + "\n";
  case BodyValue::Kind::Apply:
    out += std::string(info_of(v.op).name);
    for (std::size_t a = 0; a < v.args.size(); ++a)
      out += fmt::format("{} %{}", a ? "," : "", v.args[a]);
    return out + "\n";
  }
  return out;
}

} // namespace

std::string print(const Region& region) {
  std::string out = fmt::format("region {} ({})\n", region.name, name_of(classify(region)));
  for (std::size_t a = 0; a < region.axes.size(); ++a)
    out += fmt::format("  axis {} of {}{}\n", axis_names(region, {int(a)}),
                       region.axes[a].extent.str(), region.axes[a].reduction ? ", reduced" : "");
  for (std::size_t i = 0; i < region.operands.size(); ++i) {
    const Operand& o = region.operands[i];
    out += fmt::format("  operand{} {}: {}{}{}\n", i, o.name, egret::name_of(o.dtype),
                       to_string(o.shape), o.role == Role::Scalar ? " by value" : "");
    if (!o.layout.is_identity())
      out += fmt::format("    layout {}\n", o.layout.str());
  }
  for (std::size_t s = 0; s < region.stages.size(); ++s) {
    const Stage& stage = region.stages[s];
    out += fmt::format("  stage{} ({})", s, axis_names(region, stage.axes));
    if (stage.kind != StageKind::Map)
      out += fmt::format(
          " {}{} over {} in {}",
          stage.kind == StageKind::Sort ? "" : monoid_name(stage.monoid) + std::string(" "),
          stage.kind == StageKind::Sort   ? "sort"
          : stage.kind == StageKind::Scan ? "scan"
                                          : "reduce",
          axis_names(region, stage.over), egret::name_of(stage.acc_dtype));
    out += "\n";
    for (std::size_t i = 0; i < stage.body.size(); ++i)
      out += print_value(region, stage, i);
    out += "    yield";
    for (std::size_t i = 0; i < stage.yields.size(); ++i)
      out += fmt::format("{} %{}: {}", i ? "," : "", stage.yields[i],
                         egret::name_of(stage.yield_dtypes[i]));
    out += "\n";
  }
  for (std::size_t i = 0; i < region.outputs.size(); ++i) {
    const Output& o = region.outputs[i];
    out += fmt::format("  output{}: {}{} {} stage{}.{} at {}", i, egret::name_of(o.dtype),
                       to_string(o.shape), name_of(o.combine), o.stage, o.component,
                       print_map(region, result_axes(region.stages[o.stage]), o.map, o.indirect));
    if (o.alias >= 0)
      out += fmt::format(", may take the memory of operand{}", o.alias);
    out += "\n";
  }
  return out;
}

} // namespace egret::kernel
