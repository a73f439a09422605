// Sums of a loop tree: in registers where the points inside are few and known, else in memory.
#include "kernel/loops/writer.h"

#include "kernel/analysis.h"
#include "kernel/nest.h"
#include "kernel/stream_rows.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::kernel::loops {

namespace {

/// Registers of sums that a loop may go with.
constexpr std::int64_t kMostSumRegisters = 512;

/// Whether the sides are offsets from where the box begins.
bool begins_here(const Box& box, const Here& h) {
  return std::all_of(box.sides.begin(), box.sides.end(),
                     [&](const Box::Side& s) { return s.base == h.point.at[std::size_t(s.axis)]; });
}

} // namespace

Expr Writer::place_of(int stage, const Point& p) const {
  Expr place(0);
  for (int a : r_.stages[std::size_t(stage)].over)
    place = place * r_.axes[std::size_t(a)].extent + p.at[std::size_t(a)];
  return place;
}

Writer::Sums Writer::open_sums(const Tree& t, const Here& h) {
  Sums s;
  s.stage = t.stage;
  s.node = &t;
  s.shared = h.shared;
  const Stage& stage = r_.stages[std::size_t(t.stage)];
  const std::vector<int> axes = state_axes(t.stage);
  s.box = box_of(r_, path(t.stage), axes, h);
  for (std::size_t y = 0; y < stage.yields.size(); ++y)
    s.accumulators.emplace_back(e_, t.stage, int(y), arithmetic_, points_of(r_, stage.over));
  if (const Tree* v = vector_of(t.stage)) {
    const bool entered = h.digits.contains(v), reduced = contains(stage.over, v->axis);
    bool nested = false, inside = false;
    for (const Step& step : path(t.stage)) {
      if (step.node == v)
        break;
      nested =
          nested || (inside && step.node->kind == Kind::Accumulate && step.node->stage == t.stage);
      inside = inside || step.node == &t;
    }
    if (entered || !reduced || !nested)
      s.lanes = lanes_of_loop(*v);
    s.checks = reduced && s.lanes > 1;
    s.fold = s.checks && !entered;
    s.spread = s.lanes > 1 && (entered || reduced);
  }
  const std::vector<const Tree*> left = loops_left(path(t.stage), axes, h);
  std::int64_t count = 1;
  bool known = !h.shared && begins_here(s.box, h);
  for (const Tree* l : left) {
    known = known && is_known(*l);
    if (known && !is_vector(*l) && !is_shared_out(l->bind) && l->extent.constant())
      count *= l->extent.value();
  }
  const Tree* unit = tiles_around(t.stage);
  s.in_memory = !known || count > kMostSumRegisters || (unit && !h.digits.contains(unit));
  check_sums(s);
  if (!s.in_memory) {
    s.copies = t.step;
    return s;
  }
  if (!begins_here(s.box, h))
    throw Cannot(fmt::format("the sums of stage {} do not lie side by side", t.stage));
  const Expr elements = s.box.elements() * Expr(s.spread ? s.lanes : 1);
  auto [it, fresh] = state_buffers_.try_emplace(&t);
  if (fresh)
    for (std::size_t y = 0; y < stage.yields.size(); ++y) {
      std::vector<int> parts;
      for (const Type& type : s.accumulators[y].types(1))
        parts.push_back(
            memory(fmt::format("sums{}_{}_{}", t.stage, y, parts.size()), type.dtype, elements, h));
      it->second.push_back(std::move(parts));
    }
  s.buffers = it->second;
  return s;
}

/// Lanes of a state at a point, and where it is in memory.
std::pair<int, Expr> Writer::state_at(const Sums& s, const Point& p) const {
  const Expr offset = s.box.offset(p);
  if (s.spread)
    return {s.lanes, offset * Expr(s.lanes) + lane_variable(s.lanes)};
  return {depends_on_lane(offset) ? p.lanes : 1, offset};
}

