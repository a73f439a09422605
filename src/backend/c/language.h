// C's own words for the operations that C-like languages write differently: functions of the
// prelude with the type in their names, as C has no overloads.
#pragma once

#include "backend/clike/renderer.h"

namespace egret::backend::c {

class CLanguage final : public clike::Language {
public:
  std::string call(std::string_view name, DType type, const std::string& args) const override;
  std::string from_bits(DType type, const std::string& bits) const override;
  std::string bits_of(DType type, const std::string& value) const override;

protected:
  std::string float_to_int(const std::string& value, DType from, DType to) const override;
  std::string wrapped(std::string_view sign, DType type, const std::string& a,
                      const std::string& b) const override;
};

/// The functions that generated text may use, each between `#ifndef` and `#endif`, so that the
/// texts of several kernels make one file.
std::span<const clike::Piece> prelude_pieces();

} // namespace egret::backend::c
