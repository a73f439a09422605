// Where results of stages wait for their readers, and copies of operands near to them.
#include "kernel/loops/writer.h"

#include "kernel/analysis.h"
#include "kernel/nest.h"
#include "kernel/transpose.h"
#include "support/fail.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace egret::kernel::loops {

namespace {

/// Registers for the results of a stage, and elements that a worker may have for one buffer.
constexpr std::int64_t kMostRegisters = 64, kMostElements = 1 << 26;
/// Elements that a worker converts in a row.
constexpr std::int64_t kChunk = 4096;

} // namespace

int Writer::memory(const std::string& name, DType dtype, const Expr& elements, const Here& h) {
  if (h.shared)
    return b_.workspace(name, dtype, elements);
  if (elements.lower() > kMostElements)
    throw Cannot(fmt::format("a worker would need {} elements of memory", elements.str()));
  return b_.worker_memory(name, dtype, elements);
}

bool Writer::reads_stage(int body, int source) const {
  if (online_.contains(body, source)) // not its result
    return false;
  if (body != source && contains(computed_[std::size_t(body)], source))
    return false; // it is made again there
  for (int s : computed_[std::size_t(body)])
    for (const Load& l : r_.stages[std::size_t(s)].loads)
      if (l.source == Source::Stage && l.number == source)
        return true;
  return false;
}

/// An output that may take over the memory of an operand waits when its elements are stored before
/// they are read for the last time.
void Writer::find_waiting() {
  for (std::size_t o = 0; o < r_.outputs.size(); ++o) {
    const Output& out = r_.outputs[o];
    if (out.alias < 0 || out.combine != Combine::Store)
      continue;
    bool waits = false;
    for (std::size_t t = 0; t < paths_.size(); ++t) {
      if (paths_[t].empty() || int(t) == out.stage)
        continue;
      const bool reads = std::any_of(computed_[t].begin(), computed_[t].end(), [&](int s) {
        const auto& loads = r_.stages[std::size_t(s)].loads;
        return std::any_of(loads.begin(), loads.end(), [&](const Load& l) {
          return l.source == Source::Operand && l.number == out.alias;
        });
      });
      const Path& own = path(out.stage);
      const std::size_t at = parting(paths_[t], own);
      waits = waits || (reads && !paths_[t][at].first && !is_point(r_, *own[at].node));
    }
    waits = waits || !stores_alone(out.stage);
    if (waits) {
      waiting_.push_back(int(o));
      waits_[std::size_t(out.stage)] = true;
    }
  }
}

void Writer::find_results() {
  for (std::size_t s = 0; s < paths_.size(); ++s) {
    if (paths_[s].empty())
      continue;
    std::size_t outermost = SIZE_MAX;
    for (std::size_t t = 0; t < paths_.size(); ++t)
      if (t != s && !paths_[t].empty() && reads_stage(int(t), int(s)))
        outermost = std::min(outermost, parting(paths_[s], paths_[t]));
    is_read_[s] = outermost != SIZE_MAX;
    if (is_read_[s] && !waits_[s])
      lives_at_[paths_[s][outermost].node].push_back(int(s));
  }
}

/// Lanes of a stage's result.
int Writer::result_lanes(int stage) const {
  const Tree* v = vector_of(stage);
  return v && contains(result_axes(r_.stages[std::size_t(stage)]), v->axis) ? lanes_of_loop(*v) : 1;
}

void Writer::digits_made(const Tree& loop, std::vector<Digit>& digits, std::int64_t& copies) const {
  if (loop.bind == Bind::Unroll)
    copies *= loop.extent.value();
  else
    digits.push_back({loop.axis, loop.step, loop.bind, loop.extent, threads_inside(loop)});
}

