#include "egret/error.h"

namespace egret {

const char* name_of(ErrorKind kind) noexcept {
  switch (kind) {
  case ErrorKind::Shape:
    return "shape";
  case ErrorKind::DType:
    return "dtype";
  case ErrorKind::Axis:
    return "axis";
  case ErrorKind::Index:
    return "index";
  case ErrorKind::Value:
    return "value";
  case ErrorKind::State:
    return "state";
  case ErrorKind::Parse:
    return "parse";
  case ErrorKind::File:
    return "file";
  case ErrorKind::Memory:
    return "memory";
  case ErrorKind::Device:
    return "device";
  case ErrorKind::Unsupported:
    return "unsupported";
  }
  return "unknown";
}

} // namespace egret
