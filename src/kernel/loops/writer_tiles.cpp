// Matrix loops of 16 rows by 16 columns by a depth of 32 on a CPU with AMX: sums stay in tiles
// while the loops inside of them go by, and factors come from where they lie, from copies near that
// lie as tiles want them, or from a scratch tile that is filled for each product.
#include "kernel/analysis.h"
#include "kernel/loops/writer.h"
#include "kernel/transpose.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::kernel::loops {

namespace {

constexpr int kWords = kTileBytes / 4, kDeep = kTileBytes / 2; ///< of a row: words, halves
constexpr std::int64_t kTileWords = std::int64_t(kTileRows) * kWords;

/// The point at which a product of tiles begins.
Here first_of(const Here& h, const Tree& rows) {
  const Tree &columns = *rows.rest, &depth = *columns.rest;
  return enter(enter(enter(h, rows, Expr(0)), columns, Expr(0)), depth, Expr(0));
}

} // namespace

const Tree* Writer::tiles_around(int stage) const {
  if (target_.unit(FragmentLayout::Tiles) == nullptr || dealt_ != Bind::Core)
    return nullptr;
  for (const Step& step : path(stage)) {
    const Tree& t = *step.node;
    if (t.kind == Kind::For && t.bind == Bind::Matrix)
      return t.extent == Expr(kTileRows) && t.rest->extent == Expr(kWords) &&
                     t.rest->rest->extent == Expr(kDeep)
                 ? &t
                 : nullptr;
  }
  return nullptr;
}

// --- Sums

/// Sums that unrolled loops make tiles of, as long as two are left for the factors.
void Writer::hold_in_tiles(Sums& s, const Here& h) {
  const Tree* rows = tiles_around(s.stage);
  if (!rows || s.shared || h.digits.contains(rows))
    return;
  const Tree* innermost = nullptr; // products are added to its sums, parts of others'
  for (const Step& step : path(s.stage))
    if (step.node->kind == Kind::Accumulate && step.node->stage == s.stage)
      innermost = step.node;
  if (innermost != s.node)
    return;
  const std::vector<const Tree*> left = loops_left(path(s.stage), state_axes(s.stage), h);
  std::int64_t count = 1;
  for (const Tree* l : left)
    if (l != rows && l != rows->rest.get()) {
      if (l->bind != Bind::Unroll)
        return;
      count *= l->extent.value();
    }
  if (sum_tiles_ + count + 2 > kTiles)
    return;
  const std::function<void(std::size_t, const Here&)> go = [&](std::size_t i, const Here& at) {
    if (i == left.size()) {
      factor_tiles_[sum_tiles_].buffer = -1;
      b_.tile_zero(sum_tiles_);
      s.tiles.emplace(*s.box.key(at.point), sum_tiles_++);
      return;
    }
    const bool unit = left[i] == rows || left[i] == rows->rest.get();
    for (std::int64_t n = 0; n < (unit ? 1 : left[i]->extent.value()); ++n)
      go(i + 1, enter(at, *left[i], Expr(n)));
  };
  go(0, h);
}

void Writer::leave_tiles(Sums& s) {
  for (const auto& [key, tile] : s.tiles) {
    Expr place(0);
    for (std::size_t i = 0; i < key.size(); ++i)
      place = place * s.box.sides[i].size + Expr(key[i]);
    b_.tile_store(tile, s.buffers[0][0], place, s.box.sides.back().size);
  }
  sum_tiles_ -= int(s.tiles.size());
  s.tiles.clear();
}