bool Writer::fits_registers(int stage, const Box& box, const Here& h) const {
  if (h.shared || waits_[std::size_t(stage)] || tiles_around(stage))
    return false;
  for (const Box::Side& side : box.sides)
    if (!(side.base == h.point.at[std::size_t(side.axis)]))
      return false;
  const std::vector<int> axes = result_axes(r_.stages[std::size_t(stage)]);
  // Vectors and threads must be the same on both sides.
  const auto known = [&](int s, std::vector<Digit>& fixed, std::int64_t& count) {
    for (const Tree* l : loops_left(path(s), axes, h)) {
      if (!is_known(*l))
        return false;
      if (s == stage)
        digits_made(*l, fixed, count);
      else
        Writer::digits_made(*l, fixed, count);
    }
    return true;
  };
  std::vector<Digit> own;
  std::int64_t count = 1;
  if (!known(stage, own, count) || count > kMostRegisters)
    return false;
  for (std::size_t t = 0; t < paths_.size(); ++t) {
    if (int(t) == stage || paths_[t].empty() || !reads_stage(int(t), stage))
      continue;
    std::vector<Digit> theirs;
    std::int64_t copies = 1;
    if (!known(int(t), theirs, copies) || own != theirs || !reaches(stage, int(t)))
      return false;
  }
  return true;
}

void Writer::place_result(int s, const Here& h) {
  Result& result = results_[std::size_t(s)];
  const Stage& stage = r_.stages[std::size_t(s)];
  const std::vector<int> axes = result_axes(stage);
  result.box = box_of(r_, path(s), axes, h);
  if (fits_registers(s, result.box, h)) {
    result.kind = Result::Kind::Registers;
    return;
  }
  result.kind = Result::Kind::Memory;
  // Lanes of a vector that goes on around makers and readers stand side by side.
  const Tree* v = vector_of(s);
  const int lanes = v && h.digits.contains(v) ? result_lanes(s) : 1;
  if (result.buffers.empty())
    for (std::size_t c = 0; c < stage.yields.size(); ++c)
      result.buffers.push_back(memory(fmt::format("stage{}_{}", s, c),
                                      compute_dtype(stage.yield_dtypes[c]),
                                      result.box.elements() * Expr(lanes), h));
  e_.provide_memory(s, result.buffers, [box = result.box, lanes](const Point& p) {
    return lanes == 1 ? box.offset(p) : box.offset(p) * Expr(lanes) + lane_variable(lanes);
  });
}

/// A CPU writes whole vectors past the caches, single elements by the line.
CachePolicy Writer::policy_of(const Point& p) const {
  return target_.is_gpu() || p.lanes > 1 ? schedule_.store_policy : CachePolicy::Default;
}

void Writer::deliver(int s, const Here& h, const std::vector<Value>& values) {
  const Point p = storing(h);
  for (std::size_t o = 0; o < r_.outputs.size(); ++o) {
    const Output& out = r_.outputs[o];
    if (out.stage != s || contains(waiting_, int(o)))
      continue;
    const auto rows = std::find_if(stored_rows_.begin(), stored_rows_.end(),
                                   [&](const LaneRows& r) { return r.number == int(o); });
    if (rows != stored_rows_.end())
      b_.store(rows->buffer, rows->offset(p),
               b_.splat(values[std::size_t(out.component)].id, rows->lanes()));
    else if (out.combine == Combine::Store && pending_)
      pending_->push_back({int(o), p, values[std::size_t(out.component)]});
    else if (out.combine == Combine::Store)
      e_.store(int(o), p, values[std::size_t(out.component)], policy_of(p));
    else
      e_.scatter(int(o), updated_[o], p, values);
  }
  Result& result = results_[std::size_t(s)];
  if (result.kind == Result::Kind::Memory) {
    e_.store_memory(s, p, values);
    if (!target_.is_gpu()) // a reader at this point takes them from registers
      e_.provide(s, h.point, values);
  }
  if (result.kind != Result::Kind::Registers)
    return;
  const auto key = result.box.key(h.point);
  ensure(key.has_value(), "region {}: a result at no known point", r_.name);
  std::vector<VarId>& held = result.registers[*key];
  for (std::size_t c = 0; c < values.size(); ++c) {
    if (held.size() <= c)
      held.push_back(b_.variable({b_.type_of(values[c].id).dtype, result_lanes(s)}));
    b_.set(held[c], values[c].id);
  }
  // Where they stay visible, what is made of them is known not to change in the loops inside.
  e_.provide(s, h.point, values);
}

