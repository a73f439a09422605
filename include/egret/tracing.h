// Whether values are known now.
#pragma once

namespace egret {

/// Whether this thread runs a function that compile() traces: what it computes has no values then,
/// and reading one is Error(State).
bool tracing() noexcept;

} // namespace egret
