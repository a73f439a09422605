// What an e-node costs, as the choice between equal terms sees it.
#include "saturate/saturate.h"

#include <algorithm>

namespace egret::saturate {

namespace {

/// Work that takes as long as writing a byte, in additions.
constexpr double kFlopsPerByte = 4;
/// Every node costs a little, so that of equal graphs the smaller one is taken.
constexpr double kNode = 1;

double elements(const Shape& shape) {
  double count = 1;
  for (const Expr& dim : shape)
    count *= static_cast<double>(std::min<std::int64_t>(dim.upper(), std::int64_t{1} << 40));
  return count;
}

struct Known {
  Type type;
  std::int64_t dep = 0;
};

class Costs {
public:
  explicit Costs(Terms& terms) : egraph_(&terms.egraph()), tensor_(terms.tensor()) {
    for (int i = 0; i < kOps; ++i)
      ops_.emplace(static_cast<std::uint32_t>(terms.function_of(static_cast<Op>(i))),
                   static_cast<Op>(i));
    for (auto& [value, type] : terms.types())
      known_[value].type = type;
    egraph_->for_each_row(egraph_->function("dep"), [&](const egraph::Row& row) {
      known_[egraph_->canonical(tensor_, row.args[0])].dep = egraph_->to_i64(row.output);
    });
  }

  double operator()(egraph::FunctionId function, std::span<const egraph::Value> args) const {
    const auto found = ops_.find(static_cast<std::uint32_t>(function));
    if (found == ops_.end())
      return kNode;
    const Op op = found->second;
    const OpInfo& row = info_of(op);
    if (row.cls == OpClass::Source || row.cls == OpClass::Movement)
      return kNode;
    const auto own = egraph_->lookup(function, args);
    const Known* result = own ? known(*own) : nullptr;
    if (result == nullptr)
      return kNode;
    const std::size_t first = args.size() - static_cast<std::size_t>(row.arity);
    const Known* operand = known(args[first]);
    double work = elements(result->type.shape);
    if ((row.cls == OpClass::Reduce || row.cls == OpClass::Scatter) && operand != nullptr)
      work = std::max(work, elements(operand->type.shape));
    const double bytes =
        elements(result->type.shape) * static_cast<double>(size_of(result->type.dtype));
    const double stored = is_outer(row, *result, args.subspan(first)) ? 0 : bytes;
    return kNode + stored + work * std::max(row.flops, 0.25) / kFlopsPerByte;
  }

private:
  const Known* known(egraph::Value value) const {
    auto found = known_.find(egraph_->canonical(tensor_, value));
    return found == known_.end() ? nullptr : &found->second;
  }

  /// A product over more axes than each factor has: part of a contraction, and never stored.
  bool is_outer(const OpInfo& row, const Known& result,
                std::span<const egraph::Value> operands) const {
    return row.op == Op::Mul && std::ranges::all_of(operands, [&](egraph::Value v) {
             const Known* operand = known(v);
             return operand != nullptr && operand->dep != result.dep;
           });
  }

  const egraph::EGraph* egraph_;
  egraph::SortId tensor_;
  std::unordered_map<std::uint32_t, Op> ops_;
  std::unordered_map<egraph::Value, Known> known_;
};

} // namespace

egraph::CostModel cost_model(Terms& terms) {
  return [costs = std::make_shared<Costs>(terms)](egraph::FunctionId function,
                                                  std::span<const egraph::Value> args) {
    return (*costs)(function, args);
  };
}

} // namespace egret::saturate
