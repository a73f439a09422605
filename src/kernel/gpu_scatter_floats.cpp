// Scatters of floats by atomic operations on integers that stand for them, so that the order in
// which updates are combined does not change the result.
#include "kernel/gpu_scatter.h"

#include <bit>
#include <limits>

namespace egret::kernel {

namespace {

// --- Sums in fixed point

class FixedPoint : UnorderedScatter {
public:
  FixedPoint(const Region& region, const ScatterForm& form, int threads, int together)
      : UnorderedScatter(region, form, threads, together),
        bits_(62 - std::bit_width(static_cast<std::uint64_t>(form.update_count.upper()))) {}

  KernelProgram run() {
    if (empty())
      return finish();
    peaks_ = b_.workspace("peaks", DType::I32, elements());
    sums_ = b_.workspace("sums", DType::I64, elements());
    points(elements(), [&](const Expr& at) {
      b_.store(peaks_, at, number(DType::I32, 0));
      b_.store(sums_, at, number(DType::I64, 0));
    });
    barrier();
    all_updates([&](const std::vector<Update>& updates) {
      for (const auto& [u, value] : with_values(updates))
        b_.atomic_combine(Monoid::Max, peaks_, element_number(*u), exponent(value), u->mask);
    });
    barrier();
    all_updates([&](const std::vector<Update>& updates) {
      const auto values = with_values(updates);
      std::vector<ValueId> fixed;
      for (const auto& [u, value] : values)
        fixed.push_back(to_fixed(value, b_.load(peaks_, element_number(*u), 1, u->mask)));
      for (std::size_t i = 0; i < values.size(); ++i)
        b_.atomic_combine(Monoid::Sum, sums_, element_number(updates[i]), fixed[i],
                          updates[i].mask);
    });
    barrier();
    all_elements([&](const Expr& at, const Expr& bin, const Point& p) {
      const ValueId peak = b_.load(peaks_, at, 1);
      const std::vector<Guard> touched{{value_symbol(peak), Expr(1), Expr(kSpecial + 1)}};
      b_.when(touched, [&] {
        update_output(e_, f_, element_of(r_, f_, p, bin), from_fixed(b_.load(sums_, at, 1), peak),
                      {});
      });
    });
    return finish();
  }

private:
  /// The exponent of infinities and NaNs. Their sum has the number of positive infinities below
  /// bit kNegative and that of negative ones from there on; a NaN counts as both.
  static constexpr std::int64_t kSpecial = 255, kNegative = 31;

  std::vector<std::pair<const Update*, ValueId>> with_values(const std::vector<Update>& updates) {
    std::vector<std::pair<const Update*, ValueId>> out;
    for (const Update& u : updates)
      out.emplace_back(&u, update_of(e_, f_, u.point));
    return out;
  }

  /// As it is stored, at least 1: that of all numbers below the smallest normal one.
  ValueId exponent(ValueId value) {
    const ValueId bits = b_.apply(Op::Bitcast, DType::I32, {value});
    const ValueId e =
        apply(Op::And, apply(Op::Shr, bits, number(DType::I32, 23)), number(DType::I32, kSpecial));
    return apply(Op::Max, e, number(DType::I32, 1));
  }

  /// 2 to the power of an i32.
  ValueId power(ValueId exponent) {
    const ValueId biased = b_.cast(apply(Op::Add, exponent, number(DType::I32, 1023)), DType::I64);
    return b_.apply(Op::Bitcast, DType::F64, {apply(Op::Shl, biased, number(DType::I64, 52))});
  }
  ValueId minus(ValueId x) { return apply(Op::Mul, x, number(b_.type_of(x).dtype, -1)); }

  /// All are below 2^(peak - 126) in magnitude, which becomes 2^bits: sums do not overflow.
  ValueId shift_of(ValueId peak) {
    return apply(Op::Add, minus(peak), number(DType::I32, 126 + bits_));
  }

  ValueId to_fixed(ValueId value, ValueId peak) {
    const ValueId wide = b_.cast(value, DType::F64);
    const ValueId scaled = b_.cast(apply(Op::Mul, wide, power(shift_of(peak))), DType::I64);
    const ValueId zero = number(DType::I64, 0);
    const ValueId special = equal(peak, number(DType::I32, kSpecial)),
                  own = equal(exponent(value), number(DType::I32, kSpecial));
    const ValueId nan =
        b_.apply(Op::Eq, DType::Bool, {equal(value, value), number(DType::Bool, 0)});
    const ValueId zero_value = b_.constant(Scalar::of(DType::F32, 0.0));
    const ValueId up = b_.apply(Op::Or, DType::Bool, {nan, less(zero_value, value)}),
                  down = b_.apply(Op::Or, DType::Bool, {nan, less(value, zero_value)});
    const ValueId counts =
        apply(Op::Add, select(up, number(DType::I64, 1), zero),
              select(down, number(DType::I64, std::int64_t(1) << kNegative), zero));
    return select(special, select(own, counts, zero), scaled);
  }