std::vector<State> Writer::read_sums(Sums& s, const Point& p) {
  std::vector<State> states;
  if (s.in_memory) {
    const auto [lanes, offset] = state_at(s, p);
    for (const std::vector<int>& buffers : s.buffers)
      states.push_back(load_state(b_, buffers, offset, lanes,
                                  s.spread || lanes == 1 ? std::vector<Guard>{} : p.mask));
    return states;
  }
  auto key = s.box.key(p);
  ensure(key.has_value(), "region {}: no sum at a point", r_.name);
  key->push_back(s.copy);
  ensure(state_registers_[s.node].contains(*key), "region {}: no sum at a point", r_.name);
  for (const StateVariables& v : state_registers_[s.node].at(*key))
    states.push_back(v.read());
  return states;
}

void Writer::write_sums(Sums& s, const Point& p, const std::vector<State>& states) {
  if (s.in_memory) {
    const auto [lanes, offset] = state_at(s, p);
    for (std::size_t y = 0; y < states.size(); ++y) {
      State wide;
      for (ValueId part : states[y])
        wide.push_back(b_.splat(part, lanes));
      store_state(b_, s.buffers[y], offset, wide,
                  s.spread || lanes == 1 ? std::vector<Guard>{} : p.mask);
    }
    return;
  }
  auto key = s.box.key(p);
  ensure(key.has_value(), "region {}: no sum at a point", r_.name);
  key->push_back(s.copy);
  auto& held = state_registers_[s.node][*key];
  for (std::size_t y = 0; y < states.size(); ++y)
    if (held.size() <= y)
      held.emplace_back(b_, states[y]);
    else
      held[y].write(states[y]);
}

std::int64_t Writer::copy_of(const Sums& s, const Here& h) const {
  if (s.copies == 1)
    return 0;
  std::int64_t iteration = 0;
  bool inside = false;
  for (const Step& step : path(s.stage)) {
    const Tree& l = *step.node;
    inside = inside || &l == s.node;
    if (!inside || l.kind != Kind::For || l.bind != Bind::Unroll || is_single(l) ||
        !contains(r_.stages[std::size_t(s.stage)].over, l.axis))
      continue;
    if (const auto digit = h.digits.find(&l); digit != h.digits.end())
      iteration = iteration * l.extent.value() + digit->second.value();
  }
  return iteration % s.copies;
}

std::vector<State> Writer::all_copies(Sums& s, const Point& p) {
  std::vector<std::vector<State>> copies;
  for (s.copy = 0; s.copy < s.copies; ++s.copy)
    copies.push_back(read_sums(s, p));
  s.copy = 0;
  for (std::size_t n = copies.size(); n > 1; n = (n + 1) / 2)
    for (std::size_t i = 0; i < n; i += 2) {
      std::vector<State>& pair = copies[i / 2];
      if (i > 0)
        pair = copies[i];
      for (std::size_t y = 0; i + 1 < n && y < pair.size(); ++y)
        pair[y] = s.accumulators[y].merge(pair[y], copies[i + 1][y]);
    }
  return copies[0];
}

void Writer::then_rescale(const Tree& t, std::span<const int> sums, const Here& h) {
  Sums& maximum = *open_[std::size_t(online_.maxima.at(sums[0]))].back();
  for (int s : sums) {
    const Sums& sum = *open_[std::size_t(s)].back();
    const bool same =
        std::equal(sum.box.sides.begin(), sum.box.sides.end(), maximum.box.sides.begin(),
                   maximum.box.sides.end(), [](const Box::Side& a, const Box::Side& b) {
                     return a.axis == b.axis && a.base == b.base && a.size == b.size;
                   });
    if (target_.is_gpu() || sum.in_memory || maximum.in_memory || sum.lanes != maximum.lanes ||
        sum.fold != maximum.fold || !same || online_.maxima.at(s) != maximum.stage)
      throw Cannot(fmt::format("the sums of stage {} and its maximum do not lie alike", s));
  }
  std::vector<State> before;
  each_sum(maximum, h, false,
           [&](const Here& in) { before.push_back(read_sums(maximum, in.point)[0]); });
  emit(*t.first, h);
  std::size_t i = 0;
  each_sum(maximum, h, false, [&](const Here& in) {
    const ValueId was = before[i++][0], now = read_sums(maximum, in.point)[0][0];
    if (was == now)
      return;
    const ValueId scale = rescale(b_, was, now);
    for (int s : sums) {
      Sums& sum = *open_[std::size_t(s)].back();
      for (sum.copy = 0; sum.copy < sum.copies; ++sum.copy)
        write_sums(sum, in.point,
                   {{b_.apply(Op::Mul, DType::F32, {read_sums(sum, in.point)[0][0], scale})}});
    }
    e_.provide(maximum.stage, in.point, {{or_zero(b_, now), DType::F32}});
  });
  e_.forget_readers(maximum.stage);
  emit(*t.rest, h);
  e_.forget_readers(maximum.stage);
}

