// The functions that generated C may use. Conversions of an unsigned to a signed integer wrap and
// shifts of negative numbers keep the sign, as in every C compiler of today.
#include "backend/c/language.h"

#include <fmt/format.h>

#include <cctype>
#include <deque>

namespace egret::backend::c {

namespace {

constexpr clike::Piece kPieces[] = {
    {"eg_f32_of eg_bits_f32", R"(
static inline float eg_f32_of(unsigned bits) {
  union { unsigned bits; float value; } both;
  both.bits = bits;
  return both.value;
}
static inline unsigned eg_bits_f32(float value) {
  union { unsigned bits; float value; } both;
  both.value = value;
  return both.bits;
}
)"},
    {"eg_f64_of eg_bits_f64", R"(
static inline double eg_f64_of(unsigned long long bits) {
  union { unsigned long long bits; double value; } both;
  both.bits = bits;
  return both.value;
}
static inline unsigned long long eg_bits_f64(double value) {
  union { unsigned long long bits; double value; } both;
  both.value = value;
  return both.bits;
}
)"},
    // Iterations shared out in contiguous pieces: where that of a worker begins.
    {"eg_share", R"(
static inline long long eg_share(long long count, int64_t worker, int64_t workers) {
  const long long each = count / workers, more = count % workers;
  return worker * each + (worker < more ? worker : more);
}
)"},
    // Rounded to nearest even, denormals kept.
    {"eg_from_bf16", R"(
static inline float eg_from_bf16(unsigned short v) { return eg_f32_of((unsigned)v << 16); }
)"},
    {"eg_to_bf16", R"(
static inline unsigned short eg_to_bf16(float x) {
  const unsigned bits = eg_bits_f32(x), nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return (unsigned short)((nan ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
)"},
    {"eg_from_f16", R"(
static inline float eg_from_f16(unsigned short v) {
  const unsigned size = (v & 0x7fffu) << 13, exponent = size & 0x0f800000u;
  unsigned r = size + (112u << 23);
  if (exponent == 0x0f800000u) r = (size + (224u << 23)) | (size > exponent ? 0x400000u : 0u);
  if (exponent == 0) r = eg_bits_f32(eg_f32_of(size + (113u << 23)) - 0x1p-14f);
  return eg_f32_of(r | (v & 0x8000u) << 16);
}
)"},
    {"eg_to_f16", R"(
static inline unsigned short eg_to_f16(float x) {
  const unsigned bits = eg_bits_f32(x), size = bits & 0x7fffffffu;
  unsigned r = (size + ((size >> 13) & 1u) + 0xfffu - (112u << 23)) >> 13;
  if (size < (113u << 23)) r = eg_bits_f32(eg_f32_of(size) + 0.5f) - 0x3f000000u;
  if (size >= 0x477ff000u) r = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (unsigned short)(r | ((bits >> 16) & 0x8000u));
}
)"},
    {"eg_from_f8e5m2", R"(
static inline float eg_from_f8e5m2(unsigned char v) { return eg_from_f16((unsigned short)(v << 8)); }
)"},
    // An f16 with the same exponent and mantissa bits is 2^8 times smaller.
    {"eg_from_f8e4m3", R"(
static inline float eg_from_f8e4m3(unsigned char v) {
  if ((v & 0x7f) == 0x7f) return eg_f32_of(0x7fc00000u);
  return eg_from_f16((unsigned short)((v & 0x80) << 8 | (v & 0x7f) << 7)) * 256.0f;
}
)"},
    // Rounded in the integer where the format has a unit of its own, by an addition where it is the
    // denormals'. e4m3 has no infinity: what is beyond 464 becomes its NaN.
    {"eg_to_f8e4m3", R"(
static inline unsigned char eg_to_f8e4m3(float x) {
  const unsigned bits = eg_bits_f32(x), size = bits & 0x7fffffffu;
  unsigned r = (size + ((size >> 20) & 1u) + 0x7ffffu - (120u << 23)) >> 20;
  if (size < (121u << 23)) r = eg_bits_f32(eg_f32_of(size) + 16384.0f) - 0x46800000u;
  if (size > 0x43e80000u) r = 0x7fu;
  return (unsigned char)(r | ((bits >> 24) & 0x80u));
}
)"},
    {"eg_to_f8e5m2", R"(
static inline unsigned char eg_to_f8e5m2(float x) {
  const unsigned bits = eg_bits_f32(x), size = bits & 0x7fffffffu;
  unsigned r = (size + ((size >> 21) & 1u) + 0xfffffu - (112u << 23)) >> 21;
  if (size < (113u << 23)) r = eg_bits_f32(eg_f32_of(size) + 128.0f) - 0x43000000u;
  if (size >= 0x47700000u) r = size > 0x7f800000u ? 0x7eu : 0x7cu;
  return (unsigned char)(r | ((bits >> 24) & 0x80u));
}
)"},
    // Towards zero with the last bit set when inexact, so that a later rounding is the only one.
    {"eg_odd_f64", R"(
static inline float eg_odd_f64(double x) {
  const float f = (float)x;
  if (x != x || (double)f == x) return f;
  return eg_f32_of((eg_bits_f32(f) - (fabs((double)f) > fabs(x))) | 1u);
}
)"},
    {"eg_odd_u32", R"(
static inline float eg_odd_u32(unsigned x) {
  const unsigned y = x & 511u ? (x & ~511u) | 256u : x;
  return (float)(x < 131072u ? x : y);
}
)"},
    {"eg_odd_i32", R"(
static inline float eg_odd_i32(int x) {
  const int y = x & 255 ? (x & ~255) | 128 : x;
  return (float)((unsigned)x + 65536u < 131072u ? x : y);
}
)"},
    {"eg_odd_u64", R"(
static inline float eg_odd_u64(unsigned long long x) {
  const float f = (float)x;
  const bool above = f >= 0x1p64f || (unsigned long long)f > x;
  if (!above && (unsigned long long)f == x) return f;
  return eg_f32_of((eg_bits_f32(f) - above) | 1u);
}
)"},
    {"eg_odd_i64", R"(
static inline float eg_odd_i64(long long x) {
  return x < 0 ? -eg_odd_u64(0ull - (unsigned long long)x) : eg_odd_u64((unsigned long long)x);
}
)"},
    // NaN if one is NaN, and -0 below 0.
    {"eg_max_f32", R"(
static inline float eg_max_f32(float a, float b) {
  return a > b || a != a || (a == b && eg_bits_f32(a) >> 31 == 0) ? a : b;
}
)"},
    {"eg_max_f64", R"(
static inline double eg_max_f64(double a, double b) {
  return a > b || a != a || (a == b && eg_bits_f64(a) >> 63 == 0) ? a : b;
}
)"},
    // The result has the sign of b.
    {"eg_mod_f32", R"(
static inline float eg_mod_f32(float a, float b) {
  const float r = fmodf(a, b);
  if (r == 0) return copysignf(0.0f, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
)"},
    {"eg_mod_f64", R"(
static inline double eg_mod_f64(double a, double b) {
  const double r = fmod(a, b);
  if (r == 0) return copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
)"},
    // C leaves open what signaling NaNs give where every other number gives 1.
    {"eg_pow_f32", R"(
static inline float eg_pow_f32(float a, float b) { return a == 1 || b == 0 ? 1 : powf(a, b); }
)"},
    {"eg_pow_f64", R"(
static inline double eg_pow_f64(double a, double b) { return a == 1 || b == 0 ? 1 : pow(a, b); }
)"},
    {"eg_sigmoid_f32", R"(
static inline float eg_sigmoid_f32(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}
)"},
    {"eg_sigmoid_f64", R"(
static inline double eg_sigmoid_f64(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
)"},
    // Of two i16 each in a and b: both products added.
    {"eg_add_products", R"(
static inline int eg_add_products(unsigned a, unsigned b, int c) {
  const int upper = (short)(a >> 16) * (short)(b >> 16), lower = (short)a * (short)b;
  return (int)((unsigned)c + (unsigned)upper + (unsigned)lower);
}
)"},
    // Of two bf16 each in a and b: the products of the upper halves, then of the lower ones added.
    {"eg_fma_pairs", R"(
static inline float eg_fma_pairs(unsigned a, unsigned b, float c) {
  const float upper = fmaf(eg_f32_of(a & 0xffff0000u), eg_f32_of(b & 0xffff0000u), c);
  return fmaf(eg_f32_of(a << 16), eg_f32_of(b << 16), upper);
}
)"},
};

/// Of each integer type; {t} its name, {c} in C, {u} the unsigned type of its arithmetic.
struct Family {
  const char* names;
  const char *of_signed, *of_unsigned;
};
constexpr Family kFamilies[] = {
    {"eg_min_{t}", R"(
static inline {c} eg_min_{t}({c} a, {c} b) {{ return a < b ? a : b; }}
)",
     ""},
    {"eg_max_{t}", R"(
static inline {c} eg_max_{t}({c} a, {c} b) {{ return a > b ? a : b; }}
)",
     ""},
    // Rounded down, b > 0.
    {"eg_floordiv_{t}", R"(
static inline {c} eg_floordiv_{t}({c} a, {c} b) {{
  const {c} q = a / b;
  return a % b < 0 ? q - 1 : q;
}}
)",
     ""},
    {"eg_floormod_{t}", R"(
static inline {c} eg_floormod_{t}({c} a, {c} b) {{
  const {c} r = a % b;
  return r < 0 ? r + b : r;
}}
)",
     ""},
    // Rounded down; 0 where b is 0; the lowest value by -1 wraps to itself.
    {"eg_idiv_{t}", R"(
static inline {c} eg_idiv_{t}({c} a, {c} b) {{
  if (b == 0) return 0;
  if (b == -1) return ({c})(0 - ({u})a);
  const {c} q = ({c})(a / b);
  return a % b != 0 && (a < 0) != (b < 0) ? ({c})(q - 1) : q;
}}
)",
     R"(
static inline {c} eg_idiv_{t}({c} a, {c} b) {{ return b == 0 ? 0 : ({c})(a / b); }}
)"},
    {"eg_imod_{t}", R"(
static inline {c} eg_imod_{t}({c} a, {c} b) {{
  return b == 0 ? 0 : ({c})(({u})a - ({u})eg_idiv_{t}(a, b) * ({u})b);
}}
)",
     R"(
static inline {c} eg_imod_{t}({c} a, {c} b) {{ return b == 0 ? 0 : ({c})(a % b); }}
)"},
    // Counts beyond the width shift everything out; negative ones are beyond it.
    {"eg_shl_{t}", R"(
static inline {c} eg_shl_{t}({c} a, {c} n) {{
  return ({u})n >= {w} ? 0 : ({c})(({u})a << n);
}}
)",
     R"(
static inline {c} eg_shl_{t}({c} a, {c} n) {{
  return n >= {w} ? 0 : ({c})(({u})a << n);
}}
)"},
    {"eg_shr_{t}", R"(
static inline {c} eg_shr_{t}({c} a, {c} n) {{ return ({c})(a >> (({u})n >= {w} ? {w} - 1 : n)); }}
)",
     R"(
static inline {c} eg_shr_{t}({c} a, {c} n) {{ return n >= {w} ? 0 : ({c})(a >> n); }}
)"},
    // Truncated; what is beyond the type is its nearest end, NaN is 0.
    {"eg_to_{t}", R"(
static inline {c} eg_to_{t}(double x) {{
  if (!(x >= -0x1p{h})) return x < 0 ? {low} : 0;
  return x < 0x1p{h} ? ({c})x : {high};
}}
)",
     R"(
static inline {c} eg_to_{t}(double x) {{
  return !(x > 0) ? 0 : x < 0x1p{w} ? ({c})x : {high};
}}
)"},
};

