#include "backend/reference/region_evaluator.h"

#include "backend/reference/node_eval.h"
#include "support/fail.h"

#include <algorithm>
#include <limits>
#include <thread>

namespace egret::backend::reference {

using kernel::BodyValue;
using kernel::Combine;
using kernel::Load;
using kernel::Output;
using kernel::Region;
using kernel::Stage;
using kernel::StageKind;

namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostKnown = std::size_t{1} << 20; ///< results remembered of a stage
/// Evaluations from which a reduction is shared out, and points whose terms are kept at a time.
constexpr double kLong = 1 << 15;
constexpr std::int64_t kPiece = 1 << 17;

int place_of(const std::vector<int>& axes, int axis) {
  return static_cast<int>(std::find(axes.begin(), axes.end(), axis) - axes.begin());
}

Monoid monoid_of(Combine combine) {
  return combine == Combine::Add ? Monoid::Sum : Monoid::Max;
}

} // namespace

RegionEvaluator::~RegionEvaluator() = default;

RegionEvaluator::RegionEvaluator(const Region& region, const Bindings& sizes,
                                 std::vector<const HostArray*> operands, int threads)
    : region_(region), sizes_(sizes), operands_(std::move(operands)),
      threads_(threads > 0 ? threads
                           : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {
  ensure(operands_.size() == region.operands.size(), "region {}: {} operands, {} arrays",
         region.name, region.operands.size(), operands_.size());
  for (const Stage& stage : region.stages) {
    StageCode code;
    for (int axis : stage.axes)
      code.extents.push_back(sizes.value_of(region.axes[static_cast<std::size_t>(axis)].extent));
    for (int axis : result_axes(stage)) {
      code.result_at.push_back(place_of(stage.axes, axis));
      code.result.push_back(code.extents[static_cast<std::size_t>(code.result_at.back())]);
    }
    for (int axis : stage.over)
      code.over_at.push_back(place_of(stage.axes, axis));
    code.symbols_at = stage.axes.size();
    code.indirect_at = code.symbols_at + sizes.values().size();
    std::size_t indirect = 0;
    for (const Load& load : stage.loads) {
      const bool operand = load.source == kernel::Source::Operand;
      const auto number = static_cast<std::size_t>(load.number);
      code.loads.push_back(translate(load.map, operand ? region.operands[number].shape : Shape{},
                                     operand ? &region.operands[number].layout : nullptr,
                                     stage.axes.size()));
      indirect = std::max(indirect, load.indirect.size());
    }
    code.slots.resize(code.indirect_at + indirect);
    for (std::size_t i = 0; i < sizes.values().size(); ++i)
      code.slots[code.symbols_at + i] = sizes.values()[i].second;
    code.values.resize(stage.body.size());
    for (const BodyValue& value : stage.body)
      code.indices.push_back(
          translate({.coords = {value.index}}, {}, nullptr, stage.axes.size()).coords[0]);
    stages_.push_back(std::move(code));
    describe_body(stages_.size() - 1);
  }
  for (const Output& output : region.outputs) {
    OutputCode code;
    const std::size_t axes = stages_[static_cast<std::size_t>(output.stage)].result.size();
    code.map = translate(output.map, output.shape, &output.layout, axes);
    code.elements = elements_of(output.shape, output.layout);
    code.indirect_at = axes + sizes.values().size();
    code.slots = code.indirect_at + output.indirect.size();
    outputs_.push_back(std::move(code));
  }
}

RegionEvaluator::LoadCode RegionEvaluator::translate(const IndexMap& map, const Shape& shape,
                                                     const IndexMap* layout, std::size_t axes) {
  const auto& symbols = sizes_.values();
  auto slot_of = [&](const Expr& variable) -> int {
    if (variable.is_axis())
      return variable.axis_number();
    if (auto j = kernel::indirect_of(variable))
      return static_cast<int>(axes + symbols.size()) + *j;
    for (std::size_t i = 0; i < symbols.size(); ++i)
      if (symbols[i].first == variable)
        return static_cast<int>(axes + i);
    throw InternalError(fmt::format("internal error: region {}: symbol `{}` has no value",
                                    region_.name, variable.str()));
  };
  LoadCode code;
  for (const Expr& coord : map.coords)
    code.coords.emplace_back(coord, slot_of);
  for (const Hole& hole : map.holes)
    code.holes.push_back({GuardCode(hole.valid, slot_of), number_of(hole.fill)});
  if (layout) {
    ensure(layout->is_total(), "region {}: a layout with holes", region_.name);
    code.layout = ExprCode(layout->coords.at(0), [&](const Expr& variable) -> int {
      if (variable.is_axis())
        return variable.axis_number();
      for (std::size_t i = 0; i < symbols.size(); ++i)
        if (symbols[i].first == variable)
          return static_cast<int>(shape.size() + i);
      throw InternalError(fmt::format("internal error: region {}: symbol `{}` has no value",
                                      region_.name, variable.str()));
    });
  }
  return code;
}

std::int64_t RegionEvaluator::elements_of(const Shape& shape, const IndexMap& layout) const {
  const Dims dims = sizes_.values_of(shape);
  if (element_count(dims) == 0)
    return 0;
  // A layout grows in every coordinate, so that the last point has the largest offset.
  const std::int64_t last = evaluate(layout.coords.at(0), [&](const Expr& variable) {
    return variable.is_axis() ? dims[static_cast<std::size_t>(variable.axis_number())] - 1
                              : sizes_.value_of(variable);
  });
  return last + 1;
}

const Dims& RegionEvaluator::domain(int output) const {
  const Output& out = region_.outputs[static_cast<std::size_t>(output)];
  return stages_[static_cast<std::size_t>(out.stage)].result;
}

std::int64_t RegionEvaluator::elements(int output) const {
  return outputs_[static_cast<std::size_t>(output)].elements;
}

// --- stages

void RegionEvaluator::describe_body(std::size_t number) {
  const Stage& stage = region_.stages[number];
  StageCode& code = stages_[number];
  auto along = [&](const std::vector<int>& slots) {
    return std::any_of(slots.begin(), slots.end(), [&](int slot) {
      return std::find(code.over_at.begin(), code.over_at.end(), slot) != code.over_at.end();
    });
  };
  auto reads_along = [&](const LoadCode& load) {
    return std::any_of(load.coords.begin(), load.coords.end(),
                       [&](const ExprCode& c) { return along(c.reads()); }) ||
           std::any_of(load.holes.begin(), load.holes.end(),
                       [&](const LoadCode::Hole& h) { return along(h.valid.reads()); });
  };
  auto any_varies = [&](const std::vector<int>& values) {
    return std::any_of(values.begin(), values.end(), [&](int value) {
      return code.varies[static_cast<std::size_t>(value)] != 0;
    });
  };
  for (std::size_t i = 0; i < stage.body.size(); ++i) {
    const BodyValue& value = stage.body[i];
    bool varies = any_varies(value.args) ||
                  (value.kind == BodyValue::Kind::Index && along(code.indices[i].reads()));
    if (value.kind == BodyValue::Kind::Load) {
      const auto l = static_cast<std::size_t>(value.load);
      varies |= reads_along(code.loads[l]) || any_varies(stage.loads[l].indirect);
    }
    code.varies.push_back(varies);
  }
  for (const Load& load : stage.loads)
    if (load.source == kernel::Source::Stage) {
      const StageCode& source = stages_[static_cast<std::size_t>(load.number)];
      double points = 1;
      for (const int place : source.over_at)
        points *= static_cast<double>(source.extents[static_cast<std::size_t>(place)]);
      code.work += points * source.work;
    }
}

const std::vector<Estimate>& RegionEvaluator::body_at(std::size_t number, const Dims& point,
                                                      bool same) {
  const Stage& stage = region_.stages[number];
  StageCode& code = stages_[number];
  std::copy(point.begin(), point.end(), code.slots.begin());
  for (std::size_t i = 0; i < stage.body.size(); ++i) {
    if (same && !code.varies[i])
      continue;
    const BodyValue& value = stage.body[i];
    switch (value.kind) {
    case BodyValue::Kind::Constant:
      code.values[i] = {number_of(value.constant)};
      break;
    case BodyValue::Kind::Load: {
      const auto l = static_cast<std::size_t>(value.load);
      code.values[i] = load_at(number, stage.loads[l], code.loads[l]);
      break;
    }
    case BodyValue::Kind::Index:
      code.values[i] = {
          convert({.i = code.indices[i](code.slots.data())}, DType::I64, value.dtype)};
      break;
    case BodyValue::Kind::Apply: {
      const Estimate* args[3] = {};
      for (std::size_t a = 0; a < value.args.size(); ++a)
        args[a] = &code.values[static_cast<std::size_t>(value.args[a])];
      const DType operand = stage.body[static_cast<std::size_t>(value.args.back())].dtype;
      const Estimate none;
      code.values[i] = apply(value.op, value.dtype, operand, *args[0], args[1] ? *args[1] : none,
                             args[2] ? *args[2] : none);
      break;
    }
    }
  }
  return code.values;
}

Estimate RegionEvaluator::load_at(std::size_t number, const Load& load, const LoadCode& code) {
  StageCode& stage = stages_[number];
  bool in_doubt = false;
  for (std::size_t j = 0; j < load.indirect.size(); ++j) {
    const Estimate& index = stage.values[static_cast<std::size_t>(load.indirect[j])];
    stage.slots[stage.indirect_at + j] = index.value.i;
    in_doubt |= index.error > 0;
  }
  for (const LoadCode::Hole& hole : code.holes)
    if (!hole.valid.holds(stage.slots.data()))
      return {hole.fill, in_doubt ? kUnknown : 0};
  Dims& coords = stage.coords;
  coords.clear();
  for (const ExprCode& coord : code.coords)
    coords.push_back(coord(stage.slots.data()));

  Estimate loaded;
  if (load.source == kernel::Source::Stage) {
    const auto source = static_cast<std::size_t>(load.number);
    const Dims& extents = stages_[source].result;
    for (std::size_t i = 0; i < coords.size(); ++i)
      ensure(coords[i] >= 0 && coords[i] < extents[i],
             "region {}, stage {}: load of stage {} at coordinate {} = {}, outside of {}",
             region_.name, number, source, i, coords[i], extents[i]);
    loaded = result_at(source, coords)[static_cast<std::size_t>(load.component)];
  } else {
    for (const auto& symbol : sizes_.values())
      coords.push_back(symbol.second);
    const std::int64_t offset = code.layout(coords.data());
    const HostArray& memory = *operands_[static_cast<std::size_t>(load.number)];
    const auto size = static_cast<std::int64_t>(size_of(memory.dtype));
    ensure(offset >= 0 && (offset + 1) * size <= static_cast<std::int64_t>(memory.bytes.size()),
           "region {}, stage {}: load of operand {} at offset {}, which has {} elements",
           region_.name, number, load.number, offset, memory.size());
    loaded = {memory.at(offset)};
  }
  return in_doubt ? Estimate{loaded.value, kUnknown} : loaded;
}

const std::vector<Estimate>& RegionEvaluator::result_at(std::size_t number, const Dims& point) {
  const Stage& stage = region_.stages[number];
  StageCode& code = stages_[number];
  const std::int64_t key = number_of_point(code.result, point);
  if (auto known = code.known.find(key); known != code.known.end())
    return known->second;
  if (code.known.size() > kMostKnown)
    code.known.clear();
  switch (stage.kind) {
  case StageKind::Map: {
    const std::vector<Estimate>& values = body_at(number, point);
    std::vector<Estimate> yields;
    for (int place : stage.yields)
      yields.push_back(values[static_cast<std::size_t>(place)]);
    return code.known.emplace(key, std::move(yields)).first->second;
  }
  case StageKind::Reduce: {
    std::vector<Estimate> result = reduced(number, point);
    return code.known.emplace(key, std::move(result)).first->second;
  }
  case StageKind::Scan:
    scan_line(number, point);
    return code.known.at(key);
  case StageKind::Sort:
    sort_line(number, point);
    return code.known.at(key);
  }
  throw InternalError("internal error: a stage of no kind");
}

std::vector<Estimate> RegionEvaluator::reduced(std::size_t number, const Dims& point) {
  const Stage& stage = region_.stages[number];
  const StageCode& code = stages_[number];
  std::vector<Accumulator> sums;
  for (int place : stage.yields)
    sums.emplace_back(stage.monoid, stage.body[static_cast<std::size_t>(place)].dtype,
                      stage.acc_dtype);
  std::int64_t count = 1;
  for (int place : code.over_at)
    count *= code.extents[static_cast<std::size_t>(place)];

  const std::size_t yields = stage.yields.size();
  auto yield_of = [&](const std::vector<Estimate>& values, std::size_t y) -> const Estimate& {
    return values[static_cast<std::size_t>(stage.yields[y])];
  };
  if (threads_ == 1 || static_cast<double>(count) * code.work < kLong) {
    terms(number, point, 0, count, [&](const std::vector<Estimate>& values) {
      for (std::size_t y = 0; y < yields; ++y)
        sums[y].add(yield_of(values, y));
    });
  } else {
    if (!pool_) {
      pool_ = std::make_unique<ThreadPool>(threads_);
      for (int helper = 0; helper < threads_; ++helper)
        helpers_.push_back(std::make_unique<RegionEvaluator>(region_, sizes_, operands_, 1));
    }
    for (std::int64_t first = 0; first < count; first += kPiece) {
      const std::int64_t points = std::min(kPiece, count - first);
      terms_.resize(static_cast<std::size_t>(points) * yields);
      // A thread always has the same points, and with them what it remembers of earlier stages.
      pool_->run_apart(threads_, [&](int worker, int workers) {
        const std::int64_t begin = points * worker / workers, end = points * (worker + 1) / workers;
        Estimate* to = terms_.data() + static_cast<std::size_t>(begin) * yields;
        helpers_[static_cast<std::size_t>(worker)]->terms(number, point, first + begin, first + end,
                                                          [&](const std::vector<Estimate>& values) {
                                                            for (std::size_t y = 0; y < yields; ++y)
                                                              *to++ = yield_of(values, y);
                                                          });
      });
      for (std::size_t i = 0; i < terms_.size(); ++i)
        sums[i % yields].add(terms_[i]);
    }
  }
  std::vector<Estimate> result;
  for (std::size_t y = 0; y < yields; ++y)
    result.push_back(sums[y].result(stage.yield_dtypes[y]));
  return result;
}

void RegionEvaluator::terms(std::size_t number, const Dims& point, std::int64_t first,
                            std::int64_t last,
                            const std::function<void(const std::vector<Estimate>&)>& take) {
  if (first == last) // some extent may be 0
    return;
  const StageCode& code = stages_[number];
  Dims full(code.extents.size(), 0);
  for (std::size_t i = 0; i < point.size(); ++i)
    full[static_cast<std::size_t>(code.result_at[i])] = point[i];
  std::int64_t rest = first;
  for (std::size_t i = code.over_at.size(); i-- > 0;) {
    const auto place = static_cast<std::size_t>(code.over_at[i]);
    full[place] = rest % code.extents[place];
    rest /= code.extents[place];
  }
  for (std::int64_t at = first; at < last; ++at) {
    take(body_at(number, full, at > first));
    for (std::size_t i = code.over_at.size(); i-- > 0;) {
      const auto place = static_cast<std::size_t>(code.over_at[i]);
      if (++full[place] < code.extents[place])
        break;
      full[place] = 0;
    }
  }
}

void RegionEvaluator::scan_line(std::size_t number, const Dims& point) {
  const Stage& stage = region_.stages[number];
  StageCode& code = stages_[number];
  const bool linear = stage.monoid == Monoid::Linear;
  std::vector<Accumulator> sums;
  for (int place : stage.yields)
    sums.emplace_back(linear ? Monoid::Prod : stage.monoid,
                      stage.body[static_cast<std::size_t>(place)].dtype, stage.acc_dtype);
  Recurrence maps(stage.body[static_cast<std::size_t>(stage.yields[0])].dtype, stage.acc_dtype);
  const auto along = static_cast<std::size_t>(code.over_at.at(0));
  Dims at = point;
  for (at[along] = 0; at[along] < code.extents[along]; ++at[along]) {
    const std::vector<Estimate>& values = body_at(number, at);
    std::vector<Estimate> results;
    for (std::size_t y = 0; y < sums.size(); ++y) {
      sums[y].add(values[static_cast<std::size_t>(stage.yields[y])]);
      results.push_back(sums[y].result(stage.yield_dtypes[y]));
    }
    if (linear) {
      maps.add(values[static_cast<std::size_t>(stage.yields[0])],
               values[static_cast<std::size_t>(stage.yields[1])]);
      results[0] = maps.result(stage.yield_dtypes[0]);
    }
    code.known[number_of_point(code.result, at)] = std::move(results);
  }
}

void RegionEvaluator::sort_line(std::size_t number, const Dims& point) {
  const Stage& stage = region_.stages[number];
  StageCode& code = stages_[number];
  const auto along = static_cast<std::size_t>(code.over_at.at(0));
  const auto key = static_cast<std::size_t>(stage.yields[0]);
  std::vector<Estimate> keys;
  Dims at = point;
  for (at[along] = 0; at[along] < code.extents[along]; ++at[along])
    keys.push_back(body_at(number, at)[key]);
  const std::vector<Estimate> order = order_of(keys, stage.body[key].dtype);
  for (at[along] = 0; at[along] < code.extents[along]; ++at[along])
    code.known[number_of_point(code.result, at)] = {order[static_cast<std::size_t>(at[along])]};
}

// --- outputs

RegionEvaluator::Target RegionEvaluator::target_of(int number, const Dims& point) {
  const Output& output = region_.outputs[static_cast<std::size_t>(number)];
  const OutputCode& code = outputs_[static_cast<std::size_t>(number)];
  std::vector<std::int64_t> slots(code.slots, 0);
  std::copy(point.begin(), point.end(), slots.begin());
  for (std::size_t i = 0; i < sizes_.values().size(); ++i)
    slots[point.size() + i] = sizes_.values()[i].second;
  for (std::size_t j = 0; j < output.indirect.size(); ++j) {
    const auto component = static_cast<std::size_t>(output.indirect[j]);
    const Estimate index = result_at(static_cast<std::size_t>(output.stage), point)[component];
    if (index.error > 0)
      return {.in_doubt = true};
    slots[code.indirect_at + j] = index.value.i;
  }
  for (const LoadCode::Hole& hole : code.map.holes)
    if (!hole.valid.holds(slots.data()))
      return {};
  Dims coords;
  for (const ExprCode& coord : code.map.coords)
    coords.push_back(coord(slots.data()));
  for (const auto& symbol : sizes_.values())
    coords.push_back(symbol.second);
  const std::int64_t offset = code.map.layout(coords.data());
  ensure(offset >= 0 && offset < code.elements,
         "region {}: output {} at offset {}, which has {} elements", region_.name, number, offset,
         code.elements);
  return {offset};
}

std::optional<std::int64_t> RegionEvaluator::offset_of(int output, const Dims& point) {
  const Target target = target_of(output, point);
  return target.offset < 0 ? std::nullopt : std::optional(target.offset);
}

Estimate RegionEvaluator::at(int output, const Dims& point) {
  const Output& out = region_.outputs[static_cast<std::size_t>(output)];
  return result_at(static_cast<std::size_t>(out.stage),
                   point)[static_cast<std::size_t>(out.component)];
}

std::unordered_map<std::int64_t, Estimate>
RegionEvaluator::at_offsets(int number, const std::vector<std::int64_t>& offsets,
                            const HostArray* initial) {
  const Output& output = region_.outputs[static_cast<std::size_t>(number)];
  const bool sums = output.combine == Combine::Add || output.combine == Combine::Max;
  std::unordered_map<std::int64_t, Estimate> found;
  std::unordered_map<std::int64_t, Accumulator> combined;
  std::unordered_map<std::int64_t, bool> wanted;
  for (std::int64_t offset : offsets) {
    wanted[offset] = true;
    if (output.combine == Combine::Store)
      continue;
    ensure(initial && offset < initial->size(), "region {}: a scatter needs its data",
           region_.name);
    found[offset] = {initial->at(offset)};
    if (sums)
      combined.emplace(offset, Accumulator(monoid_of(output.combine), output.dtype,
                                           accumulator_of(output.dtype), found[offset]));
  }
  bool in_doubt = false;
  for_each_point(domain(number), [&](const Dims& point, std::int64_t) {
    const Target target = target_of(number, point);
    in_doubt |= target.in_doubt;
    if (!wanted.contains(target.offset))
      return;
    const Estimate value = at(number, point);
    if (sums)
      combined.at(target.offset).add(value);
    else
      found[target.offset] = value;
  });
  for (auto& [offset, sum] : combined)
    found[offset] = sum.result(output.dtype);
  if (in_doubt) // an update of unknown place may have gone anywhere
    for (auto& entry : found)
      entry.second.error = kUnknown;
  return found;
}

} // namespace egret::backend::reference
