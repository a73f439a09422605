#include "backend/c/language.h"

#include <fmt/format.h>

namespace egret::backend::c {

std::string CLanguage::call(std::string_view name, DType type, const std::string& args) const {
  return fmt::format("eg_{}_{}({})", name, name_of(type), args);
}

std::string CLanguage::from_bits(DType type, const std::string& bits) const {
  return type == DType::F32 ? fmt::format("eg_f32_of({})", bits)
                            : fmt::format("eg_f64_of((unsigned long long){})", bits);
}

std::string CLanguage::bits_of(DType type, const std::string& value) const {
  return fmt::format("eg_bits_{}({})", name_of(type), value);
}

std::string CLanguage::float_to_int(const std::string& value, DType, DType to) const {
  return fmt::format("eg_to_{}({})", name_of(to), value);
}

// Signed integers wrap by -fwrapv. A sum that is made unsigned and converted back loses lanes where
// GCC 12.1 and 12.2 make vectors of its loop (GCC bug 107212).
std::string CLanguage::wrapped(std::string_view sign, DType type, const std::string& a,
                               const std::string& b) const {
  if (!is_signed(type))
    return Language::wrapped(sign, type, a, b);
  return fmt::format("({})({} {} {})", clike::register_type(type), a, sign, b);
}

} // namespace egret::backend::c
