#include "ir/float_format.h"

#include <limits>

namespace egret {

double unit_roundoff(DType type) {
  switch (type) {
  case DType::F16:
    return 0x1p-11;
  case DType::BF16:
    return 0x1p-8;
  case DType::F8E4M3:
    return 0x1p-4;
  case DType::F8E5M2:
    return 0x1p-3;
  case DType::F32:
    return 0x1p-24;
  case DType::F64:
    return 0x1p-53;
  default:
    return 0;
  }
}

double largest(DType type) {
  switch (type) {
  case DType::F16:
    return 65504;
  case DType::BF16:
    return 0x1.fep127;
  case DType::F8E4M3:
    return 448;
  case DType::F8E5M2:
    return 57344;
  case DType::F32:
    return std::numeric_limits<float>::max();
  default:
    return std::numeric_limits<double>::max();
  }
}

double smallest_normal(DType type) {
  switch (type) {
  case DType::F16:
  case DType::F8E5M2:
    return 0x1p-14;
  case DType::F8E4M3:
    return 0x1p-6;
  case DType::BF16:
  case DType::F32:
    return 0x1p-126;
  default:
    return 0x1p-1022;
  }
}

} // namespace egret
