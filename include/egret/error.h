// Errors that egret throws: egret::Error for the caller's mistakes and for the environment,
// egret::InternalError for egret's own.
#pragma once

#include <stdexcept>
#include <string>

namespace egret {

/// What went wrong, so that a caller can react without parsing text.
enum class ErrorKind {
  Shape,  ///< shapes do not fit an operation
  DType,  ///< element types do not fit, or a backend lacks one
  Axis,   ///< an axis is out of range, repeated or missing
  Index,  ///< an index or slice is out of range
  Value,  ///< an argument's value is not allowed
  State,  ///< called at a time when it cannot be (a value read inside a traced function, say)
  Parse,  ///< text that does not follow its grammar; the message has line and column
  File,   ///< a file is missing, truncated or not what it claims to be; the message has the offset
  Memory, ///< memory that cannot be had, or a limit that was set
  Device, ///< a device is missing or failed
  Unsupported, ///< a request that egret understands and does not implement
};

/// The lower-case name of a kind, as messages show it: "shape", "dtype" ...
const char* name_of(ErrorKind kind) noexcept;

/// A mistake of the caller or a failure of the environment. what() starts with the name of the
/// operation or of the thing, as in "matmul: inner dimensions differ: [2,3] x [4,5] (3 != 4)".
class Error : public std::runtime_error {
public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

private:
  ErrorKind kind_;
};

/// A broken promise inside egret; please report it. Thrown instead of aborting.
class InternalError : public std::logic_error {
public:
  using std::logic_error::logic_error;
};

} // namespace egret
