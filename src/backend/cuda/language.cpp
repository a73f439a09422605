#include "backend/cuda/language.h"

#include <fmt/format.h>

namespace egret::backend::cuda {

// Overloads and templates, so that names need no types.
std::string CudaLanguage::call(std::string_view name, DType type, const std::string& args) const {
  if (name == "min" || (name == "max" && !is_float(type)))
    return fmt::format("{}({})", name, args);
  if (name == "pow")
    return fmt::format("{}({})", type == DType::F64 ? "pow" : "powf", args);
  if (name == "idiv" || name == "imod" || name == "shl" || name == "shr")
    return fmt::format("eg_{}<{}>({})", name, clike::register_type(type), args);
  return fmt::format("eg_{}({})", name, args);
}

std::string CudaLanguage::from_bits(DType type, const std::string& bits) const {
  return type == DType::F32 ? fmt::format("__uint_as_float({})", bits)
                            : fmt::format("__longlong_as_double((long long){})", bits);
}

std::string CudaLanguage::bits_of(DType type, const std::string& value) const {
  return fmt::format("{}({})", type == DType::F32 ? "__float_as_uint" : "__double_as_longlong",
                     value);
}

std::string CudaLanguage::float_to_int(const std::string& v, DType from, DType to) const {
  const char* f = from == DType::F64 ? "double" : "float";
  const bool is_sig = is_signed(to);
  const int bits = static_cast<int>(8 * size_of(to));
  if (bits < 32)
    return fmt::format("({})min(max(({} == {} ? __{}2int_rz({}) : 0), {}), {})",
                       clike::register_type(to), v, v, f, v, is_sig ? -(1 << (bits - 1)) : 0,
                       is_sig ? (1 << (bits - 1)) - 1 : (1 << bits) - 1);
  const char* kind = bits == 64 ? (is_sig ? "ll" : "ull") : (is_sig ? "int" : "uint");
  // A negative number is 0 of an unsigned type.
  const std::string fit = is_sig ? fmt::format("{0} == {0}", v) : fmt::format("{} > 0", v);
  return fmt::format("({} ? ({})__{}2{}_rz({}) : ({})0)", fit, clike::register_type(to), f, kind, v,
                     clike::register_type(to));
}

} // namespace egret::backend::cuda
