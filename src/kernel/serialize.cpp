#include "kernel/serialize.h"

#include "kernel/program_fields.h"
#include "kernel/region_fields.h"
#include "support/fail.h"
#include "support/hash.h"

#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>

namespace egret::kernel {
namespace {

// The last word of each enumeration: bytes may hold others.
constexpr int last(DType) {
  return kDTypes - 1;
}
constexpr int last(Op) {
  return kOps - 1;
}
constexpr int last(Monoid) {
  return static_cast<int>(Monoid::Linear);
}
constexpr int last(ExprKind) {
  return static_cast<int>(ExprKind::Max);
}
constexpr int last(Space) {
  return static_cast<int>(Space::Problem);
}
constexpr int last(IntrinsicId) {
  return kIntrinsics - 1;
}
constexpr int last(CachePolicy) {
  return static_cast<int>(CachePolicy::EvictLast);
}
constexpr int last(Bind) {
  return static_cast<int>(Bind::Lane);
}
constexpr int last(Role) {
  return static_cast<int>(Role::Scalar);
}
constexpr int last(Source) {
  return static_cast<int>(Source::Stage);
}
constexpr int last(BodyValue::Kind) {
  return static_cast<int>(BodyValue::Kind::Apply);
}
constexpr int last(StageKind) {
  return static_cast<int>(StageKind::Sort);
}
constexpr int last(LibraryProduct::Activation) {
  return static_cast<int>(LibraryProduct::Activation::Gelu);
}
constexpr int last(Combine) {
  return static_cast<int>(Combine::Max);
}

// Each struct's members are listed once, for both directions: an archive is called with each.

class Writer {
public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(const T& value) {
    const auto at = out_.size();
    out_.resize(at + sizeof value);
    std::memcpy(out_.data() + at, &value, sizeof value);
  }
  void operator()(const std::string& text) {
    (*this)(text.size());
    out_ += text;
  }
  void operator()(const Expr& e) {
    const ExprNode& node = e.node();
    auto [place, fresh] = numbers_.emplace(&node, std::uint32_t(numbers_.size()));
    (*this)(place->second);
    if (!fresh)
      return;
    (*this)(node.kind);
    (*this)(node.value);
    (*this)(node.name);
    if (node.kind == ExprKind::Symbol) {
      (*this)(node.lower);
      (*this)(node.upper);
      (*this)(node.divisor);
    }
    (*this)(node.operands);
    (*this)(node.coefficients);
  }
  template <class T>
  void operator()(const std::vector<T>& list) {
    (*this)(list.size());
    for (const T& item : list)
      (*this)(item);
  }
  template <class T>
  void operator()(const std::optional<T>& value) {
    (*this)(value.has_value());
    if (value)
      (*this)(*value);
  }
  template <class... T>
  void operator()(const std::variant<T...>& value) {
    (*this)(static_cast<std::uint8_t>(value.index()));
    std::visit([this](const auto& alternative) { (*this)(alternative); }, value);
  }
  template <class T>
  requires std::is_class_v<T>
  void operator()(const T& value) { members(*this, const_cast<T&>(value)); }
  void id(IdKind, int number) { (*this)(number); }
  void ids(IdKind, const std::vector<int>& list) { (*this)(list); }
  std::string take() { return std::move(out_); }

private:
  std::string out_;
  std::unordered_map<const ExprNode*, std::uint32_t> numbers_; ///< of expressions already written
};

class Reader {
public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_arithmetic_v<T>
  void operator()(T& value) { std::memcpy(&value, piece(sizeof value).data(), sizeof value); }
  void operator()(bool& value) { value = piece(1)[0] != 0; }
  template <class T>
  requires std::is_enum_v<T>
  void operator()(T& value) {
    std::underlying_type_t<T> word{};
    (*this)(word);
    if (word < 0 || word > last(T{}))
      fail(ErrorKind::File, "{} is no word of its enumeration", word);
    value = static_cast<T>(word);
  }
  void operator()(std::string& text) { text = piece(count()); }
  void operator()(Expr& e) {
    std::uint32_t number = 0;
    (*this)(number);
    if (number < expressions_.size()) {
      e = expressions_[number];
      return;
    }
    // Numbers were given before operands were written, so a place is kept until they are read.
    const Deeper deeper(*this);
    expressions_.emplace_back();
    const std::size_t own = expressions_.size() - 1;
    e = expressions_[own] = expression();
  }
  template <class T>
  void operator()(std::optional<T>& value) {
    bool there = false;
    (*this)(there);
    value.reset();
    if (there)
      (*this)(value.emplace());
  }
  template <class T>
  void operator()(std::vector<T>& list) {
    const Deeper deeper(*this);
    // Grows with what is read: a number alone cannot ask for memory.
    for (std::size_t left = count(); left > 0; --left) {
      list.emplace_back();
      (*this)(list.back());
    }
  }
  void operator()(std::vector<bool>&) = delete;
  template <class... T>
  void operator()(std::variant<T...>& value) {
    std::uint8_t word = 0;
    (*this)(word);
    if (word >= sizeof...(T))
      fail(ErrorKind::File, "{} is no word of its enumeration", word);
    alternative(value, word, std::index_sequence_for<T...>());
  }
  void id(IdKind, int& number) { (*this)(number); }
  void ids(IdKind, std::vector<int>& list) { (*this)(list); }
  template <class T>
  requires std::is_class_v<T>
  void operator()(T& value) { members(*this, value); }
  bool at_end() const { return bytes_.empty(); }

private:
  template <class V, std::size_t... I>
  void alternative(V& value, std::size_t word, std::index_sequence<I...>) {
    ((word == I ? (*this)(value.template emplace<I>()) : void()), ...);
  }
  // Blocks in blocks and expressions of expressions: what is nested deeper than any program would
  // only end the stack.
  struct Deeper {
    explicit Deeper(Reader& r) : reader(r) {
      if (++reader.depth_ > kDeepest)
        fail(ErrorKind::File, "nested deeper than {}", kDeepest);
    }
    ~Deeper() { --reader.depth_; }
    Reader& reader;
  };
  static constexpr int kDeepest = 2000;
  int depth_ = 0;