void Writer::rescale_lanes(Sums& s, const Point& p, std::vector<State>& states) {
  Sums& maximum = *open_[std::size_t(online_.maxima.at(s.stage))].back();
  const State lanes = read_sums(maximum, p)[0];
  ValueId sum = states[0][0], most = lanes[0];
  if (s.fold) {
    most = maximum.accumulators[0].across_lanes(lanes)[0];
    sum = b_.apply(Op::Mul, DType::F32, {sum, rescale(b_, lanes[0], most)});
    sum = s.accumulators[0].across_lanes({sum})[0];
  }
  states[0] = {unless_lowest(b_, most, sum)};
}

void Writer::each_sum(const Sums& s, const Here& h, bool existing, const Code& code) {
  const std::vector<int> axes = state_axes(s.stage);
  const std::vector<const Tree*> left = loops_left(path(s.stage), axes, h);
  if (s.in_memory) {
    // Vectors where the points of a row are its lanes.
    int lanes = 1;
    if (!s.spread && s.lanes > 1 && is_vector(*left.back()) && left.back()->step == 1)
      lanes = s.lanes;
    box_loops(s.box, h, lanes, existing, code);
    return;
  }
  std::function<void(std::size_t, const Here&)> go = [&](std::size_t i, const Here& at) {
    if (i < left.size()) {
      each_digit(s, *left[i], at, [&](const Here& in) { go(i + 1, in); });
      return;
    }
    Here leaf = at;
    Point& p = leaf.point;
    std::vector<Guard> exists;
    if (existing)
      for (int a : axes) {
        const Expr& place = p.at[std::size_t(a)];
        if (!h.clip[std::size_t(a)] || !overreaches_[std::size_t(s.stage)][std::size_t(a)])
          continue;
        if (std::none_of(left.begin(), left.end(), [&](const Tree* l) { return l->axis == a; }))
          continue;
        const Expr& extent = r_.axes[std::size_t(a)].extent;
        exists.push_back({first_lane(place), Expr(0), extent});
        if (depends_on_lane(place))
          p.mask.push_back({place, Expr(0), extent});
      }
    b_.when(exists, [&] { code(leaf); });
  };
  go(0, h);
}

void Writer::each_digit(const Sums&, const Tree& l, const Here& h, const Code& code) {
  if (is_vector(l)) {
    Here in = enter(h, l, lane_variable(int(l.extent.value())));
    in.point.lanes = int(l.extent.value());
    code(in);
    return;
  }
  for (std::int64_t n = 0; n < l.extent.value(); ++n)
    code(enter(h, l, Expr(n)));
}

void Writer::sums(const Tree& t, const Here& h) {
  const Tree& next = *t.rest;
  const Tree* inside = &next;
  while (inside->kind == Kind::Accumulate)
    inside = inside->rest.get();
  if (h.shared && inside->kind == Kind::For && inside->bind == dealt_) {
    shared_out_sums(t, h);
    return;
  }
  Sums s = open_sums(t, h);
  hold_in_tiles(s, h);
  if (s.tiles.empty())
    each_sum(s, h, false, [&](const Here& in) {
      const Point& p = in.point;
      std::vector<State> empty;
      const int lanes = s.in_memory ? state_at(s, p).first : s.lanes;
      for (Accumulator& a : s.accumulators)
        empty.push_back(s.checks || s.in_memory ? a.identity(lanes) : a.identity_of_columns(lanes));
      for (s.copy = 0; s.copy < s.copies; ++s.copy)
        write_sums(s, p, empty);
      s.copy = 0;
    });
  if (h.shared)
    meet();
  auto& open = open_[std::size_t(t.stage)];
  open.push_back(&s);
  emit(next, h);
  open.pop_back();
  leave_tiles(s);
  if (r_.stages[std::size_t(t.stage)].kind == StageKind::Scan)
    return;
  if (h.shared)
    meet();
  close_sums(s, h);
}