void Writer::provide_results(int body, const Point& p) {
  for (int u : computed_[std::size_t(body)])
    for (const Load& l : r_.stages[std::size_t(u)].loads) {
      if (l.source != Source::Stage || online_.contains(body, l.number) ||
          results_[std::size_t(l.number)].kind != Result::Kind::Registers ||
          (l.number != body && contains(computed_[std::size_t(body)], l.number)) ||
          e_.is_provided(l.number, p))
        continue;
      const Result& result = results_[std::size_t(l.number)];
      const auto key = result.box.key(p);
      const auto held = key ? result.registers.find(*key) : result.registers.end();
      ensure(held != result.registers.end(), "region {}: a result of stage {} is at no known point",
             r_.name, l.number);
      std::vector<Value> values;
      for (std::size_t c = 0; c < held->second.size(); ++c)
        values.push_back(
            {b_.read(held->second[c]), r_.stages[std::size_t(l.number)].yield_dtypes[c]});
      e_.provide(l.number, p, values);
    }
}

void Writer::box_loops(const Box& box, const Here& h, int lanes, bool existing, const Code& code) {
  std::vector<Expr> counts;
  for (const Box::Side& s : box.sides) {
    const auto a = std::size_t(s.axis);
    counts.push_back(existing ? min(s.size, r_.axes[a].extent - s.base) : s.size);
  }
  const std::size_t outer = box.sides.size() - (lanes > 1 ? 1 : 0);
  const auto row = [&](std::span<const Expr> at, Here in) {
    for (std::size_t i = 0; i < outer; ++i)
      in.point.at[std::size_t(box.sides[i].axis)] = box.sides[i].base + at[i];
    if (lanes == 1) {
      code(in);
      return;
    }
    const Box::Side& side = box.sides.back();
    kernel::vector_loop(
        b_, Expr(0), counts.back(), side.size, lanes, 1, [&](std::span<const Position> p) {
          Here q = in;
          q.point.lanes = lanes;
          q.point.at[std::size_t(side.axis)] = side.base + p[0].at;
          q.point.mask.insert(q.point.mask.end(), p[0].mask.begin(), p[0].mask.end());
          code(q);
        });
  };
  const std::span<const Expr> extents(counts.data(), outer);
  if (h.shared)
    deal_points(extents, h, row);
  else
    serial_loops(b_, extents, [&](std::span<const Expr> at) { row(at, h); });
}

// --- Copies near

Expr Writer::NearCopy::offset(const std::map<const Tree*, Expr>& digits) const {
  Expr offset = base;
  for (std::size_t i = 0; i < loops.size(); ++i)
    offset = offset + digits.at(loops[i]) * strides[i];
  return offset;
}

/// As the loops inside go.
void Writer::arrange(NearCopy& copy) const {
  copy.strides.assign(copy.loops.size(), Expr(1));
  copy.elements = Expr(1);
  for (std::size_t i = copy.loops.size(); i-- > 0;) {
    copy.strides[i] = copy.elements;
    copy.elements = copy.elements * copy.loops[i]->extent;
  }
}

/// The one body inside that reads the operand, and where it does.
Writer::NearCopy Writer::find_near(const Tree& t) {
  NearCopy copy;
  copy.operand = t.operand;
  bool holes = false;
  // The stride of a load in the innermost loop around a body; nothing where it is data.
  const auto stride = [&](int stage, int value, int body) -> std::optional<std::int64_t> {
    const Path& way = path(body);
    const auto innermost = std::find_if(way.rbegin(), way.rend(), [](const Step& s) {
      return s.node->kind == Kind::For && !is_single(*s.node);
    });
    if (innermost == way.rend())
      return 0;
    const Stage& s = r_.stages[std::size_t(stage)];
    return stride_of(r_, s, s.loads[std::size_t(s.body[std::size_t(value)].load)],
                     innermost->node->axis);
  };
  const auto is_contiguous = [&](int stage, int value, int body) {
    return stride(stage, value, body) == 1;
  };
  const auto is_strided = [&](int stage, int value, int body) {
    const auto n = stride(stage, value, body);
    return !n || (*n != 0 && *n != 1);
  };
  for (int body : bodies(*t.rest))
    for (int u : computed_[std::size_t(body)]) {
      const Stage& stage = r_.stages[std::size_t(u)];
      for (std::size_t v = 0; v < stage.body.size(); ++v) {
        if (stage.body[v].kind != BodyValue::Kind::Load)
          continue;
        const Load& load = stage.loads[std::size_t(stage.body[v].load)];
        if (load.source != Source::Operand || load.number != t.operand)
          continue;
        if (copy.body >= 0 && copy.body != body)
          throw Cannot(fmt::format("operand {} is read by several bodies", t.operand));
        if (!load.indirect.empty())
          throw Cannot(fmt::format("operand {} is read at places that are data", t.operand));
        // Further loads read it where it is, unless they are of the same element: those that are
        // contiguous along the innermost loop, if another is not.
        holes = holes || !load.map.is_total();
        if (holes && copy.body >= 0)
          throw Cannot(fmt::format("operand {} is read several times, with holes", t.operand));
        if (copy.body >= 0 &&
            (!is_contiguous(copy.stage, copy.value, body) || !is_strided(u, int(v), body)))
          continue;
        copy.body = body;
        copy.stage = u;
        copy.value = int(v);
        // Those of holes count too.
        const std::vector<bool> axes = axes_of_value(r_, stage, int(v));
        std::vector<int> seen;
        for (std::size_t a = 0; a < axes.size(); ++a)
          if (axes[a])
            seen.push_back(int(a));
        copy.axes = seen;
      }
    }
  if (copy.body < 0)
    return copy;
  for (const Output& out : r_.outputs)
    if (out.alias == t.operand)
      throw Cannot(fmt::format("operand {} changes while it is read", t.operand));
  return copy;
}

