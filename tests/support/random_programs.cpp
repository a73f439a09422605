#include "support/random_programs.h"

#include "backend/reference/program_interpreter.h"
#include "support/program_maker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace egret::testing {

using kernel::Bind;
using kernel::Type;
using kernel::ValueId;

namespace {

// Operations whose results do not depend on how they are computed.
constexpr Op kExactFloatOps[] = {Op::Add,   Op::Mul,  Op::Div,   Op::Max,
                                 Op::Recip, Op::Sqrt, Op::Floor, Op::Trunc};
constexpr Op kExactIntOps[] = {Op::Add, Op::Mul, Op::IDiv, Op::Mod, Op::Max,
                               Op::And, Op::Or,  Op::Xor,  Op::Shl, Op::Shr};
constexpr DType kProgramTypes[] = {DType::F32,  DType::F32,  DType::I32, DType::I64,
                                   DType::F64,  DType::Bool, DType::U8,  DType::I16,
                                   DType::BF16, DType::F16,  DType::U64};

class ProgramGenerator {
public:
  explicit ProgramGenerator(std::uint64_t seed) : random_(seed), m_("random") {
    rows_ = pick(1, 5);
    cols_ = pick(1, 70);
    lanes_ = 1 << pick(0, 5);
    bool symbolic = chance(3);
    Expr rows = symbolic ? m_.dim("rows", 1, 64) : Expr(rows_);
    Expr cols = symbolic ? m_.dim("cols", 1, 4096) : Expr(cols_);
    rows_expr_ = rows;
    cols_expr_ = cols;
    m_.program.launch.workers = rows;
    for (int i = 0; i < 3; ++i)
      inputs_.push_back(m_.buffer(kProgramTypes[pick(0, 10)], Expr(pick(1, 300)), true, false));
    indices_ = m_.buffer(chance(2) ? DType::I32 : DType::I64, Expr(128), true, false);
    for (int i = 0; i < 2; ++i)
      outputs_.push_back(m_.buffer(kProgramTypes[pick(0, 10)], rows * cols * 2, false, true));
    m_.scalar(DType::F32);
    m_.scalar(DType::I64);
    workspace_ =
        m_.buffer(kProgramTypes[pick(0, 10)], rows * cols, true, true, kernel::Space::Workspace);
    scratch_ = m_.buffer(kProgramTypes[pick(0, 10)], cols, true, true, kernel::Space::Worker);
    scratch2_ = m_.buffer(kProgramTypes[pick(0, 10)], cols + 3, true, true, kernel::Space::Worker);
  }

  kernel::KernelProgram make() {
    m_.loop(
        rows_expr_, 1, [&](Expr a) { row(a, false); }, Bind::Core, pick(1, 2));
    m_.barrier();
    m_.loop(
        rows_expr_, 1, [&](Expr a) { row(a, true); }, Bind::Core);
    return m_.program;
  }

  std::int64_t rows_, cols_;

private:
  std::int64_t pick(std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(random_);
  }
  bool chance(int n) { return pick(1, n) == 1; }

  // One row of output: a first pass fills scratch memory and a sum, a second one uses them.
  void row(Expr a, bool second) {
    row_ = a;
    pool_.clear();
    after_barrier_ = second;
    DType sum_type = chance(2) ? DType::F32 : DType::I32;
    int sum = m_.variable({sum_type, lanes_});
    m_.set(sum, m_.constant(Scalar::of(sum_type, 0.0), lanes_));
    bool uses_scratch = chance(2);
    if (uses_scratch)
      columns([&](Expr c, const Guard& inside) {
        ValueId v = value({m_.dtype(scratch_), lanes_}, 2);
        m_.store(scratch_, c, v, {inside});
        m_.set(sum,
               m_.apply(Op::Add, {sum_type, lanes_}, {m_.read(sum), value({sum_type, lanes_}, 1)}));
      });
    pool_.clear();
    kernel::inst::ReduceLanes reduce{m_.read(sum)};
    reduce.monoid = chance(2) ? Monoid::Sum : chance(2) ? Monoid::Max : Monoid::Prod;
    ValueId reduced = m_.let({{sum_type, 1}, reduce});
    has_scratch_ = uses_scratch;
    columns([&](Expr c, const Guard& inside) {
      pool_.push_back(m_.splat({sum_type, lanes_}, reduced));
      if (!second) {
        m_.store(workspace_, row_ * cols_expr_ + c, value({m_.dtype(workspace_), lanes_}, 2),
                 {inside});
        return;
      }
      for (int out : outputs_)
        put(out, c, inside);
    });
    has_scratch_ = false;
  }