  std::string_view piece(std::size_t size) {
    if (size > bytes_.size())
      fail(ErrorKind::File, "{} bytes are missing", size - bytes_.size());
    const std::string_view result = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return result;
  }
  // Of things that take a byte each at the least.
  std::size_t count() {
    std::size_t n = 0;
    (*this)(n);
    if (n > bytes_.size())
      fail(ErrorKind::File, "{} of something in {} bytes", n, bytes_.size());
    return n;
  }
  Expr expression() {
    ExprKind kind{};
    std::int64_t value = 0, lower = 0, upper = 0, divisor = 1;
    std::string name;
    std::vector<Expr> operands;
    std::vector<std::int64_t> coefficients;
    (*this)(kind);
    (*this)(value);
    (*this)(name);
    if (kind == ExprKind::Symbol) {
      (*this)(lower);
      (*this)(upper);
      (*this)(divisor);
    }
    (*this)(operands);
    (*this)(coefficients);
    const std::size_t least =
        kind == ExprKind::Constant || kind == ExprKind::Symbol                         ? 0
        : kind == ExprKind::Axis || kind == ExprKind::Sum || kind == ExprKind::Product ? 1
                                                                                       : 2;
    if (operands.size() < least ||
        (kind == ExprKind::Sum && coefficients.size() != operands.size()))
      fail(ErrorKind::File, "an expression of {} operands", operands.size());
    switch (kind) {
    case ExprKind::Constant:
      return value;
    case ExprKind::Symbol:
      return Expr::symbol(name, lower, upper, divisor);
    case ExprKind::Axis:
      if (value < 0 || value > std::numeric_limits<int>::max())
        fail(ErrorKind::File, "axis {} of an expression", value);
      return Expr::axis(static_cast<int>(value), operands[0]);
    case ExprKind::Sum: {
      Expr sum = value;
      for (std::size_t i = 0; i < operands.size(); ++i)
        sum = sum + Expr(coefficients[i]) * operands[i];
      return sum;
    }
    case ExprKind::Product: {
      Expr product = operands[0];
      for (std::size_t i = 1; i < operands.size(); ++i)
        product = product * operands[i];
      return product;
    }
    case ExprKind::FloorDiv:
      return floordiv(operands[0], operands[1]);
    case ExprKind::FloorMod:
      return floormod(operands[0], operands[1]);
    case ExprKind::Min:
      return min(operands[0], operands[1]);
    case ExprKind::Max:
      return max(operands[0], operands[1]);
    }
    fail(ErrorKind::File, "an expression of an unknown kind");
  }