Writer::NearCopy Writer::plan_near(const Tree& t, const Here& h) {
  NearCopy copy = find_near(t);
  if (copy.body < 0)
    return copy;
  if (const Tree* v = vector_of(copy.body))
    if (h.digits.contains(v) && contains(copy.axes, v->axis))
      throw Cannot(fmt::format("operand {} is copied near for each lane of a vector", t.operand));
  copy.loops = loops_left(path(copy.body), copy.axes, h);
  arrange(copy);
  return copy;
}

std::vector<Guard> Writer::any_points(int stage) const {
  std::vector<Guard> any;
  for (int a : r_.stages[std::size_t(stage)].axes)
    any.push_back({r_.axes[std::size_t(a)].extent, Expr(1), Expr(INT64_MAX)});
  return any;
}

void Writer::near_copy(const Tree& t, const Here& h) {
  if (const std::optional<LaneRows> rows = rows_of_operand(t, h)) {
    b_.when(any_points(rows->stage), [&] { fill_rows(*rows, h); });
    read_rows_.push_back(*rows);
    emit(*t.rest, h);
    read_rows_.pop_back();
    return;
  }
  if (std::optional<WindowCopy> windows = windows_of(t, h)) {
    near_windows(std::move(*windows), t, h);
    return;
  }
  NearCopy copy = plan_near(t, h);
  if (copy.body < 0) { // nothing reads it
    emit(*t.rest, h);
    return;
  }
  copy.unit = unit_of(copy);
  if (transpose_near(copy, h)) {
    near_.push_back(&copy);
    emit(*t.rest, h);
    near_.pop_back();
    return;
  }
  auto [held, fresh] = near_buffers_.try_emplace(&t, -1);
  if (fresh) {
    const bool words = copy.unit != NearCopy::Unit::None;
    held->second = memory(fmt::format("near{}_{}", t.operand, near_buffers_.size()),
                          words ? DType::U32 : r_.operands[std::size_t(t.operand)].dtype,
                          words ? floordiv(copy.elements, 2) : copy.elements, h);
  }
  copy.buffer = held->second;
  b_.when(any_points(copy.body), [&] { fill(copy, h); });
  if (h.shared)
    meet();
  near_.push_back(&copy);
  emit(*t.rest, h);
  near_.pop_back();
}

void Writer::prefetched(const Tree& t, const Here& h) {
  if (target_.is_gpu())
    throw Cannot("a GPU has no prefetches of what later iterations read");
  const Tree* const before = std::exchange(prefetch_, &t);
  asked_.clear();
  emit(*t.rest, h);
  prefetch_ = before;
}

void Writer::ask_ahead(int body, Point p) {
  const auto a = std::size_t(prefetch_->axis);
  const Tree* v = vector_of(body);
  // The last iterations ask for what is there.
  p.at[a] = min(p.at[a] + Expr(prefetch_->step), r_.axes[a].extent - Expr(1));
  for (Expr& e : p.at)
    e = first_lane(e);
  for (int u : computed_[std::size_t(body)]) {
    const Stage& stage = r_.stages[std::size_t(u)];
    for (const Load& load : stage.loads) {
      if (load.source != Source::Operand || !v || stride_of(r_, stage, load, v->axis) != 1 ||
          stride_of(r_, stage, load, prefetch_->axis) == 0)
        continue;
      const auto element = element_at(r_, stage, load, p);
      if (element && asked_.emplace(load.number, element->hash()).second)
        b_.prefetch(e_.operand_buffer(load.number), *element);
    }
  }
}