  // The columns in vectors, with the condition that a lane is inside.
  template <class F>
  void columns(F body) {
    Bind bind = chance(4) ? Bind::Unroll : Bind::Serial;
    m_.loop(
        cols_expr_, lanes_,
        [&](Expr b) {
          column_ = b;
          std::size_t before = pool_.size();
          Expr c = lanes_ == 1 ? b : b + kernel::lane_variable(lanes_);
          body(c, Guard{c, 0, cols_expr_});
          pool_.resize(std::min(before, pool_.size()));
        },
        bind, static_cast<int>(pick(1, 4)));
  }

  void put(int out, const Expr& c, const Guard& inside) {
    ValueId v = value({m_.dtype(out), lanes_}, 3);
    Expr base = row_ * cols_expr_ * 2;
    std::vector<Guard> mask{inside};
    if (chance(4))
      mask.push_back({row_, pick(0, 1), pick(1, 6)});
    if (chance(4))
      mask.push_back({floormod(c, pick(1, 5)), 0, pick(1, 3)});
    switch (pick(0, 4)) {
    case 0:
      m_.store(out, base + c, v, mask,
               chance(2) ? kernel::CachePolicy::Streaming : kernel::CachePolicy::Default);
      break;
    case 1:
      m_.store(out, base + cols_expr_ - 1 - c, v, mask);
      break;
    case 2:
      m_.store(out, base + c * 2 + pick(0, 1), v, mask);
      break;
    case 3: // several lanes to one place: the last stays
      m_.store(out, base + floordiv(c, 3), v, mask);
      break;
    default:
      m_.when(
          {{column_, pick(0, 2), pick(3, 90)}},
          [&] {
            m_.store(out, base + column_, v, {{column_, 0, cols_expr_}});
          },
          [&] { m_.store(out, base + c, v, mask); });
    }
  }

  // A place in a buffer of `elements`, with what guards it.
  Expr place(const Expr& elements, std::vector<Guard>& mask) {
    Expr lane = lanes_ == 1 ? Expr(0) : kernel::lane_variable(lanes_);
    constexpr int strides[] = {1, 1, 1, 0, -1, 2, 3, -5};
    Expr e = row_ * pick(0, 9) + column_ * pick(0, 2) + lane * strides[pick(0, 7)] + pick(-2, 20);
    switch (pick(0, 5)) {
    case 0:
      e = floormod(e, pick(1, 17));
      break;
    case 1:
      e = floordiv(e, pick(1, 5)) + lane;
      break;
    case 2:
      e = max(min(e, elements - 1), 0);
      break;
    case 3: {
      ValueId index = m_.load(indices_, chance(3) ? 1 : lanes_, floormod(column_ + row_ * 3, 64));
      if (chance(2))
        index = m_.load(indices_, lanes_, floormod(column_ + lane, 128));
      e = kernel::value_symbol(index) + (chance(2) ? Expr(0) : row_);
      break;
    }
    default:
      break;
    }
    if (!(proves_less_equal(0, e) && proves_less(e, elements)))
      mask.push_back({e, 0, elements});
    if (chance(4))
      mask.push_back({column_ + lane, pick(0, 3), cols_expr_});
    return e;
  }

