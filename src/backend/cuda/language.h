// CUDA's own words for the operations that C-like languages write differently.
#pragma once

#include "backend/clike/language.h"

namespace egret::backend::cuda {

class CudaLanguage final : public clike::Language {
public:
  std::string call(std::string_view name, DType type, const std::string& args) const override;
  std::string from_bits(DType type, const std::string& bits) const override;
  std::string bits_of(DType type, const std::string& value) const override;

protected:
  std::string float_to_int(const std::string& value, DType from, DType to) const override;
};

} // namespace egret::backend::cuda