/// Lanes in which the innermost loop of a copy goes.
int Writer::copy_lanes(const NearCopy& copy) const {
  if (copy.loops.empty())
    return 1;
  const Tree& l = *copy.loops.back();
  const auto n = l.extent.constant();
  if (!n)
    return 1;
  if (is_vector(l))
    return int(*n);
  const Stage& stage = r_.stages[std::size_t(copy.stage)];
  const Load& load = stage.loads[std::size_t(stage.body[std::size_t(copy.value)].load)];
  if (l.step != 1 || stride_of(r_, stage, load, l.axis) != 1)
    return 1;
  const auto size = std::int64_t(size_of(r_.operands[std::size_t(copy.operand)].dtype));
  const auto widest = std::uint64_t(std::max<std::int64_t>(target_.vector_bytes / size, 1));
  return int(std::min(std::bit_floor(widest), std::uint64_t(1) << std::countr_zero(
                                                  std::uint64_t(std::max<std::int64_t>(*n, 1)))));
}

void Writer::fill(const NearCopy& copy, const Here& h) {
  fill_near(copy, 0, h);
}

void Writer::fill_near(const NearCopy& copy, std::size_t i, const Here& h) {
  if (i == copy.loops.size()) {
    Point p = h.point;
    for (int a : copy.axes)
      if (h.clip[std::size_t(a)] && overreaches_[std::size_t(copy.body)][std::size_t(a)])
        p.mask.push_back({p.at[std::size_t(a)], Expr(0), r_.axes[std::size_t(a)].extent});
    const Expr offset = copy.offset(h.digits);
    const ValueId v = e_.narrow(e_.value(copy.stage, copy.value, p));
    b_.store(copy.buffer, offset, depends_on_lane(offset) ? b_.splat(v, p.lanes) : v);
    return;
  }
  if (copy.unit != NearCopy::Unit::None && i + 2 == copy.loops.size()) {
    fill_tile(copy, h);
    return;
  }
  const Tree& l = *copy.loops[i];
  const int lanes = i + 1 == copy.loops.size() && h.point.lanes == 1 ? copy_lanes(copy) : 1;
  const auto go = [&](const Expr& digit, int width) {
    Here in = enter(h, l, digit);
    if (width > 1)
      in.point.lanes = width;
    in.shared = false;
    fill_near(copy, i + 1, in);
  };
  if (lanes > 1) {
    b_.loop(Expr(0), l.extent, Expr(lanes), l.extent, Bind::Serial,
            [&](const Expr& n) { go(n + lane_variable(lanes), lanes); });
    return;
  }
  const bool deals = h.shared && i == 0;
  b_.loop(Expr(0), l.extent, Expr(1), l.extent, deals ? dealt_ : Bind::Serial,
          [&](const Expr& n) { go(n, 1); });
}

bool Writer::transpose_near(NearCopy& copy, const Here& h) {
  if (target_.is_gpu() || h.shared || copy.loops.size() != 2 || h.point.lanes > 1)
    return false;
  const Stage& stage = r_.stages[std::size_t(copy.stage)];
  const Load& load = stage.loads[std::size_t(stage.body[std::size_t(copy.value)].load)];
  for (const Tree* l : copy.loops)
    (l->bind == Bind::Vector ? copy.lane : copy.row) = l;
  if (!copy.row || !copy.lane || copy.row->bind != Bind::Unroll ||
      !(copy.row->extent == copy.lane->extent) || copy.row->step != 1 || copy.lane->step != 1 ||
      copy.row->axis == copy.lane->axis || !load.map.is_total() ||
      stride_of(r_, stage, load, copy.row->axis) != 1)
    return false;
  const int n = int(copy.lane->extent.value());
  const Here rows = enter(h, *copy.row, lane_variable(n));
  for (int i = 0; i < n; ++i) {
    const Here in = enter(rows, *copy.lane, Expr(i));
    std::vector<Guard> exists;
    for (int a : {copy.row->axis, copy.lane->axis})
      if (h.clip[std::size_t(a)] && overreaches_[std::size_t(copy.body)][std::size_t(a)])
        exists.push_back({in.point.at[std::size_t(a)], Expr(0), r_.axes[std::size_t(a)].extent});
    const auto element = element_at(r_, stage, load, in.point);
    ensure(element.has_value(), "region {}: a copy of what is data", r_.name);
    copy.rows.push_back(b_.load(e_.operand_buffer(copy.operand), *element, n, std::move(exists),
                                schedule_.load_policy));
  }
  copy.rows = transpose_block(b_, std::move(copy.rows));
  return true;
}