  ValueId leaf(Type type) {
    switch (pick(0, 6)) {
    case 0:
      return m_.constant(Scalar::of(type.dtype, static_cast<double>(pick(-40, 40)) / 4),
                         type.lanes);
    case 1: {
      Expr lane = lanes_ == 1 ? Expr(0) : kernel::lane_variable(lanes_);
      return cast(m_.index(row_ * 3 + column_ + lane * pick(0, 2) - floordiv(column_ + lane, 4),
                           {chance(2) ? DType::I64 : DType::F32, lanes_}),
                  type.dtype);
    }
    case 2: {
      int number = static_cast<int>(pick(0, 1));
      const DType scalar = m_.program.scalars[static_cast<std::size_t>(number)];
      return cast(m_.let({{scalar, lanes_}, kernel::inst::Argument{number}}), type.dtype);
    }
    case 3:
      if (has_scratch_) {
        Expr lane = lanes_ == 1 ? Expr(0) : kernel::lane_variable(lanes_);
        Expr e = chance(2) ? column_ + lane : cols_expr_ - 1 - column_ - lane;
        return cast(m_.load(scratch_, lanes_, e, {{e, 0, cols_expr_}}), type.dtype);
      }
      [[fallthrough]];
    case 4:
      if (after_barrier_) {
        Expr lane = lanes_ == 1 ? Expr(0) : kernel::lane_variable(lanes_);
        Expr e = (rows_expr_ - 1 - row_) * cols_expr_ + column_ + lane;
        return cast(m_.load(workspace_, lanes_, e, {{column_ + lane, 0, cols_expr_}}), type.dtype);
      }
      [[fallthrough]];
    default: {
      int from = inputs_[static_cast<std::size_t>(pick(0, 2))];
      std::vector<Guard> mask;
      Expr e = place(m_.program.buffers[static_cast<std::size_t>(from)].elements, mask);
      return cast(m_.load(from, lanes_, e, mask), type.dtype);
    }
    }
  }

  ValueId cast(ValueId v, DType to) {
    return m_.program.values[static_cast<std::size_t>(v)].dtype == to
               ? v
               : m_.apply(Op::Cast, {to, lanes_}, {v});
  }

  ValueId value(Type type, int depth) {
    if (!pool_.empty() && chance(3))
      return cast(
          pool_[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(pool_.size()) - 1))],
          type.dtype);
    if (depth == 0)
      return leaf(type);
    ValueId v = compute(type, depth);
    pool_.push_back(v);
    return v;
  }

  ValueId compute(Type type, int depth) {
    auto arg = [&](DType t) { return value({t, lanes_}, depth - 1); };
    DType t = type.dtype;
    switch (pick(0, 9)) {
    case 0: {
      DType other = kProgramTypes[pick(0, 10)];
      return cast(arg(other), t);
    }
    case 1: {
      ValueId condition = arg(DType::Bool);
      ValueId yes = arg(t);
      return m_.apply(Op::Select, type, {condition, yes, arg(t)});
    }
    case 2: {
      DType other = kProgramTypes[pick(0, 10)];
      ValueId left = arg(other);
      return cast(m_.apply(chance(2) ? Op::Lt : Op::Eq, {DType::Bool, lanes_}, {left, arg(other)}),
                  t);
    }
    case 3: {
      kernel::inst::Shuffle shuffle;
      ValueId left = arg(t);
      shuffle.args = {left, arg(t)};
      for (int i = 0; i < lanes_; ++i)
        shuffle.lanes_from.push_back(static_cast<int>(pick(0, 2 * lanes_ - 1)));
      return m_.let({type, shuffle});
    }
    case 4: {
      kernel::inst::Extract extract{arg(t)};
      extract.lane = static_cast<int>(pick(0, lanes_ - 1));
      return m_.splat(type, m_.let({{t, 1}, extract}));
    }
    case 5: {
      kernel::inst::Test test;
      Expr lane = lanes_ == 1 ? Expr(0) : kernel::lane_variable(lanes_);
      test.mask = {{column_ + lane * pick(0, 2), pick(0, 9), pick(5, 70)}, {row_, 0, pick(1, 5)}};
      return cast(m_.let({{DType::Bool, lanes_}, test}), t);
    }
    case 6:
      if (t == DType::F32 || t == DType::F64 || t == DType::I32) {
        ValueId x = arg(t);
        ValueId y = arg(t);
        // The interpreter's fused multiply-add is for floats.
        return t == DType::I32 ? m_.apply(Op::Mul, type, {x, y}) : m_.fma(x, y, arg(t));
      }
      [[fallthrough]];
    default:
      break;
    }
    if (t == DType::BF16 || t == DType::F16)
      return cast(compute({DType::F32, lanes_}, depth), t);
    Op op = is_float(t)        ? kExactFloatOps[pick(0, 7)]
            : t == DType::Bool ? kExactIntOps[pick(5, 7)]
                               : kExactIntOps[pick(0, 9)];
    ValueId left = arg(t);
    return info_of(op).arity == 1 ? m_.apply(op, type, {left}) : m_.apply(op, type, {left, arg(t)});
  }

  std::mt19937_64 random_;
  ProgramMaker m_;
  int lanes_;
  Expr rows_expr_ = 0, cols_expr_ = 0, row_ = 0, column_ = 0;
  std::vector<int> inputs_, outputs_;
  int indices_ = -1, workspace_ = -1, scratch_ = -1, scratch2_ = -1;
  bool has_scratch_ = false, after_barrier_ = false;
  std::vector<ValueId> pool_;
};