void Writer::close_sums(Sums& s, const Here& h) {
  each_sum(s, h, true, [&](const Here& in) { finish(s, in); });
}

void Writer::finish(Sums& s, const Here& h) {
  const Point& p = h.point;
  std::vector<State> states = all_copies(s, p);
  if (online_.maxima.contains(s.stage))
    rescale_lanes(s, p, states);
  else
    together(s, h, states);
  complete(s, h, states);
}

void Writer::together(Sums& s, const Here&, std::vector<State>& states) {
  if (s.fold)
    for (std::size_t y = 0; y < states.size(); ++y)
      states[y] = s.accumulators[y].across_lanes(states[y]);
}

/// A complete sum goes into the one around it, or is the result.
void Writer::complete(Sums& s, const Here& h, const std::vector<State>& states) {
  const Point& p = h.point;
  const auto& open = open_[std::size_t(s.stage)];
  if (open.empty()) {
    std::vector<Value> values;
    for (std::size_t y = 0; y < states.size(); ++y)
      values.push_back(s.accumulators[y].finish(states[y]));
    deliver(s.stage, h, values);
    return;
  }
  Sums& outer = *open.back();
  outer.copy = copy_of(outer, h);
  if (outer.part) {
    const auto [lanes, offset] = state_at(outer, p);
    std::vector<Guard> mask = storing(h).mask;
    if (lanes == 1)
      std::erase_if(mask, [](const Guard& g) { return depends_on_lane(g.value); });
    for (std::size_t y = 0; y < states.size(); ++y)
      store_state(b_, outer.buffers[y], *outer.part * outer.box.elements() + offset, states[y],
                  mask);
    return;
  }
  const std::vector<State> before = read_sums(outer, p);
  std::vector<State> both;
  for (std::size_t y = 0; y < states.size(); ++y)
    both.push_back(outer.accumulators[y].merge(before[y], states[y]));
  write_sums(outer, p, both);
}

Writer::Sums Writer::open_parts(const Tree& t, const Expr& parts, const Here& h) {
  const Stage& stage = r_.stages[std::size_t(t.stage)];
  Sums s;
  s.stage = t.stage;
  s.node = &t;
  s.in_memory = s.shared = true;
  s.box = box_of(r_, path(t.stage), state_axes(t.stage), h);
  if (!begins_here(s.box, h))
    throw Cannot(fmt::format("the sums of stage {} do not lie side by side", t.stage));
  auto [held, fresh] = state_buffers_.try_emplace(&t);
  for (std::size_t y = 0; y < stage.yields.size(); ++y) {
    s.accumulators.emplace_back(e_, t.stage, int(y), arithmetic_, points_of(r_, stage.over));
    if (fresh)
      held->second.push_back(s.accumulators.back().workspaces(parts * s.box.elements()));
  }
  s.buffers = held->second;
  return s;
}