  std::string_view bytes_;
  std::vector<Expr> expressions_;
};

// --- programs

template <class A>
void members(A& a, Buffer& x) {
  all_members(a, x.name, x.dtype, x.space, x.argument, x.elements, x.read, x.written, x.alignment,
              x.aliased, x.settled);
}
template <class A>
void members(A& a, Launch& x) {
  all_members(a, x.workers, x.threads, x.resident, x.blocks_per_core, x.least_shared);
}
template <class A>
void members(A& a, TensorMap& x) {
  all_members(a, x.buffer, x.offset, x.extents, x.strides, x.box, x.swizzle);
}
template <class A>
void members(A& a, LibraryProduct::Matrix& x) {
  all_members(a, x.buffer, x.offset, x.batch, x.row, x.column);
}
template <class A>
void members(A& a, LibraryProduct& x) {
  all_members(a, x.left, x.right, x.result, x.batches, x.rows, x.columns, x.depth, x.bias,
              x.bias_offset, x.activation, x.workspace, x.rank);
}
template <class A>
void members(A& a, KernelProgram& x) {
  all_members(a, x.name, x.buffers, x.dims, x.scalars, x.variables, x.values, x.groups, x.body,
              x.launch, x.tensor_maps, x.uses_barrier, x.deterministic, x.product);
}

// --- the whole: a mark with the version, a hash of the rest, the rest

template <class T>
constexpr std::string_view kMark =
    std::is_same_v<T, Region> ? "egret region 1\n" : "egret kernel 7\n";

template <class T>
std::string bytes_of(const T& value) {
  Writer body;
  body(value);
  const std::string rest = body.take();
  Writer head;
  head(hash_text(rest));
  return std::string(kMark<T>) + head.take() + rest;
}

template <class T>
T of_bytes(std::string_view bytes) {
  if (!bytes.starts_with(kMark<T>))
    fail(ErrorKind::File, "kernel bytes: they do not begin with \"{}\"",
         kMark<T>.substr(0, kMark<T>.size() - 1));
  std::uint64_t hash = 0;
  if (bytes.size() < kMark<T>.size() + sizeof hash)
    fail(ErrorKind::File, "kernel bytes: their hash is missing");
  std::memcpy(&hash, bytes.data() + kMark<T>.size(), sizeof hash);
  const std::string_view rest = bytes.substr(kMark<T>.size() + sizeof hash);
  if (hash_text(rest) != hash)
    fail(ErrorKind::File, "kernel bytes: damaged: their hash differs");
  Reader reader(rest);
  T value;
  try {
    reader(value);
  } catch (const Error& error) { // an expression that cannot be is one of bytes that cannot be
    fail(ErrorKind::File, "kernel bytes: {}", error.what());
  } catch (const InternalError& error) {
    fail(ErrorKind::File, "kernel bytes: {}", error.what());
  }
  if (!reader.at_end())
    fail(ErrorKind::File, "kernel bytes: something follows them");
  return value;
}

} // namespace

std::string to_bytes(const KernelProgram& program) {
  return bytes_of(program);
}
std::string to_bytes(const Region& region) {
  return bytes_of(region);
}
KernelProgram program_of_bytes(std::string_view bytes) {
  return of_bytes<KernelProgram>(bytes);
}
Region region_of_bytes(std::string_view bytes) {
  return of_bytes<Region>(bytes);
}

} // namespace egret::kernel
