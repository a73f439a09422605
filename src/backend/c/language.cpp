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

} // namespace egret::backend::c