struct ProgramMemory {
  std::vector<std::vector<std::uint8_t>> buffers;
  std::vector<void*> pointers;

  ProgramMemory(const kernel::KernelProgram& program, const std::vector<std::int64_t>& dims,
                std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (const kernel::Buffer& b : program.buffers) {
      if (b.space == kernel::Space::Worker)
        continue;
      std::int64_t n = evaluate(b.elements, [&](const Expr& e) {
        auto at = std::find(program.dims.begin(), program.dims.end(), e);
        return dims[static_cast<std::size_t>(at - program.dims.begin())];
      });
      std::size_t size = size_of(b.dtype);
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n) * size + 64 + 64, 0xa5);
      for (std::int64_t i = 0; i < n; ++i) {
        double x = i % 11 == 0 ? std::vector<double>{0.0, -0.0, INFINITY, NAN, 1e30}[random() % 5]
                               : static_cast<double>(random() % 400) / 8 - 20;
        if (b.dtype == DType::I32 || b.dtype == DType::I64)
          x = static_cast<double>(random() % 120) - 8;
        std::uint64_t bits = Scalar::of(b.dtype, b.written ? 0.0 : x).bits;
        std::memcpy(&bytes[static_cast<std::size_t>(i) * size + offset(bytes)], &bits, size);
      }
      buffers.push_back(std::move(bytes));
    }
    for (auto& b : buffers)
      pointers.push_back(b.data() + offset(b));
  }
  static std::size_t offset(const std::vector<std::uint8_t>& bytes) {
    return (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
  }
};

bool same_number(DType type, const std::uint8_t* a, const std::uint8_t* b) {
  std::uint64_t x = 0, y = 0;
  std::memcpy(&x, a, size_of(type));
  std::memcpy(&y, b, size_of(type));
  if (x == y)
    return true;
  return is_float(type) && std::isnan(Scalar::from_bits(type, x).as_double()) &&
         std::isnan(Scalar::from_bits(type, y).as_double());
}

} // namespace

kernel::KernelProgram random_program(std::uint64_t seed) {
  return ProgramGenerator(seed).make();
}

void check_random_program(backend::Device& device, const std::string& where, std::uint64_t seed) {
  ProgramGenerator generator(seed);
  kernel::KernelProgram program = generator.make();
  kernel::verify(program);
  std::vector<std::int64_t> dims;
  if (!program.dims.empty())
    dims = {generator.rows_, generator.cols_};
  float f = -1.5f;
  std::uint32_t f_bits;
  std::memcpy(&f_bits, &f, 4);
  std::uint64_t scalars[] = {f_bits, 7};
  ProgramMemory expected(program, dims, seed), one(program, dims, seed), two(program, dims, seed);
  auto block = [&](ProgramMemory& m) {
    return kernel::ArgBlock{m.pointers.data(), dims.data(), scalars, nullptr, nullptr};
  };
  backend::reference::interpret(program, block(expected), {});
  auto artifact = device.compile(program);
  device.launch(*artifact, program, block(one), 1);
  device.launch(*artifact, program, block(two), 2);
  std::size_t number = 0;
  for (const kernel::Buffer& b : program.buffers) {
    if (b.space == kernel::Space::Worker)
      continue;
    std::size_t at = number++;
    if (b.space != kernel::Space::Argument)
      continue;
    std::size_t size = size_of(b.dtype);
    const auto* want = static_cast<const std::uint8_t*>(expected.pointers[at]);
    std::size_t bytes = expected.buffers[at].size() - 128;
    for (std::size_t i = 0; i + size <= bytes; i += size)
      for (auto* got : {&one, &two})
        ASSERT_TRUE(
            same_number(b.dtype, want + i, static_cast<const std::uint8_t*>(got->pointers[at]) + i))
            << where << ", seed " << seed << ", " << b.name << "[" << i / size << "] of "
            << name_of(b.dtype) << " on " << (got == &one ? 1 : 2) << " workers\n"
            << print(program);
  }
}

} // namespace egret::testing
