#include "kernel/scatter_blocks.h"

namespace egret::kernel {

namespace {

/// Vectors of updates that are computed before any of them is applied.
constexpr std::int64_t kBlock = 8;

} // namespace

void UpdateBlocks::write(std::int64_t lines, const Expr& count, const PointOf& point,
                         const Apply& apply) {
  const Expr in_vectors = lanes_ > 1 ? floordiv(count, Expr(lanes_)) * Expr(lanes_) : Expr(0);
  if (lanes_ > 1)
    b_.loop(Expr(0), in_vectors, Expr(kBlock * lanes_), f_.update_count, Bind::Serial,
            [&](const Expr& i) { write_block(lines, i, in_vectors, point, apply); });
  b_.loop(in_vectors, count, Expr(1), f_.update_count, Bind::Serial, [&](const Expr& i) {
    for (std::int64_t line = 0; line < lines; ++line) {
      const Point p = point(line, i);
      const Expr bin = bin_of(e_, f_, p);
      apply(line, bin, update_of(e_, f_, p));
    }
  });
}

/// Computed as vectors into memory, updates are taken from there one by one by the same few
/// instructions, and not out of registers by some for each lane: a CPU predicts by an instruction's
/// address which stores a load depends on, and many of them get into each other's way.
void UpdateBlocks::write_block(std::int64_t lines, const Expr& first, const Expr& end,
                               const PointOf& point, const Apply& apply) {
  const Expr block(kBlock * lanes_), count = min(block, end - first);
  std::vector<Updates> updates;
  b_.loop(Expr(0), count, Expr(lanes_), block, Bind::Serial, [&](const Expr& from) {
    for (std::int64_t line = 0; line < lines; ++line) {
      Point p = point(line, first + from + lane_variable(lanes_));
      p.lanes = lanes_;
      const Expr to = Expr(line) * block + from;
      updates.push_back({in_memory(bins_, "bins", bins_of_updates(e_, f_, p), to, lines),
                         in_memory(states_, "states", update_of(e_, f_, p), to, lines)});
    }
  });
  b_.loop(Expr(0), count, Expr(1), block, Bind::Serial, [&](const Expr& number) {
    for (std::int64_t line = 0; line < lines; ++line) {
      const auto one = [&](const Waiting& w) {
        return w.buffer < 0 ? w.value : b_.load(w.buffer, Expr(line) * block + number, 1);
      };
      const Updates& of_line = updates[std::size_t(line)];
      apply(line, value_symbol(one(of_line.bins)), one(of_line.states));
    }
  });
}

UpdateBlocks::Waiting UpdateBlocks::in_memory(int& buffer, const char* name, ValueId v,
                                              const Expr& from, std::int64_t lines) {
  if (b_.made_once(v) && b_.type_of(v).lanes == 1)
    return {-1, v};
  if (buffer < 0)
    buffer = b_.worker_memory(name, b_.type_of(v).dtype, Expr(lines * kBlock * lanes_));
  b_.store(buffer, from + lane_variable(lanes_), b_.splat(v, lanes_));
  return {buffer, -1};
}

} // namespace egret::kernel
