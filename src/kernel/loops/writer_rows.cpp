// Rows that lie across the lanes of a vector loop, as several short rows do that are reduced
// together: operands are brought to scratch memory, and results leave it, through blocks of W x W
// elements that are transposed in registers. The last block of a row begins W before its end.
#include "kernel/loops/writer.h"

#include "kernel/analysis.h"
#include "kernel/transpose.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

namespace egret::kernel::loops {

namespace {

/// Elements of a row, at the most.
constexpr std::int64_t kMostRow = 4096;

const Load& load_of(const Stage& stage, int value) {
  return stage.loads[std::size_t(stage.body[std::size_t(value)].load)];
}

/// Vectors of equal lengths, a power of two of them, as one.
ValueId joined(ProgramBuilder& b, std::vector<ValueId> parts) {
  while (parts.size() > 1) {
    std::vector<int> lanes(std::size_t(2 * b.type_of(parts[0]).lanes));
    std::iota(lanes.begin(), lanes.end(), 0);
    for (std::size_t i = 0; i < parts.size() / 2; ++i)
      parts[i] = b.shuffle(parts[2 * i], parts[2 * i + 1], lanes);
    parts.resize(parts.size() / 2);
  }
  return parts[0];
}

/// The axis among `axes` along which a tensor is contiguous whose lanes lie apart; -1: none.
template <class StrideAlong>
int axis_of_rows(const std::vector<int>& axes, int lane_axis, const StrideAlong& stride) {
  const auto across = stride(lane_axis);
  if (!across || *across == 0 || *across == 1)
    return -1;
  for (int a : axes)
    if (a != lane_axis && stride(a) == 1)
      return a;
  return -1;
}

/// Whether all loops along an axis are inside of the vector loop, or entered.
bool is_inside(const Path& path, const Tree* vector, int axis, const Here& h) {
  bool inside = false, found = false;
  for (const Step& s : path) {
    inside = inside || s.node == vector;
    if (s.node->kind != Kind::For || s.node->axis != axis || is_single(*s.node) ||
        h.digits.contains(s.node))
      continue;
    if (!inside)
      return false;
    found = true;
  }
  return found;
}

bool same_sides(const Box& a, const Box& b) {
  return a.sides.size() == b.sides.size() &&
         std::all_of(a.sides.begin(), a.sides.end(), [&](const Box::Side& x) {
           return std::any_of(b.sides.begin(), b.sides.end(), [&](const Box::Side& y) {
             return x.axis == y.axis && x.base == y.base && x.size == y.size;
           });
         });
}

} // namespace

std::optional<Writer::LaneRows> Writer::rows_of_operand(const Tree& near, const Here& h) {
  if (target_.is_gpu() || h.shared || h.point.lanes > 1)
    return std::nullopt;
  std::optional<LaneRows> rows;
  std::vector<std::optional<std::int64_t>> strides; // of the first load, by region axis
  for (int body : bodies(*near.rest))
    for (int u : computed_[std::size_t(body)]) {
      const Stage& stage = r_.stages[std::size_t(u)];
      for (std::size_t v = 0; v < stage.body.size(); ++v) {
        if (stage.body[v].kind != BodyValue::Kind::Load)
          continue;
        const Load& load = load_of(stage, int(v));
        if (load.source != Source::Operand || load.number != near.operand)
          continue;
        const Tree* vector = vector_of(body);
        if (!vector || h.digits.contains(vector) || !load.indirect.empty() ||
            !load.map.is_total() || (rows && vector != rows->vector))
          return std::nullopt;
        std::vector<std::optional<std::int64_t>> own(r_.axes.size(), 0);
        for (int a : stage.axes)
          own[std::size_t(a)] = stride_of(r_, stage, load, a);
        const auto stride = [&](int a) { return own[std::size_t(a)]; };
        const int along = axis_of_rows(stage.axes, vector->axis, stride);
        std::vector<int> axes;
        for (int a : stage.axes)
          if (a != vector->axis && stride(a) != 0)
            axes.push_back(a);
        if (along < 0 ||
            loops_left(path(body), std::array{vector->axis}, h) != std::vector{vector} ||
            std::any_of(own.begin(), own.end(), [](auto s) { return !s; }) ||
            !std::all_of(axes.begin(), axes.end(), [&](int a) {
              return loops_left(path(body), std::array{a}, h).empty() ||
                     is_inside(path(body), vector, a, h);
            }))
          return std::nullopt;
        const Box box = box_of(r_, path(body), axes, h);
        const auto element = element_at(r_, stage, load, h.point);
        if (!rows) {
          rows.emplace();
          rows->number = near.operand;
          rows->stage = u;
          rows->value = int(v);
          rows->vector = vector;
          rows->along = along;
          rows->box = box;
          strides = own;
        } else if (own != strides || !same_sides(box, rows->box) ||
                   element != element_at(r_, r_.stages[std::size_t(rows->stage)],
                                         load_of(r_.stages[std::size_t(rows->stage)], rows->value),
                                         h.point))
          return std::nullopt;
        if (!contains(rows->bodies, body))
          rows->bodies.push_back(body);
      }
    }
  if (!rows)
    return std::nullopt;
  auto [held, fresh] = row_buffers_.try_emplace({&near, near.operand}, -1);
  rows->buffer = held->second;
  const bool holds = hold_rows(*rows, fmt::format("rows{}", near.operand),
                               r_.operands[std::size_t(near.operand)].dtype, h);
  held->second = rows->buffer;
  return holds ? rows : std::nullopt;
}

std::vector<Writer::LaneRows> Writer::rows_of_outputs(const Tree& vector, const Here& h) {
  std::vector<LaneRows> found;
  if (target_.is_gpu())
    return found;
  for (std::size_t o = 0; o < r_.outputs.size(); ++o) {
    const Output& out = r_.outputs[o];
    const Stage& stage = r_.stages[std::size_t(out.stage)];
    if (out.combine != Combine::Store || stage.kind != StageKind::Map ||
        !contains(bodies(vector), out.stage) || contains(waiting_, int(o)) ||
        (pending_ && out.alias >= 0) || // which waits for readers that come later
        !compose(out.map, out.layout).is_total())
      continue;
    const auto stride = [&](int a) { return stride_of(r_, out, a); };
    LaneRows rows;
    rows.along = axis_of_rows(stage.axes, vector.axis, stride);
    std::vector<int> axes = stage.axes;
    std::erase(axes, vector.axis);
    if (rows.along < 0 || !is_inside(path(out.stage), &vector, rows.along, h) ||
        !loops_left(path(out.stage), std::array{vector.axis}, h).empty()) // other rows in between
      continue;
    rows.number = int(o);
    rows.stage = out.stage;
    rows.value = out.component;
    rows.bodies = {out.stage};
    rows.vector = &vector;
    rows.box = box_of(r_, path(out.stage), axes, h);
    auto [held, fresh] = row_buffers_.try_emplace({&vector, int(o)}, -1);
    rows.buffer = held->second;
    if (hold_rows(rows, fmt::format("stored{}", o), out.dtype, h)) {
      held->second = rows.buffer;
      found.push_back(rows);
    }
  }
  return found;
}

bool Writer::hold_rows(LaneRows& rows, const std::string& name, DType dtype, const Here& h) {
  const auto elements = rows.box.elements().constant();
  const auto side = std::find_if(rows.box.sides.begin(), rows.box.sides.end(),
                                 [&](const Box::Side& s) { return s.axis == rows.along; });
  if (dtype == DType::Bool || !elements || *elements > kMostRow || side == rows.box.sides.end() ||
      !(side->base == Expr(0)) || !(side->size == r_.axes[std::size_t(rows.along)].extent) ||
      side->size.value() < 2)
    return false;
  rows.width = std::int64_t(
      std::bit_floor(std::uint64_t(std::min<std::int64_t>(rows.lanes(), side->size.value()))));
  if (rows.buffer < 0)
    rows.buffer = memory(fmt::format("{}_{}", name, row_buffers_.size()), compute_dtype(dtype),
                         Expr(*elements * rows.lanes()), h);
  return true;
}

void Writer::each_block(const LaneRows& rows, const Here& h, const Code& code) {
  std::function<void(std::size_t, const Here&)> go = [&](std::size_t i, const Here& at) {
    if (i == rows.box.sides.size()) {
      code(at);
      return;
    }
    const Box::Side& side = rows.box.sides[i];
    const auto a = std::size_t(side.axis);
    const bool is_row = side.axis == rows.along;
    const auto from = [&](const Expr& begin) {
      Here in = at;
      in.point.at[a] = begin;
      go(i + 1, in);
    };
    const std::int64_t step = is_row ? rows.width : 1;
    const Expr count =
        is_row ? floordiv(side.size, Expr(step)) : min(side.size, r_.axes[a].extent - side.base);
    b_.loop(Expr(0), count, Expr(1), floordiv(side.size, Expr(step)), Bind::Serial,
            [&](const Expr& n) { from(side.base + n * Expr(step)); });
    if (is_row && side.size.value() % step != 0)
      from(side.size - Expr(step));
  };
  go(0, h);
}

void Writer::fill_rows(const LaneRows& rows, const Here& h) {
  const Stage& stage = r_.stages[std::size_t(rows.stage)];
  const Load& load = load_of(stage, rows.value);
  const auto v = std::size_t(rows.vector->axis), r = std::size_t(rows.along);
  const int w = int(rows.width), lanes = rows.lanes();
  const bool clip = clips(*rows.vector, h);
  const Expr& extent = r_.axes[v].extent;
  each_block(rows, h, [&](const Here& at) {
    // Whole vectors are stored, as they are to be loaded soon.
    std::vector<std::vector<ValueId>> blocks; // by rows of the block, by column
    for (int first = 0; first < lanes; first += w) {
      std::vector<ValueId> block;
      for (int i = 0; i < w; ++i) {
        Point p = at.point;
        p.at[v] = p.at[v] + Expr(std::int64_t(first + i) * rows.vector->step);
        if (clip) // rows that are not there are copies of the last one
          p.at[v] = min(p.at[v], extent - Expr(1));
        p.at[r] = p.at[r] + lane_variable(w);
        const auto element = element_at(r_, stage, load, p);
        block.push_back(e_.widen(b_.load(e_.operand_buffer(rows.number), *element, w, {},
                                         schedule_.load_policy))
                            .id);
      }
      blocks.push_back(transpose_block(b_, std::move(block)));
    }
    for (int i = 0; i < w; ++i) {
      std::vector<ValueId> parts;
      for (const auto& block : blocks)
        parts.push_back(block[std::size_t(i)]);
      Point p = at.point;
      p.at[r] = p.at[r] + Expr(i);
      b_.store(rows.buffer, rows.offset(p), joined(b_, std::move(parts)));
    }
  });
}

void Writer::store_rows(const LaneRows& rows, const Here& h) {
  const DType dtype = r_.outputs[std::size_t(rows.number)].dtype;
  const auto v = std::size_t(rows.vector->axis), r = std::size_t(rows.along);
  const int w = int(rows.width), lanes = rows.lanes();
  const bool clip = clips(*rows.vector, h);
  each_block(rows, h, [&](const Here& at) {
    for (int first = 0; first < lanes; first += w) {
      std::vector<ValueId> block;
      for (int i = 0; i < w; ++i) {
        Point p = at.point;
        p.at[r] = p.at[r] + Expr(i);
        block.push_back(b_.load(
            rows.buffer, rows.box.offset(p) * Expr(lanes) + Expr(first) + lane_variable(w), w));
      }
      block = transpose_block(b_, std::move(block));
      for (int i = 0; i < w; ++i) {
        Point p = at.point;
        p.lanes = w;
        p.at[v] = p.at[v] + Expr(std::int64_t(first + i) * rows.vector->step);
        p.at[r] = p.at[r] + lane_variable(w);
        const auto store = [&] {
          e_.store(rows.number, p, {block[std::size_t(i)], dtype}, CachePolicy::Default);
        };
        if (clip)
          b_.when({{p.at[v], Expr(0), r_.axes[v].extent}}, store);
        else
          store();
      }
    }
  });
}

} // namespace egret::kernel::loops
