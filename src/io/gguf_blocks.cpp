// Blocks of GGML's quantized types as programs over their bytes. Layouts follow ggml-quants.c of
// llama.cpp: each comment lists a block's fields in order.
#include "egret/functional.h"
#include "egret/gguf.h"
#include "support/fail.h"

#include <optional>
#include <utility>

namespace egret::io {

namespace {

/// Bytes begin .. begin + count of each block; blocks are [rows, blocks, bytes].
Tensor field(const Tensor& blocks, std::int64_t begin, std::int64_t count) {
  return blocks.narrow(-1, begin, count);
}

/// A 16-bit number at a byte of each block: u16 [rows, blocks, 1].
Tensor word(const Tensor& blocks, std::int64_t at) {
  return field(blocks, at, 1).to(DType::U16) | (field(blocks, at + 1, 1).to(DType::U16) << 8);
}
Tensor half(const Tensor& blocks, std::int64_t at) {
  return word(blocks, at).bitcast(DType::F16).to(DType::F32);
}

Shape with_last(const Tensor& a, std::initializer_list<std::int64_t> last) {
  Shape shape(a.shape().begin(), a.shape().end() - 1);
  for (std::int64_t dim : last)
    shape.push_back(dim);
  return shape;
}

/// The fields of `width` bits of each byte: u8 [..., n] to u8 [..., count, n], lowest bits first.
Tensor bit_fields(const Tensor& bytes, std::int64_t count, std::int64_t width) {
  const Tensor shifts = (arange(count, DType::U8) * width).unsqueeze(-1);
  return (bytes.unsqueeze(-2) >> shifts) & ((1 << width) - 1);
}

/// bit_fields() of bytes in `parts` equal parts, in the order of parts, fields, bytes: the values
/// in groups, f32 [..., groups, values / groups].
Tensor grouped(const Tensor& bytes, std::int64_t parts, std::int64_t count, std::int64_t width) {
  return bit_fields(bytes.reshape(with_last(bytes, {parts, bytes.size(-1) / parts})), count, width);
}

Tensor in_groups(const Tensor& a, std::int64_t groups, std::int64_t values) {
  Shape shape(a.shape().begin(), a.shape().begin() + 2);
  shape.insert(shape.end(), {groups, values / groups});
  return a.reshape(shape);
}

Tensor wide(const Tensor& a) {
  return a.to(DType::F32);
}

/// {f16 d, [f16 m,] [u8 high[4],] u8 low[16]}: 4 or 5 bits a value, d (q - 8 or 16) or d q + m.
Tensor legacy(const Tensor& blocks, bool fifth_bit, bool with_minimum) {
  std::int64_t at = with_minimum ? 4 : 2;
  Tensor q = wide(bit_fields(field(blocks, at + (fifth_bit ? 4 : 0), 16), 2, 4));
  if (fifth_bit) {
    // Bit i of the 32 belongs to value i.
    const Tensor bytes = field(blocks, at, 4);
    const Tensor bits = (bytes.unsqueeze(-1) >> arange(8, DType::U8)) & 1;
    q = q + wide(in_groups(bits, 2, 32)) * 16;
  }
  q = in_groups(q, 1, 32).squeeze(2);
  const Tensor d = half(blocks, 0);
  return with_minimum ? q * d + half(blocks, 2) : (q - (fifth_bit ? 16 : 8)) * d;
}

/// Scales and minima of 6 bits, 8 of each in 12 bytes: u8 [rows, blocks, 8].
struct Counts {
  Tensor scale, minimum;
};
Counts six_bit_counts(const Tensor& bytes) {
  const Tensor a = field(bytes, 0, 4), b = field(bytes, 4, 4), c = field(bytes, 8, 4);
  return {cat({a & 63, (c & 15) | ((a >> 6) << 4)}, -1),
          cat({b & 63, (c >> 4) | ((b >> 6) << 4)}, -1)};
}

/// Blocks of k-quants taken apart: unit · count · (q - offset) - low_unit · low_count.
struct KBlocks {
  Tensor q; ///< u8 [rows, blocks, groups, values of a group]
  int bits; ///< that hold q: 2, 4 or 8
  int offset;
  Tensor unit, count; ///< f16 [rows, blocks, 1]; u8 or i8 [rows, blocks, groups]
  std::optional<Tensor> low_unit = {}, low_count = {};
};

Tensor half_word(const Tensor& blocks, std::int64_t at) {
  return word(blocks, at).bitcast(DType::F16);
}

/// {u8 scales[16], u8 q[64], f16 d, f16 m}
KBlocks q2_k(const Tensor& blocks) {
  const Tensor scales = field(blocks, 0, 16);
  return {in_groups(grouped(field(blocks, 16, 64), 2, 4, 2), 16, 256),
          2,
          0,
          half_word(blocks, 80),
          scales & 15,
          half_word(blocks, 82),
          scales >> 4};
}

/// {u8 high[32], u8 low[64], u8 scales[12], f16 d}
KBlocks q3_k(const Tensor& blocks) {
  const Tensor low = in_groups(grouped(field(blocks, 32, 64), 2, 4, 2), 16, 256);
  const Tensor high = in_groups(bit_fields(field(blocks, 0, 32), 8, 1), 16, 256);
  const Tensor scales = field(blocks, 96, 12);
  const Tensor few = bit_fields(field(scales, 0, 8), 2, 4).reshape(with_last(scales, {16}));
  const Tensor more = bit_fields(field(scales, 8, 4), 4, 2).reshape(with_last(scales, {16}));
  return {low | (high << 2), 4, 4, half_word(blocks, 108), (few | (more << 4)).to(DType::I8) - 32};
}

/// {f16 d, f16 m, u8 scales[12], [u8 high[32],] u8 low[128]}
KBlocks q4_k(const Tensor& blocks, bool fifth_bit) {
  const auto [scales, minima] = six_bit_counts(field(blocks, 4, 12));
  Tensor q = in_groups(grouped(field(blocks, fifth_bit ? 48 : 16, 128), 4, 2, 4), 8, 256);
  if (fifth_bit)
    q = q | (bit_fields(field(blocks, 16, 32), 8, 1) << 4);
  return {q, fifth_bit ? 8 : 4, 0, half_word(blocks, 0), scales, half_word(blocks, 2), minima};
}

/// {u8 low[128], u8 high[64], i8 scales[16], f16 d}
KBlocks q6_k(const Tensor& blocks) {
  const Tensor low = in_groups(grouped(field(blocks, 0, 128), 2, 2, 4), 16, 256);
  const Tensor high = in_groups(grouped(field(blocks, 128, 64), 2, 4, 2), 16, 256);
  return {low | (high << 4), 8, 32, half_word(blocks, 208),
          field(blocks, 192, 16).bitcast(DType::I8)};
}

std::optional<KBlocks> k_blocks(GgmlType type, const Tensor& blocks) {
  switch (type) {
  case GgmlType::Q2_K:
    return q2_k(blocks);
  case GgmlType::Q3_K:
    return q3_k(blocks);
  case GgmlType::Q4_K:
    return q4_k(blocks, false);
  case GgmlType::Q5_K:
    return q4_k(blocks, true);
  case GgmlType::Q6_K:
    return q6_k(blocks);
  default:
    return {};
  }
}

/// f32 [..., groups, values of a group] of q [the same], units f16 [..., blocks, 1] and counts
/// [..., blocks, groups of a block].
Tensor value_of(const Tensor& q, int offset, const Tensor& unit, const Tensor& count,
                const std::optional<Tensor>& low_unit, const std::optional<Tensor>& low_count) {
  const auto each = [](const Tensor& units, const Tensor& counts) {
    return wide(units) * wide(counts);
  };
  Tensor y =
      each(unit, count).reshape(with_last(q, {1})) * (offset == 0 ? wide(q) : wide(q) - offset);
  if (low_unit)
    y = y - each(*low_unit, *low_count).reshape(with_last(q, {1}));
  return y;
}

Tensor dequantized_blocks(GgmlType type, const Tensor& blocks) {
  switch (type) {
  case GgmlType::F32: {
    Tensor bits = word(blocks, 0).to(DType::U32) | (word(blocks, 2).to(DType::U32) << 16);
    return bits.bitcast(DType::F32);
  }
  case GgmlType::F16:
    return half(blocks, 0);
  case GgmlType::BF16:
    return wide(word(blocks, 0).bitcast(DType::BF16));
  case GgmlType::Q4_0:
    return legacy(blocks, false, false);
  case GgmlType::Q4_1:
    return legacy(blocks, false, true);
  case GgmlType::Q5_0:
    return legacy(blocks, true, false);
  case GgmlType::Q5_1:
    return legacy(blocks, true, true);
  case GgmlType::Q8_0:
    return half(blocks, 0) * wide(field(blocks, 2, 32).bitcast(DType::I8));
  default:
    break;
  }
  if (const auto k = k_blocks(type, blocks))
    return value_of(k->q, k->offset, k->unit, k->count, k->low_unit, k->low_count);
  fail(ErrorKind::Value, "GGUF: type {} is none that egret reads", static_cast<unsigned>(type));
}

/// The two bytes of each element of a 16-bit type: u8 [..., 2].
Tensor bytes_of_halves(const Tensor& a) {
  const Tensor bits = a.bitcast(DType::U16);
  return stack({(bits & 255).to(DType::U8), (bits >> 8).to(DType::U8)}, -1);
}

/// u8 [..., n · bytes of a block] to [rows, n, bytes of a block].
Tensor blocks_of(const GgmlTypeInfo& row, const Tensor& bytes, const char* who) {
  if (bytes.dtype() != DType::U8)
    fail(ErrorKind::DType, "{}: blocks are u8, got {}", who, name_of(bytes.dtype()));
  if (bytes.rank() < 1 || bytes.size(-1) == 0 || bytes.size(-1) % row.bytes != 0)
    fail(ErrorKind::Shape, "{}: {} is not a number of blocks of {} bytes ({})", who,
         to_string(bytes.shape()), row.bytes, row.name);
  return bytes.reshape({bytes.numel() / bytes.size(-1), bytes.size(-1) / row.bytes, row.bytes});
}

constexpr std::int64_t kRanges = 16; // that a group of Q4_K may span, as parts of its own
constexpr double kNarrowest = 0.7;   // the least of them
constexpr double kMostCount = 63;    // of units of six bits
constexpr double kMostInteger = 15;  // of four bits

/// The integers nearest to (values + low) / step in 0 .. 15, of all where a step is 0 zeros.
Tensor nearest_steps(const Tensor& values, const Tensor& step, const Tensor& low) {
  return clamp(round(where(step > 0, (values + low) / step, 0.0)), 0, kMostInteger);
}

struct StepAndLow {
  Tensor step, low; ///< a value is step · integer - low; low is not negative
};

/// Of each group [..., groups, 32], the step and the minimum of the least squared error among
/// several: the span from the least value (or 0) to the largest (or 0), and narrower ones, each
/// improved by a regression of the values on their integers. [..., groups].
StepAndLow searched_steps(const Tensor& groups) {
  const Tensor zero = zeros({1}), least = minimum(groups.min(-1), zero);
  const Tensor span = maximum(groups.max(-1), zero) - least;
  const Tensor parts =
      arange(kRanges).to(DType::F32) * ((1 - kNarrowest) / (kRanges - 1)) + kNarrowest;
  // [..., groups, ranges, 1]
  const Tensor step = (span.unsqueeze(-1) * parts * (1 / kMostInteger)).unsqueeze(-1);
  const Tensor low = -(least.unsqueeze(-1) * parts).unsqueeze(-1);
  const Tensor x = groups.unsqueeze(-2), q = nearest_steps(x, step, low);
  const auto n = static_cast<double>(groups.size(-1));
  const Tensor sum_q = q.sum(-1), sum_qq = (q * q).sum(-1), sum_x = x.sum(-1),
               sum_qx = (q * x).sum(-1);
  const Tensor spread = sum_qq * n - sum_q * sum_q;
  const Tensor free_step = where(spread > 0, (sum_qx * n - sum_q * sum_x) / spread, 0.0);
  const Tensor free_low = (free_step * sum_q - sum_x) * (1 / n);
  // A minimum cannot be above 0: the best without one then.
  const Tensor bound_step = where(sum_qq > 0, sum_qx / sum_qq, 0.0);
  const Tensor best_step = maximum(where(free_low < 0, bound_step, free_step), zero);
  const Tensor best_low = maximum(free_low, zero);
  const Tensor off = x - (q * best_step.unsqueeze(-1) - best_low.unsqueeze(-1));
  const Tensor chosen = (off * off).sum(-1).argmin(-1, true);
  return {take_along_dim(best_step, chosen, -1).squeeze(-1),
          take_along_dim(best_low, chosen, -1).squeeze(-1)};
}

/// Of eight numbers: their unit f16 [..., 1], and how many of it each is nearest to [..., 8].
std::pair<Tensor, Tensor> in_six_bits(const Tensor& a) {
  const Tensor unit = (a.max(-1, true) * (1 / kMostCount)).to(DType::F16), wide_unit = wide(unit);
  return {unit, clamp(round(where(wide_unit > 0, a / wide_unit, 0.0)), 0, kMostCount)};
}

/// Bytes of Q4_K from values [..., blocks, 8, 32]: a scale and a minimum of 6 bits for each 32.
/// Both counts are moved by up to one where the rounded values come nearer to the exact ones so.
Tensor q4_k_bytes(const Tensor& blocks) {
  const StepAndLow searched = searched_steps(blocks);
  const auto [step_unit, step_near] = in_six_bits(searched.step);
  const auto [low_unit, low_near] = in_six_bits(searched.low);
  // [..., blocks, 8, 9]: both counts as they are, less one or plus one
  const Tensor step_moves = tensor(std::vector<float>{0, 0, 0, -1, -1, -1, 1, 1, 1});
  const Tensor low_moves = tensor(std::vector<float>{0, -1, 1, 0, -1, 1, 0, -1, 1});
  const auto moved = [&](const Tensor& near, const Tensor& by) {
    return clamp(near.unsqueeze(-1) + by, 0, kMostCount);
  };
  const Tensor step_counts = moved(step_near, step_moves), low_counts = moved(low_near, low_moves);
  const auto times = [](const Tensor& unit, const Tensor& counts) {
    return (wide(unit).unsqueeze(-1) * counts).unsqueeze(-1);
  };
  const Tensor steps = times(step_unit, step_counts), lows = times(low_unit, low_counts);
  const Tensor x = blocks.unsqueeze(-2);
  const Tensor off = x - (nearest_steps(x, steps, lows) * steps - lows);
  const Tensor chosen = (off * off).sum(-1).argmin(-1, true);
  const Tensor step_count = take_along_dim(step_counts, chosen, -1).squeeze(-1);
  const Tensor low_count = take_along_dim(low_counts, chosen, -1).squeeze(-1);
  const Tensor q = nearest_steps(blocks, (wide(step_unit) * step_count).unsqueeze(-1),
                                 (wide(low_unit) * low_count).unsqueeze(-1))
                       .to(DType::U8);
  Shape in_pairs(q.shape().begin(), q.shape().end() - 2);
  in_pairs.insert(in_pairs.end(), {4, 2, 32});
  const Tensor pairs = q.reshape(in_pairs);
  const Tensor nibbles = pairs.select(-2, 0) | (pairs.select(-2, 1) << 4);
  const Tensor s = step_count.to(DType::U8), m = low_count.to(DType::U8);
  const auto half_of = [](const Tensor& a, std::int64_t at) { return a.narrow(-1, at, 4); };
  const Tensor scales =
      cat({half_of(s, 0) | ((half_of(s, 4) >> 4) << 6), half_of(m, 0) | ((half_of(m, 4) >> 4) << 6),
           (half_of(s, 4) & 15) | ((half_of(m, 4) & 15) << 4)},
          -1);
  return cat({bytes_of_halves(step_unit).squeeze(-2), bytes_of_halves(low_unit).squeeze(-2), scales,
              nibbles.flatten(-2, -1)},
             -1);
}

} // namespace

Tensor dequantized(GgmlType type, const Tensor& bytes) {
  const GgmlTypeInfo& row = info_of(type);
  const Tensor blocks = blocks_of(row, bytes, "dequantized");
  return dequantized_blocks(type, blocks)
      .reshape(with_last(bytes, {bytes.size(-1) / row.bytes * row.values}));
}

Quantized packed_blocks(GgmlType type, const Tensor& bytes) {
  const GgmlTypeInfo& row = info_of(type);
  if (type != GgmlType::Q8_0 && type != GgmlType::Q4_0)
    fail(ErrorKind::Unsupported, "packed_blocks: {} has no integers with one scale a group",
         row.name);
  const int bits = type == GgmlType::Q8_0 ? 8 : 4;
  const Tensor blocks = blocks_of(row, bytes, "packed_blocks");
  const std::int64_t count = bytes.size(-1) / row.bytes;
  // i8 to integers around 128; halves of a block's bytes to neighbours.
  const Tensor packed =
      bits == 8
          ? field(blocks, 2, 32) ^ 128
          : pack_bits(bit_fields(field(blocks, 2, 16), 2, 4).reshape(with_last(blocks, {32})), 4);
  return {packed.reshape(with_last(bytes, {count * row.values * bits / 8})),
          word(blocks, 0).bitcast(DType::F16).reshape(with_last(bytes, {count})), bits, row.values};
}

BlockQuantized packed_k_blocks(GgmlType type, const Tensor& bytes) {
  const GgmlTypeInfo& row = info_of(type);
  const auto k = k_blocks(type, blocks_of(row, bytes, "packed_k_blocks"));
  if (!k)
    fail(ErrorKind::Unsupported, "packed_k_blocks: {} is none of the k-quants", row.name);
  const std::int64_t blocks = bytes.size(-1) / row.bytes, groups = k->count.size(-1);
  const auto last = [&](const Tensor& a, std::int64_t count) {
    return a.reshape(with_last(bytes, {count}));
  };
  const Tensor q = last(k->q, blocks * row.values);
  BlockQuantized result{k->bits == 8 ? q : pack_bits(q, k->bits),
                        k->bits,
                        k->offset,
                        row.values / groups,
                        last(k->unit, blocks),
                        last(k->count, blocks * groups),
                        {},
                        {}};
  if (k->low_unit) {
    result.low_unit = last(*k->low_unit, blocks);
    result.low_count = last(*k->low_count, blocks * groups);
  }
  return result;
}

Tensor dequantize(const BlockQuantized& b) {
  const Tensor q = b.bits == 8 ? b.packed : unpack_bits(b.packed, b.bits);
  const std::int64_t count = q.size(-1), blocks = b.unit.size(-1);
  const auto by_block = [&](const Tensor& a) {
    return a.reshape(with_last(a, {blocks, a.size(-1) / blocks}));
  };
  std::optional<Tensor> low_unit, low_count;
  if (b.low_unit) {
    low_unit = by_block(*b.low_unit);
    low_count = by_block(*b.low_count);
  }
  return value_of(q.reshape(with_last(q, {count / b.group, b.group})), b.offset, by_block(b.unit),
                  by_block(b.count), low_unit, low_count)
      .reshape(q.shape());
}

Tensor quantized_blocks(GgmlType type, const Tensor& values) {
  const GgmlTypeInfo& row = info_of(type);
  if (values.rank() < 1 || values.size(-1) == 0 || values.size(-1) % row.values != 0)
    fail(ErrorKind::Shape, "quantized_blocks: the last axis of {} is no multiple of {} ({})",
         to_string(values.shape()), row.values, row.name);
  const Shape shape = with_last(values, {values.size(-1) / row.values * row.bytes});
  switch (type) {
  case GgmlType::F32: {
    const Tensor bits = values.to(DType::F32).bitcast(DType::U32).unsqueeze(-1);
    const Tensor shifts = arange(4).to(DType::U32) * 8;
    return ((bits >> shifts) & 255).to(DType::U8).reshape(shape);
  }
  case GgmlType::F16:
    return bytes_of_halves(values.to(DType::F16)).reshape(shape);
  case GgmlType::BF16:
    return bytes_of_halves(values.to(DType::BF16)).reshape(shape);
  case GgmlType::Q8_0: {
    const Tensor blocks =
        values.to(DType::F32)
            .reshape(with_last(values, {values.size(-1) / row.values, row.values}));
    const Tensor scale = abs(blocks).max(-1, true) * (1.0 / 127);
    const Tensor q = round(where(scale > 0, blocks / scale, 0.0)).to(DType::I8).bitcast(DType::U8);
    return cat({bytes_of_halves(scale.to(DType::F16)).squeeze(-2), q}, -1).reshape(shape);
  }
  case GgmlType::Q4_0: {
    const Tensor blocks =
        values.to(DType::F32)
            .reshape(with_last(values, {values.size(-1) / row.values, row.values}));
    // The value of the largest magnitude becomes -8, the one integer without its negative.
    const Tensor most = abs(blocks).max(-1, true);
    const Tensor scale = where(blocks.max(-1, true) == most, -most, most) * 0.125;
    const Tensor steps = where(scale != 0, blocks / scale, 0.0);
    const Tensor q = clamp(floor(steps + 8.5), 0, 15).to(DType::U8);
    const Tensor nibbles = q.narrow(-1, 0, 16) | (q.narrow(-1, 16, 16) << 4);
    return cat({bytes_of_halves(scale.to(DType::F16)).squeeze(-2), nibbles}, -1).reshape(shape);
  }
  case GgmlType::Q4_K:
    return q4_k_bytes(values.to(DType::F32)
                          .reshape(with_last(values, {values.size(-1) / row.values, 8, 32})))
        .reshape(shape);
  default:
    fail(ErrorKind::Unsupported, "quantized_blocks: {} is read, not written", row.name);
  }
}

} // namespace egret::io
