#include "backend/common/launch_number.h"

#include "support/fail.h"

namespace egret::backend {

LaunchNumber::LaunchNumber(Expr e, const std::vector<Expr>& dims) : constant_(e.constant()) {
  if (!constant_) {
    expr_ = std::move(e);
    dims_ = dims;
  }
}

std::int64_t LaunchNumber::find(const std::int64_t* values) const {
  return evaluate(expr_, [&](const Expr& dim) {
    for (std::size_t i = 0; i < dims_.size(); ++i)
      if (dims_[i] == dim)
        return values[i];
    ensure(false, "launch: {} is no dim of the kernel", dim.str());
    return std::int64_t{0};
  });
}

} // namespace egret::backend