void Writer::tile_product(const Tree& rows, const Here& h) {
  const Tree &columns = *rows.rest, &depth = *columns.rest;
  const int s = depth.rest->stage;
  const Factors f = matrix_factors(rows, false);
  Sums& open = *open_[std::size_t(s)].back();
  const Here first = first_of(h, rows);
  const auto key = open.box.key(first.point);
  const auto held = key ? open.tiles.find(*key) : open.tiles.end();
  const int left = factor_tile(s, f.left, rows, false, h);
  const int right = factor_tile(s, f.right, rows, true, h);
  if (held != open.tiles.end()) {
    b_.tile_multiply(held->second, left, right);
    return;
  }
  const int sum = free_tile();
  const Expr place = open.box.offset(first.point), stride = open.box.sides.back().size;
  b_.tile_load(sum, open.buffers[0][0], place, stride);
  b_.tile_multiply(sum, left, right);
  b_.tile_store(sum, open.buffers[0][0], place, stride);
}

// --- Factors

int Writer::free_tile() {
  int oldest = sum_tiles_;
  for (int t = sum_tiles_; t < kTiles; ++t)
    if (factor_tiles_[t].used < factor_tiles_[oldest].used)
      oldest = t;
  factor_tiles_[oldest] = {-1, Expr(0), Expr(0), -1, ++turn_};
  return oldest;
}

int Writer::factor_tile(int s, int value, const Tree& rows, bool right, const Here& h) {
  const Tree &columns = *rows.rest, &depth = *columns.rest;
  const Here first = first_of(h, rows);
  const Stage& stage = r_.stages[std::size_t(s)];
  const BodyValue& v = stage.body[std::size_t(value)];
  int buffer = -1;
  Expr place, stride;
  for (const NearCopy* copy : near_)
    if (copy->body == s && copy->stage == s && copy->value == value &&
        copy->unit == (right ? NearCopy::Unit::Right : NearCopy::Unit::Left)) {
      buffer = copy->buffer;
      place = copy->tile(first.digits);
      stride = Expr(kWords);
    }
  if (buffer < 0 && !right && v.kind == BodyValue::Kind::Load) {
    const Load& load = stage.loads[std::size_t(v.load)];
    const std::int64_t down = stride_of(r_, stage, load, rows.axis).value_or(0);
    if (load.source == Source::Operand &&
        r_.operands[std::size_t(load.number)].role == Role::Tensor && load.map.is_total() &&
        load.indirect.empty() && down > 0 && stride_of(r_, stage, load, depth.axis) == 1) {
      const auto element = element_at(r_, stage, load, first.point);
      ensure(element.has_value(), "region {}: a tile of what is data", r_.name);
      buffer = e_.operand_buffer(load.number);
      place = *element;
      stride = Expr(down);
    }
  }
  if (buffer < 0)
    return scratch_tile(s, value, rows, right, h);
  for (int t = sum_tiles_; t < kTiles; ++t) {
    FactorTile& tile = factor_tiles_[t];
    if (tile.buffer == buffer && tile.place == place && tile.stride == stride &&
        tile.stretch == b_.stretch()) {
      tile.used = ++turn_;
      return t;
    }
  }
  const int t = free_tile();
  b_.tile_load(t, buffer, place, stride);
  factor_tiles_[t] = {buffer, place, stride, b_.stretch(), turn_};
  return t;
}

int Writer::scratch_tile(int s, int value, const Tree& rows, bool right, const Here& h) {
  const Tree &columns = *rows.rest, &depth = *columns.rest;
  int& buffer = scratch_[right ? 1 : 0];
  if (buffer < 0)
    buffer = b_.worker_memory(right ? "right_tile" : "left_tile", DType::U32, Expr(kTileWords));
  const Expr lane = lane_variable(kWords);
  b_.loop(Expr(0), Expr(kTileRows), Expr(1), Expr(kTileRows), Bind::Serial, [&](const Expr& i) {
    ValueId words = -1;
    if (right) { // a pair of all columns
      Here in = enter(enter(h, rows, Expr(0)), columns, lane);
      in.point.lanes = kWords;
      words = b_.splat(pair_of(s, value, depth, i, in), kWords);
    } else { // the depth of a row
      Here in = enter(enter(enter(h, rows, i), columns, Expr(0)), depth, lane_variable(kDeep));
      in.point.lanes = kDeep;
      provide_results(s, in.point);
      provide_near(s, in);
      const ValueId bits =
          b_.apply(Op::Bitcast, DType::U16, {e_.narrow(e_.value(s, value, in.point))});
      e_.forget_loads();
      words = b_.words(b_.splat(bits, kDeep));
    }
    b_.store(buffer, i * Expr(kWords) + lane, words);
  });
  const int t = free_tile();
  b_.tile_load(t, buffer, Expr(0), Expr(kWords));
  return t;
}