  ValueId from_fixed(ValueId sum, ValueId peak) {
    const ValueId wide = apply(Op::Mul, b_.cast(sum, DType::F64), power(minus(shift_of(peak))));
    const ValueId zero = number(DType::I64, 0);
    const ValueId low = number(DType::I64, (std::int64_t(1) << kNegative) - 1);
    const ValueId no_up = equal(apply(Op::And, sum, low), zero),
                  no_down = equal(apply(Op::Shr, sum, number(DType::I64, kNegative)), zero);
    const auto f32 = [&](double v) { return b_.constant(Scalar::of(DType::F32, v)); };
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const ValueId infinite =
        select(no_up, f32(-kInfinity),
               select(no_down, f32(kInfinity), f32(std::numeric_limits<double>::quiet_NaN())));
    return select(equal(peak, number(DType::I32, kSpecial)), infinite, b_.cast(wide, DType::F32));
  }

  int bits_; ///< of an update in fixed point
  int peaks_ = -1, sums_ = -1;
};

// --- Maxima

/// Floats as integers in the same order, every NaN above all numbers.
class Maxima : UnorderedScatter {
public:
  Maxima(const Region& region, const ScatterForm& form, int threads, int together)
      : UnorderedScatter(region, form, threads, together),
        image_(form.state == DType::F64 ? DType::I64 : DType::I32) {}

  KernelProgram run() {
    if (empty())
      return finish();
    const ValueId none = b_.constant(identity_of(Monoid::Max, image_)); // the image of no float
    images_ = b_.workspace("images", image_, elements());
    points(elements(), [&](const Expr& at) { b_.store(images_, at, none); });
    barrier();
    all_updates([&](const std::vector<Update>& updates) {
      std::vector<ValueId> values;
      for (const Update& u : updates)
        values.push_back(image(update_of(e_, f_, u.point)));
      for (std::size_t i = 0; i < updates.size(); ++i)
        b_.atomic_combine(Monoid::Max, images_, element_number(updates[i]), values[i],
                          updates[i].mask);
    });
    barrier();
    all_elements([&](const Expr& at, const Expr& bin, const Point& p) {
      const ValueId found = b_.load(images_, at, 1);
      b_.when({holds(equal(found, none), false)}, [&] {
        update_output(e_, f_, element_of(r_, f_, p, bin),
                      b_.apply(Op::Bitcast, f_.state, {turned(found)}), {});
      });
    });
    return finish();
  }

private:
  /// Of negative floats, those of greater magnitude are greater as integers: all bits but the sign
  /// are turned.
  ValueId turned(ValueId bits) {
    const std::int64_t magnitude = image_ == DType::I64 ? INT64_MAX : INT32_MAX;
    return select(less(bits, number(image_, 0)), apply(Op::Xor, bits, number(image_, magnitude)),
                  bits);
  }

  ValueId image(ValueId value) {
    const std::int64_t most = image_ == DType::I64 ? INT64_MAX : INT32_MAX;
    const ValueId bits = b_.apply(Op::Bitcast, image_, {value});
    return select(equal(value, value), turned(bits), number(image_, most));
  }

  DType image_;
  int images_ = -1;
};

} // namespace

std::string refused_integers(const ScatterForm& form, const Target& target) {
  if (!target.has(Capability::Atomics))
    return "the target has no atomic operations";
  if (form.monoid == Monoid::Max)
    return form.state == DType::F32 || form.state == DType::F64 ? "" : "it is no maximum of floats";
  if (form.monoid != Monoid::Sum || form.state != DType::F32)
    return "it is no sum of f32";
  return form.update_count.upper() >= std::int64_t(1) << 30 ? "more updates than can be added" : "";
}

KernelProgram scatter_by_integers(const Region& region, const ScatterForm& form, int threads,
                                  int together) {
  return form.monoid == Monoid::Max ? Maxima(region, form, threads, together).run()
                                    : FixedPoint(region, form, threads, together).run();
}

} // namespace egret::kernel