struct Ends {
  DType type;
  const char *low, *high;
};
constexpr Ends kIntegers[] = {
    {DType::I8, "SCHAR_MIN", "SCHAR_MAX"}, {DType::I16, "SHRT_MIN", "SHRT_MAX"},
    {DType::I32, "INT_MIN", "INT_MAX"},    {DType::I64, "LLONG_MIN", "LLONG_MAX"},
    {DType::U8, "0", "UCHAR_MAX"},         {DType::U16, "0", "USHRT_MAX"},
    {DType::U32, "0", "UINT_MAX"},         {DType::U64, "0", "ULLONG_MAX"}};

std::string filled(const char* text, const Ends& of) {
  const auto bits = 8 * size_of(of.type);
  return fmt::format(fmt::runtime(text), fmt::arg("t", name_of(of.type)),
                     fmt::arg("c", clike::register_type(of.type)),
                     fmt::arg("u", bits == 64 ? "unsigned long long" : "unsigned"),
                     fmt::arg("w", bits), fmt::arg("h", bits - 1), fmt::arg("low", of.low),
                     fmt::arg("high", of.high));
}

std::string guarded(std::string_view names, std::string_view text) {
  std::string name(names.substr(0, names.find(' ')));
  for (char& c : name)
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return fmt::format("#ifndef {0}\n#define {0}{1}#endif\n", name, text);
}

class Pieces {
public:
  Pieces() {
    for (const clike::Piece& piece : kPieces)
      add(std::string(piece.names), piece.text);
    for (const Family& family : kFamilies)
      for (const Ends& type : kIntegers)
        if (const char* text = is_signed(type.type) ? family.of_signed : family.of_unsigned; *text)
          add(filled(family.names, type), filled(text, type));
  }
  std::span<const clike::Piece> all() const { return pieces_; }

private:
  void add(std::string names, std::string_view text) {
    const std::string& name = kept_.emplace_back(std::move(names));
    pieces_.push_back({name, kept_.emplace_back(guarded(name, text))});
  }
  std::deque<std::string> kept_;
  std::vector<clike::Piece> pieces_;
};

} // namespace

std::span<const clike::Piece> prelude_pieces() {
  static const Pieces pieces;
  return pieces.all();
}

} // namespace egret::backend::c