void Writer::provide_near(int body, const Here& h) {
  for (const LaneRows& rows : read_rows_) {
    if (!contains(rows.bodies, body))
      continue;
    const Stage& stage = r_.stages[std::size_t(rows.stage)];
    const Load& load = stage.loads[std::size_t(stage.body[std::size_t(rows.value)].load)];
    e_.provide_load(stage, load, h.point, b_.load(rows.buffer, rows.offset(h.point), rows.lanes()));
  }
  provide_windows(body, h.point);
  for (const NearCopy* copy : near_) {
    // Elsewhere along the loops of a copy no value is made of it.
    if (copy->body != body || copy->unit != NearCopy::Unit::None ||
        std::any_of(copy->loops.begin(), copy->loops.end(),
                    [&](const Tree* l) { return !h.digits.contains(l); }))
      continue;
    const Stage& stage = r_.stages[std::size_t(copy->stage)];
    const Load& load = stage.loads[std::size_t(stage.body[std::size_t(copy->value)].load)];
    if (!copy->rows.empty()) {
      e_.provide_load(stage, load, h.point,
                      copy->rows[std::size_t(h.digits.at(copy->row).value())]);
      continue;
    }
    const Expr offset = copy->offset(h.digits);
    e_.provide_load(stage, load, h.point,
                    b_.load(copy->buffer, offset, depends_on_lane(offset) ? h.point.lanes : 1));
  }
}

// --- Outputs

void Writer::copy_all(int from, int to, const Expr& elements) {
  const int lanes = std::max(1, target_.vector_bytes / 4);
  const std::vector<Expr> pieces{ceildiv(elements, Expr(kChunk))};
  core_loop(b_, pieces, [&](std::span<const Expr> at) {
    const Expr begin = at[0] * Expr(kChunk);
    kernel::vector_loop(b_, begin, min(elements, begin + Expr(kChunk)), elements, lanes, 1,
                        [&](std::span<const Position> p) {
                          const ValueId v = b_.load(from, p[0].at, lanes, p[0].mask);
                          b_.store(to, p[0].at, b_.cast(v, b_.buffer_dtype(to)), p[0].mask);
                        });
  });
}

/// Sums of scatters in 16 and 8 bits are made in f32.
void Writer::open_updates() {
  updated_.assign(r_.outputs.size(), -1);
  bool copied = false;
  for (std::size_t o = 0; o < r_.outputs.size(); ++o) {
    const Output& out = r_.outputs[o];
    if (out.combine == Combine::Store)
      continue;
    updated_[o] = e_.output_buffer(int(o));
    if (out.combine != Combine::Add || !is_low(out.dtype))
      continue;
    updated_[o] = b_.workspace(fmt::format("updated{}", o), DType::F32, element_count(out.shape));
    copy_all(e_.output_buffer(int(o)), updated_[o], element_count(out.shape));
    copied = true;
  }
  if (copied)
    meet();
}

void Writer::close_updates() {
  bool waits = false;
  for (std::size_t o = 0; o < r_.outputs.size(); ++o)
    if (updated_[o] >= 0 && updated_[o] != e_.output_buffer(int(o))) {
      if (!std::exchange(waits, true))
        meet();
      copy_all(updated_[o], e_.output_buffer(int(o)), element_count(r_.outputs[o].shape));
    }
}

void Writer::copy_waiting() {
  if (waiting_.empty())
    return;
  meet();
  Here h;
  h.point.at.assign(r_.axes.size(), Expr(0));
  h.clip.assign(r_.axes.size(), true);
  for (int o : waiting_) {
    const int s = r_.outputs[std::size_t(o)].stage;
    box_loops(results_[std::size_t(s)].box, h, 1, true, [&](const Here& in) {
      const Point p = storing(in);
      e_.store(o, p, e_.result(s, r_.outputs[std::size_t(o)].component, p), schedule_.store_policy);
    });
  }
}

} // namespace egret::kernel::loops