/// Each worker makes some parts of the sums; when all are there, they are combined in their order.
/// Several accumulations around the same loops are made together.
void Writer::shared_out_sums(const Tree& t, const Here& h) {
  struct Shared {
    Sums sums;
    std::vector<const Tree*> reduced;
    Expr part;
  };
  std::vector<Shared> all;
  std::vector<const Tree*> loops;
  std::vector<Expr> extents;
  Expr pieces(1);
  const Tree* rest = &t;
  for (; rest->kind == Kind::Accumulate; rest = rest->rest.get())
    all.push_back({{.stage = rest->stage, .node = rest}, {}, Expr(1)});
  const auto reduces = [&](const Shared& s, const Tree& loop) {
    return contains(r_.stages[std::size_t(s.sums.stage)].over, loop.axis);
  };
  for (; rest->kind == Kind::For && rest->bind == dealt_; rest = rest->rest.get()) {
    loops.push_back(rest);
    extents.push_back(rest->extent);
    pieces = pieces * rest->extent;
    for (Shared& s : all)
      if (reduces(s, *rest)) {
        s.reduced.push_back(rest);
        s.part = s.part * rest->extent;
      }
  }
  const Tree* inner = rest; // loops over results may stand around the sums of a part
  while (inner->kind == Kind::For &&
         std::none_of(all.begin(), all.end(), [&](const Shared& s) { return reduces(s, *inner); }))
    inner = inner->rest.get();
  for (const Shared& s : all) {
    const Tree* own = inner;
    while (own->kind == Kind::Accumulate && own->stage != s.sums.stage)
      own = own->rest.get();
    if (own->kind != Kind::Accumulate)
      throw Cannot(fmt::format(
          "between the shared out loops of stage {} and its sums is something else", s.sums.stage));
  }
  pieces_ = max(pieces_, pieces);

  for (Shared& s : all) {
    s.sums = open_parts(*s.sums.node, s.part, h);
    open_[std::size_t(s.sums.stage)].push_back(&s.sums);
  }
  deal(extents, h, [&](std::span<const Expr> at, Here in) {
    for (Shared& s : all) {
      s.part = Expr(0);
      s.sums.part = &s.part;
    }
    for (std::size_t i = 0; i < loops.size(); ++i) {
      in = enter(in, *loops[i], at[i]);
      for (Shared& s : all)
        if (reduces(s, *loops[i]))
          s.part = s.part * loops[i]->extent + at[i];
    }
    whole_or_cut(loops, 0, *rest, in);
  });
  for (Shared& s : all) {
    open_[std::size_t(s.sums.stage)].pop_back();
    s.sums.part = nullptr;
  }
  meet();
  for (Shared& s : all)
    combine_parts(s.sums, s.reduced, s.sums.box.elements(), h);
}

void Writer::combine_parts(Sums& s, std::span<const Tree* const> reduced, const Expr& elements,
                           const Here& h) {
  const Stage& stage = r_.stages[std::size_t(s.stage)];
  const Tree* v = vector_of(s.stage);
  const bool by_vectors = v && !contains(stage.over, v->axis) && v->step == 1 &&
                          !s.box.sides.empty() && s.box.sides.back().axis == v->axis;
  box_loops(s.box, h, by_vectors ? lanes_of_loop(*v) : 1, true, [&](const Here& in) {
    complete(s, in, sum_of_parts(s, reduced, elements, in, Expr(0), Expr(1)));
  });
}

std::vector<State> Writer::sum_of_parts(Sums& s, std::span<const Tree* const> reduced,
                                        const Expr& elements, const Here& h, const Expr& first,
                                        const Expr& step) {
  const Point& p = h.point;
  const auto [lanes, offset] = state_at(s, p);
  std::vector<StateVariables> sums;
  for (Accumulator& a : s.accumulators)
    sums.emplace_back(b_, a.identity(lanes));
  std::function<void(std::size_t, const Here&, const Expr&)> go =
      [&, lanes = lanes, offset = offset](std::size_t i, const Here& at, const Expr& part) {
        if (i == reduced.size()) {
          for (std::size_t y = 0; y < sums.size(); ++y)
            sums[y].write(s.accumulators[y].merge(
                sums[y].read(), load_state(b_, s.buffers[y], part * elements + offset, lanes,
                                           lanes > 1 ? p.mask : std::vector<Guard>{})));
          return;
        }
        const Tree& l = *reduced[i];
        const Expr room = r_.axes[std::size_t(l.axis)].extent - at.point.at[std::size_t(l.axis)];
        const Expr count = min(l.extent, ceildiv(room, Expr(l.step)));
        b_.loop(i == 0 ? first : Expr(0), count, i == 0 ? step : Expr(1), l.extent, Bind::Serial,
                [&](const Expr& n) { go(i + 1, enter(at, l, n), part * l.extent + n); });
      };
  go(0, h, Expr(0));
  std::vector<State> states;
  for (const StateVariables& sum : sums)
    states.push_back(sum.read());
  return states;
}

} // namespace egret::kernel::loops