// --- Copies near

Expr Writer::NearCopy::tile(const std::map<const Tree*, Expr>& digits) const {
  Expr place(0);
  for (std::size_t i = 0; i + 2 < loops.size(); ++i)
    place = place * loops[i]->extent + digits.at(loops[i]);
  return place * Expr(kTileWords);
}

Writer::NearCopy::Unit Writer::unit_of(const NearCopy& copy) const {
  const Tree* rows = tiles_around(copy.body);
  const auto n = copy.loops.size();
  if (!rows || copy.stage != copy.body || n < 2 || copy.loops[n - 1] != rows->rest->rest.get())
    return NearCopy::Unit::None;
  const Factors f = matrix_factors(*rows, false);
  if (copy.value == f.left && copy.loops[n - 2] == rows)
    return NearCopy::Unit::Left;
  if (copy.value == f.right && copy.loops[n - 2] == rows->rest.get())
    return NearCopy::Unit::Right;
  return NearCopy::Unit::None;
}

/// One tile of a copy: vectors along the depth or across it, whichever lies side by side, turned
/// where the tile wants the other.
void Writer::fill_tile(const NearCopy& copy, const Here& h) {
  if (h.shared) {
    alone(h, [&](const Here& in) { fill_tile(copy, in); });
    return;
  }
  const Tree &across = *copy.loops[copy.loops.size() - 2], &depth = *copy.loops.back();
  const Stage& stage = r_.stages[std::size_t(copy.stage)];
  const Load& load = stage.loads[std::size_t(stage.body[std::size_t(copy.value)].load)];
  const bool along_depth = stride_of(r_, stage, load, depth.axis) == 1;
  const Expr lane = lane_variable(kWords);
  const auto bits_at = [&](const Here& in) {
    return b_.apply(Op::Bitcast, DType::U16,
                    {e_.narrow(e_.value(copy.stage, copy.value, in.point))});
  };
  const auto row = [&](int i) {
    Here in = enter(enter(h, across, Expr(i)), depth, lane_variable(kDeep));
    in.point.lanes = kDeep;
    return b_.words(b_.splat(bits_at(in), kDeep));
  };
  const auto pair = [&](int i) {
    const auto half = [&](int number) {
      Here in = enter(enter(h, across, lane), depth, Expr(2 * i + number));
      in.point.lanes = kWords;
      return b_.cast(b_.splat(bits_at(in), kWords), DType::U32);
    };
    const ValueId lower = half(0);
    const ValueId upper = b_.apply(
        Op::Shl, DType::U32, {half(1), b_.constant(Scalar::of(DType::U32, std::int64_t{16}))});
    return b_.apply(Op::Or, DType::U32, {lower, upper});
  };
  std::vector<ValueId> vectors;
  for (int i = 0; i < kTileRows; ++i)
    vectors.push_back(along_depth ? row(i) : pair(i));
  e_.forget_loads();
  if (along_depth != (copy.unit == NearCopy::Unit::Left))
    vectors = transpose_block(b_, std::move(vectors));
  const Expr place = copy.tile(h.digits);
  for (int i = 0; i < kTileRows; ++i)
    b_.store(copy.buffer, place + Expr(std::int64_t(i) * kWords) + lane, vectors[std::size_t(i)]);
}

} // namespace egret::kernel::loops
